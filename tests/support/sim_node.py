"""One whole node in virtual time, and consumers on the wire that send heartbeats when told."""

from __future__ import annotations

from typing import Any

from cluster.node import Node
from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.simulator import Machine, Network, WireClient, World
from coordinator.catalog.shard import CatalogShard
from coordinator.shard import GroupShard
from raftlog.storage.frames import frames_in
from records import iter_records
from tests.support.requests import commit_request, join_request
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

GROUPS = ["billing", "audit", "search", "mail", "stock"]


class Consumer:
    """A member that does what a consumer does, one heartbeat at a time."""

    instance_id: str | None = None

    def __init__(self, client: WireClient, group_id: str, member_id: str, *topics: str) -> None:
        self.client = client
        self.group_id = group_id
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def next_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return a join at first; afterwards a heartbeat that reports the owned partitions."""
        if self.epoch == 0:
            request = join_request(self.group_id, self.member_id, *self.topics)
            request.instance_id = self.instance_id
            return request
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=self.owned,
        )

    def heartbeat(self) -> Any:
        """Send the next heartbeat and adopt its reply."""
        answer = self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, self.next_heartbeat())
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    TopicPartitions(topic_id=given.topic_id, partitions=list(given.partitions))
                    for given in answer.assignment.topic_partitions
                ]
        return answer

    def leave(self, *, for_good: bool = True) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=-1 if for_good else -2,
            instance_id=self.instance_id,
        )
        return self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for given in self.owned for partition in given.partitions)


class SimNode:
    """One machine, started and ready, with a topic of 12 partitions."""

    def __init__(self, seed: int = 1, *, topics: dict[str, int] | None = None, **machine: Any) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.machine = Machine(self.world, self.network, **machine)
        self.node: Node = self.machine.boot_until_ready()
        self.admin = self.client("admin")
        for name, num_partitions in (topics if topics is not None else {"orders": 12}).items():
            assert self.create_topic(name, num_partitions) == 0

    def client(self, name: str) -> WireClient:
        return WireClient(self.world, self.network, name)

    def consumer(self, name: str, group_id: str = "billing", *topics: str) -> Consumer:
        return Consumer(self.client(name), group_id, name, *(topics or ("orders",)))

    def create_topic(self, name: str, num_partitions: int) -> int:
        topic = CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=1)
        answer = self.admin.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        return int(answer.topics[0].error_code)

    def grow_topic(self, name: str, num_partitions: int) -> int:
        topic = CreatePartitionsTopic(name=name, count=num_partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=5000)
        return int(self.admin.ask(ApiKey.CREATE_PARTITIONS, 3, request).results[0].error_code)

    def delete_topic(self, name: str) -> int:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        return int(self.admin.ask(ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code)

    def commit(self, client: WireClient, group_id: str, offsets: dict[int, int], **member: Any) -> list[int]:
        """Return the error codes by partition, in order."""
        answer = client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(group_id, offsets, **member))
        return [part.error_code for topic in answer.topics for part in topic.partitions]

    def fetch(self, client: WireClient, group_id: str) -> dict[int, int]:
        """Every committed offset of the group by partition."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        group = client.ask(ApiKey.OFFSET_FETCH, 9, request).groups[0]
        assert group.error_code == 0, group.error_code
        return {
            part.partition_index: part.committed_offset for topic in group.topics for part in topic.partitions
        }

    def hashes(self) -> list[int]:
        """The state hash of every shard, metadata first, with the term start left out of account."""
        shards: list[Any] = [self.node.metadata, *self.node.shards]
        return [runtime.machine.state_hash for runtime in shards]

    def reboot(self) -> None:
        self.node = self.machine.boot_until_ready()


def replayed(runtime: AnyShardRuntime, up_to: int) -> GroupShard | CatalogShard:
    """A fresh projection of the shard's log."""
    fresh = GroupShard(runtime.shard) if isinstance(runtime.machine, GroupShard) else CatalogShard()
    index = 1
    while index <= up_to:
        for frame in frames_in(runtime.replica.log.read(index, 1 << 20)):
            index = frame.index + 1
            if frame.index <= up_to:
                for raw in iter_records(bytes(frame.body)):
                    fresh.apply(raw, frame.index)
    return fresh


def assert_kept(acknowledged: dict[int, int], found: dict[int, int], what: object = "") -> None:
    """Check that every acknowledged offset is there, or a later one: a commit without a reply may count."""
    assert all(found.get(partition, -1) >= offset for partition, offset in acknowledged.items()), (
        acknowledged,
        found,
        what,
    )


def runtimes(sim: SimNode) -> list[AnyShardRuntime]:
    return [sim.node.metadata, *sim.node.shards]
