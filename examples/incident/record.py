"""Records the incident of this folder again: three real nodes and their clients, in virtual time.

    python -m examples.incident.record DIRECTORY

The invariant: the recording is deterministic. Nothing here reads a clock or draws a random number of its own,
so two recordings are identical, and the clock in the story says 03:12 when the group is unstable. The nodes
are the real ones, on simulated machines (`cluster.simulator`); their files are copied while they run, as an
engineer on call would do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from client.core.member.states import COORDINATOR_MOVED
from cluster.simulator import Machine, Network, SimCluster, WireClient, World
from cluster.simulator.machine import DATA_DIR, KAFKA_PORT, address_of
from cluster.simulator.talking import RETRY_MS, CallbackConnection
from cluster.simulator.world import START_WALL_MS
from raftlog.env.simulated_files import SimFiles
from tests.simulated.actors import Actor
from tests.simulated.chronicle import Chronicle
from tests.support.requests import commit_request, join_request
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

SEED: Final = 312
GROUP: Final = "billing"
TOPIC: Final = "orders"
SHARD: Final = 0

BEGIN: Final = datetime(2026, 3, 1, 3, 4, tzinfo=UTC)
"""The time on the machines' clocks when they are switched on."""

HEARTBEAT_MS: Final = 3_000.0
COMMIT_MS: Final = 12_000.0
FETCHED: Final = 250
"""Records that a consumer reads between two commits of a partition."""

REJOIN: Final = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
NOT_KEPT: Final = ("lock",)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.incident.record DIRECTORY")
    directory = Path(sys.argv[1])
    if directory.exists() and any(directory.iterdir()):
        sys.exit(f"{directory} is not empty")
    Incident().record(directory)
    print(f"recorded {directory}")


