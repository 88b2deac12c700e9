"""A node's directory as a node writes it: real replicas, real decisions, a clock that the test moves.

The runtime here is the least that the contracts ask for: handle, propose, apply; one group shard per
number and the metadata shard.  Everything is synchronous, so a story reads from top to bottom.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field

from coordinator.api import Context, Decision
from coordinator.catalog.shard import CatalogShard
from coordinator.limits import GroupSettings, SameForAll
from coordinator.shard import GroupShard
from raftlog.env.files import OsFiles
from raftlog.env.obstacles import Obstacle
from raftlog.env.settings import LogSettings
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.replica import Replica
from raftlog.storage.directory import NodeIdentity, format_node, open_node
from raftlog.storage.evidence import Evidence
from records import RawRecord, encode_entry, iter_records, shard_of
from records.ids import METADATA_SHARD
from tests.support.manual_host import ManualHost
from tests.support.memory_log import NOON_MS
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

SETTINGS = GroupSettings(session_timeout_ms=3_000)


class DiskHost(ManualHost):
    """A host with the real file system and ids as Kafka writes them, whose clock begins at noon."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(OsFiles(), seed)
        self.wall_offset_ms = NOON_MS

    def fresh_id(self) -> str:
        return urlsafe_b64encode(self.fresh_uuid()).rstrip(b"=").decode()

    def fresh_uuid(self) -> bytes:
        return self.rng.randbytes(16)


@dataclass(slots=True)
class ShardProjection:
    """One shard's projection behind its replica."""

    shard: GroupShard | CatalogShard
    replica: Replica | None = None

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        for raw in records:
            self.shard.apply(raw, header.last_index)

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        for raw in iter_records(body):
            self.shard.apply(raw, index)

    def committed(self, index: int) -> None: ...

    def ready(self, term: int) -> None: ...

    def deposed(self, reason: str) -> None: ...

    def observe_obstacles(self, now_ms: float) -> None: ...

    def obstacle(self) -> Obstacle:
        return Obstacle.NONE

    def state_hash(self) -> int:
        return self.shard.state_hash

    def applied_index(self) -> int:
        return self.shard.applied_index

    def catalog_version(self) -> int:
        return self.shard.newest_catalog_version if isinstance(self.shard, GroupShard) else 0


@dataclass(slots=True)
class GroupMember:
    """A client of one group, and what it was told."""

    node: DiskNode
    group_id: str
    client_id: str
    topics: list[str]
    member_id: str
    epoch: int = 0
    owned: dict[bytes, list[int]] = field(default_factory=dict)
    instance_id: str | None = None

    def join(self) -> GroupMember:
        self.epoch, self.owned = 0, {}
        self._send(full=True)
        return self

    def heartbeat(self) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that reports what the member owns, as a client does after a revocation."""
        return self._send(full=False)

    def leave(self, *, for_good: bool = True) -> None:
        self.epoch = -1 if for_good else -2
        self._send(full=False)

    def _send(self, *, full: bool) -> ConsumerGroupHeartbeatResponse:
        owned = [TopicPartitions(topic_id=t, partitions=p) for t, p in sorted(self.owned.items())]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if full else -1,
            subscribed_topic_names=self.topics if full else None,
            topic_partitions=None if self.epoch < 0 else owned,
        )
        reply = self.node.group_request(
            self.group_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, self.client_id
        )
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        if not reply.error_code:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.owned = {t.topic_id: list(t.partitions) for t in reply.assignment.topic_partitions}
        return reply

    def commit(self, offsets: dict[int, int], epoch: int | None = None) -> list[int]:
        """Commits partition -> offset of the member's first topic; the error codes."""
        parts = [
            OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata="")
            for p, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            topics=[OffsetCommitRequestTopic(name=self.topics[0], partitions=parts)],
        )
        reply = self.node.group_request(self.group_id, ApiKey.OFFSET_COMMIT, 9, request, self.client_id)
        codes = [part.error_code for topic in reply.topics for part in topic.partitions]  # type: ignore[attr-defined]
        for code in sorted({code for code in codes if code}):
            self.node.evidence.refused(
                api=ApiKey.OFFSET_COMMIT,
                error=code,
                reason=f"commit with member epoch {request.generation_id_or_member_epoch}",
                group_id=self.group_id,
                member_id=self.member_id,
                client=self.client_id,
            )
        return codes


