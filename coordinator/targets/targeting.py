"""Scheduling of a group's next target, and the choice of who computes it.

`target_step` is a step of every decision that changes a group. The target of a small group is computed in the
decision itself. That of a large group, and any by a user's assignor, is computed by a child process, while
the group continues with its present target. The child's answer is installed even if the group has moved on,
and the next target is then due at once. Discarding the answer would starve a group that changes all the time
(KIP-848 says the same of client-side assignors).

Invariants: at most one computation or installation of a group is in progress. If it fails, no member is
removed: the old target stays in force, describe shows the error, and the assignor is retried after a pause
that grows.
"""

from __future__ import annotations

from collections.abc import Generator

from coordinator.api import Context, DecisionBuilder, Failure, Job, JobKind
from coordinator.assignors.assigning import parts_of, question
from coordinator.assignors.spi import AssignmentSpec, PartitionAssignorError, is_homogeneous
from coordinator.group_context import GroupContext
from coordinator.leader_state.installing import Computation, Installation, TargetInstall
from coordinator.limits import GroupSettings
from coordinator.state import writes
from coordinator.state.model import Group
from coordinator.targets import clientside
from coordinator.targets.target import assignment_spec, install_records, preferred_assignor
from records import RawRecord, ReasonKind, Trigger

Step = Generator[list[RawRecord], None, None]

MEMBER_COST_US = 20
"""Estimated cost in µs per member of a target in one decision: its part is encoded, written and applied."""

TOPIC_COST_US = 8
"""Estimated cost in µs per topic: each member that gets some of its partitions has an entry for it."""

PARTITION_COST_NS = 800
"""Estimated cost in ns per partition if all members subscribe to the same topics; four times that
otherwise."""


TOPICS_INLINE = 1_000
"""Maximum topics of a group whose target is computed and installed in the decision that makes it due.

Beyond that, this takes turns of its own, because the triggering decision already lists all topics in the
group's records."""


def cost_us(spec: AssignmentSpec) -> int:
    """Estimated cost in µs of computing the target and installing it in the worst case."""
    partitions = sum([topic.num_partitions for topic in spec.topics.values()])
    factor = 1 if is_homogeneous(spec) else 4
    by_partitions = partitions * PARTITION_COST_NS * factor // 1_000
    return len(spec.members) * MEMBER_COST_US + len(spec.topics) * TOPIC_COST_US + by_partitions


def target_step(groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder) -> Step:
    """Compute the target if the group's epoch has none yet and pacing allows it.

    Writes records 7 and 6, or starts a child process, or asks a member. A group without any target that gets
    none now gets an empty one, so that its members have an epoch for their heartbeats."""
    group = groups.projection.groups[group_id]
    if group.epoch <= group.assignment_epoch:
        return
    if not group.num_members:
        forget_target(groups, group_id)
        yield [writes.target_epoch(group_id, group.epoch, 0)]
        return
    settings = ctx.settings.for_group(group_id)
    name = preferred_assignor(group, settings.assignors)
    if _is_under_way(groups, group_id, name):
        return
    is_behind = groups.catalog_is_behind(group, ctx)
    wait_ms = groups.limits.target_retry_ms if is_behind else _interval_left_ms(groups, group, settings, ctx)
    if wait_ms or not groups.pacing.may_compute(group_id, ctx):
        groups.pacing.defer(group_id, ctx, wait_ms)
        yield from _empty_first_target(group, ctx)
        return
    left_ms = clientside.wait_ms(groups, group, ctx, builder)
    if left_ms is not None:  # a member computes; the deferred check is after its deadline
        groups.pacing.defer(group_id, ctx, left_ms)
        yield from _empty_first_target(group, ctx)
        return
    if builder.trigger != Trigger.TARGET_COMPUTED and _is_for_later(groups, group, builder):
        groups.pacing.defer(group_id, ctx)
        yield from _empty_first_target(group, ctx)
        return
    started_ms = ctx.stopwatch_ms()
    spec = assignment_spec(group)
    assignor = groups.assignors.get(name)
    if assignor is None or cost_us(spec) > groups.limits.assign_inline_cost_max:
        yield from _empty_first_target(group, ctx)
        _have_computed(groups, group, spec, name, started_ms, ctx, builder)
        return
    try:
        answer = assignor.assign(spec).members
        records = install_records(group, spec, answer, group.epoch, ctx, groups.limits, name)
    except Exception as error:
        _failed(groups, group_id, name, repr(error), ctx, builder)
        yield from _empty_first_target(group, ctx)
        return
    yield records
    groups.pacing.computed(group_id, ctx, ctx.stopwatch_ms() - started_ms)


def _is_for_later(groups: GroupContext, group: Group, builder: DecisionBuilder) -> bool:
    """Whether the target takes a turn of its own, because this decision already writes much."""
    if len(group.topics) > TOPICS_INLINE:
        return True
    is_large = group.num_members * MEMBER_COST_US > groups.limits.assign_inline_cost_max
    return is_large and any(reason.kind == ReasonKind.GROUP_UPGRADED for reason in builder.reasons)


def forget_target(groups: GroupContext, group_id: str) -> None:
    """Abandon everything in progress for the group's target, because none is needed any more."""
    groups.pacing.forget(group_id)
    groups.client_side.forget(group_id)
    groups.jobs.pop((JobKind.ASSIGN, group_id), None)
    groups.installs.pop(group_id, None)