class Consumer(Actor):
    """One process of the application; while `is_in_a_batch`, it heartbeats but revokes nothing.

    Its heartbeats are written here, not by the product's client. That one leaves by itself when it has
    not polled for its rebalance timeout, as Kafka's does; this incident is one of a client that does not."""

    def start(self, topics: dict[str, bytes], offsets: dict[int, int]) -> None:
        """Start consuming; the group shares `offsets` by partition, so a new owner continues from them."""
        self.topics = topics
        self.offsets = offsets
        self._begin()
        self._is_asking = self.is_in_a_batch = False
        self.is_running = True
        self.beat()
        self.every(HEARTBEAT_MS, self.beat)
        self.every(COMMIT_MS, self._commit_all)

    def _begin(self) -> None:
        """Begin as a new process, with an id of its own."""
        self.member_id = self.host.fresh_id()
        self.epoch = 0
        self.must_say_all = True
        self.owned: set[tuple[bytes, int]] = set()

    def beat(self) -> None:
        is_lost = self.is_in_a_batch and self.epoch == 0  # joins again when it polls again
        if self.is_running and not is_lost and not self._is_asking:
            self._is_asking = True
            self.caller.with_coordinator(self._send)

    def _send(self, connection: CallbackConnection) -> None:
        """Send a heartbeat as Kafka's clients do: a full one after one without an answer."""
        member_id = self.member_id
        request = join_request(self.group_id, member_id, *self.topics)
        request.member_epoch = self.epoch
        request.topic_partitions = [
            TopicPartitions(
                topic_id=topic_id, partitions=sorted(number for one, number in self.owned if one == topic_id)
            )
            for topic_id in sorted({topic_id for topic_id, _ in self.owned})
        ]
        if self.epoch and not self.must_say_all:
            request.rebalance_timeout_ms = -1
            request.subscribed_topic_names = None
        self.must_say_all = True
        connection.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, lambda answer: self._told(member_id, answer)
        )

    def _told(self, member_id: str, answer: Any) -> None:
        self._is_asking = False
        code = None if answer is None else answer.error_code
        if code is None or code in COORDINATOR_MOVED:
            self.caller.moved()
        elif member_id != self.member_id:
            return  # it has left meanwhile
        elif code in REJOIN:
            self._own(set())
            self.epoch = 0
            if not self.is_in_a_batch:
                self.beat()
        elif not code:
            self.epoch = answer.member_epoch
            self.must_say_all = False
            if answer.assignment is not None:
                given = answer.assignment.topic_partitions
                self._own({(one.topic_id, partition) for one in given for partition in one.partitions})
                self.host.call_later(RETRY_MS * self.host.rng.random(), self.beat)

    def _own(self, owned: set[tuple[bytes, int]]) -> None:
        if not self.is_in_a_batch:
            self.owned = owned

    def crash(self) -> None:
        """Crash: the code raised, and the consumer is closed on the way out, which leaves the group."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1
        )
        self.is_running = False
        self._begin()
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, lambda _: None)
        )

    def restart(self) -> None:
        self.is_running = True
        self.beat()

    def begin_batch(self) -> None:
        self.is_in_a_batch = True

    def finish_batch(self) -> None:
        """Poll again: commit the finished work, and process what happened meanwhile."""
        self.is_in_a_batch = False
        self._commit_all()
        if not self.epoch:
            self._own(set())
        self.beat()

    def _commit_all(self) -> None:
        """Commit every partition in one request, as a consumer does after a poll."""
        if not (self.owned and self.is_running) or self.is_in_a_batch:
            return
        offsets = {number: self.offsets.get(number, 0) + FETCHED for _, number in sorted(self.owned)}
        if self.epoch:
            self.offsets.update(offsets)
        request = commit_request(
            self.group_id, offsets, topic=TOPIC, member_id=self.member_id, epoch=max(self.epoch, 1)
        )
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.OFFSET_COMMIT, 9, request, self._committed_all)
        )

    def _committed_all(self, answer: Any) -> None:
        if answer is None:
            self.caller.moved()


class Incident:
    """The cluster, the consumers, and the course of events."""

    def __init__(self) -> None:
        self.world = World(SEED)
        network = Network(self.world)
        skew_ms = int(BEGIN.timestamp() * 1000) - START_WALL_MS
        self.cluster = SimCluster(
            self.world,
            network,
            num_shards=1,
            settings={"leader_balance_delay_ms": 3_600_000},
            host_options={"wall_skew_ms": skew_ms},
        )
        self.network = network
        bootstrap = [(address_of(node_id), KAFKA_PORT) for node_id in self.cluster.machines]
        self.consumers = []
        for number in (1, 2, 3, 4):
            name = f"billing-{number}"
            network.addresses[name] = f"10.0.0.{10 + number}"
            self.consumers.append(Consumer(self.world, network, Chronicle(), name, GROUP, bootstrap))
        self.killed: Machine | None = None

    def record(self, directory: Path) -> None:
        """Play the incident and copy the nodes' files."""
        self.play()
        for machine in self.cluster.machines.values():
            copy(machine.copy_disk(), DATA_DIR, directory / machine.name)

    def play(self) -> None:
        self.cluster.boot_until_ready()
        self.topics = {TOPIC: self._create_topic(12)}
        self.offsets: dict[int, int] = {}
        for clock, what in self.story():
            self._run_until(clock)
            what()
        self._run_until("03:15:30")

    def story(self) -> list[tuple[str, Callable[[], object]]]:
        one, two, three, four = self.consumers
        return [
            ("03:04:20", lambda: one.start(self.topics, self.offsets)),
            ("03:04:22", lambda: two.start(self.topics, self.offsets)),
            ("03:04:25", lambda: three.start(self.topics, self.offsets)),
            ("03:05:10", lambda: four.start(self.topics, self.offsets)),
            ("03:07:30", lambda: self._grow_topic(16)),
            # A new release cannot read one order: billing-4 crashes on it, is restarted, and crashes again.
            ("03:08:40", four.crash),
            ("03:09:05", four.restart),
            ("03:09:31", four.crash),
            ("03:09:56", four.restart),
            ("03:10:22", four.crash),
            ("03:10:47", four.restart),
            ("03:11:13", four.crash),
            # billing-2 starts on a month's invoices, and does not poll before they are done.
            ("03:11:25", two.begin_batch),
            ("03:11:38", four.restart),
            ("03:11:51", self._kill_leader),
            ("03:13:20", two.finish_batch),
            ("03:13:45", self._restart_killed),
        ]

    def _run_until(self, clock: str) -> None:
        when = datetime.fromisoformat(f"{BEGIN:%Y-%m-%d}T{clock}+00:00")
        self.world.run_for((when - BEGIN).total_seconds() * 1000 - self.world.now_ms)

    # Faults of the cluster

    def _kill_leader(self) -> None:
        leader = self.cluster.leader_of(SHARD)
        assert leader is not None
        self.killed = self.cluster[leader]
        self.killed.kill()

    def _restart_killed(self) -> None:
        assert self.killed is not None
        self.killed.boot()

    def _admin(self) -> WireClient:
        leader = self.cluster.wait_for_leader(-1)
        return WireClient(self.world, self.network, "admin", address=address_of(leader))

    def _create_topic(self, num_partitions: int) -> bytes:
        topic = CreatableTopic(name=TOPIC, num_partitions=num_partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        created = self._admin().ask(ApiKey.CREATE_TOPICS, 7, request).topics[0]
        assert created.error_code == 0
        topic_id: bytes = created.topic_id
        return topic_id

    def _grow_topic(self, num_partitions: int) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=TOPIC, count=num_partitions, assignments=None)],
            timeout_ms=5_000,
        )
        grown = self._admin().ask(ApiKey.CREATE_PARTITIONS, 3, request).results[0]
        assert grown.error_code == 0, grown


def copy(disk: SimFiles, source: str, target: Path) -> None:
    """Copy a directory of a simulated disk to real files."""
    target.mkdir(parents=True)
    for name in disk.listdir(source):
        path = f"{source}/{name}"
        if disk.is_dir(path):
            copy(disk, path, target / name)
        elif name not in NOT_KEPT:
            (target / name).write_bytes(disk.read(path))


if __name__ == "__main__":
    main()
