"""Several machines that form one cluster, and the questions that tests ask about all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.node import Node
from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.simulator.machine import Machine
from cluster.simulator.network import Network
from cluster.simulator.world import World
from records import METADATA_SHARD

SETTLE_TIMEOUT_MS: Final = 20_000.0


class SimCluster:
    """`num_nodes` machines named `node-1`, `node-2`, ... in one world; keyword arguments are Machine's."""

    def __init__(self, world: World, network: Network, *, num_nodes: int = 3, **machine: Any) -> None:
        self.world = world
        self.network = network
        voters = tuple(range(1, num_nodes + 1))
        self.machines = {
            node_id: Machine(
                world, network, name=f"node-{node_id}", node_id=node_id, voters=voters, **machine
            )
            for node_id in voters
        }

    def __getitem__(self, node_id: int) -> Machine:
        return self.machines[node_id]

    @property
    def names(self) -> list[str]:
        return [machine.name for machine in self.machines.values()]

    @property
    def up(self) -> dict[int, Machine]:
        """The machines on which a node runs and is not paused."""
        return {i: one for i, one in self.machines.items() if one.is_up and not one.host.is_paused}

    def boot(self) -> None:
        """Start a node on every machine that has none."""
        for machine in self.machines.values():
            if not machine.is_up:
                machine.boot()

    def boot_until_ready(self) -> SimCluster:
        """Start every node and wait until each shard is served somewhere and every node knows where."""
        self.boot()
        self.settle()
        return self

    def settle(self, within_ms: float = SETTLE_TIMEOUT_MS) -> float:
        """Wait until every running node is ready and each shard has a leader; return the milliseconds.

        Raises TimeoutError, with the state of every shard.
        """
        started_ms = self.world.now_ms
        if not self.world.run_until(self.is_settled, within_ms=within_ms):
            raise TimeoutError(f"not settled after {within_ms} ms: {self.describe()}")
        return self.world.now_ms - started_ms

    def is_settled(self) -> bool:
        up = self.up
        return all(machine.node.is_ready for machine in up.values()) and all(
            self.leader_of(shard) is not None for shard in self.shards
        )

    @property
    def shards(self) -> list[int]:
        return [METADATA_SHARD, *range(self.machines[1].identity.num_shards)]

    def runtime(self, node_id: int, shard: int) -> AnyShardRuntime:
        node: Node = self.machines[node_id].node
        return node.metadata if shard == METADATA_SHARD else node.shards[shard]

    def leaders(self, shard: int) -> list[int]:
        """Return the nodes that serve a shard, including a paused one."""
        return [
            node_id
            for node_id, machine in self.machines.items()
            if machine.is_up and machine.node.shards and self.runtime(node_id, shard).is_ready
        ]

    def takes_part(self, node_id: int) -> bool:
        """Whether the node is in contact with another one."""
        machine = self.machines[node_id]
        return machine.is_up and machine.node.links is not None and bool(machine.node.links.peers)

    def leader_of(self, shard: int) -> int | None:
        """Return the node that serves a shard in the highest term."""
        found = [(self.runtime(i, shard).replica.term, i) for i in self.leaders(shard)]
        return max(found)[1] if found else None

    def wait_for(self, condition: Callable[[], bool], within_ms: float = SETTLE_TIMEOUT_MS) -> float:
        """Wait for a condition and return the time it took, in ms. Raises TimeoutError."""
        started_ms = self.world.now_ms
        if not self.world.run_until(condition, within_ms=within_ms):
            raise TimeoutError(f"not so after {within_ms} ms: {self.describe()}")
        return self.world.now_ms - started_ms

    def wait_for_leader(self, shard: int, *, other_than: int | None = None) -> int:
        """Wait until a node serves a shard, and return its id."""
        self.wait_for(lambda: self.leader_of(shard) not in (None, other_than))
        leader = self.leader_of(shard)
        assert leader is not None
        return leader

    def others(self, node_id: int) -> list[int]:
        return [other for other in self.machines if other != node_id]

    # Faults.

    def isolate(self, node_id: int) -> None:
        """Cut a node off from the other nodes; clients still reach it."""
        self.network.isolate(self.machines[node_id].name, self.names)

    def cut(self, one: int, other: int) -> None:
        self.network.cut(self.machines[one].name, self.machines[other].name)

    def cut_one_way(self, source: int, target: int) -> None:
        self.network.cut_one_way(self.machines[source].name, self.machines[target].name)

    def reset(self, one: int, other: int, later_ms: float = 0.0) -> int:
        return self.network.reset(self.machines[one].name, self.machines[other].name, later_ms)

    def describe(self) -> str:
        """Describe the state of every shard on every node, for messages."""
        found = []
        for node_id, machine in self.machines.items():
            if not machine.is_up:
                why = machine.host.fatal_message if machine.boots else "never started"
                found.append(f"node {node_id} is down ({why})")
            elif machine.node.shards:
                states = ", ".join(
                    f"{shard}: {runtime.replica.state.value} term {runtime.replica.term} "
                    f"{runtime.replica.commit_index}/{runtime.replica.last_index}"
                    for shard in self.shards
                    for runtime in (self.runtime(node_id, shard),)
                )
                paused = " (paused)" if machine.host.is_paused else ""
                found.append(f"node {node_id}{paused}: {states}")
        return "; ".join(found)
