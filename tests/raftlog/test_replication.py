"""Three replicas: entries are on a quorum's disks before they are committed, and the logs stay equal."""

from __future__ import annotations

from raftlog.env.simulated_files import Crash
from raftlog.replica.replica_state import ReplicaState
from tests.support.replica_cluster import ReplicaCluster


def test_a_cold_start_elects_the_preferred_node_and_the_others_follow() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    assert leader.number == 2  # shard 0: the second of the nodes
    assert cluster.now_ms - 1000 < 400
    cluster.settle()
    assert {node.replica.leader_id for node in cluster.running} == {2}
    assert {node.replica.state for node in cluster.followers()} == {ReplicaState.FOLLOWING}
    assert all(node.replica.is_current for node in cluster.running)


def test_entries_are_applied_everywhere() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    leader.put_many(500)
    cluster.assert_equal()
    assert all(len(node.machine.values) == 501 for node in cluster.running)


def test_nothing_commits_without_a_quorum_of_disks() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    for node in cluster.followers():
        node.kill()
    index = leader.put(("a", "1"))
    cluster.advance(200)
    assert leader.machine.committed_index < index


def test_a_full_restart_with_power_lost_keeps_what_was_committed() -> None:
    cluster = ReplicaCluster().start()
    leader = cluster.elect()
    index = leader.put_committed(("a", "1"))
    for node in cluster.running:
        node.kill(Crash.LOST)
    cluster.start()
    leader = cluster.elect()
    assert leader.machine.applied >= index
    cluster.assert_equal()
