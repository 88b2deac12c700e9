"""The open connections of one listener, bounded in number and in what they keep together.

Invariants: a connection is in the table from `opened` until it is lost or dismissed; the memory kept for all
connections together stays within its bound, by closing those with the most; a connection that waits for an
answer, or has recently sent a request, is never closed to make room for another.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from cluster.settings import Settings
from raftlog.env.host import Host, Timer
from raftlog.env.rate_limit import RateLimitedLogger

ROOM_AFTER_CLOSING: Final = 8
"""If all connections together keep too much, some are closed until this part of the bound is free. The
check visits every connection, so it must not recur with the next reply."""

FIRST_REQUEST_MS: Final = 10_000
"""Time for the first whole request. Clients send it as soon as they are connected, and it is small."""

LOOK_AGAIN_MS: Final = 1.0
"""Shortest wait for the end of a connection's time: a difference of floats may be too small for the clock."""

UNUSED_MS: Final = 30_000
"""A connection that has sent no request for this long may be closed to make room. Members send one every few
seconds, and any other client reconnects when it needs to."""

DISMISSED_PER_TURN: Final = 256
"""Silent connections closed in one turn of the loop: some milliseconds."""

SWEEPS_PER_IDLE_TIME: Final = 4
"""Sweeps for idle connections within connections.max.idle.ms: they are closed at most a quarter late."""

SWEEP_MAX_MS: Final = 30_000
"""Longest time between two sweeps."""


class ConnectionCounts(Protocol):
    """Totals since the start of the node."""

    connections_opened: int
    connections_closed: dict[str, int]


class TableContext(Protocol):
    """The state that the connections of one listener share."""

    host: Host
    settings: Settings
    limited_log: RateLimitedLogger
    kept_bytes: int
    """Bytes kept for all connections together, as last reported by each."""

    @property
    def counters(self) -> ConnectionCounts: ...


