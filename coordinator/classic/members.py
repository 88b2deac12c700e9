"""SyncGroup and Heartbeat, and what members of a classic group have in common.

The checks, their order and their codes are those of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from coordinator.api import Context, DecisionBuilder, Later, RequestRefused, Steps
from coordinator.classic.phases import (
    answer_sync,
    generation_record,
    is_too_large,
    prepare_rebalance,
    synced,
    synced_reply,
    write_generation,
)
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember
from coordinator.state.machines import ClassicState
from coordinator.targets.epochs import Step
from records import Trigger
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5
"""First version of SyncGroup that must name the protocol (KIP-559)."""


def require_group(groups: GroupContext, group_id: str, ctx: Context) -> ClassicGroup:
    """The classic group with this id; raises `RequestRefused`."""
    if not group_id:
        raise RequestRefused(ErrorCode.INVALID_GROUP_ID, "GroupId can't be empty.")
    group = groups.classic_group(group_id, ctx)
    if group is None:
        raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"There is no classic group {group_id}.")
    return group


def require_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> GenerationMember:
    """The member with this id, which must have the instance id if one is given; raises `RequestRefused`."""
    if instance_id is not None:
        owner_id = group.instances.get(instance_id)
        if owner_id is None:
            raise RequestRefused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no instance {instance_id}."
            )
        if owner_id != member_id:
            raise RequestRefused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"InstanceId {instance_id} belongs to member {owner_id} now, not to {member_id}: another "
                "process replaced it. Give every process its own group.instance.id.",
            )
    member = group.members.get(member_id)
    if member is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {group.group_id} has no member {member_id}: it left, or its session expired. Join again.",
        )
    return member


def require_generation(group: ClassicGroup, generation: int) -> None:
    """Raise `RequestRefused` for another generation than the group's."""
    if generation != group.generation:
        raise RequestRefused(
            ErrorCode.ILLEGAL_GENERATION,
            f"Group {group.group_id} is at generation {group.generation}, not {generation}. Join again.",
        )


def sync_group(
    groups: GroupContext, request: SyncGroupRequest, version: int, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Decide one SyncGroup; the leader's completes the generation, the others wait for it."""
    validate_sync(request, version)
    group = require_group(groups, request.group_id, ctx)
    member = require_member(group, request.member_id, request.group_instance_id)
    require_generation(group, request.generation_id)
    _require_protocol(group, request)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise RequestRefused(
            ErrorCode.REBALANCE_IN_PROGRESS, f"Group {group.group_id} is preparing a rebalance: join again."
        )
    if group.state is ClassicState.STABLE:
        synced(groups, group, member.member_id)
        return synced_reply(group, member)
    token = groups.classic.next_token()
    completes = member.member_id == group.leader
    if completes:
        given = {one.member_id: one.assignment for one in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        record = generation_record(group, ctx, assignments)
        if is_too_large(record):
            yield from _give_up(groups, group, ctx, builder)
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        builder.trigger, builder.member_id = Trigger.GENERATION_COMPLETED, member.member_id
        builder.member_epoch = group.generation
        yield from write_generation(groups, group, ctx, builder, record)
        group.move(ClassicState.STABLE)
        for one in group.members.values():
            one.assignment = assignments[one.member_id]
    if member.sync is not None:  # its older request still waits
        answer_sync(group, member, builder, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync = token
    synced(groups, group, member.member_id)
    if completes:
        for one in group.members.values():
            if one.sync is not None:
                groups.classic.restart_session(group, one, ctx)
                answer_sync(group, one, builder)
    return Later(token)


def validate_sync(request: SyncGroupRequest, version: int) -> None:
    """Raise `RequestRefused` unless the request names its protocol, which newer versions must."""
    if version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        raise RequestRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The request names no protocol type or no protocol."
        )


def _give_up(groups: GroupContext, group: ClassicGroup, ctx: Context, builder: DecisionBuilder) -> Step:
    """Begin a new generation, because this one is too large to be written."""
    for member in group.members.values():
        answer_sync(group, member, builder, ErrorCode.UNKNOWN_SERVER_ERROR)
        groups.classic.restart_session(group, member, ctx)
    yield from prepare_rebalance(groups, group, ctx, builder)


def _require_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Raise `RequestRefused` if the request names another protocol than that of the generation."""
    for name, said, has in (
        ("protocol type", request.protocol_type, group.protocol_type),
        ("protocol", request.protocol_name, group.protocol),
    ):
        if said is not None and has is not None and said != has:
            raise RequestRefused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Generation {group.generation} of group {group.group_id} has the {name} {has}, not {said}.",
            )


def heartbeat_classic(groups: GroupContext, request: HeartbeatRequest, ctx: Context) -> HeartbeatResponse:
    """Decide one Heartbeat: the session goes on, and in the join phase the member is told to join again."""
    group = require_group(groups, request.group_id, ctx)
    member = require_member(group, request.member_id, request.group_instance_id)
    require_generation(group, request.generation_id)
    groups.classic.restart_session(group, member, ctx)
    if group.state is ClassicState.PREPARING_REBALANCE:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()
