"""One replica's part in the elections of its shard: terms, votes, pre-votes, campaigns, joining.

`election` has the rules of the pre-vote and its times, `consensus.core` the votes; this module connects them
to messages, the disk, and what else keeps a node from standing.  Invariants:

- A replaced disk (`joining`) has forgotten what it promised: until it knows the terms of all other nodes, and
  has everything that was committed when it joined, it neither votes nor campaigns, and its answers do not
  count.
- A node with an obstacle to serving refuses leadership when it is handed over.
"""

from __future__ import annotations

import logging
from typing import Protocol

from raftlog.consensus.core import RaftCore
from raftlog.consensus.election import NEVER_MS, Due, Election
from raftlog.consensus.messages import (
    Append,
    PreVote,
    PreVoteRequest,
    Term,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from raftlog.env.host import Host
from raftlog.env.obstacles import Obstacle
from raftlog.replica.balancing import LeaderWish, preferred_node
from raftlog.replica.replica_state import ReplicaEvent, ReplicaState, ReplicaStatus
from raftlog.storage.directory import is_joining, joined, shard_name
from raftlog.storage.group_commit import GroupCommit
from raftlog.storage.journal import Journal
from raftlog.transport.shard_links import ShardLinks
from records import TermWhy

LOG = logging.getLogger("quorate.raftlog")


class LeaseHolder(Protocol):
    """The lead of this node, or that it has none."""

    def has_lease(self, now_ms: float) -> bool: ...


class Candidate(Protocol):
    """The replica, as this module sees it."""

    shard: int
    wish: LeaderWish
    replica_status: ReplicaStatus
    group_commit: GroupCommit

    @property
    def leadership(self) -> LeaseHolder: ...
    @property
    def is_rebuilding(self) -> bool: ...
    @property
    def is_installing(self) -> bool: ...
    def observe_obstacles(self, now_ms: float) -> None: ...
    def serving_obstacle(self) -> Obstacle: ...
    def leader_changed(self) -> None: ...


class Candidacy:
    """A replica's part in elections; created when its log is loaded."""

    def __init__(
        self, host: Host, owner: Candidate, journal: Journal, raft: RaftCore, links: ShardLinks
    ) -> None:
        self._host = host
        self._owner = owner
        self._journal = journal
        self._raft = raft
        self._links = links
        self._name = shard_name(owner.shard)
        self._peer_ids = tuple(raft.progress.peers)
        self._terms_heard: set[int] = set()
        self._lost_leader: int | None = None
        self._voters = sorted((raft.node_id, *self._peer_ids))
        self.preferred = preferred_node(self._voters, owner.shard, owner.wish)
        self.election = Election(
            host.rng.uniform,
            journal.settings,
            raft.node_id,
            len(self._voters),
            is_preferred=self.preferred == raft.node_id,
            now_ms=host.monotonic_ms(),
        )
        self.election.is_drained = self.is_drained
        self.is_joining = is_joining(host.files, journal.home)
        self.last_leader: int | None = None
        self.why = TermWhy.START
        """The reason for this node's last campaign."""

    # What operators asked for

    @property
    def is_drained(self) -> bool:
        """Whether this node shall not lead while another can."""
        return self._raft.node_id in self._owner.wish.drained

    def wish_changed(self) -> None:
        """Take over a change of the owner's wish."""
        self.preferred = preferred_node(self._voters, self._owner.shard, self._owner.wish)
        self.election.is_preferred = self.preferred == self._raft.node_id
        self.election.is_drained = self.is_drained

    # Obstacles

    def _obstacle_to_campaign(self) -> Obstacle:
        """The obstacle that keeps this node from campaigning."""
        if self.is_joining:
            return Obstacle.JOINING
        if self._owner.is_rebuilding or self._owner.is_installing:
            return Obstacle.REBUILDING
        if self._owner.group_commit.outstanding_ms > self._journal.settings.sync_stall_ms:
            return Obstacle.DISK_STALLED
        return Obstacle.NONE

    def observe_obstacles(self, now_ms: float) -> None:
        """Look again at disk and machine, whose obstacles `obstacle` repeats until the next look."""
        self._owner.observe_obstacles(now_ms)

    def obstacle(self) -> Obstacle:
        """The obstacle that keeps this node from serving the shard, or would if it led it."""
        obstacle = self._obstacle_to_campaign()
        return obstacle if obstacle is not Obstacle.NONE else self._owner.serving_obstacle()

    # Leaders

    def leader_found(self, leader: int) -> None:
        """Another node leads."""
        self._lost_leader, self.last_leader = None, leader

    def leader_lost(self, leader: int) -> None:
        """The link to the leader is gone: an election may follow at once."""
        self._lost_leader = leader
        self.election.leader_lost(self._host.monotonic_ms())

    def no_longer_leads(self) -> None:
        """This node does not lead any more."""
        self.last_leader = self._raft.node_id
        self.election.voted(self._host.monotonic_ms())

    # Time

    def next_deadline_ms(self) -> float:
        """The time of the next `stand`, unless a message comes first or an obstacle ends."""
        if self._obstacle_to_campaign() is not Obstacle.NONE:
            return NEVER_MS
        return self.election.next_deadline_ms()

    def stand(self, now_ms: float) -> None:
        """Act on a deadline of the election, unless an obstacle keeps this node from campaigning."""
        if self._obstacle_to_campaign() is not Obstacle.NONE:
            return
        due = self.election.due(now_ms)
        if due is Due.CAMPAIGN:
            if self._lost_leader is not None:
                self._campaign(TermWhy.RESET)
            else:
                self._campaign(TermWhy.START if self.last_leader is None else TermWhy.EXPIRY)
        elif due is Due.ASK:
            if self._owner.replica_status.state is ReplicaState.FOLLOWING:
                self._owner.replica_status.on(ReplicaEvent.CAMPAIGNS)
            term, journal = self._raft.term + 1, self._journal
            request = PreVoteRequest(term, journal.last_index, journal.last_term, self.election.round)
            for peer in self._peer_ids:
                self._links.send(peer, request.encode())

    def _campaign(self, why: TermWhy) -> None:
        self.why = why
        self._owner.replica_status.on(ReplicaEvent.CAMPAIGNS)
        self._raft.campaign(self._host.monotonic_ms(), is_transfer=why is TermWhy.TRANSFER)
        self._owner.leader_changed()

    # Messages

    def on_vote_request(self, peer: int, message: VoteRequest) -> None:
        """Vote for the candidate, if this node may and the candidate's log is at least as up to date.

        Raft 5.4.1: the last entry's term is compared first, then its index.
        """
        now_ms, raft = self._host.monotonic_ms(), self._raft
        if self.is_joining:
            return
        is_protected = self._owner.leadership.has_lease(now_ms) or self.election.vote_wait_ms(now_ms) > 0
        if is_protected and not message.is_transfer:
            return
        raft.grant_or_count(peer, message, now_ms)
        if message.term == raft.term and raft.vote == str(peer):
            self.election.voted(now_ms)

    def on_vote(self, peer: int, message: Vote) -> None:
        """Count a vote for this node."""
        self._raft.grant_or_count(peer, message, self._host.monotonic_ms())

    def on_pre_vote_request(self, peer: int, message: PreVoteRequest) -> None:
        """Answer whether this node would vote, and after how long."""
        raft, journal, now_ms = self._raft, self._journal, self._host.monotonic_ms()
        theirs = (message.last_term, message.last_index)
        ours = (journal.last_term, journal.last_index)
        if raft.is_leader or self.is_joining or message.term <= raft.term:
            granted, wait_ms = False, self.election.vote_wait_ms(now_ms)
        else:
            granted, wait_ms = self.election.answer(
                now_ms, peer, is_behind=theirs < ours, is_equal=theirs == ours
            )
        self._links.send(peer, PreVote(raft.term, message.round, granted, wait_ms).encode())

    def on_pre_vote(self, peer: int, message: PreVote) -> None:
        """Count an answer to a pre-vote."""
        self._raft.observe(message.term)
        self.election.answered(
            self._host.monotonic_ms(),
            peer,
            message.round,
            granted=message.granted,
            wait_ms=message.wait_ms,
        )

    def take_over(self, peer: int, message: TimeoutNow) -> bool:
        """Campaign at the leader's request; False if an obstacle keeps this node from serving."""
        raft = self._raft
        if message.term != raft.term or raft.leader_id != peer:
            return True
        self.observe_obstacles(self._host.monotonic_ms())
        if self.obstacle() is not Obstacle.NONE:
            return False
        self._campaign(TermWhy.TRANSFER)
        return True

    def on_term(self, peer: int, message: Term) -> None:
        """Note a peer's term, and how long it protects its leader."""
        self._terms_heard.add(peer)
        self._raft.progress.protects(peer, message.protects_ms)
        self._raft.observe(message.term)
        if message.asks:
            self.say_term(peer, asks=False)

    def say_term(self, peer: int, *, asks: bool) -> None:
        """Send a peer the current term."""
        self._links.send(peer, Term(self._raft.term, asks, self.election.protects_ms).encode())

    # Joining

    def look_whether_joined(self, message: Append) -> bool:
        """Whether a replaced disk has caught up by the leader's `message`, and votes from now on."""
        for peer in self._peer_ids:
            if peer not in self._terms_heard:
                self.say_term(peer, asks=True)
        everybody = self._terms_heard.issuperset(self._peer_ids)
        index = message.joined_index
        if not everybody or not 0 <= index <= self._raft.acknowledged(self._raft.commit_index):
            return False
        self._raft.forgo_vote()
        joined(self._host.files, self._journal.home)
        self.is_joining = False
        LOG.info("%s: has everything that was committed when this disk came: it votes now", self._name)
        return True
