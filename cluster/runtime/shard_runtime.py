"""One shard on one node: the state machine that its replica drives, its status, and the replies it holds.

Every node keeps its projection up to date: committed entries are applied as they arrive, so that an elected
node has little to catch up with. Only a leader has timers and held replies, and only while it is Ready.

A runtime is made of parts: the replica below it, the requests (`requests`), and the duties that differ
between group shards (`group_duties`) and the metadata shard (`catalog_duties`).

Invariants:

- The projection changes through `apply` only, in index order: live, at load, on followers.
- After `reset` the projection is a new object, built from the log again; no reference to the old one is kept.
- A shard is Ready only while this node leads it, the first entry of its term is committed and applied, and
  the further conditions of its kind of shard are met. Work on the way there that takes time for every group
  is done in the node's slices.
- Each reply is called exactly once, on the loop, and never before its content is committed. A node that loses
  the lead answers every reply that it holds with an error that means "unknown outcome".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from cluster.runtime.answers import Unavailable
from cluster.runtime.pending_replies import NO_PROOF, PendingReplies, PendingReply
from cluster.runtime.requests import RequestDuties, ShardRequests
from cluster.runtime.shard_context import ShardContext, ShardMachine
from cluster.runtime.shard_counters import ShardCounters
from cluster.runtime.shard_state import ShardState, ShardStatus
from cluster.runtime.slices import OWN
from cluster.runtime.waiters import Waiter, Waiters
from raftlog.env.errors import in_one_line
from raftlog.env.host import Timer
from raftlog.env.obstacles import Obstacle
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.replica import Replica
from raftlog.replica.replica_state import ReplicaState
from raftlog.storage.directory import NodeDirectory, shard_name
from records import RawRecord, iter_records

LOG = logging.getLogger("quorate.runtime")

GIVEN_AWAY: Final = "handed over"
"""Prefix of the reasons for a planned end of leadership."""

LASTING_MS: Final = 1_000.0
"""A lack that has lasted this long is an obstacle; a catalog that can catch up has done so by then."""


class LogListener(Protocol):
    """Whatever else of the node follows a shard's log, on leaders and followers."""

    def restored(self, raws: Iterable[RawRecord], index: int) -> None:
        """Follow a part of a snapshot, which was applied."""

    def applied(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Follow an entry, which was applied; it may not be committed yet."""

    def committed(self, index: int) -> None:
        """Follow the commit of everything up to `index`, before any reply is released."""

    def reset(self) -> None:
        """Follow the replacement of the projection by an empty one."""

    def observe_horizon(self) -> None:
        """Note up to which time everything committed is known here; called several times a second."""


class ShardDuties(RequestDuties, Protocol):
    """A node's work for one kind of shard beside its requests, and the conditions to lead one."""

    @property
    def listener(self) -> LogListener | None: ...

    def catalog_version(self) -> int:
        """Return the newest catalog version that the projection relies on."""

    def may_serve(self) -> bool:
        """Whether nothing but its log can keep the shard from being Ready here, whoever leads it now."""

    def lacks(self, now_ms: float) -> Obstacle:
        """Return what this node lacks, apart from log and disk, to lead the shard; `NONE` if nothing."""

    def report_lack(self) -> None:
        """Log the reason if what this node lacks will not come by itself."""

    def resigned(self) -> None:
        """End what only a leader does."""


M = TypeVar("M", bound=ShardMachine, covariant=True)
D = TypeVar("D", bound=ShardDuties, covariant=True)


class ShardRuntime(Generic[M, D]):
    """The runtime of one shard. Its replica sees it as a `StateMachine`."""

    def __init__(
        self,
        node: ShardContext,
        directory: NodeDirectory,
        shard: int,
        make_machine: Callable[[], M],
        make_duties: Callable[[ShardRuntime[M, D]], D],
    ) -> None:
        self.node = node
        self.host = node.host
        self.shard = shard
        self.name = shard_name(shard)
        self.machine = make_machine()
        self.counters = ShardCounters()
        self.shard_status = ShardStatus(since_ms=self.host.wall_ms())
        self.is_ready = False
        self.is_alone = node.links is None
        settings = node.runtime_settings
        self._make_machine = make_machine
        self._node_id = directory.identity.node_id
        self._reply_timeout_ms = settings.held_reply_timeout_ms
        self.pending_replies = PendingReplies(settings.held_reply_timeout_ms)
        self._expiry: Timer | None = None
        self._waiters = Waiters(self.host)
        self._committed_index = 0
        self._proven_ms = math.inf if self.is_alone else -math.inf
        self._whole_from_index = 0
        self._becoming: Iterator[None] | None = None
        self._lacking_since_ms: float | None = None
        self._obstacle = Obstacle.NONE
        self.replica = Replica(self.host, directory, shard, self, settings.log, node.links, node.clock)
        self.requests = ShardRequests(self)
        self.duties = make_duties(self)
        if node.links is not None:
            node.links.attach(shard, self.replica)

    # The view from outside.

    @property
    def state(self) -> ShardState:
        return self.shard_status.state

    @property
    def load_ms(self) -> float:
        """Milliseconds that the shard took to become Ready the last time."""
        return self.shard_status.load_ms

    @property
    def serving(self) -> str | None:
        """The state in which this node serves the shard, as Kafka's metrics name it; None if it does not."""
        if self.is_ready:
            return "active"
        if self.replica.halted_reason is not None:
            return "failed"
        is_ours = self.replica.is_leader or self.is_alone
        return "loading" if is_ours and self.state is ShardState.CATCH_UP else None

    @property
    def is_following(self) -> bool:
        """Whether another node leads and this one has caught up with it since the start."""
        leader_id = self.replica.leader_id
        return leader_id is not None and leader_id != self._node_id and self.replica.is_current

    @property
    def is_readable(self) -> bool:
        """Whether the projection may be read.

        It must have been as new as the leader's since the start, and must not be in the middle of a rebuild.
        The applied index alone does not show this: every record of a snapshot is applied at the index of the
        snapshot's end.
        """
        replica = self.replica
        is_whole = not replica.is_rebuilding and self.machine.applied_index >= self._whole_from_index
        return is_whole and replica.is_current

    @property
    def commit_index(self) -> int:
        return self._committed_index

    def status(self) -> dict[str, Any]:
        """Return the status of the shard, ready for JSON."""
        log = self.replica.status()
        return {
            "shard": self.shard,
            "name": self.name,
            "state": self.state.value,
            "since_ms": self.shard_status.since_ms,
            "state_since_ms": dict(self.shard_status.entered_ms),
            "leader_id": self.replica.leader_id,
            "term": self.replica.term,
            "is_current": self.replica.is_current,
            "is_readable": self.is_readable,
            "halted_reason": log.get("halted_reason"),
            "applied_index": self.machine.applied_index,
            "committed_index": self._committed_index,
            "state_hash": f"{self.machine.state_hash:016x}",
            "replies_held": len(self.pending_replies),
            "waiting_for_commit": len(self._waiters),
            "log": log,
        }

    def when_committed(self, index: int, fn: Callable[[], None]) -> Waiter:
        """Call `fn` once, in a later turn, when `index` is committed, unless the waiter is cancelled."""
        return self._waiters.add(index, self._committed_index, fn)

    # Start and stop.

    def start(self) -> None:
        """Load the log in slices; requests are answered LOAD_IN_PROGRESS until the leader is known."""
        self.shard_status.began_ms = self.host.monotonic_ms()
        self.replica.start()
        self._update_state()

    def stop(self, done: Callable[[], None]) -> None:
        """Refuse new requests, sync, answer those that this decides, leave the marker of a clean stop."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._resign()
        self.shard_status.conditions.is_stopping = True
        self._update_state()

        def stopped() -> None:
            self.pending_replies.fail(Unavailable.STOPPED)
            done()

        self.replica.stop(stopped)

    # Called by the replica (raftlog.env.state_machine.StateMachine): the content of the log.

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        self.machine.apply_all(records, header.last_index)
        if (listener := self.duties.listener) is not None:
            listener.restored(records, header.last_index)

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        raws = iter_records(body)
        self.machine.apply_all(raws, index)
        if (listener := self.duties.listener) is not None:
            listener.applied(index, raws)

    def committed(self, index: int) -> None:
        """Handle a commit: first the node learns from it, then replies and waiters are released."""
        if index > self._committed_index:
            self._committed_index = index
        if (listener := self.duties.listener) is not None:
            listener.committed(index)
        self.pending_replies.release(self._committed_index, self._proven_ms)
        if self._waiters:
            self._waiters.reached(self._committed_index)
        if not self.is_ready:
            self.check_ready()
            self.node.shard_moved(self.shard)

    def reset(self) -> None:
        """Start from an empty projection, which the log will fill again.

        Happens if a snapshot was installed, or if entries that this node had applied as leader were never
        committed.
        """
        LOG.info("%s is being rebuilt from its log", self.name)
        self._resign()
        self._whole_from_index = self._committed_index
        old, self.machine = self.machine, self._make_machine()
        self.free_incrementally(old.free_incrementally())
        if (listener := self.duties.listener) is not None:
            listener.reset()

    def free_incrementally(self, steps: Iterator[None]) -> None:
        """Free objects that are not needed any more, in the node's slices."""
        self.node.slices.run(steps, lambda: True, OWN)

    def state_hash(self) -> int:
        return self.machine.state_hash

    def applied_index(self) -> int:
        return self.machine.applied_index

    def catalog_version(self) -> int:
        return self.duties.catalog_version()

    # Called by the replica: leadership.

    def followed(self, leader_id: int | None) -> None:
        """Handle a change of the known leader; None if there is none."""
        is_other = leader_id is not None and leader_id != self._node_id
        if is_other:
            LOG.info("%s: node %d leads term %d", self.name, leader_id, self.replica.term)
        self.shard_status.conditions.has_known_leader |= leader_id is not None
        if not self._update_state():
            self.node.shard_moved(self.shard)

    def leading(self, term: int) -> None:
        """Handle this node's election; `ready` follows."""
        self.counters.elections_won += 1
        if not self.is_alone:  # a node that is alone counts from its start
            self.shard_status.began_ms = self.host.monotonic_ms()
        self._update_state()

    def ready(self, term: int) -> None:
        self.check_ready()

    def proven(self, proven_ms: float) -> None:
        """Answer reads, because a quorum has acknowledged this node's leadership since that time."""
        self._proven_ms = proven_ms
        self.pending_replies.release(self._committed_index, proven_ms)

    def deposed(self, reason: str) -> None:
        is_given_away = reason.startswith(GIVEN_AWAY)
        self.counters.leads_handed_over += is_given_away
        self.counters.leads_lost += not is_given_away
        level = logging.INFO if is_given_away else logging.WARNING
        LOG.log(level, "%s: this node is no longer the leader: %s", self.name, reason)
        self._resign()
        self._proven_ms = -math.inf
        self._update_state()
        self.pending_replies.fail(Unavailable.DEPOSED)
        if is_given_away:
            self.node.shard_given_away(self.shard)

    def observe_obstacles(self, now_ms: float) -> None:
        """Note since when this node has lacked something, leading or not; several times a second."""
        self.node.observe_clock(now_ms)
        if (listener := self.duties.listener) is not None:
            listener.observe_horizon()
        lack = self.duties.lacks(now_ms)
        if lack is Obstacle.NONE:
            self._lacking_since_ms, self._obstacle = None, lack
            return
        self.duties.report_lack()
        if self._lacking_since_ms is None:
            self._lacking_since_ms = now_ms
        has_lasted = now_ms - self._lacking_since_ms >= LASTING_MS
        self._obstacle = lack if has_lasted else Obstacle.NONE

    def obstacle(self) -> Obstacle:
        """Return what this node had lacked for `LASTING_MS` at the last look; `NONE` if nothing."""
        return self._obstacle

    # Becoming Ready.

    def check_ready(self) -> None:
        """Become Ready if all conditions are met; to be called whenever one of them may have changed."""
        is_stopping = self.shard_status.conditions.is_stopping
        if self.is_ready or is_stopping or self.replica.state is not ReplicaState.READY:
            return
        if self._becoming is not None:
            return
        if not self.duties.may_serve():
            self.duties.report_lack()
            return
        self._becoming = steps = self._become()
        self.node.slices.run(steps, lambda: steps is self._becoming, OWN)

    def _become(self) -> Iterator[None]:
        """Yield the steps to Ready; they are dropped if this node resigns meanwhile."""
        try:
            yield from self.duties.begin()
        except Exception as error:
            self.host.fatal(f"{self.name}: cannot begin the term: {in_one_line(error)}")
            return
        self._becoming = None
        self.shard_status.load_ms = self.host.monotonic_ms() - self.shard_status.began_ms
        self.shard_status.conditions.is_prepared = True
        self._update_state()

    def _resign(self) -> None:
        """End what only a leader does; replies stay held until their outcome is known."""
        self.shard_status.conditions.is_prepared = False
        self._becoming = None
        self.requests.resign()
        self.duties.resigned()

    def _update_state(self) -> bool:
        """Derive the shard's state from the replica's; return whether it changed."""
        if not self.shard_status.update(self.replica.state, self.host.wall_ms()):
            return False
        self.is_ready = self.state is ShardState.READY
        if self.is_ready:
            LOG.info("%s is Ready: this node leads term %d", self.name, self.replica.term)
        self.node.shard_moved(self.shard)
        return True

    # Replies.

    def hold(self, now_ms: float, pending: PendingReply, response: object, *, has_written: bool) -> None:
        """Hold a reply until the last entry so far is committed, and the lead proven.

        The last entry is the decision's own, or the newest that it has seen. The commit of its own entry also
        proves the lead; a decision that wrote nothing waits for a separate proof.
        """
        pending.index = index = self.replica.last_index
        proof_ms = NO_PROOF if has_written else now_ms
        if index <= self._committed_index and proof_ms <= self._proven_ms:
            pending.answer(response)
            return
        self.pending_replies.hold(index, now_ms, pending, response, proof_ms)
        self.counters.replies_held += pending.num_requests
        if proof_ms > self._proven_ms:
            self.replica.leadership.ask_proof()
        if self._expiry is None:
            self._expiry = self.host.call_later(self._reply_timeout_ms, self._expire_replies)

    def _expire_replies(self) -> None:
        self._expiry = None
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        self.counters.replies_expired += self.pending_replies.expire(now_ms)
        deadline_ms = self.pending_replies.next_deadline_ms
        if deadline_ms is not None:
            self._expiry = self.host.call_later(max(1.0, deadline_ms - now_ms), self._expire_replies)

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move the deadlines after the loop stood still for `gap_ms`."""
        self.pending_replies.shift_deadlines(gap_ms)
        self.requests.shift_deadlines(gap_ms)
        if self._lacking_since_ms is not None:
            self._lacking_since_ms += gap_ms


AnyShardRuntime = ShardRuntime[ShardMachine, ShardDuties]
"""The runtime of a shard of either kind."""
