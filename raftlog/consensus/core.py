"""Raft's rules for one shard's replica, without I/O: the only writer of term, commit index and match indexes.

Its input is messages of peers, ticks, and the news that more of the log is synced (`commit`); every time is
the caller's.  Its output is actions, which `act` carries out before the call that caused them returns,
because term and vote must be synced before anything that follows from them.  The log is only read here.
`pysyncobj_engine` decides terms and votes; a D number is a defect of that library, listed there, that a
method answers.

Invariants:

- A term or vote counts only when it is synced, and a node votes once per term.
- Only what a majority has synced, and of the own term, is committed by counting (Raft 5.4.2).
- A committed entry is never truncated.
- The commit index is never stored: a start knows only its snapshot's (D6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from raftlog.consensus.messages import Ack, Append, Reject, SnapshotAck, Vote, VoteRequest
from raftlog.consensus.progress import ReplicationProgress
from raftlog.consensus.pysyncobj_engine import PysyncobjEngine
from raftlog.env.errors import Corrupt, PeerMessageRefused
from raftlog.env.settings import LogSettings
from raftlog.storage.append_validation import check_frames
from raftlog.storage.frames import HEADER, HEADER_BYTES


@dataclass(frozen=True, slots=True)
class SaveTerm:
    """Sync term and vote."""

    term: int
    vote: str | None


@dataclass(frozen=True, slots=True)
class SendVote:
    """Send a vote, or ask for one; without a link it is lost."""

    node_id: int
    message: Vote | VoteRequest


@dataclass(frozen=True, slots=True)
class Elected:
    """This node leads: append the first entry of its term at `index`, and send it."""

    term: int
    index: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """This node leads no longer: a later term began, or no majority answers, or it stepped down."""


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Remove the entries after `index`, durably: a leader of a later term does not have them."""

    index: int


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Queue a leader's frames; raises Corrupt, and takes none, if they do not follow the last entry."""

    frames: bytes


Action = SaveTerm | SendVote | Elected | Deposed | TruncateLog | AppendToLog


class ReadableLog(Protocol):
    """The log as consensus reads it; terms are known from `base_index`, the snapshot's last entry, on."""

    base_index: int
    durable_index: int

    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...
    def term_at(self, index: int) -> int | None: ...
    def timestamp_at(self, index: int) -> int: ...


