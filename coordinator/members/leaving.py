"""Members that leave, by request or because a deadline passed.

All members of a group that expire in one turn are removed in one decision: their tombstones, the epoch bump,
and at once the target of the remaining members. Kafka waits for the next heartbeat before it computes the
target; here, freed partitions do not stay idle for a heartbeat interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.api import Context, DecisionBuilder, Steps
from coordinator.group_context import GroupContext
from coordinator.leader_state.timers import Deadline
from coordinator.members.regexes import drop_unsubscribed
from coordinator.members.statics import existing_member
from coordinator.migration.downgrading import downgrade_step, plan_downgrade
from coordinator.state import writes
from coordinator.state.model import Member
from coordinator.targets.epochs import Before, Step, epoch_step, target_step
from records import MemberState, RawRecord, ReasonKind, Trigger
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def leave(
    groups: GroupContext, request: ConsumerGroupHeartbeatRequest, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Remove a member that leaves for good (epoch −1), dynamic or static. Its epoch is not checked (C.4)."""
    group = groups.consumer_group(request.group_id)
    groups.require_catalog(group, ctx)
    member_id = existing_member(groups, group, request.member_id, request.instance_id).member_id
    builder.trigger = Trigger.MEMBER_LEFT
    builder.because(ReasonKind.MEMBER_LEFT, member_id=member_id)
    yield from remove(groups, group.group_id, [member_id], ctx, builder)


def expire(groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder) -> Steps:
    """Remove the members of one group whose session or rebalance timeout has expired.

    Timeouts that were restarted since do not count. More than `limits.expiries_max` members are removed in
    several decisions, to bound the time taken and the size of the entry."""
    due = sorted(groups.expired.pop(group_id).items())
    group = groups.projection.groups.get(group_id)
    gone: list[str] = []
    for place, ((member_id, kind), deadline) in enumerate(due):
        if len(gone) == groups.limits.expiries_max:
            groups.expired[group_id] = dict(due[place:])
            break
        member = group.members.get(member_id) if group is not None else None
        if (
            member is None
            or member_id in gone[-1:]
            or not _is_over(groups, group_id, member, kind, deadline, ctx)
        ):
            continue
        gone.append(member_id)
        builder.because(kind, member_id=member_id)
        builder.expiries.append(deadline.evidence(member_id))
        if kind is ReasonKind.SESSION_EXPIRED:
            builder.trigger = Trigger.SESSION_EXPIRED
        elif not builder.trigger:
            builder.trigger = Trigger.REBALANCE_EXPIRED
    if gone:
        yield from remove(groups, group_id, gone, ctx, builder)
    return None


def _is_over(
    groups: GroupContext, group_id: str, member: Member, kind: ReasonKind, deadline: Deadline, ctx: Context
) -> bool:
    """Whether the timer has expired and its condition still holds."""
    if groups.was_rearmed(kind, (group_id, member.member_id), deadline, ctx):
        return False
    return kind is not ReasonKind.REBALANCE_EXPIRED or (
        member.current.state is MemberState.UNREVOKED_PARTITIONS
        and member.current.epoch == deadline.member_epoch
    )


def remove(
    groups: GroupContext, group_id: str, member_ids: Sequence[str], ctx: Context, builder: DecisionBuilder
) -> Step:
    """Remove these members; `builder` already has a reason for each.

    Those that are left may be a classic group then."""
    group = groups.projection.groups[group_id]
    downgrade = plan_downgrade(groups, group, set(member_ids), ctx, rebalances=True)
    if downgrade is not None:
        yield from downgrade_step(groups, group, downgrade, ctx, builder)
        return
    before = Before.of(group, ctx, group_id)
    tombstones: list[RawRecord] = []
    for member_id in member_ids:
        tombstones += writes.member_tombstones(group, member_id)
    yield tombstones
    yield from drop_unsubscribed(groups, group_id)
    for member_id in member_ids:
        groups.forget_member(group_id, member_id)
    left = groups.projection.groups.get(group_id)
    if left is None or not left.is_consumer:
        return
    yield from epoch_step(groups, group_id, before, ctx, builder)
    yield from target_step(groups, group_id, ctx, builder)
    groups.expect_end(group_id, ctx)
