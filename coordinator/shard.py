"""A group shard: requests in, records and replies out.

`handle` and `next_work` run a decision (`coordinator.steps`). Its records are applied as they come, so there
is one mutation path and each step sees what the previous one wrote. The caller must append the resulting
records as one entry, in the same turn of the event loop and at the index it named. If the append fails, the
caller must stop, because the projection is then ahead of the log. Everything is synchronous and pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import GeneratorType
from typing import Any

from coordinator import admin, oldgroups, removal
from coordinator.api import Context, Decision, DecisionBuilder, Job, JobKind, RequestRefused, Steps
from coordinator.assignors import BUILT_IN, PartitionAssignor
from coordinator.classic.departing import timer_ended
from coordinator.classic.joining import join_group
from coordinator.classic.members import heartbeat_classic, sync_group
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_groups import ClassicEntry
from coordinator.leader_state.retries import RETRY_MS
from coordinator.leader_state.timers import Deadline
from coordinator.limits import Limits, SameForAll, SettingsView
from coordinator.members.classic_members import (
    heartbeat_consumer_group,
    join_consumer_group,
    sync_consumer_group,
)
from coordinator.members.extensions import extended_heartbeat, install_assignment, prepare_assignment
from coordinator.members.heartbeat import heartbeat
from coordinator.members.leaving import expire
from coordinator.members.numbering import numbered
from coordinator.members.regexes import resolution_ended, resolve
from coordinator.migration.preparing import is_large, is_prepared_first, prepare_upgrade
from coordinator.offsets.commits import commit_offsets
from coordinator.offsets.fetching import fetch_offsets
from coordinator.offsets.resolving import resolve_next
from coordinator.offsets.retention import expire_offsets
from coordinator.offsets.transactional import commit_in_transaction
from coordinator.state.machines import ClassicState, GroupState
from coordinator.state.model import Group
from coordinator.steps import run_steps
from coordinator.targets import checks
from coordinator.targets.targeting import assignment_ended, install_more
from records import MemberState, RawRecord, RecordType, TransactionValue, group_id_of
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest
from wire.messages.leave_group import LeaveGroupRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_delete import OffsetDeleteRequest
from wire.messages.offset_fetch import OffsetFetchRequest
from wire.messages.sync_group import SyncGroupRequest
from wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from wire.refusals import refuse
from wire.schema import Message

_CURRENT = int(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)

COUNTED_PER_STEP = 1_000
"""Groups and members counted in one step: about a millisecond."""

Refusal = Callable[[RequestRefused, DecisionBuilder | None], Decision]
"""Makes a decision of the refusal of a request."""

JobEnd = Callable[[GroupContext, Job, object, str | None, Context, DecisionBuilder], Steps]

_JOB_ENDS: dict[JobKind, JobEnd] = {JobKind.ASSIGN: assignment_ended, JobKind.RESOLVE: resolution_ended}
"""Handlers for the results of child processes. Each takes the result, or None and an error message."""


def _refused(
    api_key: int, version: int, request: Any, refused: RequestRefused, builder: DecisionBuilder | None
) -> Decision:
    reply = refuse(api_key, version, request, refused.code, refused.message)
    failure, notice = (None, "") if builder is None else (builder.failure, builder.notice)
    return Decision(reply=reply, failure=failure, notice=notice, refusal=refused.message)


class GroupShard:
    """The groups of one shard. `assignors` are those that `GroupSettings.assignors` may name."""

    def __init__(
        self, shard_id: int, limits: Limits | None = None, assignors: Iterable[PartitionAssignor] = BUILT_IN
    ) -> None:
        self.groups = GroupContext(shard_id, limits or Limits(), assignors)
        self.projection = self.groups.projection
        self.apply = self.projection.apply
        self.apply_all = self.projection.apply_all
        self.settings: SettingsView = SameForAll()
        self.serving = 0
        """Incremented whenever all cached replies become invalid, for every group."""
        self._have_changes_had_turn = False

    # State derived from the log.

    @property
    def shard_id(self) -> int:
        return self.groups.shard_id

    @property
    def state_hash(self) -> int:
        """State hash (u64) over all projected entries; see `coordinator.state.statehash`."""
        return self.projection.state_hash

    @property
    def applied_index(self) -> int:
        return self.projection.applied_index

    @property
    def newest_catalog_version(self) -> int:
        """The newest catalog version that any group decided on; the node's catalog must not be older."""
        return self.projection.newest_catalog_version

    @property
    def newest_topic_version(self) -> int:
        """The catalog version that created the newest topic of any committed offset, or of any group of an
        old protocol."""
        return max(self.projection.offsets.newest_topic_version, self.projection.newest_old_topic)

    @property
    def num_sessions(self) -> int:
        """Number of members with a running session timer: all members while the shard serves."""
        return len(self.groups.sessions)

    def num_members(self, group_id: str) -> int:
        """Number of members of the group; 0 if it does not exist."""
        group = self.projection.groups.get(group_id)
        return 0 if group is None else group.num_members

    def counting(self) -> Generator[None, None, Counts]:
        """Count groups, members and offsets for metrics, in steps.

        The time taken grows with the number of groups. Each group is counted as it is at its own step."""
        groups: Counter[tuple[str, GroupState | ClassicState]] = Counter()
        members = num_simple = looked_at = 0
        for group_id in admin.group_ids(self.groups):
            group = self.projection.groups.get(group_id)
            looked_at += 1
            if group is not None:
                groups[admin.type_of(group), admin.state_of(self.groups, group_id)] += 1
                classic = self.groups.classic.get(group_id)
                members += group.num_members + (len(classic.members) if classic is not None else 0)
                looked_at += group.num_members  # computing the state may visit each member
            elif group_id in self.projection.old_ids:
                groups[admin.CLASSIC, admin.state_of(self.groups, group_id)] += 1
                consumers = sum(len(old.consumers) for _, old in self.projection.old_groups_of(group_id))
                members += consumers
                looked_at += consumers
            elif self.projection.has_offsets(group_id):  # otherwise the group was removed meanwhile
                num_simple += 1
            if looked_at >= COUNTED_PER_STEP:
                looked_at = 0
                yield
        groups[admin.CLASSIC, ClassicState.EMPTY] += num_simple
        return Counts(groups, members, len(self.projection.offsets))

    # Requests and due work.

    def handle(self, api_key: int, api_version: int, request: Any, ctx: Context) -> Decision:
        """Decide one request. Raises KeyError for an API that group shards do not handle."""
        self.settings = ctx.settings
        builder: DecisionBuilder | None = None
        try:
            if api_key == ApiKey.OFFSET_COMMIT:  # the most frequent request that writes
                decided = commit_offsets(self.groups, request, api_version, ctx)
                if isinstance(decided, Decision):
                    return self._carry_out(decided, ctx)
                return Decision(reply=decided)
            builder = DecisionBuilder()
            answer = self._answer(api_key, api_version, request, ctx, builder)
            if isinstance(answer, GeneratorType):
                return self._run(answer, ctx, builder, partial(_refused, api_key, api_version, request))
        except RequestRefused as refused:
            return _refused(api_key, api_version, request, refused, builder)
        return Decision(reply=answer, failure=builder.failure)

    def _answer(
        self, api_key: int, version: int, request: Message, ctx: Context, builder: DecisionBuilder
    ) -> Steps | Message:
        """Return the steps that decide a request, or its answer if that takes none; frequent ones first."""
        groups = self.groups
        if groups.projection.old_ids:
            oldgroups.refuse_members(groups, request)
        match request:
            case ConsumerGroupHeartbeatRequest():
                if not request.member_epoch and is_prepared_first(groups, request.group_id, ctx):
                    answer = partial(heartbeat, groups, request, version)
                    return prepare_upgrade(groups, request.group_id, answer)(ctx, builder)
                return heartbeat(groups, request, version, ctx, builder)
            case TxnOffsetCommitRequest():
                return commit_in_transaction(groups, request, version, ctx, builder)
            case OffsetFetchRequest():
                return fetch_offsets(groups, request, version, ctx, builder)
            case HeartbeatRequest():
                if (mixed := groups.group_with_members(request.group_id)) is not None:
                    return heartbeat_consumer_group(groups, mixed, request, ctx)
                return heartbeat_classic(groups, request, ctx)
            case JoinGroupRequest():
                if (mixed := groups.group_with_members(request.group_id)) is not None:
                    return join_consumer_group(groups, mixed, request, version, ctx, builder)
                return join_group(groups, request, version, ctx, builder)
            case SyncGroupRequest():
                if (mixed := groups.group_with_members(request.group_id)) is not None:
                    return sync_consumer_group(groups, mixed, request, version, ctx)
                return sync_group(groups, request, version, ctx, builder)
            case ExtendedConsumerGroupHeartbeatRequest():
                if not request.member_epoch and is_prepared_first(groups, request.group_id, ctx):
                    answer = partial(extended_heartbeat, groups, request, version)
                    return prepare_upgrade(groups, request.group_id, answer)(ctx, builder)
                return extended_heartbeat(groups, request, version, ctx, builder)
            case ConsumerGroupPrepareAssignmentRequest():
                return prepare_assignment(groups, request, ctx, builder)
            case ConsumerGroupInstallAssignmentRequest():
                return install_assignment(groups, request, version, ctx, builder)
            case ListGroupsRequest():
                return admin.list_groups(groups, request, builder)
            case ConsumerGroupDescribeRequest():
                return admin.describe_consumer_groups(groups, request, ctx, builder)
            case DescribeGroupsRequest():
                return admin.describe_groups(groups, request, version, builder)
            case DeleteGroupsRequest():
                return removal.delete_groups(groups, request, builder)
            case OffsetDeleteRequest():
                return removal.delete_offsets(groups, request, ctx, builder)
            case LeaveGroupRequest():
                return removal.remove_members(groups, request, version, ctx, builder)
            case _:
                raise KeyError(api_key)

    def next_deadline_ms(self) -> float | None:
        """Monotonic time at which `next_work` has something to do; a time in the past means at once."""
        groups = self.groups
        if groups.catalog_changes or groups.checks or groups.expired or groups.installs:
            return 0.0
        times = (
            groups.sessions.next_ms(),
            groups.rebalances.next_ms(),
            groups.joins.next_ms(),
            groups.syncs.next_ms(),
            groups.pacing.next_ms(),
            groups.resolutions.next_ms(),
            groups.expiry.next_ms,
            groups.retries.next_ms(),
            groups.classic.next_ms(),
            groups.decisions.next_ms(),
        )
        return min((time for time in times if time is not None), default=None)

    def next_work(self, ctx: Context) -> Decision | None:
        """Run one decision of due work; None if none is due.

        Due work is: a decision about a transaction, expired members of one group, one pass over the groups
        that a topic change may affect, a check, a target or the rest of one that is partly written, a round
        of regular expressions, or one pass of the search for expired offsets. Work that raises before its
        first record is tried again after a pause, and after everything else that is due (`Retries`)."""
        builder = DecisionBuilder()
        due = self._due_work(ctx, builder)
        if due is None:
            return None
        work, on_failure = due
        try:
            return self._run(work, ctx, builder)
        except Exception:
            on_failure()
            raise

    def _due_work(self, ctx: Context, builder: DecisionBuilder) -> tuple[Steps, Callable[[], None]] | None:
        """Return the work that is due first, and a function to be called if it raises."""
        groups = self.groups
        groups.collect_expired(ctx.monotonic_ms)
        due = self._due_now(ctx, builder)
        if due is None and groups.retries.resume(groups.expired, groups.checks, ctx.monotonic_ms):
            due = self._due_now(ctx, builder)
        return due

    def _due_now(self, ctx: Context, builder: DecisionBuilder) -> tuple[Steps, Callable[[], None]] | None:
        groups = self.groups
        decision_ms = groups.decisions.next_ms()
        if decision_ms is not None and decision_ms <= ctx.monotonic_ms:
            again_ms = ctx.monotonic_ms + RETRY_MS
            return resolve_next(groups, ctx, builder), partial(groups.decisions.put_off, again_ms)
        if groups.expired:
            group_id = next(iter(groups.expired))
            work = expire(groups, group_id, ctx, builder)
            return work, partial(groups.retry_expiry, group_id, groups.expired[group_id], ctx)
        if groups.catalog_changes:
            # Only every other turn: constant topic changes must not starve the other work.
            self._have_changes_had_turn = not self._have_changes_had_turn
            due = None if self._have_changes_had_turn else self._due_beside_changes(ctx, builder)
            return due or (_schedule_affected(groups, ctx), _nothing)
        return self._due_beside_changes(ctx, builder)

    def _due_beside_changes(
        self, ctx: Context, builder: DecisionBuilder
    ) -> tuple[Steps, Callable[[], None]] | None:
        groups = self.groups
        if (timer := groups.classic.take_due(ctx)) is not None:
            work = timer_ended(groups, timer, ctx, builder)
            return work, partial(groups.classic.retry, timer, ctx)
        if groups.checks:
            group_id, trigger = next(iter(groups.checks.items()))
            work = checks.check_group(groups, group_id, ctx, builder)
            return work, partial(groups.retry_check, group_id, trigger, ctx)
        if groups.installs:
            group_id = next(iter(groups.installs))
            work = install_more(groups, group_id, ctx, builder)
            return work, partial(groups.pacing.defer, group_id, ctx, RETRY_MS)
        if (deferred := groups.pacing.take_due(ctx)) is not None:
            work = checks.compute_deferred_target(groups, deferred, ctx, builder)
            return work, partial(groups.pacing.defer, deferred, ctx, RETRY_MS)
        if (unresolved := groups.resolutions.take_due(ctx)) is not None:
            work = resolve(groups, unresolved, ctx, builder)
            return work, partial(groups.resolutions.want, unresolved, ctx, RETRY_MS)
        if groups.expiry.next_ms is not None and groups.expiry.next_ms <= ctx.monotonic_ms:
            return expire_offsets(groups, ctx, builder), partial(groups.give_up_reading, ctx)
        return None

    def job_ended(self, job: Job, result: object, error: str | None, ctx: Context) -> Decision | None:
        """Handle the result of a child process, or its error message.

        None if the job was abandoned, because leadership was lost or the group was removed in the
        meantime."""
        if self.groups.jobs.get(job.key) is not job:
            return None
        del self.groups.jobs[job.key]
        builder = DecisionBuilder()
        return self._run(_JOB_ENDS[job.kind](self.groups, job, result, error, ctx, builder), ctx, builder)

    def _carry_out(self, decision: Decision, ctx: Context) -> Decision:
        """Apply the records of a decision of one step."""
        if decision.records:
            self.apply_all(decision.records, ctx.next_index)
        if (go_on := decision.continuation) is not None:
            decision.continuation = lambda ctx: self._carry_out(go_on(ctx), ctx)
        return decision

    def _run(
        self, steps: Steps, ctx: Context, builder: DecisionBuilder, refusal: Refusal | None = None
    ) -> Decision:
        apply = partial(self._apply_step, ctx)
        try:
            decision = run_steps(numbered(steps, self.projection, ctx), apply, ctx, builder)
        except Exception:
            self.groups.give_up(builder.jobs)  # they will not be started
            raise
        if builder.continuation is not None and decision.error is None:
            decision.continuation = partial(self._go_on, builder.continuation, refusal)
        return decision

    def _apply_step(self, ctx: Context, step: list[RawRecord], index: int) -> None:
        """Apply a step's records, and note which groups are not stable any more in the same epoch."""
        groups = self.projection.groups
        moved = {group_id_of(raw) or "" for raw in step if raw[0] == _CURRENT}
        stable = [one for one in moved if one in groups and groups[one].state is GroupState.STABLE]
        self.apply_all(step, index)
        for group_id in stable:
            if group_id in groups and groups[group_id].state is GroupState.RECONCILING:
                self.groups.relapsed_ms[group_id] = ctx.wall_ms

    def _go_on(
        self,
        continuation: Callable[[Context, DecisionBuilder], Steps],
        refusal: Refusal | None,
        ctx: Context,
    ) -> Decision:
        builder = DecisionBuilder()
        try:
            return self._run(continuation(ctx, builder), ctx, builder, refusal)
        except RequestRefused as refused:
            if refusal is None:
                raise
            return refusal(refused, builder)

    # Leadership.

    def on_ready(self, ctx: Context) -> None:
        """Begin to serve: all sessions restart in full, and every group is queued for a check."""
        for _ in self.becoming_ready(lambda: ctx):
            pass

    def becoming_ready(self, now: Callable[[], Context]) -> Iterator[None]:
        """Do the work of `on_ready` in steps far below a millisecond each.

        The work grows with the number of members and groups. No request may be handled and nothing applied
        before the last step."""
        self.serving += 1
        self.settings = now().settings
        yield from self.groups.begin(now)

    def on_deposed(self) -> Iterator[None]:
        """Stop serving because another node leads.

        From now on, no timer may fire and no cached reply may be used. Iterating the result frees the
        volatile state in steps."""
        self.serving += 1
        return chain(self.groups.forget_leader_state(), self.groups.classic.clear())

    def free_incrementally(self) -> Iterator[None]:
        """Free the whole state in small steps, because another shard object will replay the log."""
        return chain(self.on_deposed(), self.projection.free_incrementally())

    def on_catalog_changed(
        self, ctx: Context, topic_names: Iterable[str], *, is_complete: bool = True
    ) -> None:
        """Note that topics were created, deleted or grew.

        No cached reply of an affected group is valid from now on; the groups are queued for a check as the
        search finds them.

        If not `is_complete`, other topics may have been created or deleted since the last call."""
        self.groups.topics_changed(topic_names, ctx, is_complete=is_complete)

    def on_transactions_changed(self, changes: Iterable[tuple[str, TransactionValue]]) -> None:
        """Note committed records of transactional ids, among them decisions that the shard has to follow."""
        self.groups.decisions.learn(changes, self.projection)

    def followed_old_group(self, ctx: Context, group_id: str) -> None:
        """Note that an entry of a coordinator of an old protocol was appended and applied.

        It must be told before the next request is handled: the group's offsets, or the group, may expire, and
        a group of another protocol may have given way."""
        self.settings = ctx.settings
        self.groups.followed_old_group(group_id, ctx)

    def on_configs_changed(self, ctx: Context, group_ids: Iterable[str]) -> None:
        """Note that the configs of these groups changed; the groups may belong to any shard."""
        self.groups.configs_changed(group_ids, ctx)

    def shift_deadlines(self, gap_ms: float) -> None:
        """Move all deadlines: the node did not run for `gap_ms`, and members must not expire for it."""
        self.groups.shift_deadlines(gap_ms)

    def advance(self, ms: float) -> None:
        """Bring all deadlines nearer, as if that time had passed without a request."""
        self.groups.shift_deadlines(-ms)
        self.groups.expiry.look_sooner(ms)

    def joins_in_turns(self, group_id: str) -> bool:
        """Whether a join of the consumer protocol may take several decisions (`coordinator.migration`)."""
        return is_large(self.groups, group_id)

    # The fast path.

    def fast_entry(self, group_id: str, member_id: str) -> FastEntry | ClassicEntry | None:
        """Permission to answer from the cache, for a member whose heartbeats change nothing; otherwise None.

        Such a member is STABLE, its epoch equals the group epoch and the assignment epoch, and it does not
        have an assignment to report; one of a classic group has not been told to join again."""
        classic = self.groups.classic.get(group_id)
        if classic is not None:
            return self.groups.classic.fast_entry(classic, member_id)
        group = self.projection.groups.get(group_id)
        member = group.member(member_id) if group is not None else None
        timer = self.groups.sessions.get((group_id, member_id))
        if group is None or member is None or timer is None or group_id in self.groups.checks:
            return None
        if self.groups.retries.waits_for_check(group_id):
            return None
        if not member.is_classic and not self.groups.reports.is_settled((group_id, member_id)):
            return None
        if self.groups.catalog_changes and self.groups.catalog_changes.concerns(group):
            return None
        current = member.current
        if (
            current.state is not MemberState.STABLE
            or not current.epoch == group.assignment_epoch == group.epoch
        ):
            return None
        return FastEntry(self, group, timer)


