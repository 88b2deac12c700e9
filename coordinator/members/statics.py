"""Static members (group.instance.id): a membership that outlives the process that uses it.

A static member that stops sends epoch −2 and is then *away*. It keeps its partitions, those it still had to
revoke are released, its session continues, and the group's epoch does not change. A process that joins with
the same instance id before the session ends takes its place: it gets subscription, target and partitions
under its new member id. So its first reply returns the same partitions, and no other member is affected. No
other process can use the instance id while the member is present.

There are two differences from Kafka. A member that rejoins with its present member id and instance id is
admitted in place, away or not; in Kafka, a member whose join reply was lost is locked out by its own
registration. And an instance id cannot change for a member id: a join that changes it is refused, because it
would orphan one of the two.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import Context, DecisionBuilder, RequestRefused
from coordinator.group_context import GroupContext
from coordinator.state import writes
from coordinator.state.model import Group, Member
from coordinator.state.reconcile import AWAY_EPOCH, Current
from coordinator.targets import clientside
from coordinator.targets.epochs import Step
from records import Trigger
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def existing_member(groups: GroupContext, group: Group, member_id: str, instance_id: str | None) -> Member:
    """The member that sent a request.

    If an instance id is given, the member must be its present owner."""
    if instance_id is None:
        return groups.consumer_member(group, member_id)
    owner_id = group.static_members.get(instance_id)
    if owner_id is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"InstanceId {instance_id} is not known in group {group.group_id}: its member left or "
            "its session expired. Give up all partitions and join with member epoch 0.",
        )
    if owner_id != member_id:
        raise RequestRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"InstanceId {instance_id} belongs to member {owner_id} now, not to {member_id}: another process "
            "replaced it. Give every process its own group.instance.id.",
        )
    return groups.consumer_member(group, member_id)


def joining_member(group: Group, request: ConsumerGroupHeartbeatRequest, max_size: int) -> Member | None:
    """The member whose place a join takes, or None for a new member.

    This is the member with the same id if it exists, or the owner of the instance id if that is away or
    speaks the classic protocol. Raises `RequestRefused` if the group is full or the instance id is in
    use."""
    known = group.member(request.member_id)
    if known is not None:
        _refuse_another_instance(group, known, request)
        return known
    instance_id = request.instance_id
    owner_id = group.static_members.get(instance_id) if instance_id is not None else None
    if owner_id is None:
        if group.num_members >= max_size:
            raise RequestRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {group.group_id} already has the maximum of {max_size} members "
                "(group.consumer.max.size)",
            )
        return None
    owner = group.members[owner_id]
    if not (owner.is_away or owner.is_classic):
        raise RequestRefused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"InstanceId {instance_id} is in use by member {owner_id}. Wait until that member has left or "
            "its session has expired, or give this process its own group.instance.id.",
        )
    return owner


def _refuse_another_instance(group: Group, known: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    assert known.metadata is not None
    instance_id = known.metadata.instance_id
    if request.instance_id is None or request.instance_id == instance_id:
        return
    has = f"has {instance_id}" if instance_id is not None else "has none"
    raise RequestRefused(
        ErrorCode.INVALID_REQUEST,
        f"InstanceId can't change: it is {request.instance_id}, and member {request.member_id} of group "
        f"{group.group_id} {has}. Send the same value, or leave the group first.",
    )


def leave_temporarily(
    groups: GroupContext, request: ConsumerGroupHeartbeatRequest, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Mark a static member as away: it stops and intends to come back (epoch −2).

    Repeating it has no effect."""
    group = groups.consumer_group(request.group_id)
    member = existing_member(groups, group, request.member_id, request.instance_id)
    if member.is_away:
        return
    builder.trigger = Trigger.MEMBER_AWAY
    yield [writes.current_assignment(group.group_id, member.member_id, _away(member.current))]
    groups.rearm_rebalance(group, member, ctx)
    if clientside.is_chosen(groups, group, member.member_id):
        groups.pacing.defer(group.group_id, ctx)  # another member must compute the target


def _away(current: Current) -> Current:
    """The assignment of a member that is away.

    Nothing is pending, and all assignment epochs are 0, so that the returning process counts as owner of its
    partitions from the beginning (KIP-1251)."""
    assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in current.assigned.items()}
    return replace(current, epoch=AWAY_EPOCH, assigned=assigned, pending={})


def replace_static_member(
    groups: GroupContext, group: Group, old: Member, member_id: str, builder: DecisionBuilder
) -> Step:
    """Give the place of a static member to `member_id`, with all that belongs to it, at epoch 0."""
    current = replace(old.current, epoch=0, previous_epoch=0)
    if old.member_id == member_id:
        yield [writes.current_assignment(group.group_id, member_id, current)]
        return
    builder.trigger, builder.detail = Trigger.MEMBER_REPLACED, old.member_id
    yield writes.member_replaced(group, old, member_id, current)
    groups.forget_member(group.group_id, old.member_id)
