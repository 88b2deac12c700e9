"""The stage with three machines: stories of leaders that die, pause, come back and hand over.

Members do what they are told here too: they keep talking to the node that they know until `find` tells them
of another. Nodes go by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.simulator import ConnectionGone, SimCluster, WireClient
from cluster.simulator.cluster import SETTLE_TIMEOUT_MS
from cluster.simulator.machine import address_of
from records import METADATA_SHARD, shard_of
from tests.scenarios.stage import COMMANDS, Stage
from tests.support.sim_node import Consumer
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.find_coordinator import FindCoordinatorRequest

FIND_PATIENCE_MS = 10_000.0
FIND_RETRY_MS = 100.0


class FollowingConsumer(Consumer):
    """Says everything in its first heartbeat to another node, as Kafka's clients do."""

    must_say_all = False

    def next_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        request = super().next_heartbeat()
        if self.must_say_all and self.epoch:
            self.must_say_all = False
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = list(self.topics)
        return request


class ClusterStage(Stage):
    """One performance on three machines, with one shard of groups so that a story has one leader."""

    def __init__(self) -> None:
        super().__init__()
        self._cluster: SimCluster | None = None
        self._leader: int | None = None

    @property
    def cluster(self) -> SimCluster:
        if self._cluster is None:
            self._cluster = SimCluster(
                self.world, self.network, num_shards=1, settings=self.settings, host_options=self.host_options
            )
            self._cluster.boot_until_ready()
        return self._cluster

    def given(self, **settings: str) -> list[str]:
        settings.pop("nodes", None)
        return super().given(**settings)

    @property
    def commands(self) -> dict[str, Callable[..., list[str]]]:
        return CLUSTER_COMMANDS

    # Nodes

    def leader(self) -> list[str]:
        """Tells whether the groups have the same leader as at the last call, once they have one.

        Not its id: which of two survivors wins an election is chance.
        """
        before, self._leader = self._leader, self.cluster.wait_for_leader(0)
        if before is None:
            return ["a node leads"]
        return ["the same node leads" if self._leader == before else "another node leads"]

    def _called(self, node_id: int) -> str:
        return "the leader" if node_id == self.cluster.wait_for_leader(0) else f"node {node_id}, no leader,"

    def kill(self, node: str) -> list[str]:
        self.cluster[self._node(node)].kill()
        self.world.run_for(1)
        return []

    def pause(self, duration_ms: str, *nodes: str) -> list[str]:
        """SIGSTOP of some nodes, or of all, and SIGCONT later; time passes meanwhile."""
        for node in nodes or [str(node_id) for node_id in self.cluster.machines]:
            self.cluster[self._node(node)].host.pause(float(duration_ms))
        return []

    def stop_signal(self, node: str) -> list[str]:
        """SIGSTOP, until `cont` or `kill`."""
        self.cluster[self._node(node)].host.pause()
        return []

    def cont(self, node: str) -> list[str]:
        self.cluster[self._node(node)].host.resume()
        return []

    def restart(self, *nodes: str) -> list[str]:
        """Starts the nodes that are down and waits until all is well again."""
        for machine in self.cluster.machines.values():
            if not machine.is_up:
                machine.boot()
        self.cluster.settle()
        return ["every shard is ready"]

    def stop(self, node: str) -> list[str]:
        """A clean stop: what the node leads is handed over first."""
        self.cluster[self._node(node)].stop()
        self.world.run_for(1)
        return ["stopped"]

    def isolate(self, node: str) -> list[str]:
        """Cuts a node off from the other nodes, not from clients."""
        self.cluster.isolate(self._node(node))
        return []

    def heal(self) -> list[str]:
        self.network.heal_all()
        self.world.run_for(1_000)
        return []

    def transfer(self, node: str) -> list[str]:
        """Hands the groups over to a node."""
        machine = self.cluster[self.cluster.wait_for_leader(0)]
        said: list[str | None] = []
        machine.host.call_soon(machine.node.transfer, 0, self._node(node), said.append)
        self.cluster.wait_for(lambda: bool(said))
        return [f"not handed over: {said[0]}" if said[0] else f"handed over to node {node}"]

    def _node(self, name: str) -> int:
        """`leader` stands for whoever leads the groups now."""
        return self.cluster.wait_for_leader(0) if name == "leader" else int(name)

    # Requests

    def ask_admin(self, api_key: ApiKey, version: int, body: Any) -> Any:
        """To the leader of the shard that the request concerns, as the client library finds it."""
        shard = METADATA_SHARD if api_key in METADATA_APIS else 0
        client = WireClient(
            self.world, self.network, "admin", address=address_of(self.cluster.wait_for_leader(shard))
        )
        try:
            return client.ask(api_key, version, body)
        finally:
            client.close()

    # Members

    def join(self, name: str, group: str, *topics: str, instance: str | None = None) -> list[str]:
        self._admit(name, group, *topics)
        self.members[name].instance_id = instance
        return self.heartbeat(name)

    def lose_join(self, name: str, group: str, *topics: str, instance: str | None = None) -> list[str]:
        self._admit(name, group, *topics)
        self.members[name].instance_id = instance
        return self.lose(name)

    def _admit(self, name: str, group: str, *topics: str) -> None:
        assert shard_of(group, 1) == 0
        if name not in self.members:
            client = WireClient(self.world, self.network, name)
            self.members[name] = FollowingConsumer(client, group, name, *topics)
        self.find(name)

    def find(self, name: str) -> list[str]:
        """The member looks for its coordinator until somebody names one."""
        member = self.member(name)
        if isinstance(member, FollowingConsumer):
            member.must_say_all = True
        return self._find(name, member.client, member.group_id)

    def new_client(self, name: str, group: str) -> WireClient:
        assert shard_of(group, 1) == 0
        assert self.cluster
        client = WireClient(self.world, self.network, name)
        self._find(name, client, group)
        return client

    def runtime_of(self, shard: int | str) -> AnyShardRuntime:
        number = 0 if isinstance(shard, str) else shard
        return self.cluster.runtime(self.cluster.wait_for_leader(number), number)

    def _find(self, name: str, client: WireClient, group: str) -> list[str]:
        client.close()
        asker = WireClient(self.world, self.network, f"{name}-asks")
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        end_ms = self.world.now_ms + FIND_PATIENCE_MS
        while self.world.now_ms < end_ms:
            for node_id in self.cluster.up:
                asker.address = address_of(node_id)
                try:
                    found = asker.ask(ApiKey.FIND_COORDINATOR, 4, request, within_ms=2_000).coordinators[0]
                except (ConnectionGone, TimeoutError):
                    continue
                finally:
                    asker.close()
                    self.world.run_for(1)
                if found.error_code == 0:
                    client.address, client.port = found.host, found.port
                    return [f"{name}: {self._called(found.node_id)} is the coordinator"]
            self.world.run_for(FIND_RETRY_MS)
        return [f"{name}: nobody knows the coordinator"]

    def lose(self, name: str) -> list[str]:
        """A heartbeat that the node answers and whose answer never arrives."""
        member = self.member(name)
        leader = self.cluster.runtime(self.cluster.wait_for_leader(0), 0)
        before = leader.commit_index
        member.client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member.next_heartbeat())
        self.world.run_until(lambda: leader.commit_index > before, within_ms=100)
        member.client.cut()
        self.world.run_for(10)
        return [f"{name}: the node answered, the connection is gone"]

    def log(self, group: str) -> list[str]:
        assert self._cluster is not None
        leader = self.cluster.wait_for_leader(0)
        return self.tell(self.cluster.runtime(leader, 0))

    def same(self) -> list[str]:
        """Waits until all nodes that are up have applied the same; whether they are at the same state."""
        cluster, up = self.cluster, list(self.cluster.up)

        def states(shard: int) -> set[tuple[int, int]]:
            machines = [cluster.runtime(node_id, shard).machine for node_id in up]
            return {(machine.applied_index, machine.state_hash) for machine in machines}

        same = self.world.run_until(
            lambda: all(len(states(shard)) == 1 for shard in cluster.shards), within_ms=SETTLE_TIMEOUT_MS
        )
        return [f"nodes {', '.join(map(str, up))} have {'the same' if same else 'different'} state"]


METADATA_APIS = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS}

ALONE = {"power-fails", "boot"}
"""Commands that need the one machine."""

CLUSTER_COMMANDS: dict[str, Callable[..., list[str]]] = {
    **{
        name: getattr(ClusterStage, command.__name__)
        for name, command in COMMANDS.items()
        if name not in ALONE
    },
    "leader": ClusterStage.leader,
    "sigstop": ClusterStage.stop_signal,
    "sigcont": ClusterStage.cont,
    "isolate": ClusterStage.isolate,
    "heal": ClusterStage.heal,
    "transfer": ClusterStage.transfer,
    "find": ClusterStage.find,
    "same": ClusterStage.same,
}
