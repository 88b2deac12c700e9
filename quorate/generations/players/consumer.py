"""The consumer group protocol (KIP-848), spoken by the product's own consumer, whole, in virtual time.

Its program commits itself, by the rules of enable.auto.commit: in an interval, and in on_revoke. Automatic
commits are of what poll() handed out, and here it hands out nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from client.core.effects import Steps
from client.core.env import Environment
from client.core.errors import ConsumerError, FatalError
from client.core.rebalance import RebalanceCallbacks
from client.core.settings import read_settings
from client.core.types import OffsetAndMetadata, TopicPartition
from cluster.simulator.client_connections import HostConnections
from cluster.simulator.virtual_consumer import Sleep, VirtualConsumer
from history.render import plural
from quorate.generations.contest import COMMIT_MS, GROUP, METADATA_MS, POLL_INTERVAL_MS, POLL_MS
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
    is_variant = False
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

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        return (
            f"Only what moved stopped: {plural(figures.moves, 'move')}, "
            f"{plural(figures.needless_stops, 'needless stop')}, {figures.unowned_s:,.0f} "
            f"partition-seconds without work, and {figures.repeated_items:,} items repeated; who was slow "
            f"for too long did {figures.doubled_items:,} items that others did too."
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
        """The partitions that the program works on."""
        self._waits: set[TopicPartition] = set()
        """The partitions that it was given whose committed offsets it does not know yet."""
        self._commit_ms = self.host.monotonic_ms() + COMMIT_MS
        self._ends = HostConnections(self.host, self.stage.tap)
        self._consumer = VirtualConsumer(
            read_settings(SETTINGS | own), environment, self._ends, self.host.call_later
        )
        self._ends.delegate = self._consumer.assembly.delegate
        self._ends.wake = self._consumer.wake
        self._application = self._consumer.application
        self._consumer.run(self._program(), self._ended)

    def _program(self) -> Steps[None]:
        callbacks = RebalanceCallbacks(self._on_assign, self._on_revoke, self._on_lost)
        yield from self._application.subscribe(tuple(self.stage.topics), None, callbacks)
        while True:
            if self.slow_ms:
                yield Sleep(self.slow_ms)  # type: ignore[misc]
            if self.is_leaving:
                break
            try:
                yield from self._application.poll(1, POLL_MS)
                yield from self._begin()
            except FatalError:
                raise
            except ConsumerError:
                continue  # it says that something is late, and is raised once
            self._commit_periodically()
        yield from self._application.close(CLOSE_MS)

    def _ended(self, _result: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, ConsumerError):
            raise error
        self._consumer.kill()
        self._ends.kill()
        self._works_on({})
        if error is not None and not self.is_leaving:
            self.start()

    def _on_assign(self, partitions: list[TopicPartition]) -> Steps[None]:
        self._application.pause(partitions)
        self._waits.update(partitions)
        yield from self._begin()

    def _begin(self) -> Steps[None]:
        """Begin at the committed offsets; after an error the next poll tries again."""
        if not self._waits:
            return
        try:
            committed = yield from self._application.inquiries.committed(self._waits.copy(), None)
        except FatalError:
            raise
        except ConsumerError:
            return
        is_there = self._waits & self._application.assignment
        self._waits -= committed.keys()
        offsets = {at: 0 if one is None else one.offset for at, one in committed.items() if at in is_there}
        self._application.seek(offsets)
        self._works_on(dict.fromkeys(self._holds, 0) | offsets)

    def _on_revoke(self, partitions: list[TopicPartition]) -> Steps[None]:
        offsets = self._offsets(self._holds.intersection(partitions))
        self._on_lost(partitions)
        try:
            yield from self._application.commit(offsets, None)
        except FatalError:
            raise
        except ConsumerError:
            return  # the next owner does the work again

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        self._waits.difference_update(partitions)
        self._works_on(dict.fromkeys(self._holds.difference(partitions), 0))

    def _commit_periodically(self) -> None:
        now_ms = self.host.monotonic_ms()
        if now_ms >= self._commit_ms and self._holds:
            self._commit_ms = now_ms + COMMIT_MS
            self._application.commit_async(self._offsets(self._holds), lambda error, offsets: None)

    def _offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        positions = self.positions((at.topic, at.partition) for at in partitions)
        return {TopicPartition(*part): OffsetAndMetadata(offset) for part, offset in positions.items()}

    def _works_on(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._holds = {*offsets}
        self.works_on({(at.topic, at.partition): offset for at, offset in offsets.items()})
