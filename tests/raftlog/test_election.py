"""Elections: pre-votes, the lease, pauses, hand-over."""

from __future__ import annotations

import dataclasses
import random

import pytest

from raftlog.consensus.election import Due, Election
from raftlog.consensus.messages import Vote, VoteRequest
from raftlog.env.settings import LogSettings
from records import TermStartValue, TermWhy, Trigger, decode_entry, decode_record
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
from tests.support.single_replica import committed

LEASE_MS = LogSettings().raft_min_timeout_ms / 2


def _election(*, is_preferred: bool = False, now_ms: float = 0.0) -> Election:
    return Election(random.Random(1).uniform, LogSettings(), 2, 3, is_preferred=is_preferred, now_ms=now_ms)


# The rules alone


def test_a_node_that_hears_its_leader_grants_no_vote() -> None:
    election = _election()
    election.heard(1000)
    granted, wait_ms = election.answer(1299, 3, is_behind=False, is_equal=True)
    assert (granted, wait_ms) == (False, 0)
    granted, _ = election.answer(1301, 3, is_behind=False, is_equal=True)
    assert granted


def test_a_broken_connection_ends_hearing_but_not_the_lease() -> None:
    election = _election()
    election.heard(1000)
    election.leader_lost(1010)
    granted, wait_ms = election.answer(1020, 3, is_behind=False, is_equal=True)
    assert granted
    assert wait_ms == pytest.approx(1000 + LEASE_MS - 1020)
    assert election.vote_wait_ms(1000 + LEASE_MS) == 0


def test_a_start_is_as_if_a_leader_had_just_been_heard() -> None:
    election = _election(now_ms=5000)
    assert election.vote_wait_ms(5000) == LEASE_MS


def test_a_candidate_campaigns_as_soon_as_its_voters_may() -> None:
    election = _election()
    election.heard(1000)
    election.leader_lost(1001)
    at_ms = election.next_deadline_ms()
    assert at_ms <= 1051
    assert election.due(at_ms) is Due.ASK
    election.answered(at_ms + 1, 3, election.round, granted=True, wait_ms=90.0)
    assert election.due(at_ms + 2) is Due.NOTHING
    campaign_ms = election.next_deadline_ms()
    assert campaign_ms == pytest.approx(max(1000 + LEASE_MS, at_ms + 1 + 90 + 1))
    assert election.due(campaign_ms) is Due.CAMPAIGN


def test_an_answer_to_an_earlier_round_counts_nothing() -> None:
    election = _election()
    at_ms = election.next_deadline_ms()
    assert election.due(at_ms) is Due.ASK
    election.answered(at_ms, 3, election.round - 1, granted=True, wait_ms=0)
    assert election.due(election.next_deadline_ms()) is not Due.CAMPAIGN


def test_who_grants_holds_back() -> None:
    election = _election()
    election.heard(1000)
    election.leader_lost(1001)
    assert election.answer(1002, 3, is_behind=False, is_equal=True)[0]
    assert election.next_deadline_ms() > 1000 + 2 * LEASE_MS


def test_of_two_that_ask_at_once_one_gives_way() -> None:
    one = Election(random.Random(1).uniform, LogSettings(), 1, 3, is_preferred=False, now_ms=0)
    two = Election(random.Random(2).uniform, LogSettings(), 2, 3, is_preferred=False, now_ms=0)
    for election in (one, two):
        assert election.due(election.next_deadline_ms() + 2000) is Due.ASK
    assert not one.answer(3000, 2, is_behind=False, is_equal=True)[0]
    assert two.answer(3000, 1, is_behind=False, is_equal=True)[0]


# Three nodes


def _after_a_while(seed: int = 0) -> tuple[ReplicaCluster, ClusterNode]:
    cluster = ReplicaCluster(seed=seed).start()
    leader = cluster.elect()
    leader.put_many(10)
    cluster.settle()
    cluster.advance(1000 + seed * 7)
    return cluster, leader


@pytest.mark.parametrize("seed", range(20))
def test_a_killed_leader_is_replaced_within_250_ms(seed: int) -> None:
    cluster, leader = _after_a_while(seed)
    leader.kill()
    assert cluster.until(lambda: cluster.leader is not None) <= 250


def _term_starts(node: ClusterNode) -> list[TermStartValue]:
    values = []
    for frame in committed(node.replica):
        opened = decode_entry(frame.body)
        if opened.cause.trigger == Trigger.TERM_OPENED:
            value = decode_record(opened.records[0]).value
            assert isinstance(value, TermStartValue)
            values.append(value)
    return values


