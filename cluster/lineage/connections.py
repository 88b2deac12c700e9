"""A listener of frames that are not Kafka's, and its connections: four bytes of size, then so many bytes.

The service knows what a frame means. Frames are served one after the other in shares of the loop's turns
(`cluster.runtime.slices`), none while the connection is busy. The bounds are those of the Kafka port
(`cluster.kafka.connection_table`).

Invariants: a frame that breaks the protocol ends its connection and no other; a service is told of each
connection's end once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Protocol

from cluster.kafka.connection import COUNTED_BYTES_MIN, LINGER_MS
from cluster.kafka.connection_table import ConnectionTable
from cluster.kafka.context import CLIENT_LINE_MS, CLIENT_LINES_AT_ONCE
from cluster.kafka.unserved import UnservedFrames
from cluster.runtime.slices import MORE, SOON, Slices
from cluster.settings import Settings
from raftlog.env.errors import in_one_line
from raftlog.env.host import Host, Listener, Stream, StreamHandler
from raftlog.env.rate_limit import RateLimitedLogger
from wire.errors import MalformedFrame, UnsupportedApi

LOG = logging.getLogger("quorate.lineage")

_NUMBERS: Final = count(1)
"""Numbers of connections, none of which is used again."""


class FrameService(Protocol):
    """The protocol that a listener's frames belong to."""

    name: str
    frame_bytes_max: int

    def serve(self, connection: FramedConnection, payload: bytes) -> None:
        """Serve a frame without its size. MalformedFrame and UnsupportedApi end the connection."""

    def lost(self, connection: FramedConnection) -> None:
        """Forget a connection that has ended."""


@dataclass(slots=True)
class FrameCounters:
    """Totals since the start of the node."""

    connections_opened: int = 0
    connections_closed: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class FramedContext:
    """The state that the connections of one listener share (`connection_table.TableContext`)."""

    def __init__(
        self, host: Host, settings: Settings, slices: Slices, observe_clock: Callable[[float], None]
    ) -> None:
        self.host = host
        self.settings = settings
        self.slices = slices
        self.observe_clock = observe_clock
        self.counters = FrameCounters()
        self.kept_bytes = 0
        self.limited_log = RateLimitedLogger(
            LOG, host.monotonic_ms, burst=CLIENT_LINES_AT_ONCE, repeat_ms=CLIENT_LINE_MS
        )


