"""JoinGroup: a member joins a classic group, joins again, or takes a static member's place.

The checks, their order and their codes are those of Kafka's `GroupMetadataManager.classicGroupJoin`.
"""

from __future__ import annotations

from coordinator import oldgroups
from coordinator.api import Context, DecisionBuilder, Later, RequestRefused, Steps
from coordinator.classic.members import require_member
from coordinator.classic.phases import (
    complete_join_if_all_joined,
    drop,
    generation_record,
    is_too_large,
    joined_reply,
    note,
    prepare_rebalance,
    rebalance,
    refuse_waiting,
    refused_join,
    write_generation,
)
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember, Protocols, bytes_of
from coordinator.leader_state.classic_groups import ClassicTimer
from coordinator.limits import DECISION_BYTES_MAX
from coordinator.state import writes
from coordinator.state.machines import ClassicState
from coordinator.targets.epochs import Step
from records import ReasonKind, Trigger
from wire.embedded import CONSUMER, ConsumerProtocolSubscription, decode
from wire.errors import ErrorCode, MalformedFrame
from wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
"""First version in which a new dynamic member is given its member id before it joins (KIP-394)."""
SKIPS_ASSIGNMENT_SINCE = 9
"""First version in which the leader can be told to keep its assignments (KIP-814)."""


