"""Comparing hashes between running nodes: reporting the own, receiving others', and acting on differences.

`agreement` has the rules; this module connects them to the log, the machine and the messages.  What must stay
true: a node reports only what is committed and applied here, exactly at the index that it names; nodes in the
minority stop, and without a majority no node serves the shard.
"""

from __future__ import annotations

from typing import Protocol

from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import Checkpoint, DivergedMessage
from raftlog.env.host import Host
from raftlog.replica.agreement import Agreement, Diverged, explain
from raftlog.replica.applier import Applier
from raftlog.storage.journal import Journal
from raftlog.transport.shard_links import ShardLinks


class ComparisonOwner(Protocol):
    """The replica, as this module sees it."""

    def halt(self, reason: str) -> None: ...
    def fail(self, error: BaseException) -> None: ...


class HashComparison:
    """One replica's part in the comparison of hashes."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        raft: RaftCore,
        links: ShardLinks,
        applier: Applier,
        owner: ComparisonOwner,
    ) -> None:
        self._host = host
        self._node_id = raft.node_id
        self._peer_ids = tuple(raft.progress.peers)
        self._journal = journal
        self._raft = raft
        self._applier = applier
        self._links = links
        self._owner = owner
        self._said: Checkpoint | None = None
        self._rest: Checkpoint | None = None
        self.agreement = Agreement(raft.node_id, len(self._peer_ids) + 1)
        applier.observers.append(self.agreement)

    def answer(self, asked: Checkpoint | None) -> Checkpoint | None:
        """A follower's report of its hashes: at the index that is asked for, else its newest, once."""
        if asked is not None:
            point = self.agreement.at(asked.index)
            if point is None and asked.index == self._journal.last_index:
                point = self._applier.at_rest()
            return point
        newest = self.agreement.newest
        if newest is self._said:
            return None
        self._said = newest
        return newest

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint in a leader's heartbeats: the one it asks about, or the end of an idle log."""
        return self.agreement.asked or self._resting()

    def _resting(self) -> Checkpoint | None:
        index = self._journal.last_index
        if self._rest is None or self._rest.index != index:
            self._rest = self._applier.at_rest()
        return self._rest

    def hear(self, peer: int, theirs: Checkpoint) -> None:
        """Compare a follower's hashes with the own."""
        ours = self.agreement.at(theirs.index)
        if ours is None and self._rest is not None and self._rest.index == theirs.index:
            ours = self._rest
        self.agreement.hear(peer, theirs, ours, self._host.monotonic_ms())
        self.judge()

    def judge(self) -> None:
        """As leader, stop the minority, or halt the shard if there is no majority, while a node differs."""
        ours = self.agreement.asked
        if ours is None:
            return
        peers = self._raft.progress.peers.values()
        in_contact = {peer.node_id for peer in peers if peer.is_up and not peer.is_joining}
        verdict = self.agreement.verdict(in_contact, self._host.monotonic_ms())
        if verdict is None:
            return
        point = verdict.right or ours
        for node_id in verdict.wrong if verdict.right is not None else self._peer_ids:
            if node_id != self._node_id:
                stop = DivergedMessage(self._raft.term, point, verdict.right is not None)
                self._links.send(node_id, stop.encode())
        self._links.flush()
        if verdict.right is None:
            self._owner.halt(f"no majority agrees on the hashes up to entry {verdict.index}")
        elif self._node_id in verdict.wrong:
            self._owner.fail(Diverged(explain(ours, verdict.right)))

    def told(self, message: DivergedMessage) -> None:
        """Stop on the leader's order: this node is in the minority, or there is no majority."""
        point = message.checkpoint
        ours = self.agreement.at(point.index) or self._applier.at_rest()
        if not message.is_majority:
            self._owner.halt(f"no majority agrees on the hashes up to entry {point.index}")
        elif ours is not None and ours.index == point.index and ours != point:
            self._owner.fail(Diverged(explain(ours, point)))