class RaftCore:
    """One replica's part in Raft."""

    def __init__(
        self,
        node_id: int,
        peers: Sequence[int],
        log: ReadableLog,
        saved: SaveTerm,
        settings: LogSettings,
        act: Callable[[Action], None],
    ) -> None:
        self._log = log
        self._act = act
        self._voters: set[int] = set()
        self._first_index = 0
        self.node_id = node_id
        self.term = saved.term
        """The current term."""
        self.vote = saved.vote
        """The id of the node that this node voted for in `term`."""
        self.is_leader = False
        """Whether this node leads the shard in `term`."""
        self.leader_id: int | None = None
        """The leader of `term`, as far as this node knows."""
        self.commit_index = log.base_index
        """The last entry known to be committed."""
        self.progress = ReplicationProgress(peers, settings.raft_min_timeout_ms / 2)
        self.engine = PysyncobjEngine(
            node_id, peers, log, (saved.term, saved.vote), settings.raft_min_timeout_ms, self
        )

    @property
    def knows_commit(self) -> bool:
        """Whether an entry of the current term is committed, so that every earlier commit is known too."""
        return self._log.term_at(self.commit_index) == self.term

    def is_serving(self, applied_index: int) -> bool:
        """Whether this node leads and has applied everything before its own term.

        The barrier is of the term; the library's is lifted once and for all (D15).
        """
        return self.is_leader and applied_index >= self._first_index

    # Ticks

    def campaign(self, now_ms: float, *, is_transfer: bool = False) -> None:
        """Ask for votes in a new term; `is_transfer`: the leader asked for this election."""
        self._voters.clear()
        self.leader_id = None
        self.engine.campaign(now_ms, is_transfer=is_transfer)
        self._finish_winning()

    def tick(self, now_ms: float) -> None:
        """As leader, step down if no majority has answered for the minimum timeout (D5)."""
        self.engine.check_quorum(now_ms)

    def reset_ack_timeout(self, peers: Sequence[int], now_ms: float) -> None:
        """Count the silence of these peers from now on, because the own loop was blocked."""
        for peer in peers:
            self.engine.heard(peer, now_ms)

    # Terms and votes

    def observe(self, term: int) -> None:
        """Move to a later term, whose leader this node does not know yet."""
        if term > self.term:
            self.engine.set_term(term, None)
            self.engine.step_down()

    def become_follower(self, leader: int, term: int) -> bool:
        """Follow `leader`, the sender of a message that only a leader sends; False if `term` is over."""
        if term < self.term:
            return False
        self.observe(term)
        if self.is_leader:
            raise AssertionError(f"node {leader} leads term {term}, and so does this one")
        self.engine.step_down()
        self.leader_id = leader
        return True

    def step_down(self) -> None:
        """Stop leading, in the same term."""
        self.engine.step_down()

    def forgo_vote(self) -> None:
        """Vote for no other node in the current term: the disk that this one replaces may have voted."""
        self.engine.set_term(self.term, str(self.node_id))

    def grant_or_count(self, peer: int, message: VoteRequest | Vote, now_ms: float) -> None:
        """Compare the logs and vote once per term, or count a vote for this node."""
        if isinstance(message, VoteRequest):
            self.engine.vote_request(peer, message, now_ms)
        elif self.count_vote(peer, message.term):
            self.engine.vote(peer, message.term, now_ms)
            self._finish_winning()

    def count_vote(self, peer: int, term: int) -> bool:
        """Whether a vote in `term` is the first of this peer; the library counts every one (D2)."""
        if term != self.term or peer in self._voters:
            return False
        self._voters.add(peer)
        return True

    def _finish_winning(self) -> None:
        if self.is_leader and self.leader_id is None:
            self.leader_id = self.node_id
            self._first_index = self._log.last_index + 1
            self.progress.begin_term(self._first_index)
            self._act(Elected(self.term, self._first_index))

    # What the engine decides (pysyncobj_engine.EngineOwner)

    def term_changed(self, term: int, vote: str | None) -> None:
        """Sync term and vote before they count."""
        if term != self.term:
            self.leader_id = None
        self._act(SaveTerm(term, vote))
        self.term, self.vote = term, vote

    def send_vote(self, node_id: int, message: Vote | VoteRequest) -> None:
        """Send a vote, or ask for one."""
        self._act(SendVote(node_id, message))

    def leadership_changed(self, *, is_leader: bool) -> None:
        """This node won its election, or leads no longer."""
        self.is_leader = is_leader
        self.leader_id = None
        if not is_leader:
            self._act(Deposed())

    # Peers

    def linked(self, peer: int, *, is_up: bool, now_ms: float) -> None:
        """Note that the link to a peer came up or went down."""
        self.engine.link(peer, is_up=is_up)
        if not is_up and self.leader_id == peer:
            self.leader_id = None
        self.progress.peers[peer].link(is_up=is_up, next_index=self._log.last_index + 1, now_ms=now_ms)

    def is_answer(self, term: int) -> bool:
        """Whether a follower's answer given in `term` is meant for this leader.

        The library's answers carry no term, so a stale one commits what no replica has (D2).
        """
        return self.is_leader and term == self.term

    def answered(self, peer: int, message: Ack | Reject | SnapshotAck, now_ms: float) -> bool:
        """Note a follower's answer; returns whether it is one to this leader in this term."""
        if not self.is_answer(message.term):
            self.observe(message.term)
            return False
        if not message.sent_ms <= now_ms:
            raise PeerMessageRefused(
                f"a response to a message sent at {message.sent_ms} ms, but it is {now_ms} ms"
            )
        follower = self.progress.peers[peer]
        if message.is_joining and not follower.is_joining:
            follower.forgot(now_ms)
        follower.is_joining = message.is_joining
        follower.answered(message.sent_ms, now_ms)
        if not message.is_joining:
            self.engine.heard(peer, now_ms)
        return True

    def matched(self, peer: int, index: int) -> bool:
        """Note that a follower has synced the entries up to `index`; returns whether that commits some."""
        if index > self._log.last_index:
            raise PeerMessageRefused(
                f"it acknowledges entry {index}, but the last entry is {self._log.last_index}"
            )
        return self.progress.peers[peer].matches(index) and self.commit()

    # Commits

    def commit(self) -> bool:
        """As leader, commit all that a majority has synced; returns whether the commit index rose.

        To be called whenever more of the own log is synced.
        """
        return self.is_leader and self.commit_to(self.committable())

    def committable(self) -> int:
        """The last index that a majority has synced if its entry is of the own term, else 0.

        The library counts itself as soon as an entry is in memory (D1), and walks the log (D18).
        """
        index = self.progress.commit_index(self._log.durable_index)
        return index if self._log.term_at(index) == self.term else 0

    def commit_to(self, index: int) -> bool:
        """Commit the entries up to `index`, which are stored here; returns whether the commit index rose."""
        if index <= self.commit_index:
            return False
        self.commit_index = index
        return True

    def acknowledged(self, matched_index: int) -> int:
        """The last index a follower may acknowledge if its log equals the leader's up to `matched_index`.

        Only what is synced: the library acknowledges what is in memory (D1).
        """
        return min(matched_index, self._log.durable_index)

    def installed(self, index: int) -> None:
        """Continue after a snapshot of committed entries up to `index`, which replaced the log."""
        self.commit_to(index)

    # A follower takes entries

    def is_following(self, leader: int, term: int) -> bool:
        """Whether `become_follower` would change nothing."""
        return term == self.term and leader == self.leader_id

    def accept(self, message: Append) -> tuple[bool, int]:
        """Take a leader's entries, truncating only at the first one that conflicts.

        The library truncates whatever follows the leader's place, also entries that it has acknowledged (D1).
        Returns (True, last index known to equal the leader's log), or (False, the index to send from).
        """
        log, prev, frames = self._log, message.prev_index, message.frames
        last = log.last_index
        if prev > last:
            return False, last + 1
        if prev < log.base_index:  # below the snapshot: committed, hence equal
            frames, prev = frames[_skip(frames, log.base_index) :], log.base_index
        elif log.term_at(prev) != message.prev_term:
            return False, self.back_off(prev)
        if not frames:
            return True, prev
        at, keeps = self.first_new(frames, prev)
        if at == len(frames):
            return True, keeps
        if keeps < log.last_index:
            self._check_conflict(keeps, frames[at:])
            self._act(TruncateLog(keeps))
        try:
            self._act(AppendToLog(frames[at:]))
        except Corrupt as damage:  # malformed frames are the peer's fault, not this node's
            raise PeerMessageRefused(str(damage)) from None
        return True, log.last_index

    def _check_conflict(self, keeps: int, frames: bytes) -> None:
        """Check, before anything is removed, that `frames` may replace what follows the entry `keeps`."""
        if keeps < self.commit_index:
            raise AssertionError(f"entry {keeps + 1} is committed, but the leader has another one")
        term = self._log.term_at(keeps)
        assert term is not None
        try:
            check_frames(frames, keeps, term, self._log.timestamp_at(keeps))
        except Corrupt as damage:
            raise PeerMessageRefused(str(damage)) from None

    def first_new(self, frames: bytes, prev: int) -> tuple[int, int]:
        """(offset in `frames` of the first entry that the log lacks with that term, index before it)."""
        last, term_at = self._log.last_index, self._log.term_at
        if prev == last:
            return 0, last
        index = prev
        for at, found, term in _headers(frames):
            if index == last or term_at(found) != term:
                return at, index
            if found != index + 1:
                raise PeerMessageRefused(f"entry {found} follows entry {index}")
            index = found
        return len(frames), index

    def back_off(self, index: int) -> int:
        """The index to try next when the entry at `index` is of another term: the first of that term here.

        The library goes back by one entry per heartbeat (D11).
        """
        log = self._log
        term, least = log.term_at(index), max(log.base_index, self.commit_index) + 1
        while index > least and log.term_at(index - 1) == term:
            index -= 1
        return index


def _headers(frames: bytes) -> Iterator[tuple[int, int, int]]:
    """(offset, index, term) of each frame; raises PeerMessageRefused when the last one is incomplete."""
    at = 0
    while at < len(frames):
        if at + HEADER_BYTES > len(frames):
            raise PeerMessageRefused(f"{len(frames) - at} bytes after the last complete entry")
        _, _, length, _, index, term, _, _ = HEADER.unpack_from(frames, at)
        yield at, index, term
        at += HEADER_BYTES + length


def _skip(frames: bytes, index: int) -> int:
    """The offset of the first frame above `index`."""
    return next((at for at, found, _ in _headers(frames) if found > index), len(frames))
