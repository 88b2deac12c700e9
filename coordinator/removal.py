"""Removals by operators: groups (DeleteGroups), offsets (OffsetDelete), members (LeaveGroup).

One request may ask for more than the event loop or a log entry can take in one decision. The decision then
does a part and leaves a `continuation`, which continues in a decision of its own; the last one has the
reply. Each part checks the state again: a group that a member joined in the meantime is not deleted and
reported as non-empty, though its older offsets may be gone by then.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from coordinator import admin, oldgroups
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
from coordinator.state.pendingoffsets import PENDING_COST, pending_tombstone
from coordinator.topics import CatalogTopic
from records import RawRecord, Reason, ReasonKind, Trigger, offset_commit_key
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
            room = room_bytes // each_bytes
            for removal, cost in _removals(groups, group_id, room):
                if room <= 0:
                    is_done = False
                    break
                records.append(removal)
                room -= cost
            if not is_done:
                break
            room_bytes = room * each_bytes
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


def _removals(groups: GroupContext, group_id: str, room: int) -> Iterator[tuple[RawRecord, int]]:
    """The tombstones that delete a group: of its offsets, of those that are pending, and its own.

    Each comes with its cost, which is 1 for an offset. There are at least `room` and one more, if so many
    are needed."""
    for offset_key in groups.projection.offsets.keys(group_id, room + 1):
        yield tombstone(offset_key), 1
    for key, _ in groups.projection.pending.of_group(group_id):
        yield pending_tombstone(key), PENDING_COST
    for removal in oldgroups.tombstones(groups, group_id):
        yield removal, 1
    group = groups.projection.groups.get(group_id)
    if group is not None:
        for removal in writes.group_tombstones(group):
            yield removal, 1


# Deletion of offsets.


class _Everything(Container[str]):
    """Stands for the subscription of a group whose subscribed topics are not known: contains every topic."""

    def __contains__(self, topic: object) -> bool:
        return True


def delete_offsets(
    groups: GroupContext, request: OffsetDeleteRequest, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Delete offsets of topics that the group does not subscribe to. A missing offset is no error (E.3)."""
    number = sum([max(1, len(topic.partitions)) for topic in request.topics])
    if number > groups.limits.offsets_deleted_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"{number} partitions exceed the maximum of {groups.limits.offsets_deleted_max}: split the "
            "request.",
        )
    response = OffsetDeleteResponse()
    subscribed = _deletable_from(groups, request.group_id)
    parts = _parts(request, response)
    return _delete_some(groups, request.group_id, subscribed, response, parts, ctx, builder)


def _parts(
    request: OffsetDeleteRequest, response: OffsetDeleteResponse
) -> Iterator[tuple[OffsetDeleteResponseTopic, int]]:
    """The partitions of the request, each with the topic of the response where its result goes."""
    for asked in request.topics:
        answered = OffsetDeleteResponseTopic(name=asked.name)
        response.topics.append(answered)
        for part in asked.partitions:
            yield answered, part.partition_index


def _delete_some(
    groups: GroupContext,
    group_id: str,
    subscribed: Container[str],
    response: OffsetDeleteResponse,
    parts: Iterator[tuple[OffsetDeleteResponseTopic, int]],
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Delete the offsets of the next partitions; the final part returns the response."""
    builder.trigger = Trigger.OFFSETS_DELETED
    builder.by_operator = True
    offsets, pending = groups.projection.offsets, groups.projection.pending
    removals: dict[RawRecord, None] = {}
    pending_removals: dict[RawRecord, None] = {}
    room = groups.limits.removal_bytes_max // removal_bytes(group_id)
    for answered, partition in parts:
        name = answered.name
        error = ErrorCode.NONE
        if not _is_partition(ctx.catalog.topic(name), partition):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif name in subscribed:
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            key = offset_commit_key(group_id, name, partition)
            if offsets.has(key):
                removals[tombstone(key)] = None
            for pending_key, _ in pending.of_partition(group_id, name, partition):
                pending_removals[pending_tombstone(pending_key)] = None
                room -= PENDING_COST
        room -= 1
        answered.partitions.append(OffsetDeleteResponsePartition(partition_index=partition, error_code=error))
        if room <= 0:
            builder.continuation = lambda ctx, builder: _delete_some(
                groups, group_id, _still_deletable_from(groups, group_id), response, parts, ctx, builder
            )
            break
    if removals or pending_removals:
        yield [*removals, *pending_removals]
        groups.expect_end(group_id, ctx)
    return response


def _still_deletable_from(groups: GroupContext, group_id: str) -> Container[str]:
    """The topics whose offsets must be kept now; all of them if no offset may be deleted any more."""
    try:
        return _deletable_from(groups, group_id)
    except RequestRefused as refused:
        is_gone = refused.code is ErrorCode.GROUP_ID_NOT_FOUND  # it ends with its last offset
        return frozenset() if is_gone else _Everything()


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
    if group_id not in groups.projection.groups:  # a push group before its first round is over
        return _Everything()
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
