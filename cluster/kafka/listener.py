"""The Kafka port of a node: accepts connections up to a bound, and bounds what all of them hold together.

It knows no API (see `dispatch`) and no socket: connections come as streams from the Host, so that the same
code runs in a process and in virtual time.

Invariants: a connection is in `connections` from `opened` until it is lost or dismissed; the memory
kept for all connections together stays within its bound, by closing those with the most; a connection that
waits for an answer, or has recently sent a request, is never closed to make room for another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.faults.rule import FaultRule
from cluster.faults.table import Fault
from cluster.kafka.connection import Connection
from cluster.kafka.context import ListenerContext
from cluster.kafka.ending import transactions_decided
from cluster.kafka.node_view import KafkaNode
from cluster.settings import Settings, is_loopback
from raftlog.env.host import Host, Listener, Timer
from records import TransactionValue

LOG = logging.getLogger("quorate.kafka")

ROOM_AFTER_CLOSING = 8
"""If all connections together keep too much, some are closed until this part of the bound is free. The
check visits every connection, so it must not recur with the next reply."""

FIRST_REQUEST_MS = 10_000
"""Time for the first whole request. Clients send it as soon as they are connected, and it is small."""

UNUSED_MS = 30_000
"""A connection that has sent no request for this long may be closed to make room. Members send one every few
seconds, and any other client reconnects when it needs to."""

DISMISSED_PER_TURN = 256
"""Silent connections closed in one turn of the loop: some milliseconds."""

SWEEPS_PER_IDLE_TIME = 4
"""Sweeps for idle connections within connections.max.idle.ms: they are closed at most a quarter late."""

SWEEP_MAX_MS = 30_000
"""Longest time between two sweeps."""


class KafkaListener:
    """Serves Kafka's protocol for `node` on `settings.kafka_host` and `kafka_port`."""

    def __init__(self, host: Host, node: KafkaNode, settings: Settings) -> None:
        self.context = ListenerContext(host, node, settings)
        self.settings = settings
        self.connections: dict[Connection, None] = {}  # in the order in which they were accepted
        self._host = host
        self._newcomers: dict[Connection, None] = {}  # those without a whole request, in the same order
        self._newcomers_timer: Timer | None = None
        self._unused_from_ms = 0.0  # no connection has been silent long enough before this time
        self._server: Listener | None = None
        self._sweep_timer: Timer | None = None
        self._stopped = False

    # Start and stop.

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Listen; `done(None)` once connections are accepted, `done(error)` if binding the address fails."""
        bound = self.settings.kafka_host

        def listening(server: Listener | None, error: BaseException | None) -> None:
            self._server = server
            if error is None and self._stopped:
                self.stop()
            elif error is None:
                self._sweep()
                if self.context.scratch_log is not None:
                    LOG.info("messages are kept in memory, and NOT DURABLE (scratch.log.enable)")
                if not is_loopback(bound):
                    LOG.warning("listening on %s without TLS or authentication (insecure = true)", bound)
            done(error)

        self._host.listen(bound, self.settings.kafka_port, lambda: Connection(self.context, self), listening)

    @property
    def address(self) -> tuple[str, int]:
        """The bound host and port; port 0 before `start` is done."""
        return self.settings.kafka_host, self._server.port if self._server else self.settings.kafka_port

    def stop(self) -> None:
        """Accept nothing more and close every connection, delivering the replies that are ready."""
        self._stopped = True
        if self._server is not None:
            self._server.close()
        for timer in (self._sweep_timer, self._newcomers_timer):
            if timer is not None:
                timer.cancel()
        self.close_connections()

    def close_connections(self) -> None:
        """Close every connection, so that clients look for their coordinator at once."""
        for connection in list(self.connections):
            connection.close("stopped")

    def close_users_of(self, shard: int) -> None:
        """Close the connections that used a shard that was handed over, once they have their replies.

        Clients notice that sooner than an error.
        """
        if shard < 0:  # no client is bound to the node that leads the metadata shard
            return
        users = [connection for connection in self.connections if connection.shards_used >> shard & 1]
        for connection in users:
            connection.drain("handed over")
        if users:
            LOG.info("shard %d was transferred: closing %d connections that used it", shard, len(users))

    def transactions_decided(self, values: list[TransactionValue]) -> None:
        """Follow the committed ends of transactions, on the node that leads the metadata shard."""
        transactions_decided(self.context, values)

    def add_fault(self, rule: FaultRule, fault_id: int | None = None) -> Fault:
        """Set a fault for all connections; raises FaultError."""
        fault = self.context.faults.add(rule, self._host.monotonic_ms(), fault_id)
        for connection in self.connections:
            connection.forget_cached()
        return fault

    # Called by connections.

    def opened(self, connection: Connection) -> bool:
        """Return whether the connection may stay.

        If there are too many, the oldest that has not sent a request yet is closed, or else the one that has
        been silent for longest, so that a new client can send its request.
        """
        is_full = len(self.connections) >= self.settings.max_connections
        if self._stopped or (is_full and not self._make_place()):
            self.context.counters.connections_closed["too many"] += 1
            self.context.limited_log.warning(
                "client",
                "refusing the connection of %s: %d are open (max.connections)",
                connection.peer,
                len(self.connections),
            )
            return False
        self.connections[connection] = self._newcomers[connection] = None
        if self._newcomers_timer is None:
            self._newcomers_timer = self._host.call_later(FIRST_REQUEST_MS, self._look_at_newcomers)
        self.context.counters.connections_opened += 1
        return True

    def asked(self, connection: Connection) -> None:
        """Remove a connection from those without a whole request."""
        self._newcomers.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._newcomers.pop(connection, None)
        self._note_kept(connection, 0)

    def keeps(self, connection: Connection, num_bytes: int) -> None:
        """Record how much the node keeps for this connection, and enforce the bounds."""
        self._note_kept(connection, num_bytes)
        bytes_max = self.settings.connection_buffered_max_bytes
        if num_bytes > bytes_max and connection.kept_now(is_whole=False) > bytes_max:
            connection.give_up("more than connection.buffered.max.bytes")
        elif self.context.kept_bytes > self.settings.listener_buffered_max_bytes:
            self._make_room()

    def _note_kept(self, connection: Connection, num_bytes: int) -> None:
        """Update the sum over all connections along with the number of one."""
        self.context.kept_bytes += num_bytes - connection.kept_bytes
        connection.kept_bytes = num_bytes

    def _make_room(self) -> None:
        """Count again, because replies leave without notice; then close the connections that keep most."""
        open_ones = [connection for connection in self.connections if not connection.closed]
        for connection in open_ones:
            self._note_kept(connection, connection.kept_now())
        enough_bytes = (
            self.settings.listener_buffered_max_bytes * (ROOM_AFTER_CLOSING - 1) // ROOM_AFTER_CLOSING
        )
        if self.context.kept_bytes <= enough_bytes:
            return
        open_ones.sort(key=lambda held: held.kept_bytes, reverse=True)
        for connection in open_ones:
            if self.context.kept_bytes <= enough_bytes:
                return
            connection.give_up("the most of all connections, whose total exceeds listener.buffered.max.bytes")
            self._note_kept(connection, 0)

    @property
    def num_unserved(self) -> int:
        """The number of requests of all connections that have not been served yet."""
        return sum(connection.num_unserved for connection in self.connections)

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

    def _dismiss(self, connection: Connection, kind: str, why: str) -> None:
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
            wait_ms = next(iter(self._newcomers)).active_ms - due_ms
            self._newcomers_timer = self._host.call_later(wait_ms, self._look_at_newcomers)

    def _sweep(self) -> None:
        idle_ms = self.settings.connections_max_idle_ms
        now_ms = self._host.monotonic_ms()
        for connection in list(self.connections):
            if not connection.is_waiting and now_ms - connection.active_ms > idle_ms:
                connection.close("idle")
        pause_ms = min(SWEEP_MAX_MS, idle_ms / SWEEPS_PER_IDLE_TIME)
        self._sweep_timer = self._host.call_later(pause_ms, self._sweep)
