"""Raft's rules without I/O: cores over logs in memory, and their actions carried out by hand."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import pytest

import raftlog
from raftlog.consensus.core import (
    Action,
    AppendToLog,
    Deposed,
    Elected,
    RaftCore,
    SaveTerm,
    SendVote,
    TruncateLog,
)
from raftlog.consensus.messages import Ack, Append, Vote, VoteRequest
from raftlog.env.settings import LogSettings
from raftlog.storage.append_validation import check_frames
from raftlog.storage.frames import encode_frame

SETTINGS = LogSettings()
TIMEOUT_MS = SETTINGS.raft_min_timeout_ms
VOTERS = (1, 2, 3)


class MemoryLog:
    """A log of terms; `sync` makes all of it durable."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.base_index = 0
        self.durable_index = 0

    @property
    def last_index(self) -> int:
        return len(self.frames)

    @property
    def last_term(self) -> int:
        return self.term_at(self.last_index) or 0

    def term_at(self, index: int) -> int | None:
        if index == 0:
            return 0
        return self.frames[index - 1][0] if 0 < index <= len(self.frames) else None

    def timestamp_at(self, index: int) -> int:
        return 0

    def put(self, term: int) -> int:
        index = self.last_index + 1
        self.frames.append((term, encode_frame(index, term, 0, 0, 1, b"entry")))
        return index

    def append(self, frames: bytes) -> None:
        for one in check_frames(frames, self.last_index, self.last_term, 0):
            self.frames.append((one.term, one.frame))

    def sync(self) -> None:
        self.durable_index = self.last_index


class Member:
    """One core; its votes reach the other members when the test delivers them."""

    def __init__(self, number: int, voters: tuple[int, ...] = VOTERS) -> None:
        self.number = number
        self.log = MemoryLog()
        self.saved = SaveTerm(0, None)
        self.actions: list[Action] = []
        self.outbox: deque[SendVote] = deque()
        peers = [one for one in voters if one != number]
        self.core = RaftCore(number, peers, self.log, self.saved, SETTINGS, self._act)
        for peer in peers:
            self.core.linked(peer, is_up=True, now_ms=0.0)

    def _act(self, action: Action) -> None:
        self.actions.append(action)
        match action:
            case AppendToLog(frames):
                self.log.append(frames)
            case TruncateLog(index):
                del self.log.frames[index:]
                self.log.durable_index = min(self.log.durable_index, index)
            case SaveTerm():
                self.saved = action
            case SendVote():
                assert self.saved.term == self.core.term, "a vote goes out before its term is synced"
                self.outbox.append(action)
            case Elected(term, index):
                assert self.log.put(term) == index


@pytest.fixture
def members() -> dict[int, Member]:
    return {number: Member(number) for number in VOTERS}


def deliver(members: dict[int, Member], now_ms: float = 0.0) -> None:
    """Deliver votes and vote requests until there are none."""
    while any(member.outbox for member in members.values()):
        for member in members.values():
            while member.outbox:
                sent = member.outbox.popleft()
                members[sent.node_id].core.grant_or_count(member.number, sent.message, now_ms)


def elect(members: dict[int, Member], number: int, now_ms: float = 0.0) -> Member:
    members[number].core.campaign(now_ms)
    deliver(members, now_ms)
    assert members[number].core.is_leader
    return members[number]


def entries(leader: Member, after: int) -> Append:
    prev_term = leader.log.term_at(after)
    assert prev_term is not None
    frames = b"".join(frame for _, frame in leader.log.frames[after:])
    return Append(leader.core.term, after, prev_term, leader.core.commit_index, 0.0, frames)


def test_an_election_saves_the_term_before_it_asks_and_opens_its_term(members: dict[int, Member]) -> None:
    leader = elect(members, 1)
    first, *asks, last = leader.actions
    assert (first, last) == (SaveTerm(1, "1"), Elected(1, 1))
    request = VoteRequest(1, 0, 0, False)
    assert all(ask in asks for ask in (SendVote(2, request), SendVote(3, request)))
    assert len(asks) == 2
    assert members[2].actions == [SaveTerm(1, None), SaveTerm(1, "1"), SendVote(1, Vote(1))]
    assert (leader.core.leader_id, members[2].core.leader_id) == (1, None)


