"""The duties of a node towards a group shard: its catalog, its due work, its jobs, its steady heartbeats.

Invariants: the shard is Ready only on a catalog at least as new as the newest that its groups were
decided on, as the newest topic of its offsets, so that a topic missing from the catalog was deleted, and as
the newest transaction and decision in its log; a node whose catalog stays behind reports that as an obstacle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cluster.runtime.answers import Unavailable
from cluster.runtime.due_work import DueWork
from cluster.runtime.group_jobs import GroupJobs
from cluster.runtime.heartbeat_gaps import HeartbeatGaps, MeasuredEntry
from cluster.runtime.pending_replies import PendingReply
from cluster.runtime.resolved_decisions import ResolvedDecisions
from cluster.runtime.shard_runtime import ShardRuntime
from coordinator.api import Context, Decision
from coordinator.offsets import commits
from coordinator.shard import GroupShard
from raftlog.env.obstacles import Obstacle
from records import RawRecord, TransactionValue
from wire.apis import HEARTBEATS, ApiKey

NAMES_BEFORE: Final[dict[int, float]] = {
    ApiKey.OFFSET_COMMIT: commits.TOPIC_IDS_SINCE,
    ApiKey.OFFSET_FETCH: commits.TOPIC_IDS_SINCE,
    ApiKey.OFFSET_DELETE: math.inf,
    ApiKey.TXN_OFFSET_COMMIT: math.inf,
}
"""The first version of each API that no longer names the topics of its offsets; topic ids are unambiguous."""


class GroupDuties:
    """A node's work for one group shard beside deciding its requests (`ShardDuties`)."""

    def __init__(self, shard: ShardRuntime[GroupShard, Any]) -> None:
        self._shard = shard
        self._node = shard.node
        self._jobs = GroupJobs(shard, self._arm)
        self._due_work = DueWork(shard, self._jobs.start)
        self.listener = ResolvedDecisions(shard)
        lease = None if shard.is_alone else shard.replica.leadership.has_lease
        self._gaps = HeartbeatGaps(shard.host, shard.node.evidence, shard.shard, lease)

    def start(self) -> None:
        """Begin to report the gaps between heartbeats."""
        self._gaps.start()

    def stop(self) -> None:
        """Report the last gaps between heartbeats."""
        self._gaps.stop()

    def fast_entry(self, group_id: str, member_id: str) -> MeasuredEntry | None:
        """Return the entry for the fast path of steady heartbeats; None unless Ready.

        The entry ends with the leadership (`GroupShard.serving`). On a node with peers it is valid only while
        the node has a lease, which is checked whenever a reply is written.
        """
        shard = self._shard
        if not shard.is_ready:
            return None
        entry = shard.machine.fast_entry(group_id, member_id)
        return None if entry is None else self._gaps.measured(group_id, member_id, entry)

    # The catalog.

    def catalog_version(self) -> int:
        return self._shard.machine.newest_catalog_version

    def may_serve(self) -> bool:
        """Whether the catalog has every topic that the shard relies on."""
        return self._node.is_catalog_usable(self._needed_version)

    @property
    def _needed_version(self) -> int:
        machine = self._shard.machine
        version = max(machine.newest_catalog_version, machine.projection.newest_transaction_version)
        if self._shard.is_alone:  # alone, it is never behind, and the ids of old topics carry no version
            return version
        return max(version, machine.newest_topic_version)

    def report_lack(self) -> None:
        self._node.report_missing_catalog(self._needed_version)

    def lacks(self, now_ms: float) -> Obstacle:
        """Return whether the catalog lacks a topic of the shard, or is too old for its names to be trusted.

        With an old one the shard can serve, but refuses requests by name.
        """
        if not self.may_serve():
            return Obstacle.CATALOG_BEHIND
        is_fresh = self._shard.is_alone or self._node.is_catalog_fresh(now_ms)
        return Obstacle.NONE if is_fresh else Obstacle.CATALOG_STALE

    def refuses(self, api_key: int, api_version: int, now_ms: float) -> Unavailable | None:
        """Refuse topics by name unless a name means the same topic on every node."""
        if api_version >= NAMES_BEFORE.get(api_key, 0) or self._node.is_catalog_fresh(now_ms):
            return None
        return Unavailable.STALE

    def on_catalog_changed(self, topic_names: Sequence[str], *, is_complete: bool) -> None:
        """Queue the groups that use these topics for a check, because the committed catalog changed.

        A shard that is not Ready yet checks every group when it becomes Ready.
        """
        if self._shard.is_ready:
            self._shard.machine.on_catalog_changed(self._context(), topic_names, is_complete=is_complete)
            self._arm()

    def on_configs_changed(self, group_ids: Sequence[str]) -> None:
        """Make the groups among these that belong to this shard follow their changed configs."""
        if self._shard.is_ready:
            self._shard.machine.on_configs_changed(self._context(), group_ids)
            self._arm()

    def on_transactions_changed(self, changes: Sequence[tuple[str, TransactionValue]]) -> None:
        """Follow the decisions among these committed records of transactional ids."""
        if self._shard.is_ready:
            self._shard.machine.on_transactions_changed(changes)
            self._arm()

    def _context(self) -> Context:
        return self._shard.requests.context(self._shard.host.monotonic_ms())

    # Leadership.

    def begin(self) -> Iterator[None]:
        """Yield the steps that give every member a full session and queue every group for a check."""
        yield from self._shard.machine.becoming_ready(self._context)
        self._arm()

    def resigned(self) -> None:
        shard = self._shard
        shard.free_incrementally(shard.machine.on_deposed())
        self._due_work.cancel()
        self._jobs.cancel()
        self._gaps.forget_all()

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move the deadlines after the loop stood still for `gap_ms`."""
        self._gaps.shift(gap_ms)
        self._shard.machine.shift_deadlines(gap_ms)  # some already exist on the way to Ready

    def advance(self, ms: int) -> None:
        """Bring the deadlines nearer, for tests of applications."""
        self._shard.machine.advance(ms)
        self._due_work.arm()

    # Decisions.

    def appended(self, index: int, records: list[RawRecord]) -> None:
        """Do nothing: other nodes and parts of this one follow what is committed."""

    def decided(self, pending: PendingReply, decision: Decision, ctx: Context) -> None:
        """Start the decision's jobs, let due work follow its deadlines, and measure an accepted heartbeat."""
        if decision.jobs:
            self._jobs.start(decision.jobs)
        api_key = pending.api_key
        if api_key == ApiKey.OFFSET_COMMIT and self._due_work.has_timer:
            return  # commits arrive by the thousands; what they make due can wait for that timer
        self._due_work.arm()
        if api_key in HEARTBEATS or api_key == ApiKey.JOIN_GROUP:
            self._measure(pending, decision.reply, ctx.monotonic_ms)

    def _measure(self, pending: PendingReply, reply: Any, now_ms: float) -> None:
        """Measure the gap before an accepted heartbeat; whoever leaves or waits in JoinGroup sends none."""
        request: Any = pending.request
        if pending.api_key == ApiKey.JOIN_GROUP:
            self._gaps.forget(request.group_id, request.member_id)
        elif reply is None or reply.error_code:
            return
        elif pending.api_key == ApiKey.HEARTBEAT:
            self._gaps.measure(request.group_id, request.member_id, now_ms)
        elif request.member_epoch < 0:
            self._gaps.forget(request.group_id, request.member_id)
        else:
            self._gaps.measure(request.group_id, reply.member_id, now_ms)

    def _arm(self) -> None:
        self._due_work.arm()


GroupRuntime = ShardRuntime[GroupShard, GroupDuties]
