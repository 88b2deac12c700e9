"""What every decision of a group shard works on: the projection, and the volatile state beside it.

The projection is what the log says. The rest is what a leader knows and a log need not: deadlines, pacing,
which catalog version each group was last compared with, and which groups are queued for a look. All of it is
lost with the leadership and made anew from the projection (`begin`), which is the reason why no decision may
depend on it for its correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from coordinator.api import Context, Draft, Job, JobKind, Refused
from coordinator.assignors.spi import PartitionAssignor
from coordinator.limits import Limits
from coordinator.state.dissolving import emptied
from coordinator.state.model import Group, Member
from coordinator.state.projection import Projection
from coordinator.volatile.clientrounds import ClientSide
from coordinator.volatile.expiry import ExpiryTable
from coordinator.volatile.installing import Installing
from coordinator.volatile.news import TopicNews
from coordinator.volatile.pacing import TargetPacing
from coordinator.volatile.reports import Reports
from coordinator.volatile.resolutions import Resolutions
from coordinator.volatile.timers import Deadline, Deadlines, MemberKey
from records import MemberState, Trigger
from wire.errors import ErrorCode

MEMBERS_PER_STEP = 100
"""Of a large group, when a term begins: arming the timers of so many takes well below a millisecond."""


class Core:
    """Shared by the handlers of one group shard. Only `Projection.apply` changes `projection`."""

    def __init__(self, shard_id: int, limits: Limits, assignors: Iterable[PartitionAssignor]) -> None:
        self.shard_id = shard_id
        self.limits = limits
        self.assignors: Mapping[str, PartitionAssignor] = {assignor.name: assignor for assignor in assignors}
        self.projection = Projection()
        self.sessions = Deadlines()
        self.rebalances = Deadlines()
        self.reports = Reports()
        self.pacing = TargetPacing(limits)
        self.expiry = ExpiryTable()
        self.resolutions = Resolutions(limits)
        self.client_side = ClientSide()
        self.checked_version: dict[str, tuple[int, bool]] = {}
        """The catalog that each group was compared with last, and whether with the racks of partitions."""
        self.checks: dict[str, Trigger] = {}
        self.known_topics: dict[str, bytes] = {}
        self.news = TopicNews()
        self.offset_scans: dict[str, Iterator[tuple[bytes, bytes]]] = {}
        """Searches for offsets without a topic that go on at the group's next check."""
        self.expired: dict[str, dict[tuple[str, Trigger], Deadline]] = {}
        self.bumped_ms: dict[str, int] = {}
        """Wall clock of the newest epoch of each group, where this leader began it."""
        self.moved_ms: dict[MemberKey, int] = {}
        """Wall clock of each member's last step of reconciliation, where this leader made it."""
        self.began_ms = 0.0
        """When this node became the leader: timers armed up to then say nothing of what members were told."""
        self.jobs: dict[tuple[JobKind, str], Job] = {}
        """Under way; what ends and is not here has been given up."""
        self.installs: dict[str, Installing] = {}
        """Targets that were computed and are only partly written."""

    def forget_volatile(self) -> Iterator[None]:
        """Nothing of it holds from now on; the steps let go of what there is for every member and group."""
        tables: tuple[dict[Any, Any], ...] = (
            self.checked_version, self.checks, self.known_topics, self.expired, self.bumped_ms, self.moved_ms,
        )  # fmt: skip
        self.checked_version, self.checks, self.known_topics, self.expired = {}, {}, {}, {}
        self.bumped_ms, self.moved_ms = {}, {}
        self.news = TopicNews()
        self.jobs.clear()
        self.installs.clear()
        timers = (
            self.pacing.clear(),
            self.sessions.clear(),
            self.rebalances.clear(),
            self.reports.clear(),
            self.resolutions.clear(),
            self.expiry.clear(),
            self.client_side.clear(),
        )
        return chain(*timers, *(emptied(table) for table in tables))

    def begin(self, now: Callable[[], Context]) -> Iterator[None]:
        """A term of leadership begins: every deadline starts in full, and every group is looked at once.

        In steps, as it takes time for every member: `now` gives each its own clock, and nothing may be
        applied before the last."""
        yield from self.forget_volatile()
        for group in self.projection.groups.values():
            yield
            ctx = now()
            settings = ctx.settings.for_group(group.group_id)
            self.checks[group.group_id] = Trigger.READY_CHECK
            if group.regex_subscribers:
                self.resolutions.want(group.group_id, ctx)
            for number, member in enumerate(group.members.values()):  # also what compaction left half of
                if number % MEMBERS_PER_STEP == MEMBERS_PER_STEP - 1:
                    yield
                    ctx = now()
                key = (group.group_id, member.member_id)
                self.sessions.arm(key, ctx.monotonic_ms, ctx.wall_ms, settings.session_timeout_ms)
                self.rearm_rebalance(group, member, ctx)
            self.expect_end(group.group_id, ctx)
        for group_id in self.projection.offsets.group_ids():
            yield
            self.checks[group_id] = Trigger.READY_CHECK
            ctx = now()
            self.expiry.expect(group_id, self._next_check_ms(group_id, ctx), ctx)
        ctx = now()
        self.known_topics = {topic.name: topic.topic_id for topic in ctx.catalog}
        self.began_ms = ctx.monotonic_ms

    def expect_end(self, group_id: str, ctx: Context) -> None:
        """A group that has neither members nor offsets left is over after one check interval."""
        group = self.projection.groups.get(group_id)
        if group is not None and group.is_empty and not self.projection.offsets.has_group(group_id):
            self.expiry.expect(group_id, self._next_check_ms(group_id, ctx), ctx)

    def expect_expiry(self, group_id: str, at_ms: int, ctx: Context) -> None:
        """An offset of the group was committed that may be over at `at_ms`."""
        self.expiry.expect(group_id, max(at_ms, self._next_check_ms(group_id, ctx)), ctx)

    def give_up_reading(self, ctx: Context) -> None:
        """Whatever is the matter with the group whose offsets were being read: at the next check again."""
        reading, self.expiry.reading = self.expiry.reading, None
        if reading is not None:
            self.expiry.expect(reading.group_id, self._next_check_ms(reading.group_id, ctx), ctx)
        self.expiry.aim(ctx)

    def _next_check_ms(self, group_id: str, ctx: Context) -> int:
        return ctx.past_ms + ctx.settings.for_group(group_id).offsets_retention_check_interval_ms

    def topics_changed(self, topic_names: Iterable[str], ctx: Context, *, is_complete: bool) -> None:
        """Notes that topics came, went or grew; not `is_complete`: there are others that came and went."""
        names = set(topic_names)
        is_one_gone = is_one_new = not is_complete
        for name in names:
            topic = ctx.catalog.topic(name)
            known = self.known_topics.pop(name, None)
            is_one_new |= known is None
            is_one_gone |= topic is None or (known is not None and topic.topic_id != known)
            if topic is not None:
                self.known_topics[name] = topic.topic_id
        self.news.note(names, is_one_new=is_one_new, is_one_gone=is_one_gone)

    def spread_news(self, ctx: Context) -> None:
        """Goes on to queue a look at every group that subscribes to a topic that changed, and at all groups
        that have offsets if one is gone, or may be."""
        projection = self.projection
        news, group_ids = self.news.some(chain(list(projection.groups), projection.offsets.group_ids()))
        for group_id in group_ids:  # one that has both comes twice
            group = projection.groups.get(group_id)
            if group is not None and news.concerns(group):
                group.changes += 1
                self.checks.setdefault(group_id, Trigger.CATALOG_CHANGED)
            if group is not None and news.concerns_expressions(group):
                self.resolutions.want(group_id, ctx)
            if news.is_one_gone and projection.offsets.has_group(group_id):
                self.offset_scans.pop(group_id, None)  # from the beginning
                self.checks.setdefault(group_id, Trigger.CATALOG_CHANGED)

    def member_moved(self, group: Group, member: Member, ctx: Context) -> None:
        """A step of the member's reconciliation was written."""
        self.moved_ms[group.group_id, member.member_id] = ctx.wall_ms
        self.rearm_rebalance(group, member, ctx)

    def configs_changed(self, group_ids: Iterable[str], ctx: Context) -> None:
        """Other configs hold for these groups: no reply cached before may be given, and a target that waits
        for an assignment interval may have waited long enough. Sessions follow at each member's heartbeat."""
        for group_id in group_ids:
            group = self.projection.groups.get(group_id)
            if group is not None:
                group.changes += 1
                self.pacing.hurry(group_id, ctx)

    def rearm_rebalance(self, group: Group, member: Member, ctx: Context) -> None:
        """A member that has something to give up has its own rebalance timeout for it (C.13)."""
        key = (group.group_id, member.member_id)
        is_to_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away
        if not is_to_revoke or member.metadata is None:
            self.rebalances.cancel(key)
            return
        timeout_ms = member.metadata.rebalance_timeout_ms
        if timeout_ms < 0:  # not given; only in imported logs, as a join has to name it
            timeout_ms = ctx.settings.for_group(group.group_id).session_timeout_ms
        self.rebalances.arm(key, ctx.monotonic_ms, ctx.wall_ms, timeout_ms, member_epoch=member.current.epoch)

    def start_job(self, job: Job, draft: Draft) -> None:
        """Has a child process work; its end is a decision of its own (`GroupShard.job_ended`)."""
        assert job.key not in self.jobs, f"{job.kind} is under way for {job.group_id}"
        self.jobs[job.key] = job
        draft.jobs.append(job)

    def is_working(self, kind: JobKind, group_id: str) -> bool:
        """Whether a child process works on this for the group."""
        return (kind, group_id) in self.jobs

    def give_up(self, jobs: Iterable[Job]) -> None:
        """What these come to is not wanted any more, or they never began."""
        for job in jobs:
            if self.jobs.get(job.key) is job:
                del self.jobs[job.key]

    def forget_member(self, group_id: str, member_id: str) -> None:
        self.sessions.cancel((group_id, member_id))
        self.rebalances.cancel((group_id, member_id))
        self.reports.forget((group_id, member_id))
        self.moved_ms.pop((group_id, member_id), None)

    def forget_group(self, group_id: str) -> None:
        self.pacing.forget(group_id)
        self.resolutions.forget(group_id)
        self.client_side.forget(group_id)
        self.checked_version.pop(group_id, None)
        self.checks.pop(group_id, None)
        self.installs.pop(group_id, None)
        self.offset_scans.pop(group_id, None)
        self.bumped_ms.pop(group_id, None)
        self.expiry.forget(group_id)
        for kind in JobKind:
            self.jobs.pop((kind, group_id), None)

    def shift_deadlines(self, gap_ms: float) -> None:
        self.sessions.shift(gap_ms)
        self.rebalances.shift(gap_ms)
        self.pacing.shift(gap_ms)
        self.resolutions.shift(gap_ms)
        self.client_side.shift(gap_ms)
        for deadlines in self.expired.values():
            for deadline in deadlines.values():
                deadline.deadline_ms += gap_ms

    def collect_expired(self, now_ms: float) -> None:
        """Moves what is due from the timers to `expired`, by group, so that one decision takes them all."""
        for trigger, timers in (
            (Trigger.SESSION_EXPIRED, self.sessions),
            (Trigger.REBALANCE_EXPIRED, self.rebalances),
        ):
            for (group_id, member_id), deadline in timers.take_due(now_ms):
                self.expired.setdefault(group_id, {})[member_id, trigger] = deadline

    def was_rearmed(self, trigger: Trigger, key: MemberKey, deadline: Deadline, ctx: Context) -> bool:
        """Whether a heartbeat or a pause moved the deadline after it was collected."""
        timers = self.sessions if trigger is Trigger.SESSION_EXPIRED else self.rebalances
        if timers.get(key) is not None:
            return True
        if deadline.deadline_ms <= ctx.monotonic_ms:
            return False
        timers.put_back(key, deadline)
        return True

    def catalog_is_behind(self, group: Group, ctx: Context) -> bool:
        """Whether this node's catalog is older than the one that the group last decided on."""
        return group.catalog_version > ctx.catalog.version

    def require_catalog(self, group: Group, ctx: Context) -> None:
        if self.catalog_is_behind(group, ctx):
            raise Refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"This node knows the topics as of version {ctx.catalog.version}; group {group.group_id} has "
                f"decided on version {group.catalog_version}. Try again in a moment.",
            )

    def consumer_group(self, group_id: str) -> Group:
        """The consumer group of that id; GROUP_ID_NOT_FOUND where there is none, or one of another type."""
        group = self.projection.groups.get(group_id)
        if group is None or not group.is_consumer:
            what = "is not a consumer group" if group is not None else "does not exist"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}; join with member epoch 0.")
        return group

    def consumer_member(self, group: Group, member_id: str) -> Member:
        member = group.member(member_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member_id} is not a member of group {group.group_id}; it left or its session ended. "
                "Give up all partitions and join with member epoch 0.",
            )
        return member
