"""Removals by operators: groups (DeleteGroups), offsets (OffsetDelete), members (LeaveGroup).

One request may ask for more than the event loop or a log entry can take in one decision. The decision then
does a part and leaves a `continuation`, which continues in a decision of its own; the last one has the
reply. Each part checks the state again: a group that a member joined in the meantime is not deleted and
reported as non-empty, though its older offsets may be gone by then.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import islice

from coordinator import admin
from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.classic.departing import leave_classic
from coordinator.classic.phases import DETAIL_CHARS_MAX
from coordinator.group_context import GroupContext
from coordinator.members.leaving import remove
from coordinator.offsets.retention import classic_subscriptions, terms_of
from coordinator.state import writes
from coordinator.state.machines import ClassicState
from coordinator.state.model import Group, Member
from coordinator.state.offsetstore import removal_bytes, tombstone
from coordinator.state.pendingoffsets import pending_tombstone
from coordinator.topics import CatalogTopic
from records import PendingOffsetKey, RawRecord, Reason, ReasonKind, Trigger, offset_commit_key
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from wire.messages.leave_group import (
    MEMBERS_SINCE,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_CONSUMER = "consumer"


# Deletion of groups.


@dataclass(slots=True)
class _Deletion:
    """A DeleteGroups request in progress: the groups still to be handled, and the results so far."""

    group_ids: list[str]
    results: list[DeletableGroupResult] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)

    def answer(self, group_id: str, error: ErrorCode) -> None:
        self.results.append(DeletableGroupResult(group_id=group_id, error_code=error))


def delete_groups(groups: GroupContext, request: DeleteGroupsRequest, builder: DecisionBuilder) -> Steps:
    """Delete the groups that have no members, with their offsets. Errors are per group."""
    return _delete(groups, _Deletion(list(request.groups_names)), builder)


def _delete(groups: GroupContext, deletion: _Deletion, builder: DecisionBuilder) -> Steps:
    builder.trigger = Trigger.GROUP_DELETED
    builder.by_operator = True
    records: list[RawRecord] = []
    now_gone: list[str] = []
    room_bytes = groups.limits.removal_bytes_max
    is_done = True
    for group_id in deletion.group_ids[len(deletion.results) :]:
        error = ErrorCode.NONE
        if group_id not in deletion.deleted:
            error = _why_not_deleted(groups, group_id)
        if error is ErrorCode.NONE and group_id not in deletion.deleted:
            each_bytes = removal_bytes(group_id)
            removals = _removals(groups, group_id, 1 + room_bytes // each_bytes)
            is_done = len(removals) * each_bytes <= room_bytes
            if not is_done:
                records += removals[:-1]
                break
            room_bytes -= len(removals) * each_bytes
            records += removals
            now_gone.append(group_id)
            deletion.deleted.add(group_id)
        deletion.answer(group_id, error)
    if records:
        yield records
        for group_id in now_gone:
            groups.forget_group(group_id)
    if not is_done:
        builder.continuation = lambda ctx, builder: _delete(groups, deletion, builder)
    return DeleteGroupsResponse(results=deletion.results)


def _why_not_deleted(groups: GroupContext, group_id: str) -> ErrorCode:
    if not admin.exists(groups, group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if groups.is_empty(group_id) else ErrorCode.NON_EMPTY_GROUP


def _removals(groups: GroupContext, group_id: str, number: int) -> list[RawRecord]:
    """The first `number` of the tombstones that delete a group: first those of its offsets, also of those
    that are pending in transactions, then its own."""
    removals = [tombstone(key) for key in groups.projection.offsets.keys(group_id, number)]
    pending = groups.projection.pending.of_group(group_id)
    removals += [pending_tombstone(key) for key, _ in islice(pending, number)]
    group = groups.projection.groups.get(group_id)
    if group is not None:
        removals += writes.group_tombstones(group)
    return removals[:number]


# Deletion of offsets.


class _Everything(Container[str]):
    """Stands for the subscription of a group whose subscribed topics are not known: contains every topic."""

    def __contains__(self, topic: object) -> bool:
        return True


def delete_offsets(
    groups: GroupContext, request: OffsetDeleteRequest, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Delete offsets of topics that the group does not subscribe to. A missing offset is no error (E.3)."""
    group_id = request.group_id
    topics = {asked.name: ctx.catalog.topic(asked.name) for asked in request.topics}
    subscribed = _deletable_from(groups, group_id)
    number = sum([max(1, len(topic.partitions)) for topic in request.topics])
    if number > groups.limits.offsets_deleted_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"{number} partitions exceed the maximum of {groups.limits.offsets_deleted_max}: split the "
            "request.",
        )
    builder.trigger = Trigger.OFFSETS_DELETED
    builder.by_operator = True
    keys: dict[bytes, None] = {}
    pending_keys: dict[PendingOffsetKey, None] = {}
    response = OffsetDeleteResponse()
    for asked in request.topics:
        answered = OffsetDeleteResponseTopic(name=asked.name)
        for part in asked.partitions:
            error = ErrorCode.NONE
            key = offset_commit_key(group_id, asked.name, part.partition_index)
            if not _is_partition(topics[asked.name], part.partition_index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif asked.name in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                if groups.projection.offsets.has(key):
                    keys[key] = None
                for pending, _ in groups.projection.pending.of_partition(
                    group_id, asked.name, part.partition_index
                ):
                    pending_keys[pending] = None
            answered.partitions.append(
                OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=error)
            )
        response.topics.append(answered)
    if keys or pending_keys:
        yield [*map(tombstone, keys), *map(pending_tombstone, pending_keys)]
        groups.expect_end(group_id, ctx)
    return response


