"""The only access to the outside: clock, timers, randomness, ids, files, disk thread, jobs, streams.

Everything in this package and in the node's runtime that needs something from the machine asks a `Host` for
it.  The real node runs on an event loop; the simulator is another Host with virtual time and a simulated
disk.  Invariants of every Host:

- One loop, one thread: all callbacks run on the loop, one after another, never inside the call that
  registered them.  `run_on_disk` is the only thing that leaves the loop, and its `done` runs on it again.
- A callback must not raise: one that fails half-way leaves an undefined state, so the Host stops the node
  (`fatal`) with a line that says where it failed.  A `StreamHandler` catches errors itself, because it knows
  which of its input is untrusted; bad input there ends the connection only.
- `monotonic_ms` never goes back and may be called from the disk thread; `wall_ms` may jump.
- Randomness and ids come from the Host only, so that a seeded Host repeats a run exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from raftlog.env.files import Files

Done = Callable[[object | None, BaseException | None], None]
"""Callback for the outcome of asynchronous work: (result, None) or (None, error), called exactly once."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Prevent the call from running; harmless when it has already run."""


class ChildProcess(Protocol):
    """A running child process."""

    def cancel(self) -> None:
        """Kill the child; `done` then reports an error unless it has been called already."""


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
    """PEM files for mutual TLS: our certificate, its key, and the authority that signed all certificates."""

    cert_file: str
    key_file: str
    ca_file: str


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port in use: the one asked for, or the one the system assigned for 0."""

    def close(self) -> None:
        """Accept no more connections; those already accepted stay open."""

    def cut(self, handler: StreamHandler) -> None:
        """Close an accepted connection whose handler has not received `connection_made` yet.

        With TLS a connection exists from the accept on, but has no stream until the TLS handshake ends.
        """


class Host(Protocol):
    """The services that a node needs from the machine that it runs on."""

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
        """Milliseconds that the loop's thread has computed or waited for a core; called on the loop."""

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
    ) -> ChildProcess:
        """Run `python -P -m argv_module` with `request` as msgpack on its stdin.

        The child writes its result to stdout as one msgpack value.  A non-zero exit, or `deadline_ms`
        passing, is an error whose text ends with the end of the child's stderr.  A simulating Host calls the
        module's `run(request, files)` instead of starting a process.
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
        """Listen, and make one handler per accepted connection at the time it is accepted.

        With `tls` only clients whose certificate is signed by the same authority reach `connection_made`; the
        handlers of others get `connection_lost`.  An address in use, and files that are not certificates, are
        reported as OSErrors through `done`.
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
        """Connect within seconds; `done` is called after the handler's `connection_made`.

        With `tls` the server's certificate must be signed by our authority.  Its name is not compared,
        because a node may move and the peers' own handshake identifies it.
        """

    def fatal(self, message: str) -> None:
        """Log `message` and stop the node at once (exit code 70); nothing more is acknowledged."""
