"""One lasting fault ("weather") of the links between three nodes, and the service of every shard meanwhile.

A run begins with every shard on its preferred leader. Then the weather begins and a topic is created. For
each shard the run records the longest time without an acknowledged commit, how long a new group waited for
its partitions of the new topic, and how often leadership moved. After the weather the invariants of any run
are checked as well (`run`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from client.core.member.states import COORDINATOR_MOVED
from cluster.simulator import ConnectionGone, WireClient
from cluster.simulator.machine import KAFKA_PORT, address_of
from cluster.simulator.talking import CallbackConnection
from records import METADATA_SHARD, shard_of
from tests.simulated.actors import HEARTBEAT_MS, Actor, Reader, Tool
from tests.simulated.consumers import SimulatedConsumer
from tests.simulated.run import MACHINE, NUM_SHARDS, SESSION_MS, TOPICS, Run
from tests.support.requests import join_request
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

LASTS_MS: Final = 25_000.0
"""Many times the delay before balancing returns a shard to its preferred leader."""
TOOL_MS: Final = 100.0
"""Milliseconds between two commits to each shard."""
LATE: Final = "late"
TRY_AGAIN_MS: Final = 200.0

Weather = Callable[["Weathered"], None]
"""Begins a fault that lasts."""


def named(prefix: str, shard: int) -> str:
    """Return the name of a group in this shard."""
    names = (f"{prefix}-{number}" for number in range(1_000))
    return next(name for name in names if shard_of(name, NUM_SHARDS) == shard)


class Newcomer(Actor):
    """The first member of a new group, which sends its first heartbeat until it is given partitions.

    It needs no metadata, so that it tells how its coordinator serves it, not how soon
    a client finds a node that has the topic."""

    is_served = False

    def start(self, topic: str) -> None:
        self.topic = topic
        self.every(HEARTBEAT_MS, lambda: self.caller.with_coordinator(self._join))

    def _join(self, connection: CallbackConnection) -> None:
        request = join_request(self.group_id, self.name, self.topic)
        connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, self._told)

    def _told(self, answer: Any) -> None:
        if answer is None or answer.error_code in COORDINATOR_MOVED:
            self.caller.moved()
        elif not answer.error_code and answer.assignment is not None and answer.assignment.topic_partitions:
            self.is_served = True
            self.stop()


class Weathered(Run):
    """One run; `settings` are added to those of any run. Its results by shard are `outages_ms`, `served_ms`
    and `moves`; `created_ms` is how long it took to create the topic."""

    def __init__(self, weather: Weather, seed: int = 1, settings: dict[str, Any] | None = None) -> None:
        super().__init__(seed, settings=MACHINE["settings"] | (settings or {}))
        self._weather = weather
        self.outages_ms: dict[int, float] = {}
        self.served_ms: dict[int, float] = {}
        self.moves: dict[int, int] = {}
        self.created_ms = float("inf")

    @property
    def _bootstrap(self) -> list[tuple[str, int]]:
        return [(address_of(node_id), KAFKA_PORT) for node_id in self.cluster.machines]

    def _make(self, kind: type[Actor], prefix: str, shard: int, number: int = 0) -> Any:
        group_id, name = named(prefix, shard), f"{prefix}-of-{shard}-{number}"
        return kind(self.world, self.network, self.chronicle, name, group_id, self._bootstrap)

    def _actors(self, topic_ids: dict[str, bytes]) -> tuple[list[SimulatedConsumer], list[Actor]]:
        members: list[SimulatedConsumer] = []
        others: list[Actor] = []
        for shard in range(NUM_SHARDS):
            for number in range(2):
                member = self._make(SimulatedConsumer, "members", shard, number)
                member.start(topic_ids, SESSION_MS)
                members.append(member)
            tool = self._make(Tool, "tool", shard)
            tool.start("orders", TOPICS["orders"], TOOL_MS)
            others.append(tool)
            for prefix in ("members", "tool"):
                reader = self._make(Reader, prefix, shard, 9)
                reader.start()
                others.append(reader)
        return members, others

    def _disturb(self) -> None:
        self.cluster.settle()
        terms = self._terms()
        began_ms = self.world.now_ms
        self._weather(self)
        self.world.run_for(500)
        newcomers = self._newcomers(began_ms)
        end_ms = began_ms + LASTS_MS
        while self.world.now_ms < end_ms:
            self.world.run_for(50)
            for shard, newcomer in newcomers.items():
                if newcomer.is_served:
                    self.served_ms.setdefault(shard, self.world.now_ms - began_ms)
        self.moves = {shard: term - terms[shard] for shard, term in self._terms().items()}
        self._note_outages(began_ms, end_ms)
        self.network.heal_all()
        for newcomer in newcomers.values():
            newcomer.stop()

    def _terms(self) -> dict[int, int]:
        return {
            shard: max(self.cluster.runtime(node_id, shard).replica.term for node_id in self.cluster.machines)
            for shard in self.cluster.shards
        }

    def _newcomers(self, began_ms: float) -> dict[int, Newcomer]:
        """Create a topic, and in each shard a new member that subscribes to it."""
        if not self._create_late(began_ms):
            return {}
        found = {}
        for shard in range(NUM_SHARDS):
            found[shard] = self._make(Newcomer, "newcomer", shard)
            found[shard].start(LATE)
        return found

    def _create_late(self, began_ms: float) -> bool:
        """Create the topic at the metadata shard's leader, with retries."""
        topic = CreatableTopic(name=LATE, num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        while self.world.now_ms < began_ms + LASTS_MS / 2:
            leader = self.cluster.leader_of(METADATA_SHARD)
            if leader is not None:
                admin = WireClient(self.world, self.network, "late-admin", address=address_of(leader))
                try:
                    created = admin.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0]
                except (ConnectionGone, TimeoutError):
                    continue
                admin.close()
                if created.error_code == 0:
                    self.created_ms = self.world.now_ms - began_ms
                    return True
            self.world.run_for(TRY_AGAIN_MS)
        return False

    def _note_outages(self, began_ms: float, end_ms: float) -> None:
        """Record the longest time without an acknowledged commit for each shard."""
        acked = defaultdict(list)
        for write in self.chronicle.acknowledged:
            acked[shard_of(write.key[0], NUM_SHARDS)].append(write.acked_ms)
        for shard in range(NUM_SHARDS):
            times = sorted(at_ms for at_ms in acked[shard] if began_ms <= at_ms <= end_ms)
            spans = zip([began_ms, *times], [*times, end_ms], strict=True)
            self.outages_ms[shard] = max(later_ms - at_ms for at_ms, later_ms in spans)

    def say(self) -> str:
        """Return one line for reports."""
        longest = ", ".join(f"{shard}: {ms:.0f}" for shard, ms in self.outages_ms.items())
        served = ", ".join(f"{shard}: {ms:.0f}" for shard, ms in sorted(self.served_ms.items()))
        return (
            f"outages [{longest}] ms, a topic after {self.created_ms:.0f} ms, served to new groups after "
            f"[{served}] ms, terms {list(self.moves.values())}"
        )
