"""Three nodes in virtual time that serve the older group protocols, and consumers of these."""

from __future__ import annotations

from typing import Any

from cluster.lineage.push_client import PushClient
from cluster.lineage.rewrite_client import RewriteClient
from cluster.simulator import VirtualHost
from lineage.push.messages import RegisterRequest, partition_number
from lineage.rewrite.consumer import RewriteConsumerSettings
from raftlog.env.simulated_files import SimFiles
from records import PushGroupKey, PushGroupValue, RewriteGroupKey, RewriteGroupValue
from tests.support.admin_requests import SET, resource
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

PUSH_PORT, REWRITE_PORT = 9492, 9592
PING_MS = 1_000
RETRIES = 1
SESSION_MS = 3_000

Part = tuple[str, int]


class OldNodes(ThreeNodes):
    """Three nodes that serve both protocols; `owners` tells who consumes what, as the consumers see it."""

    def __init__(
        self, seed: int = 1, *, topics: str = "orders", is_upgraded: bool = True, **machine: Any
    ) -> None:
        given = machine.pop("settings", {})
        settings = {"lineage_push_port": PUSH_PORT, "lineage_rewrite_port": REWRITE_PORT} | given
        super().__init__(seed, settings=settings, **machine)
        self.pushed: dict[str, PushClient] = {}
        self.rewriting: dict[str, RewriteClient] = {}
        self.hosts: dict[str, VirtualHost] = {}
        self.gave_up: list[str] = []
        if is_upgraded:
            self.upgrade()
        if topics:
            self.configure(("push.topics", SET, topics))

    def upgrade(self) -> None:
        node = self.cluster[self.cluster.wait_for_leader(-1)].node
        done: list[str | None] = []
        node.host.call_soon(node.upgrade, done.append)
        self.wait(lambda: done == [None])
        self.wait(lambda: all(one.node.format_level > 4 for one in self.cluster.machines.values()))

    def configure(self, *changes: tuple[str, int, str | None], group_id: str = GROUP) -> list[Any]:
        request = IncrementalAlterConfigsRequest(resources=[resource(group_id, *changes)])
        return list(self._ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses)

    def grow(self, topic: str, count: int) -> None:
        grown = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=5_000)
        assert not self._ask_controller(ApiKey.CREATE_PARTITIONS, 3, request).results[0].error_code

    def wait(self, condition: Any, within_ms: float = 30_000) -> float:
        return self.cluster.wait_for(condition, within_ms)

    def brokers(self, port: int) -> tuple[tuple[str, int], ...]:
        return tuple((machine.address, port) for machine in self.cluster.machines.values())

    def _host(self, name: str) -> VirtualHost:
        self.hosts[name] = VirtualHost(self.world, self.network, SimFiles(), name=name)
        return self.hosts[name]

    def push(
        self, name: str, *, auto_commit: bool = True, group_id: str = GROUP, **others: Any
    ) -> PushClient:
        """Start a consumer of the push protocol."""
        register = RegisterRequest(
            group_id=group_id,
            consumer_id=name,
            auto_commit=auto_commit,
            ping_interval_ms=PING_MS,
            max_ping_retries=RETRIES,
        )
        brokers = self.brokers(PUSH_PORT)
        client = PushClient(
            self._host(others.pop("machine", name)), register, brokers, gave_up=self.gave_up.append, **others
        )
        self.pushed[name] = client
        client.start()
        return client

    def rewrite(self, name: str, topics: list[str] | None = None, **others: Any) -> RewriteClient:
        """Start a consumer of seed 000's protocol."""
        settings = RewriteConsumerSettings(
            group_id=others.pop("group_id", GROUP),
            session_timeout_ms=SESSION_MS,
            **others.pop("settings", {}),
        )
        wanted = ["orders"] if topics is None else topics
        brokers = self.brokers(REWRITE_PORT)
        client = RewriteClient(self._host(name), name, settings, wanted, brokers, **others)
        self.rewriting[name] = client
        client.start()
        return client

    def kill_client(self, name: str) -> None:
        """End a consumer's process as kill -9 does."""
        self.pushed.pop(name, None)
        self.rewriting.pop(name, None)
        self.hosts.pop(name).kill()

    def owners(self) -> dict[Part, list[str]]:
        """The consumers of each partition at this moment."""
        found: dict[Part, list[str]] = {}
        for name, one in self.pushed.items():
            for topic, partition in one.positions:
                found.setdefault((topic, partition_number(partition)), []).append(name)
        for name, other in self.rewriting.items():
            for part in other.core.consuming:
                found.setdefault(part, []).append(name)
        return found

    def is_shared(self, names: set[str], partitions: int = 12) -> bool:
        """Whether each partition of `orders` has one owner, and all of these own some."""
        owners = self.owners()
        every = all(len(owners.get(("orders", number), [])) == 1 for number in range(partitions))
        return every and {name for each in owners.values() for name in each} == names

    def _record(self, key: Any) -> Any:
        machine = self.cluster[self.leader].node.shards[self.shard].machine
        return machine.projection.old_groups.get(key)

    @property
    def push_record(self) -> PushGroupValue | None:
        return self._record(PushGroupKey(group_id=GROUP))

    @property
    def rewrite_record(self) -> RewriteGroupValue | None:
        return self._record(RewriteGroupKey(group_id=GROUP))

    def committed(self, partition: int) -> int | None:
        _, offsets = self.fetch(self.leader)
        return offsets.get(partition)
