"""Three whole nodes in virtual time, a topic and clients; leadership moves only by faults and transfers."""

from __future__ import annotations

from typing import Any, Final

from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.simulator import Network, SimCluster, WireClient, World
from cluster.simulator.machine import KAFKA_PORT
from records import METADATA_SHARD, shard_of
from tests.support.requests import commit_request
from tests.support.sim_node import Consumer
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

GROUP: Final = "billing"
NEVER_BALANCE: Final = {"leader_balance_delay_ms": 600_000}
FETCH: Final = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


class ThreeNodes:
    """A cluster, a topic `orders`, and clients that follow the leader of `shard`, the shard of `GROUP`."""

    def __init__(
        self, seed: int = 1, *, partitions: int = 12, is_booted: bool = True, **machine: Any
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        settings = NEVER_BALANCE | machine.pop("settings", {})
        self.cluster = SimCluster(self.world, self.network, settings=settings, **machine)
        self.shard = shard_of(GROUP, self.cluster[1].identity.num_shards)
        self._clients = 0
        if is_booted:
            self.cluster.boot_until_ready()
            assert self.create("orders", partitions) == 0

    def client(self, node_id: int) -> WireClient:
        """A new client machine that talks to one node."""
        self._clients += 1
        address = self.cluster[node_id].address
        return WireClient(self.world, self.network, f"client-{self._clients}", KAFKA_PORT, address)

    @property
    def leader(self) -> int:
        """Wait for the node that serves the shard, and return it."""
        return self.cluster.wait_for_leader(self.shard)

    def elected(self, *among: int) -> int | None:
        """The one of these nodes that was elected, ready or not."""
        for node_id in among:
            machine = self.cluster[node_id]
            if machine.is_up and machine.node.shards and self.runtime(node_id).replica.is_leader:
                return node_id
        return None

    def runtime(self, node_id: int) -> AnyShardRuntime:
        return self.cluster.runtime(node_id, self.shard)

    def consumer(self, member_id: str) -> Consumer:
        return Consumer(self.client(self.leader), GROUP, member_id, "orders")

    def move(self, consumer: Consumer, node_id: int | None = None) -> None:
        consumer.client.close()
        consumer.client = self.client(node_id or self.leader)

    def ask(self, node_id: int, api_key: int, version: int, request: Any) -> Any:
        return self.client(node_id).ask(api_key, version, request)

    def _ask_controller(self, api_key: int, version: int, request: Any) -> Any:
        return self.ask(self.cluster.wait_for_leader(METADATA_SHARD), api_key, version, request)

    def create(self, name: str, num_partitions: int) -> int:
        """The error code."""
        topic = CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        return int(self._ask_controller(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code)

    def delete(self, name: str) -> int:
        """The error code."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        return int(self._ask_controller(ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code)

    def commit(self, node_id: int, offset: int, *, topic: str = "orders", partition: int = 0) -> int:
        """The error code."""
        request = commit_request(GROUP, {partition: offset}, topic=topic)
        answer = self.ask(node_id, ApiKey.OFFSET_COMMIT, 9, request)
        return int(answer.topics[0].partitions[0].error_code)

    def commit_many(self, node_id: int, count: int) -> None:
        """`count` commits to partition 1, each an entry of its own."""
        client = self.client(node_id)
        requests = [commit_request(GROUP, {1: offset}) for offset in range(count)]
        calls = [client.send(ApiKey.OFFSET_COMMIT, 9, request) for request in requests]
        assert self.world.run_until(lambda: calls[-1].response is not None, within_ms=2_000)

    def fetch(self, node_id: int) -> tuple[int, dict[int, int]]:
        """Error code, and offset by partition."""
        group = self.ask(node_id, ApiKey.OFFSET_FETCH, 9, FETCH).groups[0]
        parts = (part for topic in group.topics for part in topic.partitions)
        return group.error_code, {part.partition_index: part.committed_offset for part in parts}

    def read(self, node_id: int) -> int | None:
        """The offset of partition 0 as a node answers it; None when it refuses."""
        error_code, found = self.fetch(node_id)
        return None if error_code else found.get(0)