class FramedConnection(StreamHandler):
    """One connection. `number` is never used again; `is_busy` keeps its next frame from being served.

    `shards_used` has a bit for each shard that it used. One that `is_kept` is not idle while it is silent."""

    def __init__(
        self, context: FramedContext, table: ConnectionTable[FramedConnection], service: FrameService
    ) -> None:
        self.number = next(_NUMBERS)
        self.peer = "?"
        self.client_host = ""
        self.active_ms = 0.0
        self.kept_bytes = 0
        self.closed = False
        self.shards_used = 0
        self.is_busy = False
        self.is_kept = False
        self._context = context
        self._table = table
        self._service = service
        self._transport: Stream
        self._unserved = UnservedFrames(service.frame_bytes_max)
        self._is_new = True
        self._is_queued = False
        self._is_serving = False
        self._is_reading = True
        self._answers: list[bytes] = []
        """Frames sent while others are served; they leave in one write."""

    # Called by the host.

    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        peer: Any = transport.get_extra_info("peername")
        if peer:
            self.peer, self.client_host = f"{peer[0]}:{peer[1]}", f"/{peer[0]}"
        self.active_ms = self._context.host.monotonic_ms()
        if not self._table.opened(self):
            self.closed = True
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            if self._is_queued or self.is_busy:
                self._unserved.read_behind(data)
            elif self._unserved.read(data):
                self._serve_soon(SOON)
            self._count()
        except MalformedFrame as error:
            self.refuse("malformed", str(error))

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._unserved.drop()
        self._service.lost(self)
        self._table.lost(self)

    def pause_writing(self) -> None:
        """Do nothing: what is unread is counted (`kept_now`)."""

    def resume_writing(self) -> None:
        self._count()

    # Frames.

    def _serve_soon(self, lane: int) -> None:
        self._is_queued = True
        self._context.slices.submit(self, lane)

    is_long = False

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Serve frames until the share ends or the connection is busy (`slices.Work`)."""
        self._is_queued = False
        if self.closed:
            return now_ms
        self.active_ms = now_ms
        self._context.observe_clock(now_ms)
        try:
            is_open = self._serve(end_ms)
        except (MalformedFrame, UnsupportedApi) as error:
            self.refuse("malformed", str(error))
            is_open = False
        now_ms = self._context.host.monotonic_ms()
        if not is_open:
            return now_ms
        self._count()
        has_more = bool(self._unserved.frames or self._unserved.has_more)
        self._is_queued = has_more and not self.is_busy
        return None if self._is_queued else now_ms

    def _serve(self, end_ms: float) -> bool:
        """Serve frames; return whether the connection is still open."""
        frames = self._unserved.take()
        if frames and self._is_new:
            self._is_new = False
            self._table.asked(self)
        self._is_serving = True
        try:
            return self._serve_each(frames, end_ms)
        finally:
            self._is_serving = False
            self._write_answers()

    def _serve_each(self, frames: list[bytes], end_ms: float) -> bool:
        for number, payload in enumerate(frames):
            if self.is_busy or (number and self._context.host.monotonic_ms() >= end_ms):
                self._unserved.put_off(frames[number:])
                break
            self._service.serve(self, payload)
            if self.closed:
                return False
        return True

    def failed(self, error: Exception) -> None:
        """Close after an exception while frames were served (`slices.Work`)."""
        LOG.error("%s: a frame of %s failed", self._service.name, self.peer, exc_info=error)
        self.refuse("failed", f"internal error: {in_one_line(error)}")

    def send(self, data: bytes) -> None:
        """Send a frame, unless the connection is closed."""
        if self.closed:
            return
        if self._is_serving:
            self._answers.append(data)
            return
        self._transport.write(data)
        self._count()

    def _write_answers(self) -> None:
        if self._answers:
            answers, self._answers = self._answers, []
            self._transport.write(b"".join(answers))

    def go_on_serving(self) -> None:
        """Serve the next frames: the connection is not busy any more."""
        self.is_busy = False
        is_at_work = self._is_serving or self._is_queued
        if not (self.closed or is_at_work) and (self._unserved.frames or self._unserved.has_more):
            self._serve_soon(MORE)

    # Bounds.

    def kept_now(self, *, is_whole: bool = True) -> int:
        """Return the number of bytes read and not served, and of those sent that the client has not taken."""
        unread = self._transport.get_write_buffer_size()
        num_bytes = len(self._unserved.rest) + self._unserved.put_off_bytes + unread
        return num_bytes if num_bytes >= COUNTED_BYTES_MIN else 0

    def _count(self) -> None:
        num_bytes = self.kept_now()
        if num_bytes != self.kept_bytes:
            self._table.keeps(self, num_bytes)
        is_reading = (
            num_bytes < self._service.frame_bytes_max + self._context.settings.connection_buffered_pause_bytes
        )
        if self.closed or is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is outstanding, or the service watches it: such a connection is not idle."""
        return self.is_busy or self.is_kept

    # Closing.

    def give_up(self, how: str) -> None:
        """Close the connection at once, because the node keeps too much for it."""
        self.refuse("slow", f"the node keeps {self.kept_bytes} bytes for it, {how}", at_once=True)

    def refuse(self, why: str, message: str, *, at_once: bool = False) -> None:
        """Close because of what the client did; `why` is counted, `message` is logged."""
        if self.closed:
            return
        self._context.limited_log.warning(
            "client", "%s: closing the connection of %s: %s", self._service.name, self.peer, message
        )
        self.close(why, at_once=at_once)

    def close(self, why: str, *, at_once: bool = False) -> None:
        """Deliver what was sent, then close."""
        if self.closed:
            return
        self.closed = True
        self._context.counters.connections_closed[why] += 1
        self._write_answers()
        if self._is_new or at_once:
            self._transport.abort()
            return
        self._transport.close()
        self._context.host.call_later(LINGER_MS, self._transport.abort)


class FramedListener(ConnectionTable[FramedConnection]):
    """Listens for `service` on a port of `settings.kafka_host`; 0 is any free port."""

    def __init__(self, context: FramedContext, service: FrameService, port: int) -> None:
        super().__init__(context)
        self._context = context
        self._service = service
        self._port = port
        self._server: Listener | None = None

    @property
    def port(self) -> int:
        """The bound port; the one asked for before `start` is done."""
        return self._server.port if self._server is not None else self._port

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Listen; `done(None)` once connections are accepted, `done(error)` if binding the address fails."""

        def listening(server: Listener | None, error: BaseException | None) -> None:
            self._server = server
            if error is None and self._stopped:
                self.stop()
            elif error is None:
                self.sweep()
                LOG.info("%s is served at %s:%d", self._service.name, self._settings.kafka_host, self.port)
            done(error)

        make = self._make
        self._host.listen(self._settings.kafka_host, self._port, make, listening)

    def _make(self) -> FramedConnection:
        return FramedConnection(self._context, self, self._service)

    def stop(self) -> None:
        """Accept nothing more and close every connection."""
        if self._server is not None:
            self._server.close()
        super().stop()

    def close_users_of(self, shard: int) -> None:
        """Close the connections that used a shard that this node does not lead any more."""
        for connection in [one for one in self.connections if one.shards_used >> shard & 1]:
            connection.close("not the coordinator")