class FastEntry:
    """Permission to answer a member's identical heartbeat with the cached reply, as long as it is valid.

    It ends with any record of the group, any change of a topic that the group subscribes to, a change of
    settings, and the end of leadership."""

    __slots__ = (
        "_changed",
        "_group",
        "_group_version",
        "_replies",
        "_serving",
        "_settings",
        "_settings_version",
        "_shard",
        "touch",
    )

    def __init__(self, shard: GroupShard, group: Group, timer: Deadline) -> None:
        self._shard = shard
        self._group = group
        self.touch: Callable[[float, int], None] = timer.restart
        """`touch(monotonic_ms, wall_ms)` restarts the session after a heartbeat."""
        self._serving = shard.serving
        self._group_version = group.version
        self._replies = shard.groups.replies_of(group.group_id)
        self._changed = shard.groups.catalog_changes.names
        self._settings = shard.settings
        self._settings_version = shard.settings.version

    def is_valid(self) -> bool:
        return (
            self._group.version == self._group_version
            and self._replies.are_valid
            and self._shard.serving == self._serving
            and self._settings.version == self._settings_version
            and not (self._changed and not self._changed.isdisjoint(self._group.subscriptions))
        )


def _nothing() -> None:
    """Do nothing: the search goes on with the groups after those that raised."""


def _schedule_affected(groups: GroupContext, ctx: Context) -> Steps:
    yield from ()  # writes no records
    groups.schedule_affected(ctx)
    return None


@dataclass(frozen=True, slots=True)
class Counts:
    """Sizes of a shard: groups by type ("consumer", "classic") and state, members, committed offsets."""

    groups: Counter[tuple[str, GroupState | ClassicState]]
    members: int
    offsets: int

    def in_state(self, state: str) -> int:
        """Number of groups of any type in a state, which Kafka's types of groups partly share by name."""
        return sum(number for (_, of), number in self.groups.items() if of.value == state)

    def of_type(self, kind: str) -> int:
        return sum(number for (of, _), number in self.groups.items() if of == kind)
