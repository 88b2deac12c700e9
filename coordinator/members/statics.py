"""Static members (group.instance.id): a place in the group that outlives the process which takes it.

A static member that stops says −2: it is *away*. Its partitions stay its own, what it still had to give up is
released, its session runs on, and the epoch of the group does not move. Whoever comes back with its instance
id before the session is over takes its place: subscription, target and partitions under the new member id, so
that it has them again with its first reply, and nobody else notices. Until then, or while it is there, nobody
can have its place.

Two differences from Kafka. A member that joins again with the ids that it has already is admitted in place,
away or not: in Kafka its own registration locks out the one whose join reply was lost. And an instance id
belongs to a member id for good: a join that changes it is refused, rather than leave one of the two behind.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import Context, Draft, Refused
from coordinator.core import Core
from coordinator.state import writes
from coordinator.state.model import Group, Member
from coordinator.state.reconcile import AWAY_EPOCH, Current
from coordinator.targets import clientside
from coordinator.targets.epochs import Step
from records import Trigger
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def existing_member(core: Core, group: Group, request: ConsumerGroupHeartbeatRequest) -> Member:
    """The member that a heartbeat or a leave is of; with an instance id, it must be the one that has it."""
    if request.instance_id is None:
        return core.consumer_member(group, request.member_id)
    owner_id = group.static_members.get(request.instance_id)
    if owner_id is None:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"InstanceId {request.instance_id} is not known in group {group.group_id}: its member left, "
            "or its session is over. Give up all partitions and join with member epoch 0.",
        )
    if owner_id != request.member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"InstanceId {request.instance_id} belongs to member {owner_id} now, not to {request.member_id}: "
            "another process took its place. Give every process a group.instance.id of its own.",
        )
    return core.consumer_member(group, request.member_id)


def joining_member(group: Group, request: ConsumerGroupHeartbeatRequest, max_size: int) -> Member | None:
    """Whose place a join takes: the member's own if it is known already, that of its instance id if that one
    is away, or None for a place of its own."""
    known = group.member(request.member_id)
    if known is not None:
        _refuse_another_instance(group, known, request)
        return known
    instance_id = request.instance_id
    owner_id = group.static_members.get(instance_id) if instance_id is not None else None
    if owner_id is None:
        if group.num_members >= max_size:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {group.group_id} has its {max_size} members; see group.consumer.max.size",
            )
        return None
    owner = group.members[owner_id]
    if not owner.is_away:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"InstanceId {instance_id} is in use by member {owner_id}. Wait until that one has left or its "
            "session has ended, or give this process a group.instance.id of its own.",
        )
    return owner


def _refuse_another_instance(group: Group, known: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    assert known.metadata is not None
    instance_id = known.metadata.instance_id
    if request.instance_id is None or request.instance_id == instance_id:
        return
    has = f"has {instance_id}" if instance_id is not None else "has none"
    raise Refused(
        ErrorCode.INVALID_REQUEST,
        f"InstanceId can't change: it is {request.instance_id}, and member {request.member_id} of group "
        f"{group.group_id} {has}. Send the same one, or leave first.",
    )


def go_away(core: Core, request: ConsumerGroupHeartbeatRequest, ctx: Context, draft: Draft) -> Step:
    """A static member says that it stops and means to come back (epoch −2); twice is as good as once."""
    group = core.consumer_group(request.group_id)
    member = existing_member(core, group, request)
    if member.is_away:
        return
    draft.trigger = Trigger.MEMBER_AWAY
    yield [writes.current_assignment(group.group_id, member.member_id, _away(member.current))]
    core.rearm_rebalance(group, member, ctx)
    if clientside.is_chosen(core, group, member.member_id):
        core.pacing.defer(group.group_id, ctx)  # somebody else is to compute the target


def _away(current: Current) -> Current:
    """Nothing to give up any more; and whoever comes back has held its partitions since ever (KIP-1251)."""
    assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in current.assigned.items()}
    return replace(current, epoch=AWAY_EPOCH, assigned=assigned, pending={})


def take_place(core: Core, group: Group, old: Member, member_id: str, draft: Draft) -> Step:
    """The place of a member that is away is `member_id`'s now, with all that belongs to it, at epoch 0."""
    current = replace(old.current, epoch=0, previous_epoch=0)
    if old.member_id == member_id:
        yield [writes.current_assignment(group.group_id, member_id, current)]
        return
    draft.trigger, draft.detail = Trigger.MEMBER_REPLACED, old.member_id
    yield writes.member_replaced(group, old, member_id, current)
    core.forget_member(group.group_id, old.member_id)
