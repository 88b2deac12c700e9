"""A node that cannot serve is not made leader, refuses to lead, hands over; leadership does not bounce."""

from __future__ import annotations

import dataclasses

import pytest

from raftlog.consensus.messages import Ack, TimeoutNow, decode
from raftlog.consensus.progress import ReplicationProgress
from raftlog.env.obstacles import Obstacle, obstacle_words
from raftlog.replica.balancing import WAITS_MAX, Balancing
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS

DELAY_MS = 1_000
QUICK = dataclasses.replace(SETTINGS, leader_balance_delay_ms=DELAY_MS)
HEARTBEATS_MS = 200
"""Milliseconds within which every follower reports its state."""


def _settled() -> tuple[ReplicaCluster, ClusterNode, list[ClusterNode]]:
    cluster = ReplicaCluster(settings=QUICK).start()
    leader = cluster.elect()
    leader.put_committed(("a", "1"))
    cluster.settle()
    cluster.advance(HEARTBEATS_MS)
    return cluster, leader, cluster.followers()


def _transfer(cluster: ReplicaCluster, leader: ClusterNode, target: int | None) -> list[str | None]:
    done: list[str | None] = []
    leader.replica.leadership.transfer(target, done.append)
    cluster.until(lambda: done)
    return done


def test_a_node_that_cannot_serve_is_not_handed_the_lead() -> None:
    cluster, leader, (hindered, able) = _settled()
    hindered.machine.hindered_by = Obstacle.CATALOG_BEHIND
    cluster.advance(HEARTBEATS_MS)
    why = f"node {hindered.number} cannot serve: {obstacle_words(Obstacle.CATALOG_BEHIND)}"
    assert _transfer(cluster, leader, hindered.number) == [why]
    assert leader.replica.leadership.has_lease(cluster.now_ms), "the lead was never at stake"
    rows = {row["node_id"]: row["cannot_serve"] for row in leader.replica.leadership.followers()}
    assert rows == {hindered.number: obstacle_words(Obstacle.CATALOG_BEHIND), able.number: None}
    able.machine.hindered_by = Obstacle.DISK_FULL
    cluster.advance(HEARTBEATS_MS)
    assert "; " in str(_transfer(cluster, leader, None)[0]), "it says of each why not"
    able.machine.hindered_by = Obstacle.NONE
    cluster.advance(HEARTBEATS_MS)
    assert _transfer(cluster, leader, None) == [None]
    assert cluster.elect() is able


def test_the_lead_is_refused_by_who_cannot_serve_before_its_leader_knows() -> None:
    cluster, leader, (target, _) = _settled()
    term = leader.replica.term
    held: list[bytes] = []

    def dropped(source: int, to: int, payload: bytes) -> bool:
        """Drop the target's messages, so that the leader does not know its state."""
        return source == target.number and not held

    cluster.dropped = dropped
    target.machine.hindered_by = Obstacle.DISK_FULL
    done: list[str | None] = []
    leader.replica.leadership.transfer(target.number, done.append)
    held.append(b"the answer comes through")
    started_ms = cluster.now_ms
    cluster.until(lambda: done)
    assert done == [f"node {target.number} cannot serve: {obstacle_words(Obstacle.DISK_FULL)}"]
    assert cluster.now_ms - started_ms < 100, "and not when it is too late"
    assert leader.replica.term == term
    leader.put_committed(("b", "2"))


def test_a_refusal_is_no_proof_that_this_node_leads() -> None:
    cluster, leader, (target, _) = _settled()
    target.machine.hindered_by = Obstacle.DISK_FULL
    said: list[Ack] = []

    def hear(source: int, to: int, payload: bytes) -> bool:
        message = decode(payload)
        if source == target.number and isinstance(message, Ack):
            said.append(message)
        return False

    cluster.dropped = hear
    target.replica.peer_message(leader.number, TimeoutNow(leader.replica.term).encode())
    assert [(one.obstacle, one.sent_ms) for one in said] == [(Obstacle.DISK_FULL, float("-inf"))]
    assert target.replica.term == leader.replica.term


def test_a_leader_that_cannot_serve_gives_the_lead_to_who_can() -> None:
    cluster, leader, (other, able) = _settled()
    other.machine.hindered_by = Obstacle.CATALOG_BEHIND
    cluster.advance(HEARTBEATS_MS)
    leader.machine.hindered_by = Obstacle.CATALOG_BEHIND
    assert cluster.until(lambda: cluster.leader is able) < 500
    cluster.advance(20 * DELAY_MS)
    assert cluster.leader is able, "the preferred node cannot serve"
    leader.machine.hindered_by = Obstacle.NONE
    took_ms = cluster.until(lambda: cluster.leader is leader)
    assert took_ms >= DELAY_MS


