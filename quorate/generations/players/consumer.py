"""The consumer group protocol (KIP-848), spoken by the product's own consumer, whole, in virtual time."""

from __future__ import annotations

from typing import Any, Final

from client.core.effects import Steps
from client.core.env import Environment
from client.core.errors import ConsumerError, FatalError
from client.core.rebalance import RebalanceCallbacks
from client.core.settings import read_settings
from client.core.types import TopicPartition
from cluster.simulator.client_connections import HostConnections
from cluster.simulator.virtual_consumer import Sleep, VirtualConsumer
from history.render import plural
from quorate.generations.contest import GROUP, METADATA_MS, POLL_INTERVAL_MS, POLL_MS
from quorate.generations.ledger import RunFigures
from quorate.generations.players.on_cluster import ClusterPlayer, PlayedMember

CLOSE_MS: Final = 5_000.0
SETTINGS: Final[dict[str, Any]] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "max_poll_interval_ms": POLL_INTERVAL_MS,
    "metadata_max_age_ms": METADATA_MS,
    "request_timeout_ms": 2_000,
    "default_api_timeout_ms": 4_000,
    "socket_connection_setup_timeout_ms": 2_000,
    "socket_connection_setup_timeout_max_ms": 2_000,
}


class ConsumerPlayer(ClusterPlayer):
    """KIP-848."""

    name = "KIP-848"
    idea = (
        "The coordinator computes who gets what, and each member hears its own change with its next "
        "heartbeat; only partitions that move stop."
    )

    why = (
        "It replaced the classic protocol so that no member waits for another: there is no barrier, and the "
        "coordinator alone knows who gets what."
    )

    def new_member(self, name: str) -> PlayedMember:
        return _Consumer(self, name)

    def sentence(self, figures: RunFigures) -> str:
        return (
            f"Only what moved stopped: {plural(figures.moves, 'move')}, "
            f"{plural(figures.needless_stops, 'needless stop')}, {figures.unowned_s:,.0f} "
            f"partition-seconds without work; who was slow for too long did {figures.doubled_items:,} items "
            "that others did too."
        )


class _Consumer(PlayedMember):
    """A consumer and its program: subscribe, poll, close. Nothing is fetched: there are no messages."""

    def start(self) -> None:
        hosts = ",".join(f"{host}:{port}" for host, port in self.stage.bootstrap)
        own = {"bootstrap_servers": hosts, "client_id": self.name, "group_id": GROUP}
        environment = Environment(
            self.host.monotonic_ms, self.host.wall_ms, self.host.rng.random, lambda: self.name
        )
        self._holds: set[TopicPartition] = set()
        self._ends = HostConnections(self.host, self.stage.tap)
        self._consumer = VirtualConsumer(
            read_settings(SETTINGS | own), environment, self._ends, self.host.call_later
        )
        self._ends.delegate = self._consumer.assembly.delegate
        self._ends.wake = self._consumer.wake
        self._application = self._consumer.application
        self._consumer.run(self._program(), self._ended)

    def _program(self) -> Steps[None]:
        callbacks = RebalanceCallbacks(self._on_assign, self._on_revoke, self._on_revoke)
        yield from self._application.subscribe(tuple(self.stage.topics), None, callbacks)
        while True:
            if self.slow_ms:
                yield Sleep(self.slow_ms)  # type: ignore[misc]
            if self.is_leaving:
                break
            try:
                yield from self._application.poll(1, POLL_MS)
            except FatalError:
                raise
            except ConsumerError:
                continue  # it says that something is late, and is raised once
        yield from self._application.close(CLOSE_MS)

    def _ended(self, _result: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, ConsumerError):
            raise error
        self._consumer.kill()
        self._ends.kill()
        self._holds.clear()
        self._tell()
        if error is not None and not self.is_leaving:
            self.start()

    def _on_assign(self, partitions: list[TopicPartition]) -> None:
        self._holds.update(partitions)
        self._tell()
        self._application.pause(partitions)

    def _on_revoke(self, partitions: list[TopicPartition]) -> None:
        self._holds.difference_update(partitions)
        self._tell()

    def _tell(self) -> None:
        self.works_on({(at.topic, at.partition) for at in self._holds})
