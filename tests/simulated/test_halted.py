"""A shard without a majority of equal hashes is served by no node, and every node reports that."""

from __future__ import annotations

from raftlog.env.state_machine import StateMachine
from raftlog.replica.replica_state import ReplicaState
from tests.report import count_fault
from tests.support.three_nodes import ThreeNodes


def test_a_halted_shard_names_its_reason_and_coordinates_nothing() -> None:
    nodes = ThreeNodes(1, num_shards=1)
    cluster, leader = nodes.cluster, nodes.leader
    other, away = cluster.others(leader)
    assert nodes.commit(leader, 1) == 0
    cluster[away].kill()
    replica = nodes.runtime(other).replica
    machine: StateMachine = replica._applying.machine
    state_hash = machine.state_hash
    machine.state_hash = lambda: state_hash() ^ 1  # type: ignore[method-assign]
    count_fault("simulated", "state gone astray")
    nodes.commit_many(leader, 70)
    cluster.wait_for(lambda: nodes.runtime(leader).replica.state is ReplicaState.HALTED)
    cluster.wait_for(lambda: replica.state is ReplicaState.HALTED)
    for node_id in (leader, other):
        runtime = nodes.runtime(node_id)
        status = runtime.status()
        assert "no majority agrees on the hashes" in status["halted_reason"]
        assert status["leader_id"] is None
        assert not status["is_current"]
        assert not runtime.is_ready
        assert nodes.cluster.machines[node_id].node.leader_of(nodes.shard) is None
        assert not runtime.replica.leadership.has_lease(nodes.world.now_ms)
        assert nodes.read(node_id) is None
