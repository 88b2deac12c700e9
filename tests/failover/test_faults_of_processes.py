"""Whole processes end: all in the same instant, or one cleanly."""

from __future__ import annotations

import time

import pytest

from benchmarks import load
from cluster.launching.launcher import ClusterProcess, NodeProcess
from tests.report import count_fault
from tests.support.real_cluster import (
    TOPIC,
    Committer,
    check_fetched,
    check_nothing_lost,
    committers,
    create_topic,
    group_in,
    leader_of,
    log_text,
    quorate,
)
from tests.support.waiting import wait_for

ALL_KILLED = 10
ALL_KILLED_OF_CHAOS = 100
STOPS = 2
STOP_MAX_S = 1.0
GAP_MAX_S = 1.5
"""A hand-over takes a few round trips; the rest is margin for a busy machine."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [ALL_KILLED, pytest.param(ALL_KILLED_OF_CHAOS, marks=pytest.mark.slow)])
def test_killing_all_nodes_in_one_instant_loses_nothing(cluster: ClusterProcess, count: int) -> None:
    """Commits acknowledged a moment before are there after the restart, before any client commits again."""
    create_topic(cluster)
    everyone: list[Committer] = []
    for number in range(count):
        working = committers(cluster, f"round-{number}")
        for one in working:
            one.wait_for_more()
        cluster.kill()
        count_fault("failover", "kill -9 of all three nodes at once")
        for one in working:
            one.stop()
        cluster.start()
        for one in working:
            check_fetched(cluster.nodes, one.group_id, one.acknowledged[-1][1])
        everyone += working
    check_nothing_lost(cluster, everyone)


@pytest.mark.timeout(120)
def test_a_node_that_is_asked_to_stop_hands_over_first(cluster: ClusterProcess) -> None:
    create_topic(cluster)
    working = committers(cluster, "stop")
    for shard in range(STOPS):
        for one in working:
            one.wait_for_more()
        leader = leader_of(cluster.nodes, working[shard].group_id)
        said = len(log_text(leader))
        asked_s = time.monotonic()
        leader.ask_to_stop()
        count_fault("failover", "SIGTERM of a leader")
        assert leader.await_end(10) == 0
        assert time.monotonic() - asked_s < STOP_MAX_S, log_text(leader)[said:]
        assert f"shard-{shard}: this node is no longer the leader: handed over" in log_text(leader)[said:]
        assert "is not transferred" not in log_text(leader)[said:]
        for one in working:
            one.wait_for_more()
        leader.start()
    assert max(one.longest_gap_s for one in working) < GAP_MAX_S
    check_nothing_lost(cluster, working)


@pytest.mark.timeout(60)
def test_a_hand_over_closes_the_connections_of_its_shard_alone(cluster: ClusterProcess) -> None:
    """Clients notice a closed connection sooner than an error; clients of other shards notice nothing."""
    create_topic(cluster)
    working = committers(cluster, "moved")
    for one in working:
        one.wait_for_more()
    leader = leader_of(cluster.nodes, working[0].group_id)
    _lead(cluster, leader, 1)
    users = {shard: load.Peer((leader.host, leader.port)) for shard in (0, 1)}
    for shard, user in users.items():
        load.check_commit(user, load.commit_frame(group_in(shard, "user"), TOPIC, 1))
    other = next(node for node in cluster.nodes if node is not leader)
    _lead(cluster, other, 0)
    count_fault("failover", "hand-over of a shard")
    assert users[0].socket.recv(1) == b""
    load.check_commit(users[1], load.commit_frame(group_in(1, "user"), TOPIC, 1, 2))
    for user in users.values():
        user.close()
    for one in working:
        one.wait_for_more()
    assert max(one.longest_gap_s for one in working) < GAP_MAX_S
    check_nothing_lost(cluster, working)


def _lead(cluster: ClusterProcess, node: NodeProcess, shard: int) -> None:
    """Make a node the leader of a shard."""
    words = [str(shard), "--to", str(node.node_id), "--url", node.url]
    done = quorate("cluster", "transfer", *words)
    assert done.returncode == 0, done.stderr
    group_id = group_in(shard, "asks")
    wait_for(lambda: leader_of(cluster.nodes, group_id) is node, f"node {node.node_id} leads shard {shard}")