def _deletable_from(groups: GroupContext, group_id: str) -> Container[str]:
    """The topics that the group subscribes to; their offsets must be kept.

    Raises `RequestRefused` if no offset may be deleted."""
    if not group_id:
        raise RequestRefused(ErrorCode.INVALID_GROUP_ID, "GroupId can't be empty.")
    if not admin.exists(groups, group_id):
        raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    terms = terms_of(groups, group_id)
    if terms is not None:
        return terms.subscribed
    group = groups.projection.groups[group_id].classic
    served = groups.classic.get(group_id)
    assert group is not None
    if served is not None and served.state is ClassicState.COMPLETING_REBALANCE:
        group = served.value(0)
    protocol_type = group.protocol_type if served is None else served.protocol_type
    if protocol_type != _CONSUMER:
        raise RequestRefused(
            ErrorCode.NON_EMPTY_GROUP,
            f"Group {group_id} has members of protocol type {protocol_type}: stop them first.",
        )
    topics = classic_subscriptions(group) if group.members else None
    return _Everything() if topics is None else topics


def _is_partition(topic: CatalogTopic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.num_partitions


# Removal of members.


def remove_members(
    groups: GroupContext, request: LeaveGroupRequest, version: int, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Remove members by member id or by instance id. Errors are per member.

    Members of the classic protocol leave by it. For those of the consumer protocol it writes the same
    tombstones and the same new target as if they had left by themselves, which Kafka refuses. A removed
    member is notified by UNKNOWN_MEMBER_ID, and joins again unless it is stopped."""
    if not request.group_id:
        raise RequestRefused(ErrorCode.INVALID_GROUP_ID, "GroupId can't be empty.")
    asked = request.members if version >= MEMBERS_SINCE else [MemberIdentity(member_id=request.member_id)]
    if len(asked) > groups.limits.members_named_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"{len(asked)} members exceed the maximum of {groups.limits.members_named_max}: split the "
            "request.",
        )
    group = groups.projection.groups.get(request.group_id)
    if group is not None and group.is_consumer:
        groups.require_catalog(group, ctx)
    served = groups.classic_group(request.group_id, ctx) if groups.classic.is_served else None
    if served is not None:
        return leave_classic(groups, served, asked, version, ctx, builder)
    return _remove_part(groups, request.group_id, asked, [], version, ctx, builder)


def _remove_part(
    groups: GroupContext,
    group_id: str,
    asked: list[MemberIdentity],
    answered: list[MemberResponse],
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    group = groups.projection.groups.get(group_id)
    gone: dict[str, Reason] = {}
    for identity in asked[len(answered) :]:
        if len(gone) == groups.limits.expiries_max:
            builder.continuation = lambda ctx, builder: _remove_part(
                groups, group_id, asked, answered, version, ctx, builder
            )
            break
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        found = _identified(group, identity)
        if isinstance(found, ErrorCode):
            answer.error_code = found
        else:
            gone[found.member_id] = _why_it_goes(found, identity)
        answered.append(answer)
    if gone:
        builder.reasons |= dict.fromkeys(gone.values())
        builder.by_operator = any(reason.kind == ReasonKind.MEMBER_REMOVED for reason in gone.values())
        builder.trigger = Trigger.MEMBER_REMOVED if builder.by_operator else Trigger.MEMBER_LEFT
        builder.member_id = "" if builder.by_operator or len(gone) > 1 else next(iter(gone))
        yield from remove(groups, group_id, list(gone), ctx, builder)
    if version >= MEMBERS_SINCE:
        return LeaveGroupResponse(members=answered)
    return LeaveGroupResponse(error_code=answered[0].error_code)


def _why_it_goes(member: Member, identity: MemberIdentity) -> Reason:
    """A member of the classic protocol leaves by this request; an operator names the instance alone."""
    leaves = member.is_classic and bool(identity.member_id)
    kind = ReasonKind.MEMBER_LEFT if leaves else ReasonKind.MEMBER_REMOVED
    detail = (identity.reason or "")[:DETAIL_CHARS_MAX] if leaves else ""
    return Reason(kind=kind, member_id=member.member_id, detail=detail)


def _identified(group: Group | None, identity: MemberIdentity) -> Member | ErrorCode:
    """The member that the request names, or the error code if there is none."""
    if group is None or not group.is_consumer:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.group_instance_id is None:
        return group.member(identity.member_id) or ErrorCode.UNKNOWN_MEMBER_ID
    owner_id = group.static_members.get(identity.group_instance_id)
    if owner_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.member_id not in ("", owner_id):
        return ErrorCode.FENCED_INSTANCE_ID
    return group.members[owner_id]
