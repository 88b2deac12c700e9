"""One shard on one node, as its replica drives it: loading, following, leading; and its status.

Every node keeps its projection up to date: committed entries are applied as they arrive, so that an elected
node has little to catch up with. Only a leader has timers and held replies, and only while it is Ready.

Invariants:

- The projection changes through `apply` only, in index order: live, at load, on followers.
- After `reset` the projection is a new object, built from the log again; no reference to the old one is kept.
- A shard is Ready only while this node leads it, the first entry of its term is committed and applied, and
  the further conditions of its kind of shard are met. Work on the way there that takes time for every group
  is done in the node's slices.
- A node that loses the lead answers every reply that it holds, once, with an error that means "unknown
  outcome".
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from cluster.runtime.answers import Unavailable
from cluster.runtime.pending_replies import PendingReplies
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


class ShardReplica(ABC):
    """The runtime of one shard without its requests. Its replica sees it as a `StateMachine`."""

    def __init__(
        self,
        node: ShardContext,
        directory: NodeDirectory,
        shard: int,
        make_machine: Callable[[], ShardMachine],
    ) -> None:
        self.node = node
        self.host = node.host
        self.shard = shard
        self.name = shard_name(shard)
        self.machine = make_machine()
        self.counters = ShardCounters()
        self.shard_status = ShardStatus(since_ms=self.host.wall_ms())
        settings = node.runtime_settings
        self._settings = settings
        self._make_machine = make_machine
        self._node_id = directory.identity.node_id
        self._is_alone = node.links is None
        self._pending_replies = PendingReplies(settings.held_reply_timeout_ms)
        self._held_timer: Timer | None = None
        self._waiters = Waiters(self.host)
        self._committed_index = 0
        self._proven_ms = math.inf if self._is_alone else -math.inf
        self._whole_from_index = 0
        self._becoming: Iterator[None] | None = None
        self.replica = Replica(self.host, directory, shard, self, settings.log, node.links, node.clock)
        if node.links is not None:
            node.links.attach(shard, self.replica)

    # The view from outside.

    @property
    def state(self) -> ShardState:
        return self.shard_status.state

    @property
    def is_ready(self) -> bool:
        return self.shard_status.state is ShardState.READY

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
        is_ours = self.replica.is_leader or self._is_alone
        return "loading" if is_ours and self.shard_status.state is ShardState.CATCH_UP else None

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

    @property
    def num_held(self) -> int:
        return len(self._pending_replies)

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
            "replies_held": len(self._pending_replies),
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
        self._stand_down()
        self.shard_status.conditions.is_stopping = True
        self._update_state()

        def stopped() -> None:
            self._pending_replies.fail(Unavailable.STOPPED)
            done()

        self.replica.stop(stopped)

    # Called by the replica (raftlog.env.state_machine.StateMachine): the content of the log.

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        self.machine.apply_all(records, header.last_index)
        self._restored(records, header.last_index)

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        raws = iter_records(body)
        self.machine.apply_all(raws, index)
        self._decided(index, raws)

    def committed(self, index: int) -> None:
        """Handle a commit: first the node learns from it, then replies and waiters are released."""
        if index > self._committed_index:
            self._committed_index = index
        self._learned(index)
        self._pending_replies.release(self._committed_index, self._proven_ms)
        if self._waiters:
            self._waiters.reached(self._committed_index)
        if self.shard_status.state is not ShardState.READY:
            self.check_ready()
            self.node.shard_moved(self)

    def reset(self) -> None:
        """Start from an empty projection, which the log will fill again.

        Happens if a snapshot was installed, or if entries that this node had applied as leader were never
        committed.
        """
        LOG.info("%s is being rebuilt from its log", self.name)
        self._stand_down()
        self._whole_from_index = self._committed_index
        old, self.machine = self.machine, self._make_machine()
        self._free_incrementally(old.free_incrementally())

    def _free_incrementally(self, steps: Iterator[None]) -> None:
        self.node.slices.run(steps, lambda: True, OWN)

    def state_hash(self) -> int:
        return self.machine.state_hash

    def applied_index(self) -> int:
        return self.machine.applied_index

    @abstractmethod
    def catalog_version(self) -> int: ...

    # Called by the replica: leadership.

    def followed(self, leader_id: int | None) -> None:
        """Handle a change of the known leader; None if there is none."""
        is_other = leader_id is not None and leader_id != self._node_id
        if is_other:
            LOG.info("%s: node %d leads term %d", self.name, leader_id, self.replica.term)
        self.shard_status.conditions.has_known_leader |= leader_id is not None
        if not self._update_state():
            self.node.shard_moved(self)

    def leading(self, term: int) -> None:
        """Handle this node's election; `ready` follows."""
        self.counters.elections_won += 1
        if not self._is_alone:  # a node that is alone counts from its start
            self.shard_status.began_ms = self.host.monotonic_ms()
        self._update_state()

    def ready(self, term: int) -> None:
        self.check_ready()

    def proven(self, proven_ms: float) -> None:
        """Answer reads, because a quorum has acknowledged this node's leadership since that time."""
        self._proven_ms = proven_ms
        self._pending_replies.release(self._committed_index, proven_ms)

    def deposed(self, reason: str) -> None:
        is_given_away = reason.startswith(GIVEN_AWAY)
        self.counters.leads_handed_over += is_given_away
        self.counters.leads_lost += not is_given_away
        level = logging.INFO if is_given_away else logging.WARNING
        LOG.log(level, "%s: this node is no longer the leader: %s", self.name, reason)
        self._stand_down()
        self._proven_ms = -math.inf
        self._update_state()
        self._pending_replies.fail(Unavailable.DEPOSED)
        if is_given_away:
            self.node.shard_given_away(self)

    # Becoming Ready.

    def check_ready(self) -> None:
        """Become Ready if all conditions are met; to be called whenever one of them may have changed."""
        is_stopping = self.shard_status.conditions.is_stopping
        if self.is_ready or is_stopping or self.replica.state is not ReplicaState.READY:
            return
        if self._becoming is None and self.may_serve():
            self._becoming = steps = self._become()
            self.node.slices.run(steps, lambda: steps is self._becoming, OWN)

    def _become(self) -> Iterator[None]:
        """Yield the steps to Ready; they are dropped if the shard stands down meanwhile."""
        try:
            yield from self._become_ready()
        except Exception as error:
            self.host.fatal(f"{self.name}: cannot begin the term: {in_one_line(error)}")
            return
        self._becoming = None
        self.shard_status.load_ms = self.host.monotonic_ms() - self.shard_status.began_ms
        self.shard_status.conditions.is_prepared = True
        self._update_state()
        self._began_to_serve()

    def _stand_down(self) -> None:
        """End what only a leader does; replies stay held until their outcome is known."""
        self.shard_status.conditions.is_prepared = False
        self._becoming = None

    # The differences between the two kinds of shards.

    @abstractmethod
    def may_serve(self) -> bool:
        """Whether nothing but its log can keep the shard from being Ready here, whoever leads it now."""

    @property
    def can_lead(self) -> bool:
        """Whether this node has everything but the log that a leader of the shard needs.

        It is asked of leaders and followers. A leader that lacks something refuses some requests or all.
        """
        return True

    @abstractmethod
    def obstacle(self) -> Obstacle:
        """Return the lasting reason, apart from log and disk, why this node cannot serve the shard.

        On a follower: why it could not if it led. `Obstacle.NONE` if there is none, or not for long enough.
        """

    @abstractmethod
    def _become_ready(self) -> Iterator[None]:
        """Yield the steps that must be done before the first request; each takes much less than a slice."""

    @abstractmethod
    def _began_to_serve(self) -> None:
        """Hook: the shard has become Ready."""

    @abstractmethod
    def _decided(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Hook: an entry was applied; it may not be committed yet."""

    @abstractmethod
    def _restored(self, raws: Iterable[RawRecord], index: int) -> None:
        """Hook: a part of a snapshot was applied."""

    @abstractmethod
    def _learned(self, index: int) -> None:
        """Hook: everything up to `index` is committed."""

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move the deadlines after the loop stood still for `gap_ms`."""
        self._pending_replies.shift_deadlines(gap_ms)

    def _update_state(self) -> bool:
        """Derive the shard's state from the replica's; returns whether it changed."""
        if not self.shard_status.update(self.replica.state, self.host.wall_ms()):
            return False
        if self.is_ready:
            LOG.info("%s is Ready: this node leads term %d", self.name, self.replica.term)
        self.node.shard_moved(self)
        return True
