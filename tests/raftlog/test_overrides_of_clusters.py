"""Each override of the library that needs peers: without it a defect of the audit appears, with it none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import Ack, Append, Vote
from raftlog.env.simulated_files import Crash
from raftlog.replica.leader import LeaderReplication
from records import TermWhy
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
from tests.support.single_replica import SETTINGS


class TruncatesAlways(RaftCore):
    """Override 1 off: all entries after the leader's previous index are removed, as in the library (D1)."""

    def accept(self, message: Append) -> tuple[bool, int]:
        keeps = message.prev_index
        if self._log.term_at(keeps) == message.prev_term and keeps < self._log.last_index:
            log: Any = self._log
            log.truncate_after(keeps)
        return super().accept(message)


class TakesAnyAnswer(RaftCore):
    """Override 1 off: an answer carries no term (D2)."""

    def is_answer(self, term: int) -> bool:
        return self.is_leader


class CountsEveryVote(RaftCore):
    """Override 1 off: a duplicated vote counts twice."""

    def count_vote(self, peer: int, term: int) -> bool:
        return True


class BacksOffByOne(RaftCore):
    """Override 1 off: one entry at a time, once per heartbeat (D11)."""

    def back_off(self, index: int) -> int:
        return index


class AcknowledgesAtOnce(RaftCore):
    """Override 4 off: entries are acknowledged while they are only in memory."""

    def acknowledged(self, matched_index: int) -> int:
        return matched_index


class CommitsAnyTerm(RaftCore):
    """Override 4 off: entries of earlier terms commit by counting (Raft, figure 8)."""

    def committable(self) -> int:
        return self.progress.commit_index(self._log.durable_index)


def _three(engine: type[RaftCore], seed: int = 0) -> tuple[ReplicaCluster, ClusterNode]:
    cluster = ReplicaCluster(engine=engine, seed=seed).start()
    return cluster, cluster.elect()


def _resend(cluster: ReplicaCluster, leader: ClusterNode, follower: ClusterNode, prev: int) -> None:
    """Deliver an old message of the leader again, one without entries."""
    journal = leader.replica._journal
    term = journal.term_at(prev)
    assert term is not None
    message = Append(leader.replica.term, prev, term, prev, cluster.now_ms)
    follower.replica.peer_message(leader.number, message.encode())


@pytest.mark.parametrize("engine", [RaftCore, TruncatesAlways])
def test_override_1_what_was_acknowledged_is_not_truncated(engine: type[RaftCore]) -> None:
    """D1: 629 of 1,000 acknowledged entries were lost: a slow follower, then one crash of the leader."""
    cluster, leader = _three(engine)
    leader.put_many(10)
    cluster.settle()
    cluster.advance(100)
    follower, other = cluster.followers()
    other.pause()
    leader.put_many(100, "acknowledged-")
    cluster.advance(1)
    index = leader.replica.last_index
    assert leader.machine.committed_index == index
    before = follower.replica.last_index
    assert before == index
    if engine is TruncatesAlways:
        follower.replica._journal.chain.index = 0  # our own journal would refuse, too
        follower.replica._journal._recent_base = 0
    try:
        _resend(cluster, leader, follower, 50)
    except AssertionError:
        assert engine is not RaftCore
    kept = follower.is_up and follower.replica.last_index == index
    assert kept is (engine is RaftCore)


@pytest.mark.parametrize("engine", [RaftCore, TakesAnyAnswer])
def test_override_1_an_answer_of_an_earlier_term_commits_nothing(engine: type[RaftCore]) -> None:
    """D2: a stale acknowledgement made a leader commit with no replica."""
    cluster, leader = _three(engine)
    leader.put_many(5)
    cluster.settle()
    followers = cluster.followers()
    for node in followers:
        node.pause()
    index = leader.put(("alone", "1"))
    cluster.advance(1)
    stale = Ack(leader.replica.term - 1, index, index, cluster.now_ms)
    leader.replica.peer_message(followers[0].number, stale.encode())
    committed = leader.replica.commit_index >= index
    assert committed is (engine is not RaftCore)


@pytest.mark.parametrize("engine", [RaftCore, CountsEveryVote])
def test_override_1_a_vote_counts_once(engine: type[RaftCore]) -> None:
    cluster = ReplicaCluster(num_nodes=5, engine=engine).start()
    cluster.elect()
    candidate, voter = cluster.followers()[:2]
    for node in cluster.running:
        if node is not candidate:
            node.pause()
    raft, peering = candidate.replica._raft, candidate.replica._peering
    assert raft is not None
    assert peering is not None
    peering.candidacy._campaign(TermWhy.EXPIRY)
    for _ in range(2):
        candidate.replica.peer_message(voter.number, Vote(raft.term).encode())
    assert raft.is_leader is (engine is not RaftCore)


@pytest.mark.parametrize(("engine", "at_most_ms"), [(RaftCore, 100), (BacksOffByOne, 10_000)])
def test_override_1_backing_off_goes_by_terms(engine: type[RaftCore], at_most_ms: float) -> None:
    """D11: 300 entries of a divergent tail took 36 s."""
    cluster, leader = _three(engine)
    cluster.isolate(leader.number)
    leader.put_many(300, "never-")
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not leader)
    other = cluster.leader
    assert other is not None
    other.put_many(300, "instead-")
    cluster.advance(50)
    rejects = 0

    def counting(source: int, target: int, payload: bytes) -> bool:
        nonlocal rejects
        rejects += payload[1] == 3
        return False

    cluster.dropped = counting
    cluster.heal()
    cluster.until(lambda: leader.replica.commit_index >= 300, at_most_ms)
    assert (rejects < 10) is (engine is RaftCore)


