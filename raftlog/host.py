"""The one door to the outside: clock, timers, randomness, ids, files, disk thread, child processes, streams.

Everything in this package and in the node's runtime that needs something from the machine asks a `Host`
for it.  The real node stands on an event loop; the simulator is another Host with virtual time and a
simulated disk.  What must stay true of every Host:

- One loop, one thread: all callbacks run on the loop, one after another, never inside the call that
  registered them.  `run_on_disk` is the only thing that leaves the loop, and its `done` comes back on it.
- A callback must not raise: one that did not get to its end leaves a state that nobody thought of, so the
  Host stops the node (`fatal`), with a line that says where.  A `StreamHandler` sees to that itself, for it
  knows what of its work is a stranger's bytes, which end no more than the connection.
- `monotonic_ms` never goes back and may be called from the disk thread; `wall_ms` may jump.
- Randomness and ids come from the Host only, so that a seeded Host repeats a run exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from raftlog.files import Files

Done = Callable[[object | None, BaseException | None], None]
"""How asynchronous work reports: (result, None) on success, (None, error) on failure; exactly once."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Do not run it any more; harmless when it already ran."""


class Job(Protocol):
    """A child process at work."""

    def cancel(self) -> None:
        """Kill the child; `done` then reports an error unless it has reported already."""


class Stream(Protocol):
    """The sending side of a connection; the part of `asyncio.Transport` that is used here."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class StreamHandler(Protocol):
    """The receiving side of a connection; the shape of `asyncio.Protocol`."""

    def connection_made(self, transport: Stream) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """PEM files of mutual TLS: our certificate and its key, and the authority that signed both sides'."""

    cert_file: str
    key_file: str
    ca_file: str


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port it got (the one asked for, or the one given by the system for 0)."""

    def close(self) -> None:
        """Accept nothing more; what was accepted stays."""

    def cut(self, handler: StreamHandler) -> None:
        """End an accepted connection whose handler has not heard `connection_made` yet: with TLS it exists
        from the accept on, and has no stream before the end of the TLS handshake."""


class Host(Protocol):
    """What a node needs from the machine that it runs on."""

    @property
    def rng(self) -> random.Random:
        """The node's randomness (election jitter, back-off); seeded in the simulator."""

    @property
    def files(self) -> Files:
        """The file layer."""

    def monotonic_ms(self) -> float:
        """Milliseconds on a clock that never goes back; callable from the disk thread."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""

    def busy_ms(self) -> float:
        """How long the loop's thread has computed, or waited for a core to compute on; asked on the loop."""

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        """Run `fn` in the next turn of the loop, after what is already queued."""

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> Timer:
        """Run `fn` after `delay_ms`."""

    def fresh_id(self) -> str:
        """A random id as text (url-safe base64 of 16 bytes, as Kafka writes UUIDs)."""

    def fresh_uuid(self) -> bytes:
        """16 random bytes."""

    def run_on_disk(self, fn: Callable[[], object], done: Done) -> None:
        """Run `fn` on the node's one disk thread, in the order of the calls."""

    def spawn_job(
        self, argv_module: str, request: object, done: Done, *, low_priority: bool, deadline_ms: int
    ) -> Job:
        """Run `python -P -m argv_module` with `request` as msgpack on its stdin.

        The child's stdout is one msgpack value: the result.  A non-zero exit or `deadline_ms` passing is
        an error whose text holds the end of the child's stderr.  A simulating Host calls the module's
        `run(request, files)` instead of starting a process.
        """

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], StreamHandler],
        done: Callable[[Listener | None, BaseException | None], None],
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Listen; one handler per accepted connection, made when it is accepted.

        With `tls` only clients whose certificate is signed by the same authority reach `connection_made`;
        the handlers of others hear `connection_lost`. An address that is taken and files that are no
        certificates are OSErrors through `done`.
        """

    def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], StreamHandler],
        done: Callable[[StreamHandler | None, BaseException | None], None],
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Connect, within seconds; `done` follows the handler's `connection_made`.

        With `tls` the server's certificate must be signed by our authority; its name is not compared, because
        a node may move, and because the peers' own handshake says who it is.
        """

    def fatal(self, message: str) -> None:
        """Log `message` and stop the node at once (exit code 70); nothing more is acknowledged."""