def specs_under_way(groups: GroupContext, group_id: str) -> list[AssignmentSpec]:
    """Inputs of all computations and installations of a target in progress for the group."""
    specs: list[AssignmentSpec] = []
    job, installing = groups.jobs.get((JobKind.ASSIGN, group_id)), groups.installs.get(group_id)
    if job is not None:
        assert isinstance(job.context, Computation)
        specs.append(job.context.spec)
    if installing is not None:
        specs.append(installing.computation.spec)
    round_ = groups.client_side.rounds.get(group_id)
    if round_ is not None and round_.prepared is not None:
        specs.append(round_.prepared.spec)
    return specs


def _is_under_way(groups: GroupContext, group_id: str, assignor: str) -> bool:
    """Whether a target is being computed or installed, by the assignor that the group prefers."""
    if group_id in groups.installs:
        return True
    job = groups.jobs.get((JobKind.ASSIGN, group_id))
    if job is None:
        return False
    assert isinstance(job.context, Computation)
    if job.context.assignor == assignor:
        return True
    del groups.jobs[job.key]  # it may hang; its result is no longer wanted
    return False


def _interval_left_ms(groups: GroupContext, group: Group, settings: GroupSettings, ctx: Context) -> float:
    """Remaining time of the group's assignment interval; 0 before its first target."""
    last = group.target_metadata
    timestamp_ms = last.assignment_timestamp_ms if last is not None else 0
    interval_ms = settings.assignment_interval_ms
    return groups.pacing.interval_left_ms(group.group_id, timestamp_ms, interval_ms, ctx)


def _empty_first_target(group: Group, ctx: Context) -> Step:
    """Write an empty first target if there is none, and bump the epoch, so that another one is due."""
    if group.target_metadata is None:
        yield [
            writes.target_epoch(group.group_id, group.epoch, 0),
            writes.group_epoch(group, group.epoch + 1, ctx.wall_ms),
        ]


def _have_computed(
    groups: GroupContext,
    group: Group,
    spec: AssignmentSpec,
    name: str,
    started_ms: float,
    ctx: Context,
    builder: DecisionBuilder,
) -> None:
    """Start a child process that computes the target."""
    group_id, limits = group.group_id, groups.limits
    asked = question(spec, name)
    asked["memory_bytes_max"] = limits.assign_memory_bytes_max
    computation = Computation(
        spec, group.epoch, name, groups.pacing.bumped_at.get(group_id), ctx.stopwatch_ms() - started_ms
    )
    job = Job(
        kind=JobKind.ASSIGN,
        group_id=group_id,
        request=asked,
        deadline_ms=limits.assign_deadline_ms,
        context=computation,
        lane=name,
        is_retry=groups.pacing.has_failed(group_id),
    )
    groups.start_job(job, builder)
    groups.pacing.begun(group_id, ctx, computation.cost_ms)


def assignment_ended(
    groups: GroupContext, job: Job, result: object, error: str | None, ctx: Context, builder: DecisionBuilder
) -> Generator[list[RawRecord], None, object]:
    """Handle the answer of a child process that computes a target, or its failure."""
    computation = job.context
    assert isinstance(computation, Computation)
    group_id = job.group_id
    group = groups.projection.groups.get(group_id)
    if group is None or not group.num_members:
        return None
    builder.trigger = Trigger.TARGET_COMPUTED
    started_ms = ctx.stopwatch_ms()
    try:
        if error is not None:
            raise PartitionAssignorError(error)
        answer = parts_of(computation.spec, result)
    except Exception as failure:
        _failed(groups, group_id, computation.assignor, str(failure), ctx, builder)
        return None
    installation = Installation(computation.spec, answer, computation.epoch)
    cost_ms = computation.cost_ms + ctx.stopwatch_ms() - started_ms
    groups.installs[group_id] = TargetInstall(computation, installation, cost_ms)
    if len(answer) <= groups.limits.install_records_max and len(group.topics) <= TOPICS_INLINE:
        yield from install_step(groups, group_id, ctx, builder)
    return None


def install_step(groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder) -> Step:
    """Write the next part of an answer.

    The last part completes the target, and the next target may be due."""
    installing = groups.installs.pop(group_id)
    group = groups.projection.groups.get(group_id)
    if group is None or not group.num_members:
        return
    builder.trigger = Trigger.TARGET_COMPUTED
    computation, installation = installing.computation, installing.installation
    if computation.bumped_at is not None:
        builder.refer(groups.shard_id, computation.bumped_at)
    started_ms = ctx.stopwatch_ms()
    records = installation.records(group, ctx.wall_ms, groups.limits.install_records_max)
    if records:
        yield records
    installing.cost_ms += ctx.stopwatch_ms() - started_ms
    if not installation.is_done:
        groups.installs[group_id] = installing
        return
    bumped_at = groups.pacing.bumped_at.get(group_id)
    groups.pacing.computed(group_id, ctx, installing.cost_ms)
    if group.epoch > group.assignment_epoch:
        if bumped_at is not None:
            groups.pacing.bumped_at[group_id] = bumped_at
        yield from target_step(groups, group_id, ctx, builder)


def install_more(
    groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder
) -> Generator[list[RawRecord], None, object]:
    """Write the next part of an answer, as due work."""
    yield from install_step(groups, group_id, ctx, builder)
    return None


def _failed(
    groups: GroupContext, group_id: str, name: str, error: str, ctx: Context, builder: DecisionBuilder
) -> None:
    """Handle the failure of an assignor.

    It may be third-party code, and the group must continue without it."""
    said = f"Assignor {name} failed for group {group_id}: {' | '.join(error.splitlines())}"
    builder.failure, builder.has_assignor_failed = Failure(group_id, said, JobKind.ASSIGN), True
    groups.pacing.failed(group_id, ctx, said)
