"""The records that decisions write, one small function each, in the order that Kafka requires.

Tombstones of a member come as 8, 7, 5, and those of a group last; the replay of Kafka depends on this, and so
would a Kafka that reads an export. A target's members come before its epoch, and record 4 before record 3.
"""

from __future__ import annotations

from coordinator.assignors.spi import MemberAssignment
from coordinator.state.model import Group, Member, topic_partitions_of
from coordinator.state.reconcile import Current, Tokens
from records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    MemberLeasesKey,
    MemberLeasesValue,
    MemberNumberKey,
    MemberNumberValue,
    PushGroupKey,
    RawRecord,
    Record,
    RecordType,
    RewriteGroupKey,
    TopicLeases,
    TopicMetadata,
    TopicPartitions,
    Value,
    encode_record,
    member_key,
)

_MEMBER = int(RecordType.CONSUMER_GROUP_MEMBER_METADATA)
_TARGET = int(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER)
_CURRENT = int(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)


def write(key: Key, value: Value | None) -> RawRecord:
    return encode_record(Record(key, value))


def member_metadata(group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue) -> RawRecord:
    return write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def group_epoch(group: Group, epoch: int, wall_ms: int) -> RawRecord:
    """Record 3. A group's creation time is that of its first epoch."""
    created_ms = group.metadata.creation_time_ms if group.metadata is not None else wall_ms
    value = ConsumerGroupMetadataValue(epoch=epoch, creation_time_ms=created_ms)
    return write(ConsumerGroupMetadataKey(group_id=group.group_id), value)


def subscribed_topics(
    group_id: str, topics: tuple[TopicMetadata, ...], epoch: int, catalog_version: int
) -> RawRecord:
    """Record 4, with the epoch and the catalog version at which these topics were read."""
    value = ConsumerGroupPartitionMetadataValue(topics=topics, epoch=epoch, catalog_version=catalog_version)
    return write(ConsumerGroupPartitionMetadataKey(group_id=group_id), value)


def target_member(group_id: str, member_id: str, part: MemberAssignment, epoch: int) -> RawRecord:
    """Record 7, its topics sorted by id."""
    topics = tuple(
        [
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in sorted(part.target_partitions.items())
            if numbers
        ]
    )
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=topics,
        assignment_epoch=epoch,
        error=part.error,
        metadata_version=part.metadata_version,
        metadata_bytes=part.metadata_bytes,
    )
    return write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int, wall_ms: int) -> RawRecord:
    """Record 6, which completes a target."""
    return write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp_ms=wall_ms),
    )


def current_assignment(group_id: str, member_id: str, current: Current) -> RawRecord:
    """Record 8."""
    return write(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=current.state,
            assigned_partitions=topic_partitions_of(current.assigned),
            partitions_pending_revocation=topic_partitions_of(current.pending),
            error=current.assignor_metadata.error,
            metadata_version=current.assignor_metadata.metadata_version,
            metadata_bytes=current.assignor_metadata.metadata_bytes,
        ),
    )


def member_leases(group_id: str, member_id: str, tokens: Tokens) -> RawRecord:
    """The member's fencing tokens; a tombstone if it has none."""
    topics = tuple(
        TopicLeases(topic_id=topic_id, partitions=tuple(numbers), tokens=tuple(numbers.values()))
        for topic_id, numbers in tokens.items()
        if numbers
    )
    key = MemberLeasesKey(group_id=group_id, member_id=member_id)
    return write(key, MemberLeasesValue(topics=topics) if topics else None)


def member_number(group_id: str, member_id: str, number: int | None, *, has_left: bool = False) -> RawRecord:
    """The member's number in the group's life; None: its tombstone."""
    key = MemberNumberKey(group_id=group_id, member_id=member_id)
    value = None if number is None else MemberNumberValue(number=number, has_left=int(has_left))
    return write(key, value)


def resolved_regex(
    group_id: str, regex: str, topics: tuple[str, ...], version: int, wall_ms: int
) -> RawRecord:
    """Record 16: the topics that the expression matches as of that version of the catalog."""
    return write(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(version=version, timestamp_ms=wall_ms, topics=topics),
    )


def regex_tombstone(group_id: str, regex: str) -> RawRecord:
    """Tombstone of record 16: no member subscribes by the expression any more."""
    return write(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group: Group, member_id: str) -> list[RawRecord]:
    """Tombstones of a member's leases and of its records 8, 7 and 5, as far as the records exist."""
    group_id = group.group_id
    member = group.members[member_id]
    gone: list[RawRecord] = []
    if member.leases is not None:
        gone.append(member_leases(group_id, member_id, {}))
    if member.current_value is not None:
        gone.append(
            write(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        )
    if member_id in group.target:
        gone.append(
            write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        )
    gone.append(write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None))
    return gone


def member_replaced(group: Group, old: Member, member_id: str, current: Current) -> list[RawRecord]:
    """Move everything that a static member has to a new member id.

    Tombstones of records 8, 7 and 5 of the old member come first, then records 5, 7 and 8 of the new one."""
    group_id = group.group_id
    assert old.metadata is not None
    records = [*member_tombstones(group, old.member_id), member_metadata(group_id, member_id, old.metadata)]
    target = group.target.get(old.member_id)
    if target is not None:
        records.append(
            write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), target)
        )
    return [*records, current_assignment(group_id, member_id, current)]


def classic_group(group_id: str, value: GroupMetadataValue) -> RawRecord:
    """Record 2: a generation of a classic group."""
    return write(GroupMetadataKey(group_id=group_id), value)


def classic_tombstone(group_id: str) -> RawRecord:
    """Tombstone of record 2: the group is no longer a classic group."""
    return write(GroupMetadataKey(group_id=group_id), None)


def old_group_tombstone(key: PushGroupKey | RewriteGroupKey) -> RawRecord:
    """Tombstone of record 1010 or 1011: a group of an old protocol ends, or gives way."""
    return write(key, None)


def group_tombstones(group: Group) -> list[RawRecord]:
    """Tombstones of all records of a group except offsets: leases, 8, 7, 6, 5, 16, 4, 3, or 2 if classic."""
    group_id = group.group_id
    key_of = {member_id: member_key(group_id, member_id) for member_id in (*group.members, *group.target)}
    gone = [
        member_leases(group_id, member.member_id, {})
        for member in group.members.values()
        if member.leases is not None
    ]
    gone += [RawRecord(_CURRENT, 0, key_of[member_id], None) for member_id in group.members]
    gone += [RawRecord(_TARGET, 0, key_of[member_id], None) for member_id in group.target]
    if group.target_metadata is not None:
        gone.append(write(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    gone += [RawRecord(_MEMBER, 0, key_of[member_id], None) for member_id in group.members]
    gone += [regex_tombstone(group_id, regex) for regex in group.regexes]
    if group.partition_metadata is not None:
        gone.append(write(ConsumerGroupPartitionMetadataKey(group_id=group_id), None))
    if group.metadata is not None:
        gone.append(write(ConsumerGroupMetadataKey(group_id=group_id), None))
    if group.classic is not None:
        gone.append(classic_tombstone(group_id))
    return gone
