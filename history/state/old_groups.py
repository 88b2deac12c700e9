"""A group of an older protocol as a consumer group, so that all groups are told alike.

Such a group is one record, 1010 or 1011. Here it becomes the records that a consumer group would have at that
moment: each member (5), the group's topics and epoch (4, 3), the target (7, 6) and what each member owns (8).

Record 1010 is written when a generation is complete: it is the epoch, and every consumer has reached it.

Record 1011 is written whenever a consumer's state changes. Its rounds are the epochs. A round has its target
once everyone is sent Start. A consumer that was sent Stop has its partitions pending revocation until it
answers; one that was sent Start owns them, and has reached the round when it answers.

Records of version 0 name topics only. They get the ids that they had at the time of the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from coordinator.state.group_records import APPLY
from coordinator.state.model import Group
from history.protocols import PUSH, REWRITE
from history.reading.catalog import TopicShape
from records import (
    ZERO_UUID,
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
    MemberState,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushPartitions,
    PushState,
    RewriteGroupKey,
    RewriteGroupValue,
    RewritePartitions,
    TopicMetadata,
    TopicPartitions,
)

Change = tuple[Any, Any]
"""A key and its value; None deletes it."""
ShapeOf = Callable[[str], TopicShape]
"""The id and the number of partitions of a topic, by name."""
OldGroup = PushGroupValue | RewriteGroupValue
OLD_KEYS = (PushGroupKey, RewriteGroupKey)
SENT_START = (PushState.STARTING, PushState.STARTED)
"""The states of a consumer that was sent Start, and no Stop since."""


def protocol_of(value: OldGroup) -> str:
    return PUSH if isinstance(value, PushGroupValue) else REWRITE


def as_consumer_group(
    group: Group, before: OldGroup | None, value: OldGroup, shape_of: ShapeOf, *, begins: bool
) -> Iterator[Change]:
    """The changes that tell a record of an older protocol; `before` is the group's record until then.

    `begins` says whether the entry has a reason for a round. By it the rounds of records 1011 without numbers
    are counted, from the first record that is read."""
    yield from members_gone(group, group.members.keys() - {one.consumer_id for one in value.consumers})
    if isinstance(value, PushGroupValue):
        known = before if isinstance(before, PushGroupValue) else None
        yield from _round(group, known, value, shape_of, begins)
    else:
        yield from _generation(group, value, shape_of)


def is_key_of(key: Any, value: OldGroup | None) -> bool:
    """Whether the value is one of a record with such a key."""
    return isinstance(value, PushGroupValue if isinstance(key, PushGroupKey) else RewriteGroupValue)


def newest_old(before: OldGroup | None, changes: Iterable[Change]) -> OldGroup | None:
    """The group's record of an older protocol after an entry; `before` is the one until then."""
    mine = [(key, value) for key, value in changes if isinstance(key, OLD_KEYS)]
    if any(value is None and is_key_of(key, before) for key, value in mine):
        before = None
    return next((value for _, value in reversed(mine) if value is not None), before)


def told_alone(group_id: str, value: OldGroup, shape_of: ShapeOf) -> Group:
    """The group as its newest record alone tells it."""
    group = Group(group_id)
    for key, told in as_consumer_group(group, None, value, shape_of, begins=True):
        APPLY[type(key)](group, key, told)
    return group


def members_gone(group: Group, member_ids: Iterable[str]) -> Iterator[Change]:
    for member_id in list(member_ids):
        of_member = {"group_id": group.group_id, "member_id": member_id}
        yield ConsumerGroupCurrentMemberAssignmentKey(**of_member), None
        yield ConsumerGroupTargetAssignmentMemberKey(**of_member), None
        yield ConsumerGroupMemberMetadataKey(**of_member), None


def group_gone(group: Group) -> Iterator[Change]:
    """Delete everything that a group's one record was told as."""
    yield from members_gone(group, group.members)
    yield ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None
    yield ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None
    yield ConsumerGroupMetadataKey(group_id=group.group_id), None


# Record 1010.


def _generation(group: Group, value: RewriteGroupValue, shape_of: ShapeOf) -> Iterator[Change]:
    group_id, epoch = group.group_id, value.generation
    counts = {one.name: one.num_partitions for one in value.topics if one.num_partitions}
    counts |= {one.topic: 0 for each in value.consumers for one in each.fixed}  # nobody asks for the others
    owned = {part.topic for one in value.consumers for part in one.owned}
    ids = {one.name: one.topic_id for one in value.topics if one.topic_id != ZERO_UUID}
    ids |= {name: shape_of(name)[0] for name in (counts.keys() | owned) - ids.keys()}
    for one in value.consumers:
        yield (
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one.consumer_id),
            ConsumerGroupMemberMetadataValue(
                client_id=one.client_id, client_host=one.client_host, subscribed_topic_names=one.topics
            ),
        )
    yield _topics(group_id, epoch, counts, ids)
    yield ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch)
    for one in value.consumers:
        parts = _with_ids(one.owned, ids)
        yield _target(group_id, one.consumer_id, parts)
        yield _current(group_id, one.consumer_id, epoch, parts)
    yield _target_epoch(group_id, epoch)


