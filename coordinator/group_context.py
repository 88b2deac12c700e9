"""Shared state for all decisions of a group shard: the projection, and the leader's state outside the log.

The projection is derived from the log. The rest is known to the leader only: deadlines, pacing, the catalog
version that each group was last compared with, and which groups are queued for a check. All of it is lost
with the leadership and rebuilt from the projection (`begin`). For this reason, the correctness of a decision
must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from coordinator.api import Context, DecisionBuilder, Job, JobKind, RequestRefused
from coordinator.assignors.spi import PartitionAssignor
from coordinator.leader_state.catalog_changes import CatalogChanges
from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.leader_state.classic_groups import ClassicGroups
from coordinator.leader_state.clientrounds import ClientSide
from coordinator.leader_state.committer import Committer
from coordinator.leader_state.decisions import Decisions
from coordinator.leader_state.expiry import ExpiryTable
from coordinator.leader_state.installing import TargetInstall
from coordinator.leader_state.pacing import TargetPacing
from coordinator.leader_state.reports import Reports
from coordinator.leader_state.resolutions import Resolutions
from coordinator.leader_state.retries import ExpiredMembers, Retries
from coordinator.leader_state.timers import Deadline, Deadlines, MemberKey
from coordinator.limits import GroupSettings, Limits
from coordinator.state.freeing import free_incrementally
from coordinator.state.machines import ClassicState
from coordinator.state.model import Group, Member
from coordinator.state.projection import Projection
from records import MemberState, RawRecord, ReasonKind, Trigger
from wire.errors import ErrorCode

MEMBERS_PER_STEP = 100
"""Number of members of a large group whose timers are armed in one step when a term begins: well below a
millisecond."""


def session_timeout_ms(member: Member, settings: GroupSettings) -> int:
    """The session timeout of a member; one of the classic protocol has named its own."""
    classic = member.classic
    return settings.session_timeout_ms if classic is None else classic.session_timeout_ms


class CachedReplies:
    """Tells whether cached replies of a group are still valid, where no record does."""

    __slots__ = ("are_valid",)

    def __init__(self) -> None:
        self.are_valid = True


class GroupContext:
    """State shared by the handlers of one group shard. Only `Projection.apply` changes `projection`."""

    def __init__(self, shard_id: int, limits: Limits, assignors: Iterable[PartitionAssignor]) -> None:
        self.shard_id = shard_id
        self.limits = limits
        self.assignors: Mapping[str, PartitionAssignor] = {assignor.name: assignor for assignor in assignors}
        self.projection = Projection()
        self.sessions = Deadlines()
        self.rebalances = Deadlines()
        self.joins = Deadlines()
        """Members of the classic protocol in consumer groups that were told to join again."""
        self.syncs = Deadlines()
        """Members of the classic protocol in consumer groups that joined and have not sent SyncGroup."""
        self.reports = Reports()
        self.pacing = TargetPacing(limits)
        self.expiry = ExpiryTable()
        self.resolutions = Resolutions(limits)
        self.client_side = ClientSide()
        self.decisions = Decisions(shard_id)
        self.classic = ClassicGroups(is_served=limits.serves_classic)
        self.committer: Committer | None = None
        self.checked_version: dict[str, tuple[int, bool]] = {}
        """The catalog version that each group was last compared with, and whether partition racks were
        compared too."""
        self.checks: dict[str, Trigger] = {}
        self.cached_replies: dict[str, CachedReplies] = {}
        """The object that tells whether a group's cached replies are still valid, unless a record does."""
        self.known_topics: dict[str, bytes] = {}
        self.catalog_changes = CatalogChanges()
        self.offset_scans: dict[str, Iterator[tuple[RawRecord, bytes]]] = {}
        """Unfinished searches for offsets whose topic was deleted; each continues at the group's next
        check."""
        self.expired: dict[str, ExpiredMembers] = {}
        self.retries = Retries()
        self.bumped_ms: dict[str, int] = {}
        """Wall-clock time of each group's newest epoch, if this leader began it."""
        self.relapsed_ms: dict[str, int] = {}
        """Wall-clock time at which each group last left STABLE without a new epoch, if this leader saw it."""
        self.moved_ms: dict[MemberKey, int] = {}
        """Wall-clock time of each member's last reconciliation step, if this leader took it."""
        self.began_ms = 0.0
        """Monotonic time at which this node became leader. A timer armed at or before it does not show when a
        member was told to revoke."""
        self.jobs: dict[tuple[JobKind, str], Job] = {}
        """Jobs in progress. The result of a job that is no longer listed here is discarded."""
        self.installs: dict[str, TargetInstall] = {}
        """Targets that are computed but only partly written."""

    def forget_leader_state(self) -> Iterator[None]:
        """Discard the leader's state: none of it is valid from now on.

        Only the classic groups stay (`ClassicGroups.clear`), because their members may wait for answers while
        all sessions are renewed. Iterating the result frees the memory in steps."""
        tables: tuple[dict[Any, Any], ...] = (
            self.checked_version, self.checks, self.known_topics, self.expired, self.bumped_ms, self.moved_ms,
            self.relapsed_ms, self.cached_replies,
        )  # fmt: skip
        self.checked_version, self.checks, self.known_topics, self.expired = {}, {}, {}, {}
        self.bumped_ms, self.relapsed_ms, self.moved_ms, self.cached_replies = {}, {}, {}, {}
        self.catalog_changes = CatalogChanges()
        self.committer = None
        self.jobs.clear()
        self.installs.clear()
        self.decisions.clear()
        timers = (
            self.pacing.clear(),
            self.sessions.clear(),
            self.rebalances.clear(),
            self.joins.clear(),
            self.syncs.clear(),
            self.reports.clear(),
            self.resolutions.clear(),
            self.retries.clear(),
            self.expiry.clear(),
            self.client_side.clear(),
        )
        return chain(*timers, *(free_incrementally(table) for table in tables))

    def begin(self, now: Callable[[], Context]) -> Iterator[None]:
        """Begin a term of leadership: every deadline restarts in full, and every group is queued for a check.

        Runs in steps, because the time taken grows with the number of members. `now` gives each step its own
        clock. Nothing may be applied before the last step."""
        yield from self.forget_leader_state()
        for group in self.projection.groups.values():
            yield
            ctx = now()
            settings = ctx.settings.for_group(group.group_id)
            self.checks[group.group_id] = Trigger.READY_CHECK
            if group.regex_subscribers:
                self.resolutions.want(group.group_id, ctx)
            if group.classic is not None and not group.is_consumer and self.classic.is_served:
                yield from self.classic.resume(group.group_id, group.classic, now)
            for number, member in enumerate(group.members.values()):  # also half-compacted ones
                if number % MEMBERS_PER_STEP == MEMBERS_PER_STEP - 1:
                    yield
                    ctx = now()
                key = (group.group_id, member.member_id)
                timeout_ms = session_timeout_ms(member, settings)
                self.sessions.arm(key, ctx.monotonic_ms, ctx.wall_ms, timeout_ms)
                self.rearm_rebalance(group, member, ctx)
            self.expect_end(group.group_id, ctx)
        for group_id in chain(self.projection.offsets.group_ids(), self.projection.pending.group_ids()):
            yield
            self.checks[group_id] = Trigger.READY_CHECK
            ctx = now()
            self.expiry.expect(group_id, self._next_check_ms(group_id, ctx), ctx)
        for group_id in self.projection.old_ids:  # those with offsets are expected above
            yield
            self.expect_end(group_id, now())
        ctx = now()
        self.decisions.begin(self.projection, ctx.catalog)
        self.known_topics = {topic.name: topic.topic_id for topic in ctx.catalog}
        self.began_ms = ctx.monotonic_ms

    def expect_end(self, group_id: str, ctx: Context) -> None:
        """Schedule the removal of a group without members or offsets, one check interval from now."""
        group = self.projection.groups.get(group_id)
        is_empty = self._is_old_without_consumers(group_id) if group is None else group.is_empty
        if is_empty and not self.projection.has_offsets(group_id):
            self.expiry.expect(group_id, self._next_check_ms(group_id, ctx), ctx)

    def followed_old_group(self, group_id: str, ctx: Context) -> None:
        """Note an entry of a group of an old protocol, which may have taken the id over.

        The time of a commit is the client's, so its offset may expire at the next check already."""
        self.committer = None
        if group_id in self.projection.old_ids:
            self._forget_protocol(group_id)
        if self.projection.has_offsets(group_id):
            self.expiry.expect(group_id, self._next_check_ms(group_id, ctx), ctx)
        else:
            self.expect_end(group_id, ctx)

    def expect_expiry(self, group_id: str, at_ms: int, ctx: Context) -> None:
        """Note that an offset was committed that may expire at `at_ms`."""
        self.expiry.expect(group_id, max(at_ms, self._next_check_ms(group_id, ctx)), ctx)

    def give_up_reading(self, ctx: Context) -> None:
        """Abandon the reading of a group's offsets after a failure; retry at the group's next check."""
        reading, self.expiry.reading = self.expiry.reading, None
        if reading is not None:
            self.expiry.expect(reading.group_id, self._next_check_ms(reading.group_id, ctx), ctx)
        self.expiry.aim(ctx)

    def _next_check_ms(self, group_id: str, ctx: Context) -> int:
        return ctx.past_ms + ctx.settings.for_group(group_id).offsets_retention_check_interval_ms

    def topics_changed(self, topic_names: Iterable[str], ctx: Context, *, is_complete: bool) -> None:
        """Note that topics were created, deleted or grew.

        If not `is_complete`, other topics may have been created or deleted too."""
        names = set(topic_names)
        is_one_gone = is_one_new = not is_complete
        for name in names:
            topic = ctx.catalog.topic(name)
            known = self.known_topics.pop(name, None)
            is_one_new |= known is None
            is_one_gone |= topic is None or (known is not None and topic.topic_id != known)
            if topic is not None:
                self.known_topics[name] = topic.topic_id
        self.catalog_changes.note(names, is_one_new=is_one_new, is_one_gone=is_one_gone)

    def schedule_affected(self, ctx: Context) -> None:
        """Continue to queue the groups that topic changes may affect for a check.

        These are all groups that subscribe to a changed topic, and if a topic was deleted or may have been,
        also all groups with offsets."""
        projection = self.projection
        changes, group_ids = self.catalog_changes.some(
            chain(list(projection.groups), projection.offsets.group_ids(), projection.pending.group_ids())
        )
        for group_id in group_ids:  # a group with members and offsets comes twice
            group = projection.groups.get(group_id)
            if group is not None and changes.concerns(group):
                self.invalidate_replies(group_id)
                self.checks.setdefault(group_id, Trigger.CATALOG_CHANGED)
            if group is not None and changes.concerns_expressions(group):
                self.resolutions.want(group_id, ctx)
            if changes.is_one_gone and projection.has_offsets(group_id):
                self.offset_scans.pop(group_id, None)  # restart the search
                self.checks.setdefault(group_id, Trigger.CATALOG_CHANGED)

    def member_moved(self, group: Group, member: Member, ctx: Context) -> None:
        """Note that a reconciliation step of the member was written."""
        self.moved_ms[group.group_id, member.member_id] = ctx.wall_ms
        self.rearm_rebalance(group, member, ctx)

    def configs_changed(self, group_ids: Iterable[str], ctx: Context) -> None:
        """Note that the configs of these groups changed.

        Cached replies become invalid, and a target that waits for an assignment interval is reconsidered.
        Session timeouts follow at each member's next heartbeat."""
        for group_id in group_ids:
            if group_id in self.projection.groups:
                self.invalidate_replies(group_id)
                self.pacing.hurry(group_id, ctx)

    def replies_of(self, group_id: str) -> CachedReplies:
        """Return what tells whether replies that are cached now are still valid later."""
        return self.cached_replies.setdefault(group_id, CachedReplies())

    def invalidate_replies(self, group_id: str) -> None:
        """Note that the group's cached replies are out of date, although no record changed the group."""
        replies = self.cached_replies.pop(group_id, None)
        if replies is not None:
            replies.are_valid = False

    def rearm_rebalance(self, group: Group, member: Member, ctx: Context) -> None:
        """Start, restart or cancel the member's rebalance timer.

        The timer runs while the member has partitions to revoke (C.13). A member of the classic protocol
        gives them up between SyncGroup and JoinGroup, which have timers of their own."""
        key = (group.group_id, member.member_id)
        is_to_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away
        if not is_to_revoke or member.metadata is None or member.is_classic:
            self.rebalances.cancel(key)
            return
        timeout_ms = member.metadata.rebalance_timeout_ms
        if timeout_ms < 0:  # not given; only in imported logs, as a join must state it
            timeout_ms = ctx.settings.for_group(group.group_id).session_timeout_ms
        self.rebalances.arm(key, ctx.monotonic_ms, ctx.wall_ms, timeout_ms, member_epoch=member.current.epoch)

    def restart_session(self, key: MemberKey, timeout_ms: int, ctx: Context) -> None:
        """Give the member a full session, because it was heard."""
        timer = self.sessions.get(key)
        if timer is not None and timer.timeout_ms == timeout_ms:
            timer.restart(ctx.monotonic_ms, ctx.wall_ms)
            return
        self.sessions.arm(key, ctx.monotonic_ms, ctx.wall_ms, timeout_ms, last_heartbeat_wall_ms=ctx.wall_ms)
        if timer is not None:
            self.invalidate_replies(key[0])  # they would restart the old timer

    def forget_joining(self, key: MemberKey) -> None:
        """Wait neither for the member's JoinGroup nor for its SyncGroup."""
        self.joins.cancel(key)
        self.expired.get(key[0], {}).pop((key[1], ReasonKind.JOIN_TIMED_OUT), None)
        self.stop_waiting_for_sync(key)

    def stop_waiting_for_sync(self, key: MemberKey) -> None:
        self.syncs.cancel(key)
        self.expired.get(key[0], {}).pop((key[1], ReasonKind.SYNC_TIMED_OUT), None)

    def start_job(self, job: Job, builder: DecisionBuilder) -> None:
        """Start a job in a child process. A later decision handles its result (`GroupShard.job_ended`)."""
        assert job.key not in self.jobs, f"a {job.kind} job of group {job.group_id} is already running"
        self.jobs[job.key] = job
        builder.jobs.append(job)

    def is_working(self, kind: JobKind, group_id: str) -> bool:
        """Whether a child process is working on this kind of job for the group."""
        return (kind, group_id) in self.jobs

    def give_up(self, jobs: Iterable[Job]) -> None:
        """Forget these jobs: their results are no longer wanted, or they were never started."""
        for job in jobs:
            if self.jobs.get(job.key) is job:
                del self.jobs[job.key]

    def forget_member(self, group_id: str, member_id: str) -> None:
        self.sessions.cancel((group_id, member_id))
        self.rebalances.cancel((group_id, member_id))
        self.forget_joining((group_id, member_id))
        self.reports.forget((group_id, member_id))
        self.moved_ms.pop((group_id, member_id), None)

    def forget_protocol(self, group_id: str, ctx: Context) -> None:
        """Forget what belongs to the former protocol of a group that changed it; its offsets are kept."""
        self.forget_group(group_id)
        if self.projection.has_offsets(group_id):
            self.expect_expiry(group_id, ctx.past_ms, ctx)
            self.checks[group_id] = Trigger.READY_CHECK

    def forget_group(self, group_id: str) -> None:
        self._forget_protocol(group_id)
        self.checks.pop(group_id, None)
        self.offset_scans.pop(group_id, None)
        self.expiry.forget(group_id)

    def _forget_protocol(self, group_id: str) -> None:
        """Forget everything but the looks at its offsets."""
        self.pacing.forget(group_id)
        self.resolutions.forget(group_id)
        self.client_side.forget(group_id)
        self.classic.forget(group_id)
        self.checked_version.pop(group_id, None)
        self.invalidate_replies(group_id)
        self.installs.pop(group_id, None)
        self.bumped_ms.pop(group_id, None)
        self.relapsed_ms.pop(group_id, None)
        for kind in JobKind:
            self.jobs.pop((kind, group_id), None)

    def shift_deadlines(self, gap_ms: float) -> None:
        self.sessions.shift(gap_ms)
        self.rebalances.shift(gap_ms)
        self.joins.shift(gap_ms)
        self.syncs.shift(gap_ms)
        self.pacing.shift(gap_ms)
        self.resolutions.shift(gap_ms)
        self.client_side.shift(gap_ms)
        self.classic.shift(gap_ms)
        self.decisions.shift(gap_ms)
        for deadlines in self.expired.values():
            for deadline in deadlines.values():
                deadline.deadline_ms += gap_ms

    def collect_expired(self, now_ms: float) -> None:
        """Move due timers to `expired`, by group, so that one decision handles all of a group's."""
        for kind, timers in self._member_timers():
            for (group_id, member_id), deadline in timers.take_due(now_ms):
                self.expired.setdefault(group_id, {})[member_id, kind] = deadline

    def _member_timers(self) -> tuple[tuple[ReasonKind, Deadlines], ...]:
        """The timers whose end removes a member, each with the reason for the removal."""
        return (
            (ReasonKind.SESSION_EXPIRED, self.sessions),
            (ReasonKind.REBALANCE_EXPIRED, self.rebalances),
            (ReasonKind.JOIN_TIMED_OUT, self.joins),
            (ReasonKind.SYNC_TIMED_OUT, self.syncs),
        )

    def retry_expiry(self, group_id: str, members: ExpiredMembers, ctx: Context) -> None:
        """Set the expiry of these members aside, because it raised."""
        self.expired.pop(group_id, None)
        self.retries.expiry_failed(group_id, members, ctx.monotonic_ms)

    def retry_check(self, group_id: str, trigger: Trigger, ctx: Context) -> None:
        """Set the check of the group aside, because it raised."""
        self.checks.pop(group_id, None)
        self.retries.check_failed(group_id, trigger, ctx.monotonic_ms)

    def was_rearmed(self, kind: ReasonKind, key: MemberKey, deadline: Deadline, ctx: Context) -> bool:
        """Whether a heartbeat or a pause of the node moved the deadline after it was collected."""
        timers = dict(self._member_timers())[kind]
        if timers.get(key) is not None:
            return True
        if deadline.deadline_ms <= ctx.monotonic_ms:
            return False
        timers.put_back(key, deadline)
        return True

    def classic_group(self, group_id: str, ctx: Context) -> ClassicGroup | None:
        """The group of the classic protocol with this id; None if there is none.

        A group that is only in the log is served from now on, if the protocol is served at all."""
        known = self.classic.get(group_id)
        group = self.projection.groups.get(group_id)
        if known is not None or group is None or group.classic is None or group.is_consumer:
            return known
        if not self.classic.is_served:
            return ClassicGroup.of(group_id, group.classic)
        for _ in self.classic.resume(group_id, group.classic, lambda: ctx):
            pass
        return self.classic.get(group_id)

    def has_classic_members(self, group_id: str) -> bool:
        """Whether the group has members of the classic protocol.

        A member id that was given out and not used yet does not count."""
        served, group = self.classic.get(group_id), self.projection.groups.get(group_id)
        if served is not None:
            return served.state is not ClassicState.EMPTY
        return group is not None and group.classic is not None and bool(group.classic.members)

    def group_with_members(self, group_id: str) -> Group | None:
        """The consumer group with this id if it has members, of either protocol."""
        group = self.projection.groups.get(group_id)
        return group if group is not None and group.is_consumer and group.num_members else None

    def require_room_for_offsets(self, group_id: str) -> None:
        """Raise `RequestRefused` if the group would be one more with offsets than may have any."""
        offsets, pending = self.projection.offsets, self.projection.pending
        if max(
            offsets.num_groups, pending.num_groups
        ) >= self.limits.groups_max and not self.projection.has_offsets(group_id):
            raise RequestRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"This shard already holds offsets of the maximum of {self.limits.groups_max} groups; delete "
                "unused ones.",
            )

    def is_empty(self, group_id: str) -> bool:
        """Whether nobody is a member of the group, by any protocol."""
        return not self.has_members(group_id) and not self.has_old_consumers(group_id)

    def has_members(self, group_id: str) -> bool:
        """Whether the group has members of the consumer or the classic protocol."""
        group = self.projection.groups.get(group_id)
        return (group is not None and group.num_members > 0) or self.has_classic_members(group_id)

    def has_old_consumers(self, group_id: str) -> bool:
        """Whether the group is one of an old protocol (records 1010, 1011) that has consumers."""
        if group_id not in self.projection.old_ids:
            return False
        return any(value.consumers for _, value in self.projection.old_groups_of(group_id))

    def _is_old_without_consumers(self, group_id: str) -> bool:
        return group_id in self.projection.old_ids and not self.has_old_consumers(group_id)

    def has_room_for(self, group_id: str) -> bool:
        """Whether the group exists, by any protocol, or the shard may have one more."""
        groups, old_ids = self.projection.groups, self.projection.old_ids
        is_known = group_id in groups or group_id in old_ids
        return is_known or len(groups) + len(old_ids) < self.limits.groups_max

    def catalog_is_behind(self, group: Group, ctx: Context) -> bool:
        """Whether this node's catalog is older than the one that the group last decided on."""
        return group.catalog_version > ctx.catalog.version

    def require_catalog(self, group: Group, ctx: Context) -> None:
        if self.catalog_is_behind(group, ctx):
            raise RequestRefused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"This node knows the topics as of version {ctx.catalog.version}; group {group.group_id} "
                f"already uses version {group.catalog_version}. Try again in a moment.",
            )

    def consumer_group(self, group_id: str) -> Group:
        """The consumer group with this id.

        Raises GROUP_ID_NOT_FOUND if there is none or it has another type."""
        group = self.projection.groups.get(group_id)
        if group is None or not group.is_consumer:
            what = "is not a consumer group" if group is not None else "does not exist"
            raise RequestRefused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}; join with member epoch 0."
            )
        return group

    def consumer_member(self, group: Group, member_id: str) -> Member:
        member = group.member(member_id)
        if member is None:
            raise RequestRefused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member_id} is not a member of group {group.group_id}; it left or its session expired. "
                "Give up all partitions and join with member epoch 0.",
            )
        return member
