"""The Host of a real process: an asyncio loop (on uvloop if installed), one disk thread, real files.

Everything that a node takes from outside comes through here or through the simulator's VirtualHost, which has
the same methods; so the code above cannot tell a process from a simulation.

Invariants: callbacks run on the loop's thread only, and one that raises stops the node; work for the
disk runs in the order given, on one thread; `fatal` never returns to code that could still acknowledge
something.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import queue
import random
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Final, NoReturn, cast

from cluster.host.accepting import DESCRIPTORS_KEPT, Acceptor, listening_sockets
from cluster.host.fresh_ids import fresh_id
from cluster.host.jobs import RunningChild
from raftlog.env.errors import in_one_line
from raftlog.env.files import Files, OsFiles
from raftlog.env.host import Done, StreamHandler, TlsSettings

LOG = logging.getLogger("quorate.host")

FATAL_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits: a node that stopped itself because its state may be wrong."""

LOOPBACK: Final = "127.0.0.1"

CONNECT_TIMEOUT_S: Final = 2.0
"""Bound on a connection with its TLS handshake: live peers need less, and attempts must not pile up."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop, about twice as fast with small messages, or asyncio's own without uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _note_of_others(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failure in the loop that did not come from our callbacks; it ends with its connection.

    Examples are a stranger's TLS handshake and a task of the HTTP server.
    """
    error = context.get("exception")
    said = "" if error is None else f": {in_one_line(error)}"
    LOG.error("%s%s", context["message"], said)


def _tls_context(tls: TlsSettings | None, *, is_server: bool) -> ssl.SSLContext | None:
    """Return a context for TLS 1.3 with certificates on both sides; OSError names an unusable file."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(tls.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise OSError(f"cannot use {tls.ca_file} as a certificate authority: {_said(error)}") from None
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        raise OSError(f"cannot use {tls.cert_file} with {tls.key_file}: {_said(error)}") from None
    return context


def _said(error: OSError) -> str:
    """Return the reason that OpenSSL or the system gives, without the place in OpenSSL's source."""
    return getattr(error, "reason", None) or error.strerror or str(error)


def _waited_for_a_core_ns() -> int:
    """Return how long this thread was runnable but not running (Linux only, 0 elsewhere).

    On an overloaded machine or in a throttled container, a loop may have no time to spare though it computes
    little.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


class _DiskThread:
    """One thread that does blocking file work in order, so that a slow disk never stops the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        run: Callable[[Done, object | None, BaseException | None], None],
    ) -> None:
        self._loop = loop
        self._run_done = run
        self._work: queue.SimpleQueue[tuple[Callable[[], object], Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, fn: Callable[[], object], done: Done) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="quorate-disk", daemon=True)
            self._thread.start()
        self._work.put((fn, done))

    def close(self) -> None:
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            fn, done = item
            result: object | None = None
            error: BaseException | None = None
            try:
                result = fn()
            except BaseException as raised:
                error = raised
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._run_done, done, result, error)


class AsyncioHost:
    """`raftlog.env.host.Host` over an asyncio loop, which need not be running yet."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        files: Files | None = None,
        on_fatal: Callable[[str], None] | None = None,
        descriptors_kept: int = DESCRIPTORS_KEPT,
    ) -> None:
        """Make a host that reserves `descriptors_kept` descriptors, see `accepting`."""
        self.loop = loop
        self.files: Files = files if files is not None else OsFiles()
        self.rng = random.Random(os.urandom(16))
        self._on_fatal = on_fatal
        self._descriptors_kept = descriptors_kept
        self._disk = _DiskThread(loop, self.run)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._jobs: weakref.WeakSet[RunningChild] = weakref.WeakSet()
        loop.set_exception_handler(_note_of_others)

    def run(self, fn: Callable[..., object], *args: object) -> None:
        """Run a callback; an exception in it ends the node, whose state is then unknown."""
        try:
            fn(*args)
        except Exception as error:
            name = getattr(fn, "__qualname__", type(fn).__qualname__)
            self.fatal(f"{name} failed because of an internal error: {in_one_line(error)}")

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def busy_ms(self) -> float:
        return (time.thread_time_ns() + _waited_for_a_core_ns()) / 1_000_000

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        self.loop.call_soon(self.run, fn, *args)

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self.loop.call_later(max(0.0, delay_ms) / 1000, self.run, fn, *args)

    def fresh_id(self) -> str:
        return fresh_id()

    def fresh_uuid(self) -> bytes:
        return uuid.uuid4().bytes

    def run_on_disk(self, fn: Callable[[], object], done: Done) -> None:
        self._disk.put(fn, done)

    def spawn_job(
        self, argv_module: str, request: object, done: Done, *, low_priority: bool, deadline_ms: int
    ) -> RunningChild:
        """Run a module in a child process (`cluster.host.jobs`); `request` must be packable by msgpack."""
        reported = functools.partial(self.run, done)
        job = RunningChild(
            self.loop, argv_module, request, reported, low_priority=low_priority, deadline_ms=deadline_ms
        )
        self._jobs.add(job)
        return job

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], StreamHandler],
        done: Callable[[Acceptor | None, BaseException | None], None],
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Listen on `host` ("" = loopback only) and `port` (0 = any free one)."""

        async def go() -> None:
            try:
                context = _tls_context(tls, is_server=True)
                sockets = await listening_sockets(host or LOOPBACK, port)
            except OSError as error:
                done(None, error)
                return
            except ValueError as error:  # an impossible host name
                done(None, OSError(f"cannot listen on {host!r}: {error}"))
                return
            acceptor = Acceptor(
                self.loop,
                sockets,
                protocol_factory,
                tls=context,
                handshake_s=CONNECT_TIMEOUT_S,
                kept=self._descriptors_kept,
                run=self.run,
            )
            done(acceptor, None)

        self._start(go())

    def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], StreamHandler],
        done: Callable[[StreamHandler | None, BaseException | None], None],
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Connect within `CONNECT_TIMEOUT_S`; `done` is called after the handler's `connection_made`."""
        factory = cast("Callable[[], asyncio.BaseProtocol]", protocol_factory)

        async def go() -> None:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    _, handler = await self.loop.create_connection(
                        factory, host or LOOPBACK, port, ssl=_tls_context(tls, is_server=False)
                    )
            except TimeoutError:
                done(None, TimeoutError(f"no connection to {host}:{port} within {CONNECT_TIMEOUT_S:g} s"))
                return
            except OSError as error:
                done(None, error)
                return
            except ValueError as error:
                done(None, OSError(f"cannot connect to {host!r}: {error}"))
                return
            done(cast("StreamHandler", handler), None)

        self._start(go())

    def fatal(self, message: str) -> None:
        """Log the message and end the process at once with code 70, before anything else is acknowledged."""
        LOG.critical("%s", message)
        if self._on_fatal is not None:
            self._on_fatal(message)
            return
        self._exit()

    def close(self) -> None:
        """End the disk thread after its queued work, and cancel the jobs that still run."""
        for job in tuple(self._jobs):
            job.cancel()
        self._disk.close()

    def _start(self, coroutine: Any) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self.run, self._ended))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    @staticmethod
    def _exit() -> NoReturn:
        logging.shutdown()
        os._exit(FATAL_EXIT_CODE)