def test_a_term_says_who_opened_it_and_why_and_who_led_before() -> None:
    cluster, first = _after_a_while()
    first.kill()
    second = cluster.elect()
    first.start()
    cluster.settle()
    cluster.advance(500)
    done: list[str | None] = []
    second.replica.leadership.transfer(first.number, done.append)
    cluster.until(lambda: cluster.leader is first)
    first.pause()
    cluster.until(lambda: cluster.leader is not None)
    third = cluster.leader
    assert third is not None
    found = [(value.node_id, value.why, value.previous_leader) for value in _term_starts(third)]
    assert found == [
        (first.number, TermWhy.START, -1),
        (second.number, TermWhy.RESET, first.number),
        (first.number, TermWhy.TRANSFER, second.number),
        (third.number, TermWhy.EXPIRY, first.number),
    ]


def test_a_follower_that_was_stopped_does_not_depose_the_leader() -> None:
    for seed in range(10):
        cluster, leader = _after_a_while(seed)
        term = leader.replica.term
        follower = cluster.followers()[seed % 2]
        follower.pause()
        cluster.advance(5000)
        follower.host.resume()
        cluster.advance(3000)
        assert cluster.leader is leader
        assert leader.replica.term == term


def test_a_follower_that_loses_only_its_link_to_the_leader_does_not_depose_it() -> None:
    cluster, leader = _after_a_while()
    term = leader.replica.term
    lonely = cluster.followers()[0].number
    cluster.cut |= {(lonely, leader.number), (leader.number, lonely)}
    cluster.unlink(lonely, leader.number, again_ms=None)
    cluster.advance(10_000)
    assert (cluster.leader, leader.replica.term) == (leader, term)
    assert cluster.nodes[lonely].replica.leader_id is None


def test_an_isolated_node_does_not_raise_its_term() -> None:
    cluster, leader = _after_a_while()
    away = cluster.followers()[0]
    cluster.isolate(away.number)
    cluster.advance(20_000)
    assert away.replica.term == leader.replica.term
    cluster.heal()
    cluster.advance(2000)
    assert cluster.leader is leader


def test_all_stopped_at_once_go_on_as_before() -> None:
    cluster, leader = _after_a_while()
    for node in cluster.running:
        node.pause()
    cluster.advance(60_000)
    for node in cluster.running:
        node.host.resume()
    cluster.until(lambda: cluster.leader is not None)
    cluster.advance(3000)
    assert cluster.leader is leader
    cluster.assert_equal()


def test_a_duplicated_vote_counts_once() -> None:
    cluster = ReplicaCluster(num_nodes=5).start()
    leader = cluster.elect()
    candidate = cluster.followers()[0]
    raft, peering = candidate.replica._raft, candidate.replica._peering
    assert raft is not None
    assert peering is not None
    for node in cluster.running:
        if node is not candidate:
            node.pause()
    peering.candidacy._campaign(TermWhy.EXPIRY)
    voter = leader.number
    for _ in range(3):
        candidate.replica.peer_message(voter, Vote(raft.term).encode())
    assert not raft.is_leader


def test_no_vote_is_given_while_a_leader_may_answer_from_its_lease() -> None:
    cluster, leader = _after_a_while()
    follower, other = cluster.followers()
    cluster.until(lambda: cluster.now_ms % 50 < 1)
    term = leader.replica.term
    raft = follower.replica._raft
    assert raft is not None
    request = VoteRequest(term + 1, 10_000, term + 1, False)
    cluster.unlink(leader.number, follower.number, again_ms=None)
    cluster.advance(1)
    follower.replica.peer_message(other.number, request.encode())
    assert follower.replica.term == term
    asked = VoteRequest(term + 1, 10_000, term + 1, True)
    follower.replica.peer_message(other.number, asked.encode())
    assert follower.replica.term == term + 1


@pytest.mark.parametrize("seed", range(10))
def test_a_lease_never_reaches_into_another_leaders_term(seed: int) -> None:
    cluster, _ = _after_a_while(seed)
    rng = cluster.rng
    for _ in range(20):
        choice = rng.randrange(4)
        old = cluster.leader
        if old is not None:
            if choice == 0:
                one = rng.choice(cluster.voters)
                cluster.isolate(one)
            elif choice == 1:
                cluster.unlink(old.number, rng.choice([n for n in cluster.voters if n != old.number]))
            elif choice == 2:
                old.pause()
                cluster.push(cluster.now_ms + rng.uniform(50, 800), None, old.host.resume)
            else:
                old.replica.leadership.transfer(None, lambda reason: None)
        until = cluster.now_ms + rng.uniform(100, 900)
        while cluster.now_ms < until:
            cluster.advance(1)
            holders = [
                node
                for node in cluster.running
                if not node.host.is_paused and node.replica.leadership.has_lease(cluster.now_ms)
            ]
            newest = max((node.replica.term for node in cluster.running if node.replica.is_leader), default=0)
            assert all(node.replica.term == newest for node in holders)
        cluster.heal()


