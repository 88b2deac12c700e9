"""pysyncobj 0.3.17 as the Raft engine, with every override that makes it safe.

The library decides terms, votes and leadership.  Every part of it that was shown to lose data is replaced
here, numbered as in the audit; D numbers are the defects that an override answers:

1  `accept`, `first_new`, `back_off`: a follower truncates only at the first entry that conflicts, never below
   its commit index, and asks for the log a whole term further back (D1, D11).
   `is_answer`, `count_vote`: answers carry the term and count in that term only; a vote counts once (D2).
   `__onMessageReceived`: the library sees votes, nothing else; no forwarded commands, no pickle (D13).
2  `__sendAppendEntries`, `__getEntries`: the replica sends its frames, in one encoding for all peers, in
   bounded batches and a bounded window.
3  `__applyLogEntries`: the library applies nothing.  The replica does, by (index, term), a bounded slice per
   turn, and stops the node when applying fails, instead of retrying a half-applied entry for ever (D4).
4  `acknowledged`, `committable`, `commit`: only what is synced is acknowledged, and the commit index is
   what a majority has synced, of the own term, in O(1) (D1, D6).  The library's own commit loop counts the
   node itself as soon as an entry is in memory, and walks the log in every tick of a leader (D18).  Both are
   prevented: its match indexes stay 0, a node that is alone does not tick while it leads,
   `__onBecomeLeader` waits for the end of the tick that won the election, and `__getEntries` shows nothing
   that is not synced.
5  `_checkCommandsToApply`: no command queue, no pipe (D14), no callbacks to lose (D5, D15): the replica
   appends under `propose`.
6  `is_serving`: the load barrier is leadership and the own term's first entry applied, not a one-shot flag
   (D15).
7  `LogView`, `__tryLogCompaction`: term and vote are synced before they count; the commit index is never
   stored, a start knows only its snapshot's (D6); no dump file is configured, so that the library neither
   loads (D10) nor forks (D17) nor clears or rewrites a journal (D7, D8, D12).
8  `VoteTransport`: messages are ours (`messages`), over the node's authenticated links (D13).
9  `tick(is_transfer=True)`: a transfer is `timeout_now` to a peer known to have every entry; its requests
   for votes say that they come from a transfer.

The library's own `__raftElectionDeadline` is a property here: it campaigns when `tick` says so, after the
pre-vote (`election`), and never by itself.

`pysyncobj_adapter` keeps it from clocks, files, sockets and threads of its own.  A node that is alone has no
peers to ask: it campaigns in its first tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pysyncobj
from pysyncobj import SyncObjConf, syncobj
from pysyncobj.node import Node

from raftlog.consensus.messages import Ack, Append, Reject, SnapshotAck, Vote, VoteRequest
from raftlog.consensus.progress import ReplicationProgress, majority
from raftlog.consensus.pysyncobj_adapter import CLOCK, LogView, NoPoller, RaftOwner, VoteTransport
from raftlog.env.errors import Corrupt, PeerMessageRefused
from raftlog.env.host import Host
from raftlog.env.settings import LogSettings
from raftlog.storage.append_validation import check_frames
from raftlog.storage.frames import HEADER, HEADER_BYTES
from raftlog.storage.journal import Journal

NEVER_S = float("inf")
UNUSED_PERIOD_S = 0.001
"""Seconds between heartbeats for the library, which does not use them here: `tick` sends heartbeats.

