"""The follower's half of replication: storing the leader's entries, and acknowledging them once synced.

Invariants:

- An acknowledgement names what is synced here *and* known to equal the leader's log in its term; entries wait
  for the sync of their group, heartbeats do not wait.
- Nothing is truncated while a group is in flight: entries that may conflict wait for it to end, in order.
"""

from __future__ import annotations

from collections import deque

from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import Ack, Append, Checkpoint, Reject
from raftlog.consensus.progress import NEVER_MS
from raftlog.env.errors import PeerMessageRefused
from raftlog.env.host import Host
from raftlog.env.settings import MIB
from raftlog.replica.applier import Applier
from raftlog.replica.candidacy import Candidacy
from raftlog.storage.journal import Journal
from raftlog.transport.shard_links import ShardLinks

DEFERRED_MAX = 4096
"""At most this many messages wait for a sync: seconds of a busy leader's.  Dropped ones are sent again."""
DEFERRED_BYTES_MAX = 16 * MIB
"""At most this many bytes of messages wait: two windows, as another leader may follow within one sync."""


class FollowerReplication:
    """A replica's work while another node leads."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        raft: RaftCore,
        links: ShardLinks,
        applier: Applier,
        candidacy: Candidacy,
    ) -> None:
        self._journal = journal
        self._raft = raft
        self._applier = applier
        self._links = links
        self._candidacy = candidacy
        self._clock = host.monotonic_ms
        self._term = 0
        self._matched_index = 0
        self._unanswered: tuple[int, float] | None = None
        self._deferred: deque[tuple[int, Append]] = deque()
        self._deferred_bytes = 0
        self.leader_commit_index = -1
        """The highest commit index that a leader of the current term named; -1: none yet."""
        self.horizon = (NEVER_MS, 0)
        """The newest (time on this node's clock, index): by that time nothing after index was committed."""

    def must_wait(self, leader: int, message: Append) -> bool:
        """Whether the message must wait until the group in flight is synced; beyond the bounds, dropped."""
        conflicts = message.prev_index < self._journal.last_index and bool(message.frames)
        if not self._journal.is_flushing or not (conflicts or self._deferred):
            return False
        if len(self._deferred) < DEFERRED_MAX and self._deferred_bytes < DEFERRED_BYTES_MAX:
            self._deferred.append((leader, message))
            self._deferred_bytes += len(message.frames)
        return True

    def take_deferred(self) -> list[tuple[int, Append]]:
        """Return and clear the deferred messages, in order."""
        waited = list(self._deferred)
        self._deferred.clear()
        self._deferred_bytes = 0
        return waited

    def begin_term(self, term: int) -> None:
        """Forget what was known about an earlier leader's log: it says nothing about this one's."""
        if term != self._term:
            self._term = term
            self._matched_index = 0
            self.leader_commit_index = -1
            self._unanswered = None

    @property
    def is_waiting(self) -> bool:
        """Whether stored entries wait to be acknowledged when they are synced."""
        return self._unanswered is not None

    def take(self, leader: int, message: Append) -> bool | None:
        """Store a leader's entries; returns whether more is committed now, None if they do not fit."""
        raft = self._raft
        self.begin_term(message.term)
        matches, index = raft.accept(message)
        self.leader_commit_index = max(self.leader_commit_index, message.commit_index)
        self._look_at_horizon(message)
        if not matches:
            self.refuse(leader, message, index)
            return None
        self._matched_index = max(self._matched_index, index)
        if message.frames and raft.acknowledged(index) < index:
            self._unanswered = (leader, message.sent_ms)
        return raft.commit_to(min(message.commit_index, self._matched_index))

    def _look_at_horizon(self, message: Append) -> None:
        now_ms = self._clock()
        known_ms = now_ms if message.known_ms is None else message.known_ms
        if known_ms > now_ms:
            raise PeerMessageRefused(f"a response to a message sent at {known_ms} ms, but it is {now_ms} ms")
        if 0 <= known_ms > self.horizon[0]:
            self.horizon = (known_ms, message.commit_index)

    def knows(self, index: int) -> None:
        """Note that the log equals the leader's up to `index`, which is committed and synced."""
        self._matched_index = max(self._matched_index, index)

    def refuse(self, leader: int, message: Append, next_index: int) -> None:
        """Reject a message: name the index to send from, or, to an older term, only the current term."""
        raft, journal = self._raft, self._journal
        answer = Reject(
            raft.term,
            message.prev_index,
            next_index,
            journal.last_index,
            self._applier.applied_index,
            message.sent_ms,
            self._candidacy.is_joining,
        )
        self._links.send(leader, answer.encode())

    def answer(self, leader: int, sent_ms: float, checkpoint: Checkpoint | None = None) -> None:
        """Acknowledge the synced entries, and report this node's obstacle."""
        raft, now_ms = self._raft, self._clock()
        self._candidacy.observe_obstacles(now_ms)
        answer = Ack(
            raft.term,
            raft.acknowledged(self._matched_index),
            self._applier.applied_index,
            sent_ms,
            self._candidacy.is_joining,
            checkpoint,
            now_ms,
            self._candidacy.obstacle(),
        )
        self._links.send(leader, answer.encode())

    def flushed(self) -> None:
        """A group is synced: acknowledge the entries that waited for it."""
        if self._unanswered is not None and self._term == self._raft.term:
            leader, sent_ms = self._unanswered
            self._unanswered = None
            self.answer(leader, sent_ms)
