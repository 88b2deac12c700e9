"""Three replicas: entries reach a quorum's disks before they count, and the logs stay one log."""

from __future__ import annotations

from raftlog.env.simulated_files import Crash
from raftlog.replica.replica_state import ReplicaState
from tests.support.replica_cluster import World


def test_a_cold_start_elects_the_preferred_node_and_everybody_follows() -> None:
    world = World().start()
    leader = world.elect()
    assert leader.number == 2  # shard 0: the second of the nodes
    assert world.now_ms - 1000 < 400
    world.settle()
    assert {node.replica.leader_id for node in world.running} == {2}
    assert {node.replica.state for node in world.followers()} == {ReplicaState.FOLLOWING}
    assert all(node.replica.is_current for node in world.running)


def test_entries_are_applied_everywhere() -> None:
    world = World().start()
    leader = world.elect()
    leader.put_many(500)
    world.assert_equal()
    assert all(len(node.machine.values) == 501 for node in world.running)


def test_nothing_commits_without_a_quorum_of_disks() -> None:
    world = World().start()
    leader = world.elect()
    for node in world.followers():
        node.kill()
    index = leader.put(("a", "1"))
    world.advance(200)
    assert leader.machine.committed_index < index


def test_a_full_restart_with_power_lost_keeps_what_was_committed() -> None:
    world = World().start()
    leader = world.elect()
    index = leader.put_committed(("a", "1"))
    for node in world.running:
        node.kill(Crash.LOST)
    world.start()
    leader = world.elect()
    assert leader.machine.applied >= index
    world.assert_equal()
