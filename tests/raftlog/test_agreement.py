"""Running nodes compare both hashes: a node whose log or state diverged stops."""

from __future__ import annotations

import pytest

from raftlog.replica import agreement
from raftlog.replica.replica_state import ReplicaState
from tests.support.replica_cluster import ClusterNode, ReplicaCluster


def _spoil(node: ClusterNode) -> None:
    node.machine.skew = 1


@pytest.mark.parametrize("count", [1, 64, 200])
def test_a_follower_whose_state_differs_stops_and_says_why(count: int) -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    spoiled = cluster.followers()[0]
    _spoil(spoiled)
    leader.put_many(count)
    cluster.advance(500)
    assert spoiled.fatal_message is not None
    assert "state up to entry" in spoiled.fatal_message
    assert "--replace" in spoiled.fatal_message
    assert cluster.leader is leader
    leader.put_committed(("still", "serving"))


def test_a_leader_in_the_minority_stops() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    _spoil(leader)
    leader.put_many(100)
    cluster.until(lambda: leader.fatal_message is not None)
    assert cluster.elect() is not leader


def test_without_a_majority_the_shard_is_halted() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    away, other = cluster.followers()
    away.kill()
    _spoil(other)
    leader.put_many(100)
    cluster.advance(5000)
    assert {node.replica.state for node in cluster.running} == {ReplicaState.HALTED}
    assert leader.machine.deposed_reasons
    assert "no majority agrees" in str(leader.replica.status()["halted_reason"])
    cluster.advance(5000)
    assert cluster.leader is None


def test_nodes_that_agree_go_on() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    for _ in range(30):
        leader.put_many(70)
        cluster.advance(60)
    cluster.advance(5000)
    assert all(node.fatal_message is None for node in cluster.nodes.values())
    assert cluster.leader is leader


def test_a_third_node_that_is_slow_to_answer_is_asked_again() -> None:
    """Its disk stalls for longer than the wait for an answer; its answer decides which node stops."""
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    spoiled, slow = cluster.followers()
    slow.host.hold_disk = True
    slow.replica.group_commit.average_ms = 1000.0
    leader.put(("in", "flight"))
    cluster.advance(5)
    _spoil(spoiled)
    leader.put_many(100)
    cluster.advance(4000)
    assert leader.replica.is_ready
    slow.host.hold_disk = False
    while slow.host.disk:
        slow.host.do_disk()
    cluster.until(lambda: spoiled.fatal_message is not None, 5000)
    assert "state up to entry" in str(spoiled.fatal_message)
    assert cluster.leader is leader


def test_a_third_node_that_never_answers_halts_the_shard_in_the_end() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    spoiled, silent = cluster.followers()
    silent.host.hold_disk = True
    silent.replica.group_commit.average_ms = 1000.0
    leader.put(("in", "flight"))
    cluster.advance(5)
    _spoil(spoiled)
    leader.put_many(100)
    cluster.until(lambda: leader.replica.state is ReplicaState.HALTED, 15_000)


def test_a_node_past_the_index_that_is_asked_for_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node keeps only its newest checkpoints, so it may have none at that index any more."""
    monkeypatch.setattr(agreement, "CHECKPOINTS_KEPT", 2)
    cluster = ReplicaCluster(delay_ms=3.0).start()
    leader = cluster.elect()
    spoiled, _ = cluster.followers()
    _spoil(spoiled)
    for _ in range(40):
        leader.put_many(500)
        cluster.advance(7)
    cluster.until(lambda: spoiled.fatal_message is not None, 5000)
    assert cluster.leader is leader