def test_a_leader_stays_when_no_other_node_can_serve_either() -> None:
    cluster, leader, followers = _settled()
    for node in (leader, *followers):
        node.machine.hindered_by = Obstacle.CATALOG_STALE
    term = leader.replica.term
    cluster.advance(20 * DELAY_MS)
    assert (cluster.leader, leader.replica.term) == (leader, term)
    leader.put_committed(("b", "2"))


def test_a_full_disk_gives_the_lead_away_until_there_is_clearly_room_again() -> None:
    cluster, leader, _ = _settled()
    floor = SETTINGS.disk_free_bytes_min
    leader.files.free = floor - 1
    assert cluster.until(lambda: cluster.leader not in (None, leader)) < 2_000
    leader.files.free = floor
    cluster.advance(20 * DELAY_MS)
    assert cluster.leader is not leader
    assert leader.replica.status()["cannot_serve"] == obstacle_words(Obstacle.DISK_FULL)
    leader.files.free = 2 * floor
    cluster.until(lambda: cluster.leader is leader)
    assert leader.replica.status()["cannot_serve"] is None


def test_a_cluster_whose_disks_are_all_full_keeps_its_leader() -> None:
    cluster, leader, followers = _settled()
    for node in (leader, *followers):
        node.files.free = 1
    term = leader.replica.term
    cluster.advance(20 * DELAY_MS)
    assert (cluster.leader, leader.replica.term) == (leader, term)
    assert not leader.replica.can_append


def test_the_shard_comes_back_ever_later_to_a_node_that_keeps_losing_it() -> None:
    cluster, leader, _ = _settled()
    waited_ms = []
    for _ in range(5):
        leader.machine.hindered_by = Obstacle.DISK_STALLED
        cluster.until(lambda: cluster.leader not in (None, leader))
        leader.machine.hindered_by = Obstacle.NONE
        waited_ms.append(cluster.until(lambda: cluster.leader is leader, limit_ms=100_000))
        cluster.advance(HEARTBEATS_MS)
    for waited, factor in zip(waited_ms, (1, 2, 4, 8, 16), strict=True):
        assert waited == pytest.approx(factor * DELAY_MS, abs=800), waited_ms


def test_the_wait_is_bounded_and_begins_anew_after_a_long_lead() -> None:
    balancing, progress = (
        Balancing(preferred=2, delay_ms=DELAY_MS, far_ms=300),
        ReplicationProgress([2, 3], 150.0),
    )
    for peer in progress.peers.values():
        peer.link(is_up=True, next_index=1, now_ms=0)
        peer.matches(1)
    now_ms = 0.0

    def waited_ms() -> float:
        nonlocal now_ms
        began_ms = now_ms
        while balancing.successor(now_ms, progress, 1, can_serve=True) is None:
            now_ms += 250
        return now_ms - began_ms

    for _ in range(50):
        balancing.leads(2, now_ms)
        balancing.leads(1, now_ms)
    assert waited_ms() == pytest.approx(WAITS_MAX * DELAY_MS, abs=500)
    balancing.leads(2, now_ms)
    now_ms += WAITS_MAX * DELAY_MS
    balancing.leads(1, now_ms)
    assert waited_ms() == pytest.approx(DELAY_MS, abs=500)


def test_a_node_that_answers_late_gets_its_shard_when_it_answers_in_time() -> None:
    """Committing its first entry would take longer than a leader may go without an answer."""
    balancing, progress = (
        Balancing(preferred=2, delay_ms=DELAY_MS, far_ms=300),
        ReplicationProgress([2, 3], 150.0),
    )
    peer = progress.peers[2]
    peer.link(is_up=True, next_index=1, now_ms=0)
    peer.matches(1)

    def successors(round_trip_ms: float, begin_ms: int) -> set[int | None]:
        peer.answered(begin_ms, begin_ms + round_trip_ms)
        times = range(begin_ms, begin_ms + 5 * DELAY_MS, 250)
        return {balancing.successor(at_ms, progress, 1, can_serve=True) for at_ms in times}

    assert successors(600, 0) == {None}
    assert successors(20, 10_000) == {None, 2}


@pytest.mark.parametrize("obstacle", [one for one in Obstacle if one])
def test_every_obstacle_has_words(obstacle: Obstacle) -> None:
    words = obstacle_words(obstacle)
    assert words is not None
    assert not words.startswith("obstacle")


def test_an_obstacle_of_a_later_release_is_one_too() -> None:
    assert obstacle_words(99) == "obstacle 99"
    assert obstacle_words(0) is obstacle_words(None) is None
