"""Three nodes with one group shard and a topic, for stories that place each fault by hand."""

from __future__ import annotations

from typing import Any, Final

from cluster.runtime.shard_runtime import ShardRuntime
from cluster.simulator import Network, SimCluster, WireClient, World
from cluster.simulator.machine import address_of
from tests.support.sim_node import commit_request
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

GROUP: Final = "billing"
SHARD: Final = 0
PREFERRED: Final = 2
"""The node that begins to lead the shard."""

FETCH: Final = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


class Stage:
    """The cluster and its clients; leadership moves by faults and hand-overs only."""

    def __init__(self, seed: int, *, is_booted: bool = True, settings: dict[str, Any] | None = None) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self._clients = 0
        never_balance = {"leader_balance_delay_ms": 600_000}
        self.cluster = SimCluster(
            self.world, self.network, num_shards=1, settings=never_balance | (settings or {})
        )
        if is_booted:
            self.cluster.boot_until_ready()
            self.create_topic()

    def client(self, node_id: int) -> WireClient:
        """A new client machine that talks to one node."""
        self._clients += 1
        return WireClient(self.world, self.network, f"client-{self._clients}", address=address_of(node_id))

    def create_topic(self) -> None:
        topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        answer = self.client(self.cluster.wait_for_leader(-1)).ask(ApiKey.CREATE_TOPICS, 7, request)
        assert answer.topics[0].error_code == 0

    def commit(self, node_id: int, offset: int, partition: int = 0) -> None:
        """Commits at the leader, which must acknowledge it."""
        request = commit_request(GROUP, {partition: offset})
        answer = self.client(node_id).ask(ApiKey.OFFSET_COMMIT, 9, request)
        assert answer.topics[0].partitions[0].error_code == 0

    def commit_many(self, node_id: int, count: int) -> None:
        """`count` commits to partition 1, each an entry of its own."""
        client = self.client(node_id)
        requests = [commit_request(GROUP, {1: offset}) for offset in range(count)]
        calls = [client.send(ApiKey.OFFSET_COMMIT, 9, request) for request in requests]
        assert self.world.run_until(lambda: calls[-1].response is not None, within_ms=2_000)

    def read(self, node_id: int) -> int | None:
        """The offset of partition 0 as a node answers it; None when it refuses."""
        group = self.client(node_id).ask(ApiKey.OFFSET_FETCH, 9, FETCH).groups[0]
        found = [one for topic in group.topics for one in topic.partitions if one.partition_index == 0]
        return int(found[0].committed_offset) if found and not group.error_code else None

    def runtime(self, node_id: int) -> ShardRuntime:
        return self.cluster.runtime(node_id, SHARD)

    @property
    def leader(self) -> int:
        """Who serves the shard, as soon as somebody does."""
        return self.cluster.wait_for_leader(SHARD)

    def elected(self, *among: int) -> int | None:
        """Who of these was elected, ready or not."""
        for node_id in among:
            machine = self.cluster[node_id]
            if machine.is_up and machine.node.shards and self.runtime(node_id).replica.is_leader:
                return node_id
        return None
