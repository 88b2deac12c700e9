"""Leaders that operators ask for, and drained nodes: who leads and who is elected."""

from __future__ import annotations

import dataclasses
import random

import pytest

from raftlog.consensus.election import Due, Election
from raftlog.env.obstacles import Obstacle
from raftlog.replica.balancing import Balancing, LeaderWish, preferred_node
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS

DELAY_MS = 1_000
QUICK = dataclasses.replace(SETTINGS, leader_balance_delay_ms=DELAY_MS)
PREFERRED = 2
"""The node that should lead shard 0 if nobody asks for another."""


def _wish(cluster: ReplicaCluster, asked: int | None = None, drained: tuple[int, ...] = ()) -> None:
    for node in cluster.running:
        node.replica.wish_for(LeaderWish(asked, frozenset(drained)))


def _led(seed: int = 0) -> tuple[ReplicaCluster, ClusterNode]:
    cluster = ReplicaCluster(settings=QUICK, seed=seed).start()
    leader = cluster.elect()
    leader.put_committed(("a", "1"))
    cluster.settle()
    cluster.advance(200 + 7 * seed)
    return cluster, leader


def _leads(cluster: ReplicaCluster, number: int) -> bool:
    return cluster.leader is cluster.nodes[number]


def test_who_should_lead_by_request_and_without() -> None:
    def leaders(**wish: object) -> list[int | None]:
        return [preferred_node((1, 2, 3), shard, LeaderWish(**wish)) for shard in range(-1, 6)]  # type: ignore[arg-type]

    assert leaders() == [1, 2, 3, 1, 2, 3, 1]
    assert leaders(asked=3) == [3] * 7
    assert leaders(drained=frozenset({3})) == [1, 2, 1, 1, 2, 2, 1], "its shards are shared out"
    assert leaders(asked=3, drained=frozenset({3})) == leaders(drained=frozenset({3}))
    assert (
        leaders(drained=frozenset({1, 2, 3})) == leaders(asked=1, drained=frozenset({1, 2, 3})) == [None] * 7
    )


def test_an_asked_leader_takes_over_at_once_and_stays_until_it_is_undone() -> None:
    cluster, leader = _led()
    assert leader.number == PREFERRED
    _wish(cluster, asked=3)
    assert cluster.until(lambda: _leads(cluster, 3)) < 300
    cluster.advance(10 * DELAY_MS)
    assert _leads(cluster, 3)
    _wish(cluster)
    assert cluster.until(lambda: _leads(cluster, PREFERRED)) >= DELAY_MS


def test_a_preferred_node_that_is_asked_for_need_not_wait() -> None:
    cluster, leader = _led()
    leader.kill()
    cluster.until(lambda: cluster.leader is not None)
    leader.restart()
    cluster.advance(DELAY_MS / 2)
    assert cluster.leader not in (None, leader)
    _wish(cluster, asked=PREFERRED)
    assert cluster.until(lambda: cluster.leader is leader) < 300


def test_an_asked_leader_that_cannot_serve_takes_over_when_it_can() -> None:
    cluster, _ = _led()
    cluster.nodes[3].machine.hindered_by = Obstacle.DISK_FULL
    cluster.advance(200)
    _wish(cluster, asked=3)
    cluster.advance(5 * DELAY_MS)
    assert _leads(cluster, PREFERRED)
    cluster.nodes[3].machine.hindered_by = Obstacle.NONE
    assert cluster.until(lambda: _leads(cluster, 3)) < DELAY_MS


def test_an_asked_leader_that_comes_back_is_waited_for_like_any_other() -> None:
    cluster, _ = _led()
    _wish(cluster, asked=3)
    cluster.until(lambda: _leads(cluster, 3))
    cluster.nodes[3].kill()
    cluster.until(lambda: cluster.leader not in (None, cluster.nodes[3]))
    cluster.nodes[3].restart()
    _wish(cluster, asked=3)
    assert cluster.until(lambda: _leads(cluster, 3)) >= DELAY_MS


def test_who_learns_late_of_a_request_that_is_met_does_not_hurry_later() -> None:
    late = Balancing(preferred=PREFERRED, delay_ms=DELAY_MS, far_ms=300)
    late.leads(3, now_ms=0)
    late.prefer(3, asked=3)
    assert not late.must_move
    late.prefer(1, asked=1)
    assert late.must_move
    late.leads(1, now_ms=10)
    assert not late.must_move


