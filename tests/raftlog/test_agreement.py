"""Both hashes compared between running nodes: a log or a state that went its own way stops its node."""

from __future__ import annotations

import pytest

from raftlog.replica import agreement
from raftlog.replica.replica_state import ReplicaState
from tests.support.replica_cluster import ClusterNode, World


def _spoil(node: ClusterNode) -> None:
    node.machine.skew = 1


@pytest.mark.parametrize("count", [1, 64, 200])
def test_a_follower_whose_state_differs_stops_and_says_why(count: int) -> None:
    world = World().start()
    leader = world.elect()
    spoiled = world.followers()[0]
    _spoil(spoiled)
    leader.put_many(count)
    world.advance(500)
    assert spoiled.fatal_message is not None
    assert "state up to entry" in spoiled.fatal_message
    assert "--replace" in spoiled.fatal_message
    assert world.leader is leader
    leader.put_committed(("still", "serving"))


def test_a_leader_in_the_minority_stops() -> None:
    world = World().start()
    leader = world.elect()
    _spoil(leader)
    leader.put_many(100)
    world.until(lambda: leader.fatal_message is not None)
    assert world.elect() is not leader


def test_without_a_majority_the_shard_is_halted() -> None:
    world = World().start()
    leader = world.elect()
    away, other = world.followers()
    away.kill()
    _spoil(other)
    leader.put_many(100)
    world.advance(5000)
    assert {node.replica.state for node in world.running} == {ReplicaState.HALTED}
    assert leader.machine.deposed_reasons
    assert "no majority agrees" in str(leader.replica.status()["halted_reason"])
    world.advance(5000)
    assert world.leader is None


def test_nodes_that_agree_go_on() -> None:
    world = World().start()
    leader = world.elect()
    for _ in range(30):
        leader.put_many(70)
        world.advance(60)
    world.advance(5000)
    assert all(node.fatal_message is None for node in world.nodes.values())
    assert world.leader is leader


def test_a_third_node_that_is_slow_to_answer_is_asked_again() -> None:
    """Its disk stands still for longer than an answer is waited for; its word decides who stops."""
    world = World().start()
    leader = world.elect()
    spoiled, slow = world.followers()
    slow.host.hold_disk = True
    slow.replica.group_commit.average_ms = 1000.0
    leader.put(("in", "flight"))
    world.advance(5)
    _spoil(spoiled)
    leader.put_many(100)
    world.advance(4000)
    assert leader.replica.is_ready
    slow.host.hold_disk = False
    while slow.host.disk:
        slow.host.do_disk()
    world.until(lambda: spoiled.fatal_message is not None, 5000)
    assert "state up to entry" in str(spoiled.fatal_message)
    assert world.leader is leader


def test_a_third_node_that_never_answers_halts_the_shard_in_the_end() -> None:
    world = World().start()
    leader = world.elect()
    spoiled, silent = world.followers()
    silent.host.hold_disk = True
    silent.replica.group_commit.average_ms = 1000.0
    leader.put(("in", "flight"))
    world.advance(5)
    _spoil(spoiled)
    leader.put_many(100)
    world.until(lambda: leader.replica.state is ReplicaState.HALTED, 15_000)


def test_a_node_past_the_index_that_is_asked_for_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its checkpoints it keeps the newest only."""
    monkeypatch.setattr(agreement, "CHECKPOINTS_KEPT", 2)
    world = World(delay_ms=3.0).start()
    leader = world.elect()
    spoiled, _ = world.followers()
    _spoil(spoiled)
    for _ in range(40):
        leader.put_many(500)
        world.advance(7)
    world.until(lambda: spoiled.fatal_message is not None, 5000)
    assert world.leader is leader
