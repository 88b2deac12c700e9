"""Members that leave a classic group: LeaveGroup, by themselves or by an operator, and expired sessions."""

from __future__ import annotations

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.classic.members import require_member
from coordinator.classic.phases import (
    complete_join_if_all_joined,
    drop,
    join_timed_out,
    note,
    note_timeout,
    rebalance,
    sync_timed_out,
)
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.leader_state.classic_groups import ClassicTimer, DueTimer
from coordinator.state.machines import ClassicState
from coordinator.targets.epochs import Step
from records import Expiry, ReasonKind, Trigger
from wire.errors import ErrorCode
from wire.messages.leave_group import (
    MEMBERS_SINCE,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


def leave_classic(
    groups: GroupContext,
    group: ClassicGroup,
    asked: list[MemberIdentity],
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Remove the members that the request names, all in one decision. Errors are per member."""
    builder.trigger = Trigger.MEMBER_LEFT
    builder.member_id = asked[0].member_id if len(asked) == 1 else ""
    answers = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_leave_one(groups, group, identity, builder),
        )
        for identity in asked
    ]
    if any(answer.error_code == ErrorCode.NONE for answer in answers):
        yield from _after_departure(groups, group, ctx, builder)
    if version >= MEMBERS_SINCE:
        return LeaveGroupResponse(members=answers)
    return LeaveGroupResponse(error_code=answers[0].error_code)


def _leave_one(
    groups: GroupContext, group: ClassicGroup, identity: MemberIdentity, builder: DecisionBuilder
) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    kind = ReasonKind.MEMBER_LEFT
    if not member_id:  # an operator names the instance alone
        member_id = "" if instance_id is None else group.instances.get(instance_id, "")
        kind = ReasonKind.MEMBER_REMOVED
    elif member_id in group.pending:
        drop(groups, group, member_id, builder)
        return ErrorCode.NONE
    try:
        require_member(group, member_id, instance_id)
    except RequestRefused as refused:
        return refused.code
    note(group, kind, member_id, identity.reason or "")
    drop(groups, group, member_id, builder)
    return ErrorCode.NONE


def _after_departure(
    groups: GroupContext, group: ClassicGroup, ctx: Context, builder: DecisionBuilder
) -> Step:
    if group.state is not ClassicState.EMPTY:
        yield from rebalance(groups, group, ctx, builder)


def timer_ended(groups: GroupContext, due: DueTimer, ctx: Context, builder: DecisionBuilder) -> Steps:
    """Handle a timer of a classic group that is over."""
    kind, group_id, member_id, deadline = due
    group = groups.classic.get(group_id)
    if group is None:
        return None
    match kind:
        case ClassicTimer.JOIN:
            yield from join_timed_out(groups, group, deadline, ctx, builder)
        case ClassicTimer.SYNC:
            yield from sync_timed_out(groups, group, deadline, ctx, builder)
        case ClassicTimer.SESSION:
            yield from _session_ended(groups, group, deadline.evidence(member_id), ctx, builder)
    return None


def _session_ended(
    groups: GroupContext, group: ClassicGroup, expiry: Expiry, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Remove a member whose session is over, or a member id with which nobody joined.

    A member that waits for a phase to end cannot send heartbeats; it stays, unless it is new."""
    member_id = expiry.member_id
    if member_id in group.pending:
        drop(groups, group, member_id, builder)
        yield from complete_join_if_all_joined(groups, group, ctx, builder)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    is_waiting = member.join is not None or member.sync is not None
    if is_waiting and not member.is_new:
        return
    builder.trigger = Trigger.SESSION_EXPIRED
    note_timeout(group, ReasonKind.SESSION_EXPIRED, expiry)
    drop(groups, group, member_id, builder)
    yield from _after_departure(groups, group, ctx, builder)