def test_a_drained_leader_hands_over_at_once_and_gets_nothing_back() -> None:
    cluster, _ = _led()
    _wish(cluster, drained=(PREFERRED,))
    assert cluster.until(lambda: not _leads(cluster, PREFERRED) and cluster.leader) < 300
    cluster.advance(10 * DELAY_MS)
    assert not _leads(cluster, PREFERRED)
    _wish(cluster)
    assert cluster.until(lambda: _leads(cluster, PREFERRED)) >= DELAY_MS


def test_a_drained_candidate_gives_way_to_one_that_is_as_far() -> None:
    election = Election(random.Random(1).uniform, SETTINGS, 1, 3, is_preferred=True, now_ms=0)
    election.is_drained = True
    assert election.due(election.next_deadline_ms()) is Due.ASK
    assert election.answer(1_000, 3, is_behind=False, is_equal=True)[0]


@pytest.mark.parametrize("seed", range(10))
def test_a_drained_node_loses_every_election_that_another_can_win(seed: int) -> None:
    cluster, leader = _led(seed)
    drained, other = cluster.followers()[:: 1 if seed % 2 else -1]
    _wish(cluster, drained=(drained.number,))
    leader.kill()
    assert cluster.until(lambda: cluster.leader is not None) <= 250, "no slower than without it"
    assert cluster.leader is other


@pytest.mark.parametrize("seed", range(5))
def test_drained_nodes_lead_while_no_other_can(seed: int) -> None:
    cluster, leader = _led(seed)
    drained = [node.number for node in cluster.followers()]
    _wish(cluster, drained=(1, 2, 3))
    cluster.advance(3 * DELAY_MS)
    assert cluster.leader is leader, "there is no better one"
    leader.kill()
    assert cluster.until(lambda: cluster.leader is not None) < SETTINGS.raft_max_timeout_ms + 500
    assert cluster.elect().number in drained
    leader.restart()
    _wish(cluster, drained=tuple(drained))
    assert cluster.until(lambda: cluster.leader is leader) < 2 * DELAY_MS


def test_a_drained_node_leads_until_the_other_one_has_caught_up() -> None:
    """It alone has the newest entries, and no other node of the majority."""
    cluster, leader = _led()
    drained, behind = cluster.followers()
    cluster.isolate(behind.number)
    _wish(cluster, drained=(drained.number,))
    leader.put_committed(("b", "2"))
    cluster.advance(100)
    leader.kill()
    cluster.heal()
    cluster.link(behind.number, drained.number)
    cluster.until(lambda: cluster.leader is drained)
    assert cluster.until(lambda: cluster.leader is behind) < DELAY_MS
    behind.put_committed(("c", "3"))


def test_an_obstacle_hands_over_to_a_drained_node_only_if_there_is_no_other() -> None:
    cluster, leader = _led()
    drained, able = cluster.followers()
    _wish(cluster, drained=(drained.number,))
    leader.machine.hindered_by = Obstacle.DISK_FULL
    cluster.until(lambda: cluster.leader not in (None, leader))
    assert cluster.leader is able
    able.machine.hindered_by = Obstacle.DISK_FULL
    cluster.until(lambda: cluster.leader is drained)
    cluster.advance(3 * DELAY_MS)
    assert cluster.leader is drained


def _random_wish(rng: random.Random) -> LeaderWish:
    drained = frozenset(number for number in (1, 2, 3) if rng.random() < 0.4)
    return LeaderWish(rng.choice((None, 1, 2, 3)), drained)


@pytest.mark.parametrize("seed", range(25))
def test_requests_between_faults_end_with_the_leader_that_was_asked_for(seed: int) -> None:
    """The nodes learn of each request at different times, and some not at all before the next one."""
    rng = random.Random(seed)
    cluster, _ = _led(seed)
    for _ in range(12):
        wish = _random_wish(rng)
        for node in cluster.running:
            if rng.random() < 0.8:
                node.replica.wish_for(wish)
        victim = cluster.nodes[rng.choice((1, 2, 3))]
        if not victim.is_up:
            victim.restart()
        elif rng.random() < 0.3:
            victim.kill()
        elif rng.random() < 0.3:
            cluster.isolate(victim.number)
        else:
            cluster.heal()
        cluster.advance(rng.uniform(1, 1_500))
    cluster.heal()
    for node in cluster.nodes.values():
        if not node.is_up:
            node.restart()
    wish = _random_wish(rng)
    _wish(cluster, wish.asked, tuple(wish.drained))
    should = preferred_node((1, 2, 3), 0, wish)
    cluster.until(lambda: should is None or _leads(cluster, should), limit_ms=40 * DELAY_MS)
    cluster.elect().put_committed(("z", "1"))
    cluster.advance(5 * DELAY_MS)
    assert should is None or _leads(cluster, should)
    cluster.assert_equal()