def test_reads_are_proven_by_one_round() -> None:
    cluster, leader = _after_a_while()
    cluster.advance(3)
    asked_ms = cluster.now_ms
    assert leader.replica.leadership.proven_ms < asked_ms
    leader.replica.leadership.ask_proof()
    leader.replica.leadership.ask_proof()
    took_ms = cluster.until(lambda: leader.replica.leadership.proven_ms >= asked_ms)
    assert took_ms <= 1
    assert leader.machine.proofs[-1] >= asked_ms
    cluster.isolate(leader.number)
    cluster.advance(10)
    later_ms = cluster.now_ms
    leader.replica.leadership.ask_proof()
    cluster.advance(200)
    assert leader.replica.leadership.proven_ms < later_ms
    assert not leader.replica.leadership.has_lease(cluster.now_ms)


def test_a_transfer_loses_nothing_under_load() -> None:
    cluster, leader = _after_a_while()
    target = cluster.followers()[0]
    done: list[str | None] = []
    leader.replica.leadership.transfer(target.number, done.append)
    acknowledged = []
    for number in range(200):
        now = cluster.leader
        if now is not None and now.replica.can_append:
            acknowledged.append((now, now.put((f"t{number}", "x"))))
        cluster.advance(0.3)
    cluster.until(lambda: cluster.leader is target)
    assert done == [None]
    cluster.assert_equal()
    for node, index in acknowledged:
        assert target.machine.log[index] == node.machine.log[index]


def test_a_transfer_to_a_node_that_is_down_says_why() -> None:
    cluster, leader = _after_a_while()
    target = cluster.followers()[0]
    target.kill()
    cluster.advance(10)
    done: list[str | None] = []
    leader.replica.leadership.transfer(target.number, done.append)
    cluster.advance(1)
    assert done == [f"node {target.number} is not connected"]
    leader.put_committed(("a", "1"))


def test_a_target_that_falls_silent_leaves_the_leader_leading() -> None:
    cluster, leader = _after_a_while()
    target = cluster.followers()[0]
    target.pause()
    done: list[str | None] = []
    leader.replica.leadership.transfer(target.number, done.append)
    cluster.advance(6000)
    assert done == [f"node {target.number} did not take over in time"]
    leader.put_committed(("a", "1"))
    assert not leader.replica.leadership.has_lease(cluster.now_ms), "timeout_now may still be read one day"


def test_applied_everywhere_is_known_soon() -> None:
    cluster, leader = _after_a_while()
    index = leader.put_committed(("topic", "made"))
    done: list[float] = []
    leader.replica.leadership.when_everywhere(index, 1000, lambda: done.append(cluster.now_ms))
    assert cluster.until(lambda: done) < 5
    assert all(node.machine.applied >= index for node in cluster.running)
    cluster.followers()[0].pause()
    index = leader.put_committed(("topic", "again"))
    leader.replica.leadership.when_everywhere(index, 1000, lambda: done.append(cluster.now_ms))
    assert cluster.until(lambda: len(done) == 2) == pytest.approx(1000)


def test_the_preferred_node_leads_again_when_it_has_been_back_for_a_while() -> None:
    cluster, leader = _after_a_while()
    leader.kill()
    cluster.elect()
    leader.start()
    cluster.settle()
    back_ms = cluster.now_ms
    cluster.until(lambda: cluster.leader is leader, 20_000)
    assert cluster.now_ms - back_ms >= 9000
    assert len(cluster.leaders) == 3


def test_a_leader_whose_disk_stands_still_hands_over() -> None:
    cluster, leader = _after_a_while()
    leader.host.hold_disk = True
    leader.replica.group_commit.average_ms = 1000.0  # slow lately: syncs go to the disk thread
    leader.put(("stuck", "1"))
    cluster.until(lambda: cluster.leader is not leader and cluster.leader is not None)
    took_ms = cluster.until(lambda: cluster.leader is not None and cluster.leader is not leader)
    assert took_ms < 3000
    cluster.advance(5000)
    assert cluster.leader is not leader
    while leader.host.disk:
        leader.host.do_disk()
        cluster.advance(10)
    leader.host.hold_disk = False
    cluster.assert_equal()


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_with_longer_timeouts_than_the_others_has_the_lease_that_they_grant(seed: int) -> None:
    """Timeouts differ while `raft.min.timeout.ms` is being changed: each voter waits for its own."""
    cluster = ReplicaCluster(seed=seed)
    shorter = cluster.settings
    cluster.settings = dataclasses.replace(shorter, raft_min_timeout_ms=1500, raft_max_timeout_ms=2500)
    cluster.start(2)
    cluster.settings = shorter
    cluster.start(1, 3)
    old = cluster.nodes[2]
    first = cluster.elect()
    cluster.settle()
    if first is not old:
        first.replica.leadership.transfer(2, lambda reason: None)
        cluster.until(lambda: cluster.leader is old)
    cluster.settle()
    cluster.advance(200)
    assert old.replica.leadership.has_lease(cluster.now_ms)
    cluster.cut |= {(2, 1), (1, 2), (2, 3), (3, 2)}  # silently
    while not any(node.replica.is_leader for node in cluster.running if node is not old):
        cluster.step()
    assert not old.replica.leadership.has_lease(cluster.now_ms)