@pytest.mark.parametrize("window_bytes", [20_000, 1 << 40])
def test_override_2_what_is_under_way_to_a_peer_is_bounded(window_bytes: int) -> None:
    """The library sends a silent peer everything it lacks, again and again; its buffers had no bound."""
    settings = dataclasses.replace(SETTINGS, replicate_batch_bytes=2_000, replicate_window_bytes=window_bytes)
    cluster = ReplicaCluster(settings=settings).start()
    leader = cluster.elect()
    leader.put_many(3)
    cluster.settle()
    silent, other = cluster.followers()
    silent.pause()
    sent = dict.fromkeys(cluster.voters, 0)

    def counting(source: int, target: int, payload: bytes) -> bool:
        sent[target] += len(payload)
        return False

    cluster.dropped = counting
    for _ in range(20):
        leader.put_many(100)
        cluster.advance(5)
    entries_bytes = leader.replica._journal.offsets[-1]
    assert other.replica.last_index == leader.replica.last_index
    assert (sent[silent.number] < 30_000) is (window_bytes == 20_000)
    assert entries_bytes > 100_000


@pytest.mark.parametrize("shared", [True, False])
def test_override_2_one_encoding_serves_all_peers(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library compressed for every peer and again for every repetition: 89 % of a leader's time."""
    cluster, leader = _three(RaftCore)
    cluster.settle()
    encodings = 0
    encode = LeaderReplication._encode

    def counting(self: LeaderReplication, first: int, last: int, now_ms: float) -> tuple[bytes, int]:
        nonlocal encodings
        encodings += 1
        return encode(self, first, last, now_ms)

    monkeypatch.setattr(LeaderReplication, "_encode", counting)
    if not shared:
        send = LeaderReplication._send_missing
        monkeypatch.setattr(
            LeaderReplication, "_send_missing", lambda self, peer, now_ms, _: send(self, peer, now_ms, {})
        )
    for _ in range(10):
        leader.put_many(10)
        cluster.advance(3)
    assert encodings == (10 if shared else 20)


@pytest.mark.parametrize("engine", [RaftCore, AcknowledgesAtOnce])
def test_override_4_an_acknowledgement_is_of_what_is_synced(engine: type[RaftCore]) -> None:
    cluster, leader = _three(engine)
    cluster.settle()
    followers = cluster.followers()
    for node in followers:
        node.host.hold_disk = True
        node.replica.group_commit.average_ms = 1000.0  # syncs on the disk thread, which never runs them
    index = leader.put(("acknowledged", "1"))
    cluster.advance(200)
    committed = leader.machine.committed_index >= index
    assert committed is (engine is not RaftCore)
    for node in cluster.running:
        node.kill(Crash.LOST)
    for node in followers:
        node.start()
        cluster.advance(1)
        assert node.replica.last_index < index


@pytest.mark.parametrize("engine", [RaftCore, CommitsAnyTerm])
def test_override_4_only_entries_of_the_own_term_commit_by_counting(engine: type[RaftCore]) -> None:
    cluster, leader = _three(engine)
    cluster.settle()
    cluster.isolate(leader.number)
    index = leader.put_many(5, "old-")
    cluster.advance(1)
    raft = leader.replica._raft
    assert raft is not None
    for peer in raft.progress.peers.values():
        peer.match_index = index
    raft.term += 1  # leads a later term, whose first entry is nowhere yet
    raft.commit()
    assert (raft.commit_index >= index) is (engine is not RaftCore)


def test_override_5_a_proposal_is_refused_by_who_does_not_lead() -> None:
    """D5, D15: nothing is queued for a leader to come, and no outcome stays open."""
    cluster, leader = _three(RaftCore)
    cluster.isolate(leader.number)
    leader.put(("open", "1"))
    cluster.until(lambda: bool(leader.machine.deposed_reasons), 1000)
    assert not leader.replica.can_append


def test_override_6_a_new_leader_serves_when_it_has_applied_what_was_before() -> None:
    """D15: readiness in an earlier term does not count."""
    cluster, leader = _three(RaftCore)
    index = leader.put_many(200)
    cluster.until(lambda: leader.machine.committed_index >= index)
    leader.kill()
    new = cluster.elect()
    assert new.machine.applied > index
    assert new.machine.ready_terms == [new.replica.term]


def test_override_9_the_library_would_deny_every_transfer() -> None:
    """Its own match indexes stay 0 here; ours hands over by itself."""
    cluster, leader = _three(RaftCore)
    raft = leader.replica._raft
    assert raft is not None
    answers: list[object] = []
    leader.put_many(3)
    cluster.settle()
    raft.engine.library.transferLeadership(None, lambda _, error: answers.append(error))
    assert answers == [6]
    done: list[str | None] = []
    leader.replica.leadership.transfer(None, done.append)
    cluster.until(lambda: done)
    assert done == [None]
