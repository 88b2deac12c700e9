"""The common part of all players: a whole cluster of three nodes in virtual time, and members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cluster.simulator import Network, SimCluster, VirtualHost, WireClient, World
from cluster.simulator.machine import KAFKA_PORT, Machine, address_of
from cluster.simulator.talking import Caller
from cluster.simulator.wiretap import Wiretap
from quorate.generations.contest import GROUP, HEARTBEAT_MS, SESSION_MS
from quorate.generations.ledger import Ledger, Part, RunFigures
from quorate.generations.schedule import (
    GrowTopic,
    Join,
    KillCoordinator,
    Leave,
    Schedule,
    ScheduledEvent,
    Slow,
)
from raftlog.env.simulated_files import SimFiles
from records import METADATA_SHARD, shard_of
from wire.apis import ApiKey
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

NUM_NODES: Final = 3
NUM_SHARDS: Final = 1
"""One group has one shard; more would only take CPU time."""
ADMIN_MS: Final = 5_000
RAFT_HEARTBEAT_MS: Final = 100
"""A third of the shortest election timeout. At the default of 50 ms an idle cluster takes twice the CPU time;
when a leader is missed, and who is elected, does not depend on it."""
SETTINGS: Final[dict[str, Any]] = {
    "group_consumer_session_timeout_ms": SESSION_MS,
    "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
    "group_consumer_heartbeat_interval_adaptive": False,
    "group_min_session_timeout_ms": SESSION_MS,
    "raft_heartbeat_ms": RAFT_HEARTBEAT_MS,
}


class Counted(Wiretap):
    """Counts the messages of all members."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def requested(self, api_key: int, frame: bytes) -> None:
        self._ledger.message(_name_of(api_key))

    def answered(self, api_key: int, api_version: int, sent_ms: float, payload: bytes) -> None:
        self._ledger.message(_name_of(api_key))


def _name_of(api_key: int) -> str:
    """Return the API's name as Kafka writes it."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


class PlayedMember(ABC):
    """One process with one consumer, on a machine of its own."""

    def __init__(self, stage: ClusterPlayer, name: str) -> None:
        self.stage = stage
        self.name = name
        self.host = VirtualHost(stage.world, stage.network, SimFiles(), name=name)
        self.slow_until_ms = 0.0
        self.is_leaving = False

    @abstractmethod
    def start(self) -> None:
        """Start the process."""

    def leave(self) -> None:
        """Close the consumer as soon as the program polls."""
        self.is_leaving = True

    def slow(self, for_ms: float) -> None:
        """Do not poll for so long."""
        self.slow_until_ms = self.host.monotonic_ms() + for_ms

    @property
    def slow_ms(self) -> float:
        """The time that the program stays slow, in ms; 0 if it is not."""
        return max(self.slow_until_ms - self.host.monotonic_ms(), 0.0)

    def works_on(self, first_items: Mapping[Part, int]) -> None:
        """Tell the ledger; see `Ledger.works_on`."""
        self.stage.ledger.works_on(self.name, first_items, self.stage.now_ms)

    def positions(self, parts: Iterable[Part]) -> dict[Part, int]:
        """Return the items that come next on partitions, for a commit."""
        return {part: self.stage.ledger.next_item(self.name, part, self.stage.now_ms) for part in parts}


class ClusterPlayer(ABC):
    """A `contest.Player` whose members talk to the product's own coordinator."""

    name: str
    is_variant: bool
    idea: str

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the nodes beside SETTINGS."""
        return {}

    @abstractmethod
    def new_member(self, name: str) -> PlayedMember:
        """Return a member that is not started."""

    @abstractmethod
    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        """See `contest.Player`."""

    def begin(self, schedule: Schedule, ledger: Ledger) -> None:
        self.ledger = ledger
        self.tap = Counted(ledger)
        self.world = World(schedule.seed)
        self.network = Network(self.world)
        settings = SETTINGS | self.settings
        self.cluster = SimCluster(
            self.world, self.network, num_nodes=NUM_NODES, num_shards=NUM_SHARDS, settings=settings
        )
        self.cluster.boot_until_ready()
        self.bootstrap = [(address_of(node_id), KAFKA_PORT) for node_id in self.cluster.machines]
        self.topics = dict(schedule.topics)
        self._create_topics()
        self.prepare()
        self.members: dict[str, PlayedMember] = {}
        self._begun_ms = self.world.now_ms

    def prepare(self) -> None:  # noqa: B027
        """Do to the cluster what the protocol needs beside topics; nothing by default."""

    @property
    def now_ms(self) -> float:
        return self.world.now_ms - self._begun_ms

    def run_until(self, at_ms: float) -> None:
        self.world.run_for(max(at_ms - self.now_ms, 0.0))

    def meet(self, event: ScheduledEvent) -> None:
        match event:
            case Join():
                member = self.members[event.member] = self.new_member(event.member)
                member.start()
            case Leave():
                self.members.pop(event.member).leave()
            case Slow():
                self.members[event.member].slow(event.for_ms)
            case GrowTopic():
                self._grow(event.topic, event.num_partitions)
            case KillCoordinator():
                self._kill_coordinator(event.for_ms)

    def caller(self, member: PlayedMember) -> Caller:
        """Return a member's way to the coordinator."""
        return Caller(member.host, member.name, GROUP, self.bootstrap, self.tap)

    def _kill_coordinator(self, for_ms: float) -> None:
        shard = shard_of(GROUP, len(self.cluster.shards) - 1)
        machine = self.cluster[self.cluster.wait_for_leader(shard)]
        machine.kill()
        self.world.at(self.world.now_ms + for_ms, self._boot, machine)

    def _boot(self, machine: Machine) -> None:
        machine.boot()

    def _create_topics(self) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=1)
            for name, num_partitions in self.topics.items()
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=ADMIN_MS)
        for created in self.admin().ask(ApiKey.CREATE_TOPICS, 7, request).topics:
            require(created.error_code, f"create {created.name}")

    def _grow(self, topic: str, num_partitions: int) -> None:
        self.topics[topic] = num_partitions
        wanted = CreatePartitionsTopic(name=topic, count=num_partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=ADMIN_MS)
        grown = self.admin().ask(ApiKey.CREATE_PARTITIONS, 3, request).results[0]
        require(grown.error_code, f"grow {topic}")

    def admin(self) -> WireClient:
        """Return a connection to the controller, whose messages are not the group's."""
        leader = self.cluster.wait_for_leader(METADATA_SHARD)
        return WireClient(self.world, self.network, "admin", address=address_of(leader))


def require(error_code: int, what: str) -> None:
    """Raise RuntimeError for an error of a request that prepares the cluster."""
    if error_code:
        raise RuntimeError(f"the simulated cluster did not {what}: error {error_code}")
