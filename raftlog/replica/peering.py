"""One replica among several: its part in elections, and its half of replication.

Messages of peers and the one timer arrive here and go to elections (`candidacy`), the leader's half
(`leader`) or the follower's (`follower`).  Invariants:

- A loop that was blocked (SIGSTOP, a long turn) reads its sockets before it acts on a deadline: messages from
  the leader may be waiting in them, or another node may lead by now.
- A node with an obstacle to serving reports it, and gives leadership away when it has it; one whose disk
  stalls falls silent too, as it would only slow the others down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from raftlog.catch_up.archive_backfill import ArchiveBackfill
from raftlog.catch_up.archive_sender import ArchiveSender
from raftlog.catch_up.snapshot_receiver import SnapshotReceiver
from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import (
    Ack,
    Append,
    BadMessage,
    DivergedMessage,
    HistoryChunk,
    HistoryRequest,
    Message,
    PreVote,
    PreVoteRequest,
    Reject,
    SnapshotAck,
    SnapshotChunk,
    Term,
    TimeoutNow,
    Vote,
    VoteRequest,
    decode,
)
from raftlog.consensus.progress import NEVER_MS
from raftlog.env.errors import PeerMessageRefused
from raftlog.env.host import Host, Timer
from raftlog.env.obstacles import Obstacle, obstacle_words
from raftlog.env.rate_limit import RateLimitedLogger
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.applier import Applier
from raftlog.replica.balancing import Balancing
from raftlog.replica.candidacy import Candidacy, Candidate
from raftlog.replica.comparison import HashComparison
from raftlog.replica.follower import FollowerReplication
from raftlog.replica.leader import LeaderReplication
from raftlog.replica.replica_state import ReplicaEvent, ReplicaState
from raftlog.storage.directory import shard_name
from raftlog.storage.journal import Journal
from raftlog.storage.snapshotter import Snapshotter
from raftlog.transport.shard_links import ShardLinks

LOG = logging.getLogger("quorate.raftlog")
DRAIN_MS = 30.0
"""Milliseconds to wait after a gap: several turns of the loop, each of which reads the sockets."""
LOOK_AGAIN_MS = 1000.0
"""Milliseconds between checks of the own obstacle: no event reports the end of one."""

_SETTLED = (ReplicaState.FOLLOWING, ReplicaState.READY)


class Owner(Candidate, Protocol):
    """The replica, as this module sees it."""

    keeps_leadership: Callable[[], bool]

    @property
    def is_current(self) -> bool: ...

    def past_ms(self) -> int: ...
    def advance(self) -> None: ...
    def installed(self, header: SnapshotHeader) -> None: ...
    def halt(self, reason: str) -> None: ...
    def fail(self, error: BaseException) -> None: ...


class Peering:
    """A replica's communication with its peers; created when its log is loaded."""

    def __init__(
        self,
        host: Host,
        owner: Owner,
        links: ShardLinks,
        journal: Journal,
        raft: RaftCore,
        applier: Applier,
        snapshotter: Snapshotter,
    ) -> None:
        settings = journal.settings
        self._host = host
        self._owner = owner
        self._status = owner.replica_status
        self._links = links
        self._journal = journal
        self._raft = raft
        self._settings = settings
        self._name = shard_name(owner.shard)
        self.candidacy = Candidacy(host, owner, journal, raft, links)
        self.leading = LeaderReplication(host, journal, raft, links, applier)
        self.following = FollowerReplication(host, journal, raft, links, applier, self.candidacy)
        self.comparing = HashComparison(host, journal, raft, links, applier, owner)
        self.installing = SnapshotReceiver(host, journal, snapshotter, self._installed, owner.fail)
        self.lending = ArchiveSender(host, journal.home, links, owner.fail)
        self.backfilling = ArchiveBackfill(host, journal, raft, links, self)
        delay_ms, far_ms = settings.leader_balance_delay_ms, settings.raft_min_timeout_ms
        self._balancing = Balancing(self.candidacy.preferred, delay_ms, far_ms, owner.wish.asked)
        raft.progress.drained = owner.wish.drained
        self._limited_log = RateLimitedLogger(LOG, host.monotonic_ms)
        self._timer: Timer | None = None
        self._timer_ms = float("inf")
        self._is_stopped = False

    def start(self, linked: Sequence[int]) -> None:
        """Begin once the log is loaded; `linked` are the peers whose links are up already."""
        for peer in linked:
            self.link_up(peer)
        self._arm()
        self.backfilling.start()

    def stop(self) -> None:
        """Stop sending and handling messages."""
        self._is_stopped = True
        self._links.close()
        if self._timer is not None:
            self._timer.cancel()
        self.leading.catch_up.stop()
        self.installing.stop()
        self.backfilling.stop()
        self.lending.stop()

    def may_backfill(self) -> bool:
        """Whether this node is level with the cluster, and nothing else changes the archive on the loop."""
        owner = self._owner
        is_settled = self._status.state in _SETTLED and owner.is_current and not owner.is_rebuilding
        return is_settled and not self.installing.is_finishing

    def past_ms(self) -> int:
        """A wall-clock time that has certainly passed."""
        return self._owner.past_ms()

    def fail(self, error: BaseException) -> None:
        """Stop the node."""
        self._owner.fail(error)

    def wish_changed(self) -> None:
        """Follow a change of the owner's wish; a leader looks at its next tick who should lead."""
        wish, candidacy = self._owner.wish, self.candidacy
        candidacy.wish_changed()
        self._raft.progress.drained = wish.drained
        self._balancing.prefer(candidacy.preferred, wish.asked)

    # Links

    def link_up(self, peer: int) -> None:
        """Note that a link came up."""
        self._carefully(self._link_up, peer)

    def _link_up(self, peer: int) -> None:
        """Send the current term; a leader also announces that it leads."""
        self._raft.linked(peer, is_up=True, now_ms=self._host.monotonic_ms())
        self.leading.linked(peer, is_up=True)
        self.candidacy.say_term(peer, asks=True)
        self.candidacy.election.linked(self._host.monotonic_ms())
        if self._raft.is_leader:
            self._raft.reset_ack_timeout([peer], self._host.monotonic_ms())
            self.leading.replicate(is_heartbeat=True)
        self._arm()

    def link_down(self, peer: int) -> None:
        """Note that a link is gone; if it was the leader's, an election may follow at once."""
        was_leader = self._raft.leader_id == peer
        self._raft.linked(peer, is_up=False, now_ms=self._host.monotonic_ms())
        self.leading.linked(peer, is_up=False)
        self.leading.catch_up.drop(peer)
        self.lending.link_down(peer)
        self.backfilling.link_down(peer)
        if was_leader:
            self.candidacy.leader_lost(peer)
            self._owner.leader_changed()
            self._arm()

    def writable(self, peer: int) -> None:
        """Send more to a peer whose link has room again."""
        if self._raft.is_leader:
            self._carefully(lambda one: self.leading.send_missing(self._raft.progress.peers[one]), peer)

    def message(self, peer: int, payload: bytes) -> None:
        """Handle a message from a peer's replica of this shard."""
        if self._is_stopped:
            return
        try:
            message = decode(payload)
        except BadMessage as error:
            self._complain(peer, f"sent an invalid message: {error}")
            return
        self._carefully(self._handle, peer, message)

    def _handle(self, peer: int, message: Message) -> None:
        candidacy = self.candidacy
        match message:
            case Ack():
                self._on_ack(peer, message)
            case Append():
                self._on_append(peer, message)
            case Reject():
                self._on_reject(peer, message)
            case SnapshotChunk():
                self._on_snapshot(peer, message)
            case SnapshotAck():
                self._on_snapshot_ack(peer, message)
            case HistoryRequest():
                self.lending.asked(peer, message)
            case HistoryChunk():
                self.backfilling.answered(peer, message)
            case DivergedMessage():
                self._on_diverged(peer, message)
            case Term():
                candidacy.on_term(peer, message)
            case Vote():
                candidacy.on_vote(peer, message)
            case VoteRequest():
                candidacy.on_vote_request(peer, message)
                self._arm()
            case PreVoteRequest():
                candidacy.on_pre_vote_request(peer, message)
                self._arm()
            case PreVote():
                candidacy.on_pre_vote(peer, message)
                self._arm()
            case TimeoutNow():
                self._on_timeout_now(peer, message)

    def _carefully(self, do: Callable[..., None], peer: int, *more: object) -> None:
        """Run the handler of a message: PeerMessageRefused is logged against the peer, other errors stop
        this node."""
        try:
            do(peer, *more)
        except PeerMessageRefused as error:
            self._complain(peer, f"sent an impossible message: {error}")
        except Exception as error:
            self._owner.fail(error)

    def _complain(self, peer: int, what: str) -> None:
        self._limited_log.error(peer, "%s: node %d %s", self._name, peer, what)

    # Replication

    def replicate(self) -> None:
        """Send the heartbeats that are due."""
        self.leading.replicate(is_heartbeat=True, checkpoint=self.comparing.checkpoint())

    def _on_append(self, peer: int, message: Append) -> None:
        if not self._follow_sender(peer, message.term):
            self.following.refuse(peer, message, 0)
            return
        if not self.installing.is_finishing and not self.following.must_wait(peer, message):
            self._take(peer, message)

    def _follow_sender(self, peer: int, term: int) -> bool:
        """Follow the leader of `term`, from which a message came; False when that term is over."""
        raft = self._raft
        if self._status.state is ReplicaState.FOLLOWING and raft.is_following(peer, term):
            self.candidacy.election.heard(self._host.monotonic_ms())
            return True
        before = raft.leader_id
        if not raft.become_follower(peer, term):
            return False
        self.candidacy.election.heard(self._host.monotonic_ms())
        if before != peer or self._status.state is ReplicaState.CAMPAIGNING:
            self.candidacy.leader_found(peer)
            self._balancing.leads(peer, self._host.monotonic_ms())
            self._status.on(ReplicaEvent.FOLLOWS)
            self._owner.leader_changed()
            self._arm()
        return True

    def _take(self, peer: int, message: Append) -> None:
        following = self.following
        is_news = following.take(peer, message)
        if is_news is None:
            return
        if self._journal.is_dirty:
            self._owner.group_commit.queue()
        elif is_news:
            self._owner.advance()
        if self.candidacy.is_joining and self.candidacy.look_whether_joined(message):
            self._arm()
        if not message.frames or not following.is_waiting:
            following.answer(peer, message.sent_ms, self.comparing.answer(message.checkpoint))

    def is_level(self, applied_index: int) -> bool:
        """Whether a leader named an entry of its own term as committed, and this node has applied up to it.

        A leader that names an older entry may not know yet what is committed, as after a restart of all
        nodes.
        """
        named = self.following.leader_commit_index
        return 0 <= named <= applied_index and self._journal.term_at(named) == self._raft.term

    def flushed(self) -> None:
        """A group is synced: acknowledge it, then handle the messages that waited for it."""
        self.following.flushed()
        for peer, message in self.following.take_deferred():
            self._carefully(self._take_deferred, peer, message)

    def _take_deferred(self, peer: int, message: Append) -> None:
        is_over = message.term != self._raft.term or self.installing.is_finishing
        if not is_over and not self.following.must_wait(peer, message):
            self._take(peer, message)

    def _on_ack(self, peer: int, message: Ack) -> None:
        raft = self._raft
        if not raft.answered(peer, message, self._host.monotonic_ms()):
            return
        follower = raft.progress.peers[peer]
        commits = raft.matched(peer, message.match_index)
        self.leading.on_ack(follower, message)
        if commits:
            self._owner.advance()
        if follower.next_index <= self._journal.last_index:
            self.leading.send_missing(follower)
        if message.checkpoint is not None:
            self.comparing.hear(peer, message.checkpoint)

    def _on_reject(self, peer: int, message: Reject) -> None:
        if self._raft.answered(peer, message, self._host.monotonic_ms()):
            self.leading.refused(self._raft.progress.peers[peer], message)

    def _on_snapshot(self, peer: int, message: SnapshotChunk) -> None:
        """Store a chunk of the leader's snapshot, or acknowledge the own log if it is not needed."""
        if not self._follow_sender(peer, message.term):
            return
        following, journal = self.following, self._journal
        following.begin_term(message.term)
        if (
            journal.term_at(message.last_index) == message.last_term
            or message.last_index <= self._raft.commit_index
        ):
            following.knows(message.last_index)
            following.answer(peer, message.sent_ms)
        else:
            answer = self.installing.take(peer, message, is_joining=self.candidacy.is_joining)
            self._links.send(peer, answer.encode())

    def _installed(self, header: SnapshotHeader) -> None:
        self._owner.installed(header)
        self.following.knows(header.last_index)
        self.backfilling.restart()

    def _on_snapshot_ack(self, peer: int, message: SnapshotAck) -> None:
        if self._raft.answered(peer, message, self._host.monotonic_ms()):
            self.leading.catch_up.acknowledged(self._raft.progress.peers[peer], message)

    def _on_diverged(self, peer: int, message: DivergedMessage) -> None:
        if self._follow_sender(peer, message.term):
            self.comparing.told(message)

    # Elections

    def _on_timeout_now(self, peer: int, message: TimeoutNow) -> None:
        if self.candidacy.take_over(peer, message):
            self._arm()
        else:
            self.following.answer(peer, NEVER_MS)  # reports the obstacle; proves nothing

    def on_elected(self) -> None:
        """Begin the term that this node was elected for."""
        self.leading.begin_term()
        self._balancing.leads(self._raft.node_id, self._host.monotonic_ms())
        self._arm()

    def no_longer_leads(self) -> None:
        """End the leader's work: this node does not lead any more."""
        self.leading.end_term()
        self.leading.catch_up.stop()
        self.comparing.agreement.forget()
        self.candidacy.no_longer_leads()
        self._arm()

    # Time

    def _arm(self) -> None:
        """Set the timer to the next deadline."""
        if self._is_stopped:
            return
        now_ms = self._host.monotonic_ms()
        deadline_ms = self.candidacy.next_deadline_ms()
        if self._raft.is_leader:
            step_ms = self._settings.raft_heartbeat_ms
            due_ms = (now_ms // step_ms + 1) * step_ms  # one grid for all shards: they share packets
        else:
            due_ms = min(deadline_ms, now_ms + LOOK_AGAIN_MS)  # an obstacle has no deadline: look again
        if due_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = due_ms
            self._timer = self._host.call_later(max(0.0, due_ms - now_ms), self._tick)

    def _tick(self) -> None:
        due_ms, self._timer_ms, self._timer = self._timer_ms, float("inf"), None
        if self._is_stopped:
            return
        now_ms = self._host.monotonic_ms()
        is_late = now_ms - due_ms > self._settings.raft_min_timeout_ms / 2
        try:
            if self._raft.is_leader:
                self._lead_on(now_ms, is_late=is_late)
            elif is_late:
                self.candidacy.election.postpone(now_ms, DRAIN_MS)
            else:
                self.candidacy.stand(now_ms)
        except Exception as error:
            self._owner.fail(error)
        self._arm()

    def _lead_on(self, now_ms: float, *, is_late: bool) -> None:
        """Send heartbeats, or step down or hand over if this node should not lead."""
        if is_late:
            self._raft.reset_ack_timeout(
                [peer.node_id for peer in self._raft.progress.peers.values() if peer.is_up], now_ms
            )
        stalled_ms = self._owner.group_commit.outstanding_ms
        if stalled_ms > 2 * self._settings.sync_stall_ms:
            LOG.error(
                "%s: the disk has not responded for %d ms: stepping down as leader", self._name, stalled_ms
            )
            self._raft.step_down()
        self.comparing.judge()
        if self._raft.is_leader:
            if self._raft.commit():  # a peer acknowledged before it had joined
                self._owner.advance()
            self._raft.tick(self._host.monotonic_ms())
        if self._raft.is_leader:
            self.replicate()
        self._owner.observe_obstacles(self._host.monotonic_ms())
        if self._raft.is_leader and self.leading.transfer_under_way is None:
            self._look_who_should_lead(now_ms)

    def _look_who_should_lead(self, now_ms: float) -> None:
        obstacle = self.candidacy.obstacle()
        is_drained = self.candidacy.is_drained
        is_asked = is_drained or self._balancing.must_move
        if obstacle is Obstacle.NONE and not is_asked and self._owner.keeps_leadership():
            return
        to = self._balancing.successor(
            now_ms,
            self._raft.progress,
            self._journal.last_index,
            can_serve=obstacle is Obstacle.NONE,
            is_drained=is_drained,
        )
        if to is None:
            return
        if obstacle is not Obstacle.NONE:
            what = "%s: handing leadership to node %d, because this node cannot serve it: %s"
            self._limited_log.warning(obstacle, what, self._name, to, obstacle_words(obstacle))
        self.leading.transfer(to, lambda reason: None)