class DiskNode:
    """A formatted and running node; `stop` and `start` again at will."""

    def __init__(
        self, path: str, *, num_shards: int = 2, seed: int = 1, log: LogSettings | None = None
    ) -> None:
        self.path = path
        self.num_shards = num_shards
        self.host = DiskHost(seed)
        self.log_settings = log or LogSettings()
        identity = NodeIdentity(cluster_id="test", node_id=1, incarnation="first", num_shards=num_shards)
        format_node(self.host.files, path, identity)
        self.start()

    def start(self) -> None:
        self.directory = open_node(self.host.files, self.path, self.host.fresh_id)
        self.evidence = Evidence(self.host, self.path, 1 << 20)
        self.machines: dict[int, ShardProjection] = {}
        for number in (METADATA_SHARD, *range(self.num_shards)):
            shard = CatalogShard() if number == METADATA_SHARD else GroupShard(number)
            machine = self.machines[number] = ShardProjection(shard)
            machine.replica = Replica(self.host, self.directory, number, machine, self.log_settings)
            machine.replica.start()
        for _ in range(100):
            self.host.advance(10)
            if all(machine.replica.is_ready for machine in self.machines.values() if machine.replica):
                break
        for machine in self.machines.values():
            assert machine.replica is not None
            assert machine.replica.is_ready
            if isinstance(machine.shard, GroupShard):
                machine.shard.on_ready(self.context(machine))
        self.work()

    def stop(self) -> None:
        for machine in self.machines.values():
            assert machine.replica is not None
            machine.replica.stop(lambda *_how: None)
        self.host.advance(100)
        self.evidence.close()
        self.directory.close()

    def crash(self) -> None:
        """The process dies: nothing more is written, no marker of a clean stop."""
        self.host.run()
        self.evidence.close()
        self.directory.close()
        host, self.host = self.host, DiskHost()
        self.host.now_ms, self.host.rng = host.now_ms, host.rng

    def context(self, machine: ShardProjection, client_id: str = "") -> Context:
        assert machine.replica is not None
        catalog = self.machines[METADATA_SHARD].shard
        assert isinstance(catalog, CatalogShard)
        return Context(
            monotonic_ms=self.host.monotonic_ms(),
            wall_ms=self.host.wall_ms(),
            next_index=machine.replica.next_index,
            catalog=catalog.view,
            settings=SameForAll(SETTINGS),
            fresh_id=self.host.fresh_id,
            fresh_uuid=self.host.fresh_uuid,
            client_id=client_id,
            client_host="/127.0.0.1",
            principal="ann",
        )

    def _append(self, machine: ShardProjection, decision: Decision) -> None:
        assert decision.error is None, decision.error
        if decision.records:
            assert decision.cause is not None
            assert machine.replica is not None
            body = encode_entry(decision.cause, decision.records)
            machine.replica.propose(body, len(decision.records), self.host.wall_ms())
        self.host.run()

    def group_request(
        self, group_id: str, api: ApiKey, version: int, request: object, client_id: str = ""
    ) -> object:
        machine = self.machines[shard_of(group_id, self.num_shards)]
        decision = machine.shard.handle(api, version, request, self.context(machine, client_id))
        self._append(machine, decision)
        return decision.reply

    def work(self) -> None:
        """Everything that is due now in the group shards."""
        for machine in self.machines.values():
            if isinstance(machine.shard, GroupShard):
                while (decision := machine.shard.next_work(self.context(machine))) is not None:
                    self._append(machine, decision)

    def pass_ms(self, span_ms: int, *alive: GroupMember) -> None:
        """Time passes in steps of at most 500 ms; members that are alive send a heartbeat in each."""
        while span_ms > 0:
            step = min(span_ms, 500)
            self.host.advance(step)
            span_ms -= step
            for member in alive:
                member.heartbeat()
            self.work()

    def create_topic(self, name: str, partitions: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        self._admin(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]), name)

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        self._admin(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[topic]), name)

    def _admin(self, api: ApiKey, version: int, request: object, topic: str) -> None:
        machine = self.machines[METADATA_SHARD]
        self._append(machine, machine.shard.handle(api, version, request, self.context(machine)))
        for other in self.machines.values():
            if isinstance(other.shard, GroupShard):
                other.shard.on_catalog_changed(self.context(other), [topic])
        self.work()

    def member(self, group_id: str, client_id: str, *topics: str) -> GroupMember:
        return GroupMember(self, group_id, client_id, list(topics), self.host.fresh_id())
