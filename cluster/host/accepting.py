"""Accepting connections, also from strangers, within a bound on their file descriptors.

The kernel gives every new descriptor the lowest free number. So the number of an accepted connection is a
lower bound for how many the process has, and one within the last `kept` of the limit is closed at once:
files, pipes and the node's own outgoing connections get a descriptor however many clients connect.

With TLS a handler exists from the accept on, but its `connection_made` comes after the handshake. So counting
handlers counts every connection; `cut` ends one whose handler has no transport to abort yet. Such a
connection keeps its descriptor until its handshake has failed, some turns of the loop later. A listener with
`CUT_MAX` of them accepts nothing meanwhile, and new connections wait in the kernel's backlog. Otherwise
strangers who connect faster than their handshakes fail would take all descriptors below those kept, and
clients of the other ports would be refused.

Invariants: nothing here waits in a busy loop; an accepted descriptor is closed or belongs to a
transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from raftlog.env.host import StreamHandler

LOG = logging.getLogger("quorate.host")

BACKLOG: Final = 1024
"""After a restart every client reconnects within a second; the default of 100 would refuse some."""

ACCEPTED_PER_TURN: Final = 16
"""Connections that one listening socket accepts before others get the loop."""

CUT_MAX: Final = 16
"""Cut connections of one listener that may still have their descriptors."""

REST_S: Final = 1.0
"""Pause after a failed accept: for want of descriptors it would fail again at once."""

TOLD_AGAIN_S: Final = 60.0
"""Seconds between two log lines about the same lasting trouble."""

DESCRIPTORS_KEPT: Final = 128
"""Descriptors reserved by default; never more than half of the limit."""


def _run(fn: Callable[..., object], *args: object) -> None:
    fn(*args)


class Acceptor:
    """The sockets that listen on one host and port; `raftlog.env.host.Listener`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        factory: Callable[[], StreamHandler],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
        kept: int = DESCRIPTORS_KEPT,
        run: Callable[..., None] = _run,
    ) -> None:
        """Listen. `run` calls the accepting function; the loop itself would only log its exceptions."""
        self._loop = loop
        self._run = run
        self._sockets = sockets
        self._factory = factory
        self._tls = tls
        self._handshake_s = handshake_s if tls is not None else None
        self._kept = kept
        self._opening: dict[StreamHandler, socket.socket] = {}
        self._cut: set[StreamHandler] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[str, float] = {}
        self.port: int = sockets[0].getsockname()[1]
        for listening in sockets:
            self._listen(listening)

    def close(self) -> None:
        """Accept nothing more; accepted connections stay."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []

    def cut(self, handler: StreamHandler) -> None:
        """End the connection of a handler whose `connection_made` has not been called yet."""
        accepted = self._opening.get(handler)
        if accepted is not None:
            self._cut.add(handler)
            with contextlib.suppress(OSError):  # the other end was faster
                accepted.shutdown(socket.SHUT_RDWR)

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._run, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has gone again
                continue
            except OSError as error:
                self._tell(f"cannot accept a connection on port {self.port}: {error.strerror}")
                self._loop.remove_reader(listening)
                self._loop.call_later(REST_S, self._listen, listening)
                return
            accepted.setblocking(False)
            if self._is_kept(accepted.fileno()):
                accepted.close()
                continue
            self._open(accepted)
            if not self._sockets:  # a handler has closed the listener
                return
            if len(self._cut) >= CUT_MAX:
                self._loop.remove_reader(listening)
                return

    def _is_kept(self, number: int) -> bool:
        """Whether a descriptor is one of those reserved for the node itself."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY or number < limit - min(self._kept, limit // 2):
            return False
        self._tell(
            f"refusing connections on port {self.port}: all of its {limit} file descriptors are in use, "
            "except those reserved for its files (ulimit -n, LimitNOFILE=)"
        )
        return True

    def _open(self, accepted: socket.socket) -> None:
        try:
            handler = self._factory()
        except BaseException:
            accepted.close()
            raise
        self._opening[handler] = accepted
        task = self._loop.create_task(self._opened(handler, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _opened(self, handler: StreamHandler, accepted: socket.socket) -> None:
        factory = cast("Callable[[], asyncio.Protocol]", lambda: handler)
        try:
            await self._loop.connect_accepted_socket(
                factory, accepted, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
            )
        except OSError as error:  # ssl.SSLError is one, and so is a handshake's timeout
            accepted.close()
            handler.connection_lost(error)
        finally:
            del self._opening[handler]
            self._end_of_cut(handler)

    def _end_of_cut(self, handler: StreamHandler) -> None:
        """Listen again when the last of the cut connections has ended."""
        if handler in self._cut:
            self._cut.remove(handler)
            if not self._cut:
                for listening in self._sockets:
                    self._listen(listening)

    def _tell(self, trouble: str) -> None:
        now_s = self._loop.time()
        if now_s - self._told.get(trouble, -TOLD_AGAIN_S) >= TOLD_AGAIN_S:
            self._told = {trouble: now_s}
            LOG.warning("%s", trouble)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return one socket for every address of `host`; OSError, or ValueError for an impossible name."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    why: OSError | None = None
    for family, address in dict.fromkeys((row[0], row[4]) for row in found):
        try:
            listening = socket.create_server(address, family=family, backlog=BACKLOG)
        except OSError as error:
            if why is None or error.errno != errno.EAFNOSUPPORT:  # a kernel without IPv6
                number = error.errno or errno.EINVAL
                why = OSError(number, f"cannot bind {address[:2]}: {os.strerror(number).lower()}")
            continue
        listening.setblocking(False)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by accepted connections
        sockets.append(listening)
    if why is None or (sockets and why.errno == errno.EAFNOSUPPORT):
        return sockets
    for listening in sockets:
        listening.close()
    raise why