class TabledConnection(Protocol):
    """A connection, as its listener bounds it."""

    peer: str
    active_ms: float
    closed: bool
    kept_bytes: int

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is outstanding: such a connection is not idle."""

    def kept_now(self, *, is_whole: bool = True) -> int:
        """Return the number of bytes that the node keeps for this connection."""

    def give_up(self, how: str) -> None:
        """Close the connection at once, with everything kept for it, because that is too much."""

    def refuse(self, why: str, message: str) -> None:
        """Close because of what the client did; `why` is counted, `message` is logged."""

    def close(self, why: str) -> None:
        """Deliver what is ready, then close."""


C = TypeVar("C", bound=TabledConnection)


class ConnectionTable(Generic[C]):
    """The connections of one listener; each reports to it."""

    def __init__(self, context: TableContext) -> None:
        self.connections: dict[C, None] = {}  # in the order in which they were accepted
        self._shared = context
        self._host = context.host
        self._settings = context.settings
        self._newcomers: dict[C, None] = {}  # those without a whole request, in the same order
        self._newcomers_timer: Timer | None = None
        self._sweep_timer: Timer | None = None
        self._unused_from_ms = 0.0  # no connection has been silent long enough before this time
        self._stopped = False

    def stop(self) -> None:
        """Take no more connections, and close every one, delivering the replies that are ready."""
        self._stopped = True
        for timer in (self._sweep_timer, self._newcomers_timer):
            if timer is not None:
                timer.cancel()
        self.close_connections()

    def close_connections(self) -> None:
        """Close every connection, so that clients look for their coordinator at once."""
        for connection in list(self.connections):
            connection.close("stopped")

    # Called by connections.

    def opened(self, connection: C) -> bool:
        """Return whether the connection may stay.

        If there are too many, the oldest that has not sent a request yet is closed, or else the one that has
        been silent for longest, so that a new client can send its request.
        """
        is_full = len(self.connections) >= self._settings.max_connections
        if self._stopped or (is_full and not self._make_place()):
            self._shared.counters.connections_closed["too many"] += 1
            self._shared.limited_log.warning(
                "client",
                "refusing the connection of %s: %d are open (max.connections)",
                connection.peer,
                len(self.connections),
            )
            return False
        self.connections[connection] = self._newcomers[connection] = None
        if self._newcomers_timer is None:
            self._newcomers_timer = self._host.call_later(FIRST_REQUEST_MS, self._look_at_newcomers)
        self._shared.counters.connections_opened += 1
        return True

    def asked(self, connection: C) -> None:
        """Remove a connection from those without a whole request."""
        self._newcomers.pop(connection, None)

    def lost(self, connection: C) -> None:
        self.connections.pop(connection, None)
        self._newcomers.pop(connection, None)
        self._note_kept(connection, 0)

    def keeps(self, connection: C, num_bytes: int) -> None:
        """Record how much the node keeps for this connection, and enforce the bounds."""
        self._note_kept(connection, num_bytes)
        bytes_max = self._settings.connection_buffered_max_bytes
        if num_bytes > bytes_max and connection.kept_now(is_whole=False) > bytes_max:
            connection.give_up("more than connection.buffered.max.bytes")
        elif self._shared.kept_bytes > self._settings.listener_buffered_max_bytes:
            self._make_room()

    def _note_kept(self, connection: C, num_bytes: int) -> None:
        """Update the sum over all connections along with the number of one."""
        self._shared.kept_bytes += num_bytes - connection.kept_bytes
        connection.kept_bytes = num_bytes

    def _make_room(self) -> None:
        """Count again, because replies leave without notice; then close the connections that keep most."""
        open_ones = [connection for connection in self.connections if not connection.closed]
        for connection in open_ones:
            self._note_kept(connection, connection.kept_now())
        enough_bytes = (
            self._settings.listener_buffered_max_bytes * (ROOM_AFTER_CLOSING - 1) // ROOM_AFTER_CLOSING
        )
        if self._shared.kept_bytes <= enough_bytes:
            return
        open_ones.sort(key=lambda held: held.kept_bytes, reverse=True)
        for connection in open_ones:
            if self._shared.kept_bytes <= enough_bytes:
                return
            connection.give_up("the most of all connections, whose total exceeds listener.buffered.max.bytes")
            self._note_kept(connection, 0)

    def _make_place(self) -> bool:
        """Make room for a connection by closing another; return whether that was possible."""
        why = f"{len(self.connections)} are open (max.connections)"
        if self._newcomers:
            self._dismiss_newcomer(why)
            return True
        now_ms = self._host.monotonic_ms()
        if now_ms < self._unused_from_ms:
            return False
        answered = (connection for connection in self.connections if not connection.is_waiting)
        oldest = min(answered, key=lambda connection: connection.active_ms, default=None)
        unused_ms = 0.0 if oldest is None else now_ms - oldest.active_ms
        if oldest is None or unused_ms < UNUSED_MS:
            self._unused_from_ms = now_ms - unused_ms + UNUSED_MS
            return False
        self._dismiss(oldest, "idle", f"it has sent no request for {unused_ms / 1000:.0f} s, and {why}")
        return True

    def _dismiss_newcomer(self, why: str) -> None:
        oldest = next(iter(self._newcomers))
        self._dismiss(oldest, "silent", f"it has not sent a complete request, and {why}")

    def _dismiss(self, connection: C, kind: str, why: str) -> None:
        """Close a connection and free its place at once."""
        del self.connections[connection]
        self._newcomers.pop(connection, None)
        connection.refuse(kind, why)

    def _look_at_newcomers(self) -> None:
        due_ms = self._host.monotonic_ms() - FIRST_REQUEST_MS
        for _ in range(DISMISSED_PER_TURN):
            if not self._newcomers or next(iter(self._newcomers)).active_ms > due_ms:
                break
            self._dismiss_newcomer(f"{FIRST_REQUEST_MS / 1000:g} s have passed")
        self._newcomers_timer = None
        if self._newcomers:
            wait_ms = max(next(iter(self._newcomers)).active_ms - due_ms, LOOK_AGAIN_MS)
            self._newcomers_timer = self._host.call_later(wait_ms, self._look_at_newcomers)

    def sweep(self) -> None:
        """Close idle connections, now and from now on."""
        idle_ms = self._settings.connections_max_idle_ms
        now_ms = self._host.monotonic_ms()
        for connection in list(self.connections):
            if not connection.is_waiting and now_ms - connection.active_ms > idle_ms:
                connection.close("idle")
        pause_ms = min(SWEEP_MAX_MS, idle_ms / SWEEPS_PER_IDLE_TIME)
        self._sweep_timer = self._host.call_later(pause_ms, self.sweep)
