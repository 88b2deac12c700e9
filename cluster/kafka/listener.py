"""The Kafka port of a node: accepts connections, up to the bounds of its table (`connection_table`).

It knows no API (see `dispatch`) and no socket: connections come as streams from the Host, so that the same
code runs in a process and in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.faults.rule import FaultRule
from cluster.faults.table import Fault
from cluster.kafka.connection import Connection
from cluster.kafka.connection_table import ConnectionTable
from cluster.kafka.context import ListenerContext
from cluster.kafka.ending import transactions_decided
from cluster.kafka.node_view import KafkaNode
from cluster.settings import Settings, is_loopback
from raftlog.env.host import Host, Listener
from records import TransactionValue

LOG = logging.getLogger("quorate.kafka")


class KafkaListener(ConnectionTable[Connection]):
    """Serves Kafka's protocol for `node` on `settings.kafka_host` and `kafka_port`."""

    def __init__(self, host: Host, node: KafkaNode, settings: Settings) -> None:
        self.context = ListenerContext(host, node, settings)
        super().__init__(self.context)
        self.settings = settings
        self._server: Listener | None = None

    # Start and stop.

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Listen; `done(None)` once connections are accepted, `done(error)` if binding the address fails."""
        bound = self.settings.kafka_host

        def listening(server: Listener | None, error: BaseException | None) -> None:
            self._server = server
            if error is None and self._stopped:
                self.stop()
            elif error is None:
                self.sweep()
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
        if self._server is not None:
            self._server.close()
        super().stop()

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

    @property
    def num_unserved(self) -> int:
        """The number of requests of all connections that have not been served yet."""
        return sum(connection.num_unserved for connection in self.connections)

    def transactions_decided(self, values: list[TransactionValue]) -> None:
        """Follow the committed ends of transactions, on the node that leads the metadata shard."""
        transactions_decided(self.context, values)

    def add_fault(self, rule: FaultRule, fault_id: int | None = None) -> Fault:
        """Set a fault for all connections; raises FaultError."""
        fault = self.context.faults.add(rule, self._host.monotonic_ms(), fault_id)
        for connection in self.connections:
            connection.forget_cached()
        return fault
