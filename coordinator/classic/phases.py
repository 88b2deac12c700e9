"""The two phases of a rebalance of a classic group, as in Kafka's `GroupMetadataManager`.

In the join phase the coordinator waits until every member has sent JoinGroup, or until the longest rebalance
timeout is over; a group that had no members waits for `group.initial.rebalance.delay.ms` instead. In the sync
phase it waits for the leader's assignments, which are written with the generation (record 2). Whoever does
not take part in time is removed, except static members in the join phase.
"""

from __future__ import annotations

from coordinator.api import Context, DecisionBuilder
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember
from coordinator.leader_state.classic_groups import ClassicTimer
from coordinator.leader_state.timers import Deadline
from coordinator.limits import DECISION_BYTES_MAX
from coordinator.state import writes
from coordinator.state.machines import ClassicState
from coordinator.steps import size_of
from coordinator.targets.epochs import Step
from records import Expiry, RawRecord, Reason, ReasonKind, Trigger
from wire.errors import ErrorCode
from wire.messages.join_group import FIRST_WITH_NULL_PROTOCOL, JoinGroupResponse, JoinGroupResponseMember
from wire.messages.sync_group import SyncGroupResponse

REASONS_MAX = 1_000
"""Reasons that are kept for one generation: its cause is part of a log entry."""
DETAIL_CHARS_MAX = 255
"""Characters kept of a reason that a client gives; Java clients send no more."""


def note(group: ClassicGroup, kind: ReasonKind, member_id: str = "", detail: str = "") -> None:
    """Note why the next generation begins, unless very much is noted already."""
    if len(group.reasons) < REASONS_MAX:
        group.reasons[Reason(kind=kind, member_id=member_id, detail=detail[:DETAIL_CHARS_MAX])] = None


def note_timeout(group: ClassicGroup, kind: ReasonKind, expiry: Expiry) -> None:
    """Note a reason that is a timeout, with its evidence, within the same bound."""
    note(group, kind, expiry.member_id)
    if len(group.expiries) < REASONS_MAX:
        group.expiries.append(expiry)


def rebalance(groups: GroupContext, group: ClassicGroup, ctx: Context, builder: DecisionBuilder) -> Step:
    """Begin the join phase; if it has begun, end it if everybody has joined."""
    if group.may_rebalance:
        yield from prepare_rebalance(groups, group, ctx, builder)
    else:
        yield from complete_join_if_all_joined(groups, group, ctx, builder)


