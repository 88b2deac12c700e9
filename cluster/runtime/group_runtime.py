"""The runtime of a group shard: what `ShardRuntime` does, and work that is due at a time.

Session and rebalance timeouts, pending targets and catalog checks are decisions, as those on requests are.
The projection says when the next one is due. They run in the node's slices; each decision is an entry of its
own.

Invariants: the shard is Ready only on a catalog at least as new as the newest that its groups were
decided on and as the newest topic of its offsets, so that a topic missing from the catalog was deleted; a
node whose catalog stays behind reports that as an obstacle; timers run only while the shard is Ready; nothing
expires in the turn in which the loop resumed after a gap, and no member expires because this node refused its
heartbeats for want of room; due work of all shards together never holds the loop for more than a slice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from cluster.node_info import ClientInfo
from cluster.runtime.answers import Unavailable
from cluster.runtime.heartbeat_gaps import HeartbeatGaps, MeasuredEntry
from cluster.runtime.job_slots import Slot
from cluster.runtime.shard_context import ShardContext
from cluster.runtime.shard_runtime import NO_ROOM_PAUSE_MS, ShardRuntime
from cluster.runtime.shard_state import ShardState
from cluster.runtime.slices import OWN
from coordinator.api import Context, Decision, Job, JobKind
from coordinator.offsets import commits
from coordinator.shard import GroupShard
from raftlog.env.errors import in_one_line
from raftlog.env.host import Timer
from raftlog.env.obstacles import Obstacle
from raftlog.storage.directory import NodeDirectory
from records import RawRecord
from wire.apis import HEARTBEATS, ApiKey

LOG = logging.getLogger("quorate.runtime")

NOBODY: Final = ClientInfo()

NAMES_BEFORE: Final[dict[int, float]] = {
    ApiKey.OFFSET_COMMIT: commits.TOPIC_IDS_SINCE,
    ApiKey.OFFSET_FETCH: commits.TOPIC_IDS_SINCE,
    ApiKey.OFFSET_DELETE: math.inf,
}
"""The first version of each API that no longer names the topics of its offsets; topic ids are unambiguous."""

TIMER_MIN_MS: Final = 1.0
"""Least delay of a timer. Event loops round to about a millisecond, so a shorter one would fire too early."""

REFUSING_MS: Final = 500.0
"""Heartbeats refused for longer than this were missed by the node, so all members get a new session."""

FAILED_WORK_PAUSE_MS: Final = 1_000.0
"""Pause after due work that raised, because it would raise again at once: one log line a second is enough."""

LASTING_MS: Final = 1_000.0
"""A catalog that has been behind for this long is an obstacle; one that can catch up has done so by then."""

CHILDREN: Final = {
    JobKind.ASSIGN: "cluster.children.assign",
    JobKind.RESOLVE: "cluster.children.resolve",
}
"""The module that a child process runs for each kind of job."""


class GroupRuntime(ShardRuntime):
    """The runtime of a group shard."""

    machine: GroupShard

    def __init__(
        self,
        node: ShardContext,
        directory: NodeDirectory,
        shard: int,
        make_machine: Callable[[], GroupShard],
    ) -> None:
        super().__init__(node, directory, shard, make_machine)
        lease = None if self._is_alone else self.replica.has_lease
        self._heartbeat_gaps = HeartbeatGaps(self.host, node.evidence, shard, lease)
        self._work_timer: Timer | None = None
        self._work_at_ms = math.inf
        self._continues = False
        self._no_room_since_ms: float | None = None
        self._cannot_lead_since_ms: float | None = None
        self._renewing: Iterator[None] | None = None
        self._children: dict[tuple[JobKind, str], Slot] = {}

    def fast_entry(self, group_id: str, member_id: str) -> MeasuredEntry | None:
        """Return the entry for the fast path of steady heartbeats; None unless Ready.

        The entry ends with the leadership (`GroupShard.serving`). On a node with peers it is valid only while
        the node has a lease, which is checked whenever a reply is written.
        """
        if self.shard_status.state is not ShardState.READY:
            return None
        entry = self.machine.fast_entry(group_id, member_id)
        return None if entry is None else self._heartbeat_gaps.measured(group_id, member_id, entry)

    def start(self) -> None:
        super().start()
        self._heartbeat_gaps.start()

    def stop(self, done: Callable[[], None]) -> None:
        self._heartbeat_gaps.stop()
        super().stop(done)

    # Readiness.

    def may_serve(self) -> bool:
        version = self.machine.newest_catalog_version
        if not self._is_alone:  # alone, it is never behind, and the ids of old topics carry no version
            version = max(version, self.machine.newest_topic_version)
        return self.node.is_catalog_usable(version)

    def obstacle(self) -> Obstacle:
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        if self.can_lead:
            self._cannot_lead_since_ms = None
            return Obstacle.NONE
        if self._cannot_lead_since_ms is None:
            self._cannot_lead_since_ms = now_ms
        if now_ms - self._cannot_lead_since_ms < LASTING_MS:
            return Obstacle.NONE
        return Obstacle.CATALOG_STALE if self.may_serve() else Obstacle.CATALOG_BEHIND

    def _become_ready(self) -> Iterator[None]:
        return self.machine.becoming_ready(self._own_context)

    def _began_to_serve(self) -> None:
        self._arm()

    def _stand_down(self) -> None:
        super()._stand_down()
        self._free_incrementally(self.machine.on_deposed())
        self._no_room_since_ms = self._renewing = None
        self._cancel_work_timer()
        self._cancel_children()
        self._heartbeat_gaps.forget_all()

    @property
    def can_lead(self) -> bool:
        """Whether the catalog has every topic of the shard and is new enough for its names to be trusted."""
        now_ms = self.host.monotonic_ms()
        return self.may_serve() and (self._is_alone or self.node.is_catalog_fresh(now_ms))

    def _why_not_by_name(self, api_key: int, api_version: int, now_ms: float) -> Unavailable | None:
        """Refuse topics by name unless a name means the same topic on every node."""
        if api_version >= NAMES_BEFORE.get(api_key, 0) or self.node.is_catalog_fresh(now_ms):
            return None
        return Unavailable.STALE

    def catalog_version(self) -> int:
        return self.machine.newest_catalog_version

    def on_catalog_changed(self, topic_names: Sequence[str], *, is_complete: bool) -> None:
        """Queue the groups that use these topics for a check, because the committed catalog changed.

        A shard that is not Ready yet checks every group when it becomes Ready.
        """
        if self.shard_status.state is ShardState.READY:
            self.machine.on_catalog_changed(self._own_context(), topic_names, is_complete=is_complete)
            self._arm()

    def on_configs_changed(self, group_ids: Sequence[str]) -> None:
        """Make the groups among these that belong to this shard follow their changed configs."""
        if self.shard_status.state is ShardState.READY:
            self.machine.on_configs_changed(self._own_context(), group_ids)
            self._arm()

    def _own_context(self) -> Context:
        """Return a context for a decision that no client asked for."""
        return self._context(self.host.monotonic_ms(), NOBODY)

    # Room in the log and among the held replies.

    def _has_room(self) -> bool:
        """Whether a decision may write; after a lack of room, all sessions are renewed first.

        The members whose heartbeats were refused get a full session, as at the beginning of a term, and in
        slices.
        """
        if not super()._has_room():
            if self._no_room_since_ms is None:
                self._no_room_since_ms = self.host.monotonic_ms()
            return False
        since_ms = self._no_room_since_ms
        if since_ms is not None:
            self._no_room_since_ms = None
            if self.host.monotonic_ms() - since_ms > REFUSING_MS:
                self._renewing = steps = self._renew()
                self.node.slices.run(steps, lambda: steps is self._renewing, OWN)
        return self._renewing is None

    def _renew(self) -> Iterator[None]:
        """Give every member a full session. There is no room until the last one has it."""
        try:
            yield from self.machine.becoming_ready(self._own_context)
        except Exception as error:
            self.host.fatal(f"{self.name}: sessions cannot be renewed: {in_one_line(error)}")
            return
        self._renewing = None
        self._arm()

    # Due work.

    def shift_deadlines(self, gap_ms: float) -> None:
        super().shift_deadlines(gap_ms)
        if self._cannot_lead_since_ms is not None:
            self._cannot_lead_since_ms += gap_ms
        self._heartbeat_gaps.shift(gap_ms)
        self.machine.shift_deadlines(gap_ms)  # some already exist on the way to Ready

    def _arm(self) -> None:
        """Make sure that `_work` runs by the next deadline; a timer that would fire later is replaced."""
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or self._continues or deadline_ms >= self._work_at_ms:
            return
        delay_ms = deadline_ms - self.host.monotonic_ms()
        if delay_ms <= 0:
            self._continue()
        else:
            self._arm_in(math.ceil(delay_ms))

    def _arm_in(self, delay_ms: float) -> None:
        if self._work_timer is not None:
            self._work_timer.cancel()
        delay_ms = max(delay_ms, TIMER_MIN_MS)
        self._work_at_ms = self.host.monotonic_ms() + delay_ms
        self._work_timer = self.host.call_later(delay_ms, self._work)

    def _continue(self) -> None:
        """Schedule the rest of the due work after the sockets have had their turn."""
        self._continues = True
        self._cancel_work_timer()
        self.host.call_soon(self._work)

    def _work(self) -> None:
        self._continues = True
        self._cancel_work_timer()
        self.node.slices.submit(self, OWN)

    is_long = False

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Decide what is due (`slices.Work`)."""
        if self.shard_status.state is not ShardState.READY:
            self._continues = False
            return now_ms
        self.node.observe_clock(now_ms)
        pause_ms = max(0.0, self.node.quiet_ms(now_ms))
        while not pause_ms:
            deadline_ms = self.machine.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            pause_ms = self._decide_due(now_ms)
            now_ms = self.host.monotonic_ms()
            if not pause_ms and now_ms >= end_ms:
                return None
        self._continues = False
        if pause_ms:
            self._arm_in(pause_ms)
        else:
            self._arm()
        return now_ms

    def failed(self, error: Exception) -> None:
        """Stop the node: due work raised outside of a decision (`slices.Work`)."""
        self.host.fatal(f"{self.name}: timers cannot continue: {in_one_line(error)}")

    # Work of child processes.

    def _append(self, decision: Decision, ctx: Context) -> None:
        super()._append(decision, ctx)
        for job in decision.jobs:
            if (former := self._children.get(job.key)) is not None:
                former.cancel()  # of a group that was deleted and created again
            self._children[job.key] = self.node.job_slots[job.kind].submit(
                CHILDREN[job.kind],
                job.request,
                partial(self._child_ended, job),
                deadline_ms=job.deadline_ms,
                lane=job.lane,
                is_retry=job.is_retry,
            )

    def _child_ended(self, job: Job, result: object, error: BaseException | None) -> None:
        """Decide on a job's result as on a request; it waits while there is no room for what it may write."""
        self._children.pop(job.key, None)
        self._decide_result(job, result, None if error is None else str(error))

    def _decide_result(self, job: Job, result: object, error: str | None) -> None:
        if self.shard_status.state is not ShardState.READY:
            return
        if not self._has_room():
            self.host.call_later(NO_ROOM_PAUSE_MS, self._decide_result, job, result, error)
            return
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        ctx = self._context(now_ms, NOBODY)
        try:
            decision = self.machine.job_ended(job, result, error, ctx)
        except Exception as failure:
            decision = Decision(error=failure)
        if decision is None:
            return
        self._append(decision, ctx)
        if decision.error is not None:
            LOG.error("%s: the result of a job failed", self.name, exc_info=decision.error)
            self.counters.failures += 1
        self._arm()

    def _cancel_children(self) -> None:
        for slot in self._children.values():
            slot.cancel()
        self._children.clear()

    def _decide_due(self, now_ms: float) -> float:
        """Take one decision of due work; return the milliseconds that the rest has to wait, or 0."""
        if not self._has_room():
            return NO_ROOM_PAUSE_MS
        ctx = self._context(now_ms, NOBODY)
        try:
            decision = self.machine.next_work(ctx)
        except Exception as error:
            decision = Decision(error=error)
        if decision is None:
            return TIMER_MIN_MS
        self._append(decision, ctx)
        if decision.error is not None:
            LOG.error("%s: a timer failed", self.name, exc_info=decision.error)
            self.counters.failures += 1
            return FAILED_WORK_PAUSE_MS
        return 0.0

    def _cancel_work_timer(self) -> None:
        if self._work_timer is not None:
            self._work_timer.cancel()
            self._work_timer = None
        self._work_at_ms = math.inf

    def _cancel_timers(self) -> None:
        super()._cancel_timers()
        self._cancel_work_timer()

    # Hooks.

    def _handled(self, api_key: int, request: Any, reply: Any, now_ms: float) -> None:
        if api_key == ApiKey.OFFSET_COMMIT and self._work_timer is not None:
            return  # commits arrive by the thousands; what they make due can wait for that timer
        self._arm()
        if api_key not in HEARTBEATS or reply is None or reply.error_code:
            return
        if request.member_epoch < 0:
            self._heartbeat_gaps.forget(request.group_id, request.member_id)
        else:
            self._heartbeat_gaps.measure(request.group_id, reply.member_id, now_ms)

    def _decided(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Do nothing: nothing on the node depends on the entries of a group shard."""

    def _restored(self, raws: Iterable[RawRecord], index: int) -> None:
        """Do nothing: nothing on the node depends on the snapshot of a group shard."""

    def _learned(self, index: int) -> None:
        """Do nothing: nothing on the node depends on the commits of a group shard."""
