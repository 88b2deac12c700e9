"""The leader's half of replication: sending entries, handling answers, proofs of leadership, hand-over.

Each follower is sent the entries it lacks in batches of about `replicate_batch_bytes`, with at most
`replicate_window_bytes` in flight; while it is unknown where the logs agree, one batch at a time.  A follower
that needs entries older than the live log is served by `follower_catch_up`.  Every `raft_heartbeat_ms` each
follower gets a message.

A transfer goes

    catching up --target has what was there at first--> closing --target has everything--> handed over
         |                                                 |                                   |
         +------- link lost, too late, obstacle -----------+-- still leading too late, obstacle --> given up

Invariants: before `timeout_now` is sent, proposals stop and the lease ends; and there is no lease
again in that term, as the message may still be in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raftlog.catch_up.follower_catch_up import FollowerCatchUp
from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import Ack, Append, Checkpoint, Reject, TimeoutNow
from raftlog.consensus.progress import NEVER_MS, FollowerProgress
from raftlog.env.host import Host, Timer
from raftlog.env.obstacles import obstacle_words
from raftlog.env.rate_limit import RateLimitedLogger
from raftlog.replica.applier import Applier
from raftlog.storage.frames import last_in
from raftlog.storage.journal import Journal
from raftlog.transport.shard_links import ShardLinks

LOG = logging.getLogger("quorate.raftlog")
TRANSFER_CATCH_UP_MS = 5_000
"""Milliseconds for the target to catch up; one that needs longer would only be a slower leader."""
PROBE_MS = 1000.0
"""Milliseconds without an answer after which a batch that probes where the logs agree is sent again."""
TRANSFER_CLOSING_MS = 500
"""Milliseconds without proposals while a new leader is awaited: longer than an election on request takes."""


@dataclass(slots=True)
class Transfer:
    """A leadership transfer under way; proposals stop once the target has reached the index `barrier`."""

    target: int
    done: Callable[[str | None], None]
    barrier: int
    timer: Timer
    is_closing: bool = False
    is_handed_over: bool = False


@dataclass(slots=True)
class _Everywhere:
    """A callback that waits until all peers in contact have applied `index`."""

    index: int
    fn: Callable[[], None]
    timer: Timer | None = None


class LeaderReplication:
    """A replica's work while it leads, and its knowledge of the peers at other times."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        raft: RaftCore,
        links: ShardLinks,
        applier: Applier,
    ) -> None:
        self._host = host
        self._journal = journal
        self._raft = raft
        self._settings = journal.settings
        self._links = links
        self.catch_up = FollowerCatchUp(host, journal, raft, links)
        self._applier = applier
        self._tell_proven = applier.machine.proven
        self._progress = raft.progress
        self._last_round_ms = NEVER_MS
        self._asked_ms = NEVER_MS
        self._told_ms = NEVER_MS
        self._is_round_queued = False
        self._lease_lost_in_term = 0
        self._limited_log = RateLimitedLogger(LOG, host.monotonic_ms)
        self._waiting: list[_Everywhere] = []
        self.transfer_under_way: Transfer | None = None

    # Sending

    def replicate(self, *, is_heartbeat: bool, checkpoint: Checkpoint | None = None) -> None:
        """Send each peer the entries it lacks, within its window, and heartbeats to the others if due."""
        now_ms = self._host.monotonic_ms()
        encoded: dict[int, tuple[bytes, int]] = {}
        is_round = True
        for peer in self._progress.peers.values():
            if peer.is_up and not self._send_missing(peer, now_ms, encoded):
                is_round = (
                    is_round and is_heartbeat
                )  # a full window: nothing was sent there that could prove anything
                if is_heartbeat:
                    self._send_heartbeat(peer, now_ms, checkpoint)
        if is_round:
            self._last_round_ms = now_ms

    def send_missing(self, peer: FollowerProgress) -> None:
        """Send one peer the entries it lacks."""
        if peer.is_up and peer.next_index <= self._journal.last_index:
            self._send_missing(peer, self._host.monotonic_ms(), {})

    def _send_missing(
        self, peer: FollowerProgress, now_ms: float, encoded: dict[int, tuple[bytes, int]]
    ) -> bool:
        journal, last, sent = self._journal, self._journal.last_index, False
        window_bytes = self._settings.replicate_window_bytes
        while peer.next_index <= last and not peer.is_waiting and peer.in_flight_bytes < window_bytes:
            if not self._links.can_send(peer.node_id):
                break
            first = peer.next_index
            if first <= journal.base_index:
                self.catch_up.serve(peer)
                break
            if first not in encoded:
                encoded[first] = self._encode(first, last, now_ms)
            payload, to_index = encoded[first]
            if not self._links.send(peer.node_id, payload):
                break
            peer.sent(to_index, len(payload), now_ms)
            sent = True
        return sent

    def _encode(self, first: int, last: int, now_ms: float) -> tuple[bytes, int]:
        journal, raft = self._journal, self._raft
        frames = journal.frames_for(first, last, self._settings.replicate_batch_bytes)
        prev_term = journal.term_at(first - 1)
        assert prev_term is not None
        message = Append(raft.term, first - 1, prev_term, raft.commit_index, now_ms, frames)
        return message.encode(), last_in(frames)

    def _send_heartbeat(self, peer: FollowerProgress, now_ms: float, checkpoint: Checkpoint | None) -> None:
        """Send a heartbeat, with the commit index."""
        journal = self._journal
        if peer.is_waiting and now_ms - peer.probed_ms > PROBE_MS:
            peer.rewind(peer.probed_index + 1)  # it was loading, or the answer got lost
            self._send_missing(peer, now_ms, {})
        prev = peer.match_index if peer.is_waiting else peer.next_index - 1
        prev_term = journal.term_at(prev)
        if prev_term is None:  # older than the live log; every log agrees on the place before the first entry
            prev = prev_term = 0
        if peer.next_index <= journal.base_index:
            self.catch_up.serve(peer)
        joined_index = self._joined_index(peer) if peer.is_joining else -1
        raft = self._raft
        known_ms = peer.known(self.led_until(now_ms)) if raft.knows_commit else -1.0
        message = Append(
            raft.term, prev, prev_term, raft.commit_index, now_ms, b"", joined_index, checkpoint, known_ms
        )
        self._links.send(peer.node_id, message.encode())

    def _joined_index(self, peer: FollowerProgress) -> int:
        """The index that a joining peer has to reach: all that was committed when it asked; -1 while unknown.

        This node knows it once its leadership is proven for a later time and an entry of its own term is
        committed; until then its commit index may be far too low.
        """
        raft = self._raft
        if peer.joined_index < 0 and raft.knows_commit and self.proven_ms >= peer.joining_since_ms:
            peer.joined_index = raft.commit_index
        return peer.joined_index

    # Answers

    def on_ack(self, peer: FollowerProgress, message: Ack) -> None:
        """Continue after a follower's acknowledgement, which the core has counted."""
        peer.last_index = max(peer.last_index, message.match_index)
        peer.asks(message.asked_ms, self._host.monotonic_ms())
        peer.obstacle = message.obstacle
        if self.catch_up.is_busy and peer.next_index > self._journal.base_index:
            self.catch_up.drop(peer.node_id)
        if message.applied_index > peer.applied_index:
            peer.applied_index = message.applied_index
            if self._waiting:
                self._look_everywhere()
        if self._asked_ms > self._told_ms:
            self.tell_proven()
        if self.transfer_under_way is not None:
            self._push_transfer()

    def refused(self, peer: FollowerProgress, message: Reject) -> None:
        """Retry from the place that a follower named, because it lacks the entry before those sent.

        An answer to a message sent before a later success is obsolete and ignored.
        """
        peer.last_index = message.last_index
        peer.applied_index = message.applied_index
        asked = peer.probed_index if peer.is_waiting else peer.next_index - 1
        if message.prev_index < peer.match_index or (peer.is_probing and message.prev_index != asked):
            return
        peer.rewind(max(peer.match_index + 1, min(message.next_index, self._journal.last_index + 1)))
        if message.next_index <= peer.match_index:
            what = (
                "node %d acknowledged entry %d and now lacks entry %d: was its disk restored from a copy, "
                "or damaged?"
            )
            self._limited_log.error(peer.node_id, what, peer.node_id, peer.match_index, message.next_index)
            return
        self.send_missing(peer)
        if peer.next_index > self._journal.last_index and not peer.is_waiting:
            self._send_heartbeat(peer, self._host.monotonic_ms(), None)

    # Proofs

    @property
    def proven_ms(self) -> float:
        """The time until which a majority accepted this node as leader; -inf when it does not lead."""
        return self._progress.proven_ms() if self._raft.is_leader else NEVER_MS

    def has_lease(self, now_ms: float) -> bool:
        """Whether no other node can lead before `now_ms`."""
        raft = self._raft
        return raft.is_leader and raft.term != self._lease_lost_in_term and self._progress.has_lease(now_ms)

    def led_until(self, now_ms: float) -> float:
        """The time until which certainly no other node has led.

        It is `now_ms` with a lease, otherwise the time of the newest proof; with distant peers there may
        never be a lease.
        """
        return now_ms if self.has_lease(now_ms) else self.proven_ms

    def ask_proof(self) -> None:
        """Send one round of heartbeats at the end of this turn, for all calls in it."""
        self._asked_ms = self._host.monotonic_ms()
        if not self._is_round_queued:
            self._is_round_queued = True
            self._host.call_soon(self._send_round)

    def _send_round(self) -> None:
        self._is_round_queued = False
        if self._raft.is_leader and self._last_round_ms < self._asked_ms:
            self.replicate(is_heartbeat=True)

    def tell_proven(self) -> None:
        """Notify the machine of how far the proof reaches, if it has advanced."""
        proven_ms = self._progress.proven_ms()
        if proven_ms > self._told_ms:
            self._told_ms = proven_ms
            self._tell_proven(proven_ms)

    # Applied everywhere

    def when_everywhere(self, index: int, timeout_ms: float, fn: Callable[[], None]) -> None:
        """Call `fn` once: when all peers in contact have applied `index`, or after `timeout_ms`."""
        waiting = _Everywhere(index, fn)
        self._waiting.append(waiting)
        waiting.timer = self._host.call_later(timeout_ms, self._release, waiting)
        if self._raft.is_leader:
            self.replicate(is_heartbeat=True)
            self._look_everywhere()

    @property
    def applied_everywhere(self) -> int:
        """The last entry that every other node, in contact or not, has applied."""
        return min(peer.applied_index for peer in self._progress.peers.values())

    def _look_everywhere(self) -> None:
        if not self._raft.is_leader:
            return
        reached = [peer.applied_index for peer in self._progress.peers.values() if peer.is_up]
        least = min(reached, default=self._applier.applied_index)
        for waiting in [one for one in self._waiting if one.index <= least]:
            self._release(waiting)

    def _release(self, waiting: _Everywhere) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            assert waiting.timer is not None
            waiting.timer.cancel()
            self._host.call_soon(waiting.fn)

    # Links and terms

    def linked(self, node_id: int, *, is_up: bool) -> None:
        """Note that a link came up or went down."""
        transfer = self.transfer_under_way
        if transfer is not None and transfer.target == node_id and not is_up and not transfer.is_handed_over:
            self._end_transfer(f"the link to node {node_id} was lost")
        if self._waiting:
            self._look_everywhere()

    def begin_term(self) -> None:
        """Reset the times of proofs: this node was elected."""
        self._last_round_ms = self._asked_ms = self._told_ms = NEVER_MS

    def end_term(self) -> None:
        """This node no longer leads: end a transfer, whose outcome the next leader knows."""
        self._end_transfer(None)

    # Hand-over

    @property
    def is_closing(self) -> bool:
        """Whether a transfer has stopped proposals."""
        return self.transfer_under_way is not None and self.transfer_under_way.is_closing

    def transfer(self, target: int | None, done: Callable[[str | None], None]) -> None:
        """Hand leadership to `target`, or to the best peer that can serve; `done(None)` when it has moved."""
        best = self._progress.best if target is None else self._progress.peers.get(target)
        if not self._raft.is_leader:
            refusal = "this node does not lead the shard"
        elif self.transfer_under_way is not None:
            refusal = f"it is already being handed over to node {self.transfer_under_way.target}"
        elif best is None:
            refusal = self._why_nobody()
        elif not best.can_lead:
            refusal = _why_not(best)
        else:
            timer = self._host.call_later(TRANSFER_CATCH_UP_MS, self._too_late, best.node_id)
            self.transfer_under_way = Transfer(best.node_id, done, self._journal.last_index, timer)
            self.send_missing(best)
            self._push_transfer()
            return
        self._host.call_soon(done, refusal)

    def _why_nobody(self) -> str:
        """The reason why there is no peer to hand over to."""
        there = [_why_not(peer) for peer in self._progress.peers.values() if peer.is_up]
        return "; ".join(there) or "no other node is connected"

    def _push_transfer(self) -> None:
        transfer = self.transfer_under_way
        if transfer is None:
            return
        target = self._progress.peers[transfer.target]
        if target.obstacle:
            self._end_transfer(_why_not(target))
            return
        if transfer.is_handed_over:
            return
        match_index = target.match_index
        if not transfer.is_closing and match_index >= transfer.barrier:
            transfer.is_closing = True
            transfer.timer.cancel()
            transfer.timer = self._host.call_later(TRANSFER_CLOSING_MS, self._too_late, transfer.target)
        if transfer.is_closing and match_index >= self._journal.last_index:
            transfer.is_handed_over = True
            self._lease_lost_in_term = self._raft.term
            self._links.send(transfer.target, TimeoutNow(self._raft.term).encode())

    def _too_late(self, target: int) -> None:
        self._end_transfer(f"node {target} did not take over in time")

    def _end_transfer(self, reason: str | None) -> None:
        transfer, self.transfer_under_way = self.transfer_under_way, None
        if transfer is not None:
            transfer.timer.cancel()
            self._host.call_soon(transfer.done, reason)

    # For operators

    def followers(self) -> list[dict[str, Any]]:
        """The progress of each peer; JSON-ready."""
        now_ms, last = self._host.monotonic_ms(), self._journal.last_index
        return [self._describe(peer, now_ms, last) for peer in self._progress.peers.values()]

    def _describe(self, peer: FollowerProgress, now_ms: float, last: int) -> dict[str, Any]:
        mode = self.catch_up.describe(peer.node_id) or ("probing" if peer.is_probing else "replicating")
        ago_ms = None if peer.last_ack_ms == NEVER_MS else round(now_ms - peer.last_ack_ms, 1)
        return {
            "node_id": peer.node_id,
            "in_contact": peer.is_up,
            "match_index": peer.match_index,
            "applied_index": peer.applied_index,
            "lag": max(0, last - peer.match_index),
            "last_ack_ago_ms": ago_ms,
            "mode": mode,
            "is_joining": peer.is_joining,
            "is_drained": peer.node_id in self._progress.drained,
            "cannot_serve": obstacle_words(peer.obstacle),
        }


def _why_not(peer: FollowerProgress) -> str:
    """The reason why a peer cannot take over, in words."""
    if not peer.is_up:
        return f"node {peer.node_id} is not connected"
    if peer.is_joining:
        return f"node {peer.node_id} is still joining"
    return f"node {peer.node_id} cannot serve: {obstacle_words(peer.obstacle)}"