def join_group(
    groups: GroupContext, request: JoinGroupRequest, version: int, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Decide one JoinGroup; the reply is `Later` if it comes at the end of the join phase."""
    validate_join(groups, request)
    group, is_new = _find_or_create(groups, request, ctx)
    protocols = tuple((one.name, one.metadata) for one in request.protocols)
    _require_room(group, request.member_id, protocols)
    builder.trigger, builder.member_id = Trigger.MEMBER_JOINED, request.member_id
    if is_new:
        yield from _create(groups, group, builder, ctx)
    if not _may_join(groups, group, request.member_id):
        drop(groups, group, request.member_id, builder)
        yield from complete_join_if_all_joined(groups, group, ctx, builder)
        return refused_join("", ErrorCode.GROUP_MAX_SIZE_REACHED, version)
    if not group.supports(request.protocol_type, (name for name, _ in protocols)):
        if is_new:  # it stays, empty, as in Kafka
            return refused_join(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, version)
        raise RequestRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"None of the protocols ({', '.join(name for name, _ in protocols)}) is supported by all "
            f"members of group {group.group_id}, whose protocol type is {group.protocol_type}.",
        )
    if request.member_id:
        return (yield from _join_known(groups, group, request, protocols, version, ctx, builder))
    return (yield from _join_new(groups, group, request, protocols, version, ctx, builder))


def validate_join(groups: GroupContext, request: JoinGroupRequest) -> None:
    """Check what does not depend on the group. Raises `RequestRefused`."""
    limits = groups.limits
    if not request.group_id:
        raise RequestRefused(ErrorCode.INVALID_GROUP_ID, "GroupId can't be empty.")
    low, high = limits.classic_session_timeout_min_ms, limits.classic_session_timeout_max_ms
    if not low <= request.session_timeout_ms <= high:
        raise RequestRefused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"The session timeout of {request.session_timeout_ms} ms is not between {low} "
            f"(group.min.session.timeout.ms) and {high} (group.max.session.timeout.ms).",
        )
    if len(request.group_id.encode()) > limits.group_id_bytes_max:
        raise RequestRefused(
            ErrorCode.INVALID_GROUP_ID, f"GroupId is longer than {limits.group_id_bytes_max} bytes."
        )
    if len((request.group_instance_id or "").encode()) > limits.instance_id_bytes_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"GroupInstanceId is longer than {limits.instance_id_bytes_max} bytes."
        )
    if len(request.protocols) > limits.classic_protocols_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.protocols)} protocols are more than {limits.classic_protocols_max}.",
        )


def _find_or_create(
    groups: GroupContext, request: JoinGroupRequest, ctx: Context
) -> tuple[ClassicGroup, bool]:
    """Return the group, and whether it has no record 2 yet. Only a new member creates a group."""
    group_id = request.group_id
    known = groups.classic_group(group_id, ctx)
    if known is not None:
        return known, False
    if request.member_id:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} has no member {request.member_id}."
        )
    if not groups.has_room_for(group_id):
        raise RequestRefused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"This shard already has the maximum of {groups.limits.groups_max} groups (groups.max).",
        )
    return ClassicGroup(group_id), True


def _require_room(group: ClassicGroup, member_id: str, protocols: Protocols) -> None:
    """Refuse a member with whose metadata no generation could be written."""
    known = group.members.get(member_id)
    before = bytes_of(known.protocols) if known is not None else 0
    size = group.protocols_bytes - before + bytes_of(protocols)
    if size > DECISION_BYTES_MAX:
        raise RequestRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The protocols of all members of group {group.group_id} would take {size} bytes, more than "
            f"{DECISION_BYTES_MAX}.",
        )


def _create(groups: GroupContext, group: ClassicGroup, builder: DecisionBuilder, ctx: Context) -> Step:
    """Write the new, empty group; the records of an empty group of another protocol go first."""
    projected = groups.projection.groups.get(group.group_id)
    gone = oldgroups.tombstones(groups, group.group_id)
    gone += writes.group_tombstones(projected) if projected is not None else []
    yield [*gone, writes.classic_group(group.group_id, group.value(ctx.wall_ms))]
    if gone:
        groups.forget_protocol(group.group_id, ctx)
    groups.classic.put(group)
    groups.expect_end(group.group_id, ctx)


def _may_join(groups: GroupContext, group: ClassicGroup, member_id: str) -> bool:
    """Whether the group has room.

    In the join phase those count who wait, so that the last to join again go if the maximum was lowered."""
    max_size = groups.limits.classic_group_size_max
    member = group.members.get(member_id)
    match group.state:
        case ClassicState.EMPTY:
            return True
        case ClassicState.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.num_waiting < max_size
        case _:
            return member is not None or len(group.members) < max_size


# New members.


def _join_new(
    groups: GroupContext,
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    instance_id = request.group_instance_id
    member_id = new_member_id(groups, instance_id, ctx)
    if instance_id is not None and instance_id in group.instances:
        return (
            yield from _replace_static(groups, group, request, protocols, member_id, version, ctx, builder)
        )
    if instance_id is None and version >= MEMBER_ID_REQUIRED_SINCE:
        if len(group.pending) >= groups.limits.classic_pending_max:
            drop(groups, group, next(iter(group.pending)), builder)
        group.pending[member_id] = None
        groups.classic.arm(ClassicTimer.SESSION, group.group_id, request.session_timeout_ms, ctx, member_id)
        return refused_join(member_id, ErrorCode.MEMBER_ID_REQUIRED, version)
    return (yield from _add(groups, group, request, protocols, member_id, version, ctx, builder))


def new_member_id(groups: GroupContext, instance_id: str | None, ctx: Context) -> str:
    """An id for a new member, which tells its client or its instance, as far as it fits."""
    named = ctx.client_id if instance_id is None else instance_id
    unique = f"-{ctx.fresh_id()}"
    room = max(groups.limits.member_id_bytes_max - len(unique), 0)
    return named.encode()[:room].decode(errors="ignore") + unique


def _add(
    groups: GroupContext,
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    member_id: str,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Add a member. Its session begins with the next generation; until then it must not wait for ever."""
    if group.state is ClassicState.PREPARING_REBALANCE and group.previous is ClassicState.EMPTY:
        group.has_new_member = True
    member = GenerationMember(
        member_id,
        request.group_instance_id,
        ctx.client_id,
        ctx.client_host,
        rebalance_timeout_ms(request),
        request.session_timeout_ms,
        protocols,
        is_new=True,
        joined_ms=ctx.wall_ms,
        join_version=version,
    )
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    token = groups.classic.next_token()
    group.wait_for_join(member, token)
    note(group, ReasonKind.MEMBER_JOINED, member_id, request.reason or "")
    groups.classic.arm(
        ClassicTimer.SESSION, group.group_id, groups.limits.classic_new_member_timeout_ms, ctx, member_id
    )
    yield from rebalance(groups, group, ctx, builder)
    return Later(token)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the time in ms that the member may take to join again."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


# Members that join again.


def _join_known(
    groups: GroupContext,
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    member_id = request.member_id
    if member_id in group.pending:
        if request.group_instance_id is not None:  # the id was given to a dynamic member; Kafka's answer
            return refused_join("", ErrorCode.UNKNOWN_SERVER_ERROR, version)
        return (yield from _add(groups, group, request, protocols, member_id, version, ctx, builder))
    member = require_member(group, member_id, request.group_instance_id)
    has_changed = member.protocols != protocols
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            pass
        case ClassicState.COMPLETING_REBALANCE if not has_changed:  # the reply to its JoinGroup was lost
            return joined_reply(group, member_id, has_members=member_id == group.leader)
        case ClassicState.STABLE if not has_changed and member_id != group.leader:
            return joined_reply(group, member_id, has_members=False)
        case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
            kind = ReasonKind.SUBSCRIPTION_CHANGED if has_changed else ReasonKind.LEADER_REJOINED
            note(group, kind, member_id, request.reason or "")
        case ClassicState.EMPTY:
            raise RequestRefused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no member {member_id}."
            )
    token = _update(groups, group, member, request, protocols, version, ctx, builder)
    yield from rebalance(groups, group, ctx, builder)
    return Later(token)


def _update(
    groups: GroupContext,
    group: ClassicGroup,
    member: GenerationMember,
    request: JoinGroupRequest,
    protocols: Protocols,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> int:
    """Take over what the member says now; an older JoinGroup of it that still waits is given up."""
    refuse_waiting(group, member, builder, ErrorCode.REBALANCE_IN_PROGRESS)
    group.update(member, protocols)
    member.rebalance_timeout_ms = rebalance_timeout_ms(request)
    member.session_timeout_ms = request.session_timeout_ms
    member.joined_ms, member.join_version = ctx.wall_ms, version
    token = groups.classic.next_token()
    group.wait_for_join(member, token)
    return token


# Static members.


def _replace_static(
    groups: GroupContext,
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    member_id: str,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Give the place of a static member to the process that has its instance id now (KIP-345)."""
    assert request.group_instance_id is not None
    former_leader = group.leader
    old_id = group.instances[request.group_instance_id]
    groups.classic.cancel(ClassicTimer.SESSION, group.group_id, old_id)
    refuse_waiting(group, group.members[old_id], builder, ErrorCode.FENCED_INSTANCE_ID)
    has_other_topics = _has_other_topics(group, group.members[old_id].protocols, protocols)
    member = group.replace(request.group_instance_id, member_id)
    member.client_id, member.client_host = ctx.client_id, ctx.client_host
    token = _update(groups, group, member, request, protocols, version, ctx, builder)
    groups.classic.restart_session(group, member, ctx)
    builder.trigger, builder.member_id = Trigger.MEMBER_REPLACED, member_id
    builder.detail = old_id
    if group.state is ClassicState.STABLE:
        record = generation_record(group, ctx)
        stays = group.best_protocol() == group.protocol and not has_other_topics
        if stays and not is_too_large(record):
            group.take_join(member)
            yield from write_generation(groups, group, ctx, builder, record)
            return _kept_generation(group, member_id, former_leader, version)
        note(group, ReasonKind.SUBSCRIPTION_CHANGED, member_id, request.reason or "")
        yield from prepare_rebalance(groups, group, ctx, builder)
    elif group.state is ClassicState.COMPLETING_REBALANCE:
        # The leader computes assignments for the old member id.
        note(group, ReasonKind.MEMBER_REPLACED, member_id, request.reason or "")
        yield from prepare_rebalance(groups, group, ctx, builder)
    else:
        yield from complete_join_if_all_joined(groups, group, ctx, builder)
    return Later(token)


def _has_other_topics(group: ClassicGroup, before: Protocols, after: Protocols) -> bool:
    """Whether a consumer came back with other topics, so that it must not get its former assignment.

    Kafka compares only the names of protocols (KAFKA-12759)."""
    if group.protocol_type != CONSUMER:
        return False
    protocol = group.protocol or ""
    try:
        topics = [
            set(decode(ConsumerProtocolSubscription, dict(protocols)[protocol]).topics)
            for protocols in (before, after)
        ]
    except (KeyError, MalformedFrame):
        return False
    return topics[0] != topics[1]


def _kept_generation(
    group: ClassicGroup, member_id: str, former_leader: str | None, version: int
) -> JoinGroupResponse:
    """The reply to a static member that is back in a stable group: it must not compute assignments.

    Older versions have no field to say so; the leader is told its former member id instead."""
    is_leader = member_id == group.leader
    if version < SKIPS_ASSIGNMENT_SINCE:
        return joined_reply(group, member_id, has_members=False, leader=former_leader)
    reply = joined_reply(group, member_id, has_members=is_leader)
    reply.skip_assignment = is_leader
    return reply