def test_a_term_that_cannot_be_saved_is_not_won() -> None:
    def act(action: Action) -> None:
        raise OSError("the disk is gone")

    core = RaftCore(1, [], MemoryLog(), SaveTerm(3, None), SETTINGS, act)
    with pytest.raises(OSError, match="gone"):
        core.campaign(0.0)
    assert (core.term, core.is_leader) == (3, False)


def test_a_node_votes_once_per_term(members: dict[int, Member]) -> None:
    voter = members[3]
    for candidate in (1, 2):
        voter.core.grant_or_count(candidate, VoteRequest(1, 0, 0, False), 0.0)
    assert [sent.node_id for sent in voter.outbox] == [1]


def test_an_entry_is_committed_when_a_majority_has_synced_it(members: dict[int, Member]) -> None:
    leader = elect(members, 1)
    core = leader.core
    index = leader.log.put(core.term)
    assert not core.commit(), "nothing of it is synced here"
    assert core.answered(2, Ack(1, index, 0, 0.0), 0.0)
    assert not core.matched(2, index), "one disk of three"
    leader.log.sync()
    assert core.commit()
    assert core.commit_index == index
    assert not core.commit(), "nothing new"


def test_entries_of_earlier_terms_commit_with_one_of_the_own(members: dict[int, Member]) -> None:
    leader = elect(members, 1)
    leader.log.sync()
    old = leader.log.last_index
    leader.core.observe(5)
    elect(members, 1)
    assert leader.core.answered(2, Ack(leader.core.term, old, 0, 0.0), 0.0)
    leader.log.durable_index = old
    assert not leader.core.matched(2, old)
    leader.log.sync()
    assert leader.core.matched(2, leader.log.last_index)
    assert leader.core.commit_index == leader.log.last_index > old


def test_a_follower_truncates_at_the_first_conflict_only(members: dict[int, Member]) -> None:
    leader, follower = elect(members, 1), members[2]
    for _ in range(3):
        leader.log.put(leader.core.term)
    assert follower.core.become_follower(1, leader.core.term)
    assert follower.core.accept(entries(leader, 0)) == (True, 4)
    follower.actions.clear()
    assert follower.core.accept(entries(leader, 1)) == (True, 4), "they are here already"
    assert follower.actions == []
    leader.core.observe(7)
    del leader.log.frames[2:]
    elect(members, 1)
    assert follower.core.become_follower(1, leader.core.term)
    follower.actions.clear()
    assert follower.core.accept(entries(leader, 1)) == (True, 3)
    assert [type(action) for action in follower.actions] == [TruncateLog, AppendToLog]
    assert follower.actions[0] == TruncateLog(2)
    follower.core.commit_to(3)
    with pytest.raises(AssertionError, match="is committed"):
        follower.core.accept(Append(9, 2, 1, 0, 0.0, encode_frame(3, 9, 0, 0, 1, b"another")))


def test_a_leader_that_hears_no_majority_steps_down(members: dict[int, Member]) -> None:
    leader = elect(members, 1)
    leader.core.tick(TIMEOUT_MS - 1)
    assert leader.core.is_leader
    assert leader.core.answered(2, Ack(1, 0, 0, TIMEOUT_MS - 1), TIMEOUT_MS - 1)
    leader.core.tick(TIMEOUT_MS + 1)
    assert leader.core.is_leader
    leader.core.tick(2 * TIMEOUT_MS)
    assert leader.actions[-1] == Deposed()
    assert (leader.core.is_leader, leader.core.leader_id, leader.core.term) == (False, None, 1)


def test_one_module_writes_term_commit_index_and_match_indexes() -> None:
    """`progress` holds the match indexes; the methods that change them are called by the core only."""
    package = Path(raftlog.__file__).parent
    writes = re.compile(
        r"(?:raft|core)\.(?:term|vote|is_leader|leader_id|commit_index) = |\.match_index = |"
        r"(?:peer|follower|one|progress|peers\[\w+\])\.(?:matches|forgot|link|begin_term)\("
    )
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if writes.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"consensus/core.py", "consensus/progress.py"}
    private = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"_SyncObj__|pysyncobj import", path.read_text(encoding="utf-8"))
    }
    assert private == {"consensus/pysyncobj_engine.py"}
