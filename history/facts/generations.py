"""A group that is one record as a consumer group, so that all are told alike.

A classic group has one record, 2: its generation, with every member's subscription and assignment as the
client wrote them. Here it becomes the records that a consumer group would have at that moment: each member
(5), the group's topics and epoch (4, 3), the target (7, 6) and what each member owns (8). The generation is
the epoch, and every member has reached it, since record 2 is written when the generation is complete.
`history.state.old_groups` does the same for the groups of older protocols.

The classic protocol names topics. They get the ids that they had at the time of the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from coordinator.state.changes import NO_EPOCH
from coordinator.state.model import Group
from history.reading.catalog import TopicShape
from history.state.embedded import assigned, subscribed
from history.state.old_groups import (
    OLD_KEYS,
    Change,
    OldGroup,
    ShapeOf,
    as_consumer_group,
    group_gone,
    is_key_of,
    members_gone,
)
from records import (
    ClassicMember,
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberState,
    TopicMetadata,
    TopicPartitions,
)
from wire.embedded import CONSUMER

_WHOLE_GROUP = (GroupMetadataKey, *OLD_KEYS)


def with_epochs(
    group: Group, old: OldGroup | None, changes: Sequence[Change], shape_of: ShapeOf, *, begins: bool = True
) -> list[Change]:
    """The changes of one entry, with those that tell its records of whole groups as a consumer group.

    ``old`` is the group's record of an older protocol until then; such records are told and not among the
    result. ``begins``: the entry has a reason for a round (see `as_consumer_group`). A group that changes its
    protocol has the records of both in one entry: what is deleted goes first."""
    found: list[Change] = []
    for key, value in sorted(changes, key=_place):
        if isinstance(key, GroupMetadataKey):
            if value is not None:
                found += _epoch(group, value, shape_of)
            elif group.classic is not None:
                found += group_gone(group)
        elif isinstance(key, OLD_KEYS):
            if value is not None:
                found += as_consumer_group(group, old, value, shape_of, begins=begins)
            elif is_key_of(key, old):
                found += group_gone(group)
            continue
        found.append((key, value))
    return found


def _place(change: Change) -> int:
    key, value = change
    if not isinstance(key, _WHOLE_GROUP):
        return 0
    return -1 if value is None else 1


def _epoch(group: Group, value: GroupMetadataValue, shape_of: ShapeOf) -> Iterator[Change]:
    group_id, epoch = group.group_id, value.generation
    yield from members_gone(group, group.members.keys() - {member.member_id for member in value.members})
    if not epoch:  # created, and nobody has joined yet
        return
    is_consumer = value.protocol_type == CONSUMER
    owned = {one.member_id: assigned(one) if is_consumer else {} for one in value.members}
    wanted = {one.member_id: subscribed(one) if is_consumer else () for one in value.members}
    names = {name for some in (*owned.values(), *wanted.values()) for name in some}
    shapes = {name: shape_of(name) for name in sorted(names)}
    for member in value.members:
        of_member = {"group_id": group_id, "member_id": member.member_id}
        yield ConsumerGroupMemberMetadataKey(**of_member), _described(member, wanted[member.member_id])
    if value.members:
        topics = tuple(
            TopicMetadata(topic_id=topic_id, topic_name=name, num_partitions=count)
            for name, (topic_id, count) in shapes.items()
        )
        yield (
            ConsumerGroupPartitionMetadataKey(group_id=group_id),
            ConsumerGroupPartitionMetadataValue(catalog_version=0, topics=topics, epoch=epoch),
        )
    yield ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch)
    for member_id, partitions in owned.items():
        parts = _parts(partitions, shapes)
        yield (
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
            ConsumerGroupTargetAssignmentMemberValue(topic_partitions=parts),
        )
        before = group.members.get(member_id)
        yield (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch,
                previous_member_epoch=NO_EPOCH if before is None else before.current.epoch,
                state=MemberState.STABLE,
                assigned_partitions=parts,
                partitions_pending_revocation=(),
            ),
        )
    yield (
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp_ms=max(value.current_state_timestamp_ms, 0)
        ),
    )


def _described(member: ClassicMember, topics: Iterable[str]) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        subscribed_topic_names=tuple(sorted(set(topics))),
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms, supported_protocols=()
        ),
    )


def _parts(
    partitions: Mapping[str, set[int]], shapes: Mapping[str, TopicShape]
) -> tuple[TopicPartitions, ...]:
    parts = [
        TopicPartitions(topic_id=shapes[name][0], partitions=tuple(sorted(numbers)))
        for name, numbers in partitions.items()
        if numbers
    ]
    return tuple(sorted(parts, key=lambda part: part.topic_id))