The library checks its periods against each other.  Those of elections and connections, unused too, keep their
defaults; `leaderFallbackTimeout`, which is used, must be longer than this one.
"""

_FOLLOWER, _LEADER = syncobj._RAFT_STATE.FOLLOWER, syncobj._RAFT_STATE.LEADER


class Raft(syncobj.SyncObj):  # type: ignore[misc]
    """One shard's Raft engine; ticks only when the replica calls `tick`."""

    def __init__(
        self,
        host: Host,
        node_id: int,
        journal: Journal,
        owner: RaftOwner,
        settings: LogSettings,
        peers: Sequence[int] = (),
    ) -> None:
        self._host = host
        self._log = journal
        self._owner = owner
        self._is_alone = not peers
        self._may_campaign = self._is_alone
        self._has_won = False
        self._voters: set[int] = set()
        self._votes = VoteTransport(owner)
        self._nodes = {peer: Node(str(peer)) for peer in peers}
        self.progress = ReplicationProgress(peers, settings.raft_min_timeout_ms / 2)
        CLOCK.host = host
        conf = SyncObjConf(
            autoTick=False,
            journalFile=LogView(journal, owner),
            fullDumpFile=None,
            dynamicMembershipChange=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=UNUSED_PERIOD_S,
            leaderFallbackTimeout=settings.raft_min_timeout_ms / 1000,
            onStateChanged=self._state_changed,
            pollerType="select",
        )
        super().__init__(Node(str(node_id)), list(self._nodes.values()), conf, transport=self._votes)
        self._poller = NoPoller()

    # Calls from the replica

    @property
    def term(self) -> int:
        """The current term."""
        return int(self._SyncObj__raftCurrentTerm)

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return int(self._SyncObj__raftCommitIndex)

    @property
    def knows_commit(self) -> bool:
        """Whether an entry of the current term is committed, so that every earlier commit is known too."""
        return self._log.term_at(self.commit_index) == self.term

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the shard in `term`."""
        return bool(self._SyncObj__raftState == _LEADER)

    @property
    def leader_id(self) -> int | None:
        """The leader of `term`, as far as this node knows."""
        leader = self._getLeader()
        return None if leader is None else int(leader.id)

    def is_serving(self, applied_index: int) -> bool:
        """Override 6: whether this node leads and has applied everything before its own term."""
        first = self._SyncObj__noopIDx
        return self.is_leader and first is not None and applied_index >= first

    def tick(self, *, campaign: bool = False, is_transfer: bool = False) -> None:
        """Run the library once: campaign if `campaign`, and send a leader's heartbeats.

        A leader steps down instead if no majority has answered for the minimum timeout.
        """
        CLOCK.host = self._host
        self._may_campaign = campaign or self._is_alone
        self._votes.is_transfer = is_transfer
        if campaign:
            self._voters.clear()
        self._SyncObj__newAppendEntriesTime = -NEVER_S
        self.doTick(0)
        self._may_campaign = self._is_alone
        self._finish_winning()

    def commit(self) -> bool:
        """As leader, commit all that a majority has synced; returns whether the commit index rose."""
        return self.is_leader and self.commit_to(self.committable())

    def commit_to(self, index: int) -> bool:
        """Commit the entries up to `index`, which are stored here; returns whether the commit index rose."""
        if index <= self.commit_index:
            return False
        self._SyncObj__raftCommitIndex = index
        return True

    def installed(self, index: int) -> None:
        """Continue after a snapshot of committed entries up to `index`, which replaced the log."""
        self.commit_to(index)

    # Peers

    def linked(self, peer: int, *, is_up: bool) -> None:
        """Note that the link to a peer came up or went down."""
        node = self._nodes[peer]
        if is_up:
            self._votes._onNodeConnected(node)
        else:
            self._votes._onNodeDisconnected(node)
            if self.leader_id == peer:
                self._SyncObj__raftLeader = None

    def observe(self, term: int) -> None:
        """Move to a later term, whose leader this node does not know yet."""
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
            self._SyncObj__raftLeader = None
            self._SyncObj__setState(_FOLLOWER)

    def step_down(self) -> None:
        """Stop leading, in the same term."""
        self._SyncObj__raftLeader = None
        self._SyncObj__setState(_FOLLOWER)

    def forgo_vote(self) -> None:
        """Vote for no other node in the current term: the disk that this one replaces may have voted."""
        self._SyncObj__setCurrentTerm(self.term, self.selfNode.id)

    @property
    def vote(self) -> str | None:
        """The id of the node that this node voted for in `term`."""
        vote: str | None = self._SyncObj__votedForNodeId
        return vote

    def follow(self, leader: int, term: int) -> bool:
        """Follow `leader`, whose message only the leader of `term` sends; False if that term is over."""
        if term < self.term:
            return False
        self.observe(term)
        if self.is_leader:
            raise AssertionError(f"node {leader} leads term {term}, and so does this one")
        self._SyncObj__raftLeader = self._nodes[leader]
        self._SyncObj__setState(_FOLLOWER)
        return True

    def is_following(self, leader: int, term: int) -> bool:
        """Whether `follow` would change nothing."""
        return bool(
            term == self._SyncObj__raftCurrentTerm
            and self._SyncObj__raftLeader is self._nodes[leader]
            and self._SyncObj__raftState == _FOLLOWER
        )

    def grant_or_count(self, peer: int, message: VoteRequest | Vote) -> None:
        """Pass a vote or a vote request to the library, which compares the logs and votes once per term."""
        CLOCK.host = self._host
        if isinstance(message, VoteRequest):
            said: dict[str, Any] = {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            }
            self._SyncObj__onMessageReceived(self._nodes[peer], said)
        elif self.count_vote(peer, message.term):
            said = {"type": "response_vote", "term": message.term}
            self._SyncObj__onMessageReceived(self._nodes[peer], said)
        self._finish_winning()

    def answered(self, peer: int, message: Ack | Reject | SnapshotAck) -> bool:
        """Note a follower's answer; returns whether it is one to this leader in this term."""
        if not self.is_answer(message.term):
            self.observe(message.term)
            return False
        now_ms = self._host.monotonic_ms()
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
            self._SyncObj__lastResponseTime[self._nodes[peer]] = now_ms / 1000
        return True

    def reset_ack_timeout(self, peers: Sequence[int]) -> None:
        """Count the silence of these peers from now on, because the own loop was blocked."""
        now_s = self._host.monotonic_ms() / 1000
        for peer in peers:
            self._SyncObj__lastResponseTime[self._nodes[peer]] = now_s

    # Override 1: a follower takes entries, a leader answers

    def accept(self, message: Append) -> tuple[bool, int]:
        """Take a leader's entries.

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
            if keeps < self.commit_index:
                raise AssertionError(
                    f"entry {keeps + 1} is committed here, but the leader sent a different one"
                )
            before = log.term_at(keeps), log.timestamp_at(keeps)
            self._checked(check_frames, frames[at:], keeps, *before)  # before anything is removed
            self._owner.truncate_after(keeps)
        return True, self._checked(log.append_frames, frames[at:])

    def _checked(self, take: Callable[..., Any], frames: bytes, *more: object) -> Any:
        """Call `take`, which validates received frames and takes none of them if they are malformed.

        Malformed frames are the peer's fault, not this node's.  Raises PeerMessageRefused.
        """
        try:
            return take(frames, *more)
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
        """The index to try next when the entry at `index` is of another term: the first of that term here."""
        log = self._log
        term, least = log.term_at(index), max(log.base_index, self.commit_index) + 1
        while index > least and log.term_at(index - 1) == term:
            index -= 1
        return index

    def is_answer(self, term: int) -> bool:
        """Whether a follower's answer given in `term` is meant for this leader."""
        return self.is_leader and term == self.term

    def count_vote(self, peer: int, term: int) -> bool:
        """Whether a vote in `term` is the first of this peer."""
        if term != self.term or peer in self._voters:
            return False
        self._voters.add(peer)
        return True

    # Override 4: durable acknowledgements

    def acknowledged(self, matched_index: int) -> int:
        """The last index a follower may acknowledge if its log equals the leader's up to `matched_index`."""
        return min(matched_index, self._log.durable_index)

    def committable(self) -> int:
        """The last index that a majority has synced if its entry is of the own term (Raft 5.4.2), else 0."""
        index = self.progress.commit_index(self._log.durable_index)
        return index if self._log.term_at(index) == self.term else 0

    # Overrides of the library's private methods

    @property
    def _SyncObj__raftElectionDeadline(self) -> float:
        return -NEVER_S if self._may_campaign else NEVER_S

    @_SyncObj__raftElectionDeadline.setter
    def _SyncObj__raftElectionDeadline(self, deadline_s: float) -> None:
        """Ignored: elections begin in `tick` only."""

    def _state_changed(self, before: int, after: int) -> None:
        if before == _LEADER:
            self._owner.no_longer_leads()

    def _finish_winning(self) -> None:
        if self._has_won:
            self._has_won = False
            super()._SyncObj__onBecomeLeader()
            self._owner.on_elected()

    def _SyncObj__onBecomeLeader(self) -> None:
        self._has_won = True
        self.progress.begin_term(self._log.last_index + 1)

    def _SyncObj__applyLogEntries(self) -> bool:
        return False  # override 3

    def _SyncObj__sendAppendEntries(self) -> None:
        self._owner.replicate()

    def _SyncObj__getEntries(
        self,
        fromIDx: int | None,
        count: int | None = None,
        maxSizeBytes: int | None = None,
    ) -> Any:
        visible = self._log.durable_index + 1 - (fromIDx or 0)
        return super()._SyncObj__getEntries(fromIDx, max(0, min(count or visible, visible)), maxSizeBytes)

    def _SyncObj__onMessageReceived(self, node: Node, message: dict[str, Any]) -> None:
        assert message["type"] in {"request_vote", "response_vote"}
        super()._SyncObj__onMessageReceived(node, message)

    def _SyncObj__tryLogCompaction(self) -> None:
        """Override 7: snapshots are made from sealed segments by a job of ours."""

    def _checkCommandsToApply(self) -> None:
        """Override 5: entries are appended under `Replica.propose`."""


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


__all__ = ["Raft", "majority", "pysyncobj"]