def prepare_rebalance(
    groups: GroupContext, group: ClassicGroup, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Begin the join phase. Members that wait for the assignments of this generation have to join again."""
    if group.state is ClassicState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:  # its session may have ended while it waited
                groups.classic.restart_session(group, member, ctx)
                answer_sync(group, member, builder, ErrorCode.REBALANCE_IN_PROGRESS)
    groups.classic.cancel(ClassicTimer.SYNC, group.group_id)
    if group.began_ms < 0:
        group.began_ms = ctx.wall_ms
    is_initial = group.state is ClassicState.EMPTY
    group.move(ClassicState.PREPARING_REBALANCE)
    if is_initial:
        delay_ms = groups.limits.classic_initial_delay_ms
        if not delay_ms and ctx.is_one_of_several:
            delay_ms = groups.limits.classic_several_delay_ms
        group.has_new_member = False
        group.initial_delay_ms = delay_ms
        group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        groups.classic.arm(ClassicTimer.JOIN, group.group_id, delay_ms, ctx)
    elif group.has_all_joined:
        yield from complete_join(groups, group, ctx, builder)
    else:
        groups.classic.arm(ClassicTimer.JOIN, group.group_id, group.rebalance_timeout_ms, ctx)


def complete_join_if_all_joined(
    groups: GroupContext, group: ClassicGroup, ctx: Context, builder: DecisionBuilder
) -> Step:
    """End the join phase if nobody is waited for. The initial delay is waited for to its end."""
    is_initial = group.previous is ClassicState.EMPTY
    if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined and not is_initial:
        yield from complete_join(groups, group, ctx, builder)


def join_timed_out(
    groups: GroupContext, group: ClassicGroup, deadline: Deadline, ctx: Context, builder: DecisionBuilder
) -> Step:
    """End the join phase because its time is over; the initial delay is extended if members came."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.previous is ClassicState.EMPTY and group.has_new_member and group.initial_left_ms:
        group.has_new_member = False
        delay_ms = min(group.initial_delay_ms, group.initial_left_ms)
        group.initial_left_ms = max(group.initial_left_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        groups.classic.arm(ClassicTimer.JOIN, group.group_id, delay_ms, ctx)
    else:
        late = [one for one in group.members.values() if one.join is None and one.instance_id is None]
        for member in reversed(late):  # the leader last, so that no other is looked for each time
            note_timeout(group, ReasonKind.JOIN_TIMED_OUT, deadline.evidence(member.member_id))
            drop(groups, group, member.member_id, builder)
        yield from complete_join(groups, group, ctx, builder)


def complete_join(groups: GroupContext, group: ClassicGroup, ctx: Context, builder: DecisionBuilder) -> Step:
    """End the join phase: a generation of those who joined, or an empty one, which is written at once."""
    groups.classic.cancel(ClassicTimer.JOIN, group.group_id)
    if group.members and not group.elect_leader():  # static members alone: wait until their sessions end
        groups.classic.arm(ClassicTimer.JOIN, group.group_id, group.rebalance_timeout_ms, ctx)
        return
    group.end_join_phase(ctx.wall_ms)
    group.begin_generation()
    if group.state is ClassicState.EMPTY:
        yield from write_generation(groups, group, ctx, builder)
        groups.expect_end(group.group_id, ctx)
        return
    for member in group.members.values():
        answer_join(group, member, builder)
        member.is_new = False
        groups.classic.restart_session(group, member, ctx)
    groups.classic.arm(ClassicTimer.SYNC, group.group_id, group.rebalance_timeout_ms, ctx)


def write_generation(
    groups: GroupContext,
    group: ClassicGroup,
    ctx: Context,
    builder: DecisionBuilder,
    record: RawRecord | None = None,
) -> Step:
    """Write the group's generation (record 2), with the reasons for which it began."""
    if not builder.trigger:
        builder.trigger = Trigger.GENERATION_COMPLETED
    builder.reasons |= group.reasons
    builder.expiries += group.expiries
    builder.phases = group.phases if record is not None else None
    yield [record or generation_record(group, ctx)]
    group.reasons.clear()
    group.expiries.clear()
    group.began_ms, group.phases = -1, None


def generation_record(
    group: ClassicGroup, ctx: Context, assignments: dict[str, bytes] | None = None
) -> RawRecord:
    """Record 2 of the group's generation, with these assignments or those that the members have."""
    return writes.classic_group(group.group_id, group.value(ctx.wall_ms, assignments))


def is_too_large(record: RawRecord) -> bool:
    """Whether a generation cannot be written in one decision."""
    return size_of([record]) > DECISION_BYTES_MAX


def sync_timed_out(
    groups: GroupContext, group: ClassicGroup, deadline: Deadline, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Remove the members that have not sent SyncGroup in time, and begin a new generation without them."""
    if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
        return
    late = [member_id for member_id in group.members if member_id in group.not_synced]
    if late:
        for member_id in reversed(late):
            note_timeout(group, ReasonKind.SYNC_TIMED_OUT, deadline.evidence(member_id))
            drop(groups, group, member_id, builder)
        yield from prepare_rebalance(groups, group, ctx, builder)


def synced(groups: GroupContext, group: ClassicGroup, member_id: str) -> None:
    """Note that a member has sent SyncGroup; nobody is waited for once all have."""
    group.not_synced.discard(member_id)
    if not group.not_synced:
        groups.classic.cancel(ClassicTimer.SYNC, group.group_id)


def drop(
    groups: GroupContext,
    group: ClassicGroup,
    member_id: str,
    builder: DecisionBuilder,
    code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
) -> None:
    """Remove a member or a member id that was given out; its requests that wait are answered with `code`."""
    member = group.members.get(member_id)
    if member is not None:
        refuse_waiting(group, member, builder, code)
    group.remove(member_id)
    groups.classic.cancel(ClassicTimer.SESSION, group.group_id, member_id)


def refuse_waiting(
    group: ClassicGroup, member: GenerationMember, builder: DecisionBuilder, code: ErrorCode
) -> None:
    """Answer the member's requests that wait with an error."""
    refuse_join(group, member, builder, code)
    answer_sync(group, member, builder, code)


def refuse_join(
    group: ClassicGroup, member: GenerationMember, builder: DecisionBuilder, code: ErrorCode
) -> None:
    """Answer the member's JoinGroup that waits, if any, with an error; one that was removed has no id."""
    token = group.take_join(member)
    if token is not None:
        member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        builder.answers.append((token, refused_join(member_id, code, member.join_version)))


# Replies.


def refused_join(member_id: str, code: ErrorCode, version: int) -> JoinGroupResponse:
    """The reply to JoinGroup with an error: no protocol, which is null from version 7 on."""
    protocol_name = None if version >= FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol_name, member_id=member_id)


def joined_reply(
    group: ClassicGroup, member_id: str, *, has_members: bool, leader: str | None = None
) -> JoinGroupResponse:
    """The reply to JoinGroup of a member of the present generation."""
    protocol = group.protocol or ""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader if leader is None else leader) or "",
        member_id=member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in (group.members.values() if has_members else ())
        ],
    )


def answer_join(group: ClassicGroup, member: GenerationMember, builder: DecisionBuilder) -> None:
    """Answer the member's JoinGroup that waits, if any: the leader learns of all members."""
    token = group.take_join(member)
    if token is not None:
        is_leader = member.member_id == group.leader
        builder.answers.append((token, joined_reply(group, member.member_id, has_members=is_leader)))


def answer_sync(
    group: ClassicGroup,
    member: GenerationMember,
    builder: DecisionBuilder,
    code: ErrorCode = ErrorCode.NONE,
) -> None:
    """Answer the member's SyncGroup that waits, if any: with its assignment, or with an error."""
    if member.sync is not None:
        builder.answers.append((member.sync, synced_reply(group, member, code)))
        member.sync = None


def synced_reply(
    group: ClassicGroup, member: GenerationMember, code: ErrorCode = ErrorCode.NONE
) -> SyncGroupResponse:
    """The reply to SyncGroup."""
    if code is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=code)
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