# Record 1011.


def _round(
    group: Group, before: PushGroupValue | None, value: PushGroupValue, shape_of: ShapeOf, begins: bool
) -> Iterator[Change]:
    """`before` is None for the first record of a group, whatever group had its id until then."""
    group_id, epoch = group.group_id, 0 if before is None else group.epoch
    number = value.round or epoch + (begins or before is None)
    were = {} if before is None else {one.consumer_id: one for one in before.consumers}
    is_new = number != epoch
    if is_new:
        yield ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=number)
    is_started = all(one.state in SENT_START for one in value.consumers)
    has_target = before is not None and group.assignment_epoch >= number
    begins_within = before is None and not is_started  # such as a snapshot, written while a round stops all
    shows_target = begins_within or (is_started and not has_target)
    counts = {one.name: one.num_partitions for one in value.topics} or _divided(value.consumers)
    ids = {one.name: one.topic_id for one in value.topics}
    owned = {part.topic for one in value.consumers for part in one.owned}
    ids |= {name: shape_of(name)[0] for name in owned - ids.keys()}
    if shows_target:
        yield _topics(group_id, number, counts, ids)
    for one in value.consumers:
        was, member_id = were.get(one.consumer_id), one.consumer_id
        if was is None or replace(was, state=one.state, owned=one.owned) != one:  # it registered, or again
            yield (
                ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
                ConsumerGroupMemberMetadataValue(client_id="", client_host="", subscribed_topic_names=()),
            )
        parts = None if value.topics else _kept(group, was, one)
        if parts is None:
            parts = _with_ids(one.owned, ids)
        if shows_target:
            yield _target(group_id, member_id, parts)
        if is_new or was is None or (was.state, was.owned) != (one.state, one.owned):
            yield _in_round(group_id, number, one, parts)
    if shows_target:
        yield _target_epoch(group_id, number if is_started else number - 1)


def _kept(group: Group, was: PushConsumer | None, one: PushConsumer) -> tuple[TopicPartitions, ...] | None:
    """What a consumer goes on owning, under the same ids even if a topic was created again; None: no such."""
    member = group.members.get(one.consumer_id)
    if was is None or was.owned != one.owned or member is None or member.current_value is None:
        return None
    current = member.current_value
    return current.assigned_partitions or current.partitions_pending_revocation


def _in_round(group_id: str, number: int, one: PushConsumer, parts: tuple[TopicPartitions, ...]) -> Change:
    epoch = number if one.state == PushState.STARTED else number - 1
    if one.state in SENT_START or not parts:
        return _current(group_id, one.consumer_id, epoch, parts)
    return _current(
        group_id, one.consumer_id, epoch, (), pending=parts, state=MemberState.UNREVOKED_PARTITIONS
    )


def _divided(consumers: Iterable[PushConsumer]) -> dict[str, int]:
    """Partitions of each topic that were divided, by a record of version 0, which names no topics."""
    counts: dict[str, int] = {}
    for part in (part for one in consumers for part in one.owned):
        counts[part.topic] = max(counts.get(part.topic, 0), 1 + max(part.partitions, default=-1))
    return counts


# The records of a consumer group.


def _with_ids(
    owned: Iterable[PushPartitions | RewritePartitions], ids: Mapping[str, bytes]
) -> tuple[TopicPartitions, ...]:
    parts = [TopicPartitions(topic_id=ids[one.topic], partitions=one.partitions) for one in owned]
    return tuple(sorted((part for part in parts if part.partitions), key=lambda part: part.topic_id))


def _topics(group_id: str, epoch: int, counts: Mapping[str, int], ids: Mapping[str, bytes]) -> Change:
    topics = tuple(
        TopicMetadata(topic_id=ids[name], topic_name=name, num_partitions=counts[name])
        for name in sorted(counts)
    )
    return (
        ConsumerGroupPartitionMetadataKey(group_id=group_id),
        ConsumerGroupPartitionMetadataValue(catalog_version=0, topics=topics, epoch=epoch),
    )


def _target(group_id: str, member_id: str, parts: tuple[TopicPartitions, ...]) -> Change:
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=parts),
    )


def _target_epoch(group_id: str, epoch: int) -> Change:
    return (
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )


def _current(
    group_id: str,
    member_id: str,
    epoch: int,
    assigned: tuple[TopicPartitions, ...],
    pending: tuple[TopicPartitions, ...] = (),
    state: MemberState = MemberState.STABLE,
) -> Change:
    return (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch,
            state=state,
            assigned_partitions=assigned,
            partitions_pending_revocation=pending,
        ),
    )
