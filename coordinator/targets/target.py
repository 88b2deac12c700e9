"""Computation of a target assignment: from the group to the assignor's input, and from its answer to records.

The input is the group as it is when the step runs. Record 4 defines which topics exist, so all members are
given the same topics. The answer is validated before anything is written;
`coordinator.leader_state.installing` writes the differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.api import Context
from coordinator.assignors.spi import (
    NO_RACKS,
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    MemberAssignment,
    PartitionAssignorError,
    validate,
)
from coordinator.leader_state.installing import Installation
from coordinator.limits import Limits
from coordinator.state.model import Group, Member
from records import ConsumerGroupMemberMetadataValue, RawRecord


def preferred_assignor(group: Group, configured: Sequence[str]) -> str:
    """The assignor with the most votes. Ties go to the one configured first; no votes mean the default."""
    votes = group.server_assignors
    return max(configured, key=lambda name: votes[name]) if votes else configured[0]


def topic_ids_by_name(group: Group) -> dict[str, bytes]:
    """Topics that the group takes into account: name → id."""
    return {topic.topic_name: topic.topic_id for topic in group.topics}


def topic_ids(group: Group) -> frozenset[bytes]:
    """Ids of the topics that the group takes into account."""
    return frozenset([topic.topic_id for topic in group.topics])


def subscribed_ids(
    group: Group, metadata: ConsumerGroupMemberMetadataValue, ids: Mapping[str, bytes]
) -> frozenset[bytes]:
    """Ids of the existing topics that a member subscribes to, by name or by expression."""
    names = (*metadata.subscribed_topic_names, *group.resolved(metadata.subscribed_topic_regex))
    return frozenset([ids[name] for name in names if name in ids])


def held_by_others(group: Group, member: Member) -> dict[bytes, list[int]]:
    """Partitions of the member's target that their previous owners have not released yet."""
    assert member.metadata is not None
    subscribed = subscribed_ids(group, member.metadata, topic_ids_by_name(group))
    held: dict[bytes, list[int]] = {}
    for topic_id, partitions in group.target_of(member.member_id).items():
        owner_of = group.owners.get(topic_id)
        if not owner_of or topic_id not in subscribed:
            continue
        numbers = [one for one in partitions if owner_of.get(one, member.member_id) != member.member_id]
        if numbers:
            held[topic_id] = numbers
    return held


def assignment_spec(group: Group) -> AssignmentSpec:
    """The assignor's input. Members with equal subscriptions share one set, which makes comparisons cheap."""
    ids = topic_ids_by_name(group)
    corrected = _without_doubles(group)
    sets: dict[tuple[int, str | None], frozenset[bytes]] = {}  # equal names are one tuple (`projection`)
    members: dict[str, AssignmentMemberSpec] = {}
    for member in group.joined():
        metadata = member.metadata
        assert metadata is not None
        subscription = (id(metadata.subscribed_topic_names), metadata.subscribed_topic_regex)
        subscribed = sets.get(subscription)
        if subscribed is None:
            subscribed = sets[subscription] = subscribed_ids(group, metadata, ids)
        target = corrected.get(member.member_id)
        if target is None:
            target = group.target_of(member.member_id)
        members[member.member_id] = AssignmentMemberSpec(
            subscribed, target, metadata.instance_id, metadata.rack_id
        )
    topics = {
        topic.topic_id: AssignmentTopicMetadata(
            topic.topic_name,
            topic.num_partitions,
            {one.partition: one.racks for one in topic.partition_racks}
            if topic.partition_racks
            else NO_RACKS,
        )
        for topic in group.topics
    }
    return AssignmentSpec(members, topics)


def _without_doubles(group: Group) -> Mapping[str, Mapping[bytes, tuple[int, ...]]]:
    """Corrected targets of members that share a partition with another member; empty for a complete target.

    A target that a previous leader left half-written may contain a partition twice: in a part of the new
    target and in one of the old. The partition stays with its current owner if that is one of the two,
    otherwise with the first member by name."""
    epoch = group.assignment_epoch
    if all(value.assignment_epoch <= epoch for value in group.target.values()):
        return {}
    members = sorted(member.member_id for member in group.joined())
    claims: dict[tuple[bytes, int], list[str]] = {}
    for member_id in members:
        for topic_id, numbers in group.target_of(member_id).items():
            for number in numbers:
                claims.setdefault((topic_id, number), []).append(member_id)
    lost: dict[str, set[tuple[bytes, int]]] = {}
    for (topic_id, number), claimants in claims.items():
        if len(claimants) > 1:
            owner = group.owners.get(topic_id, {}).get(number)
            heir = owner if owner in claimants else claimants[0]
            for member_id in claimants:
                if member_id != heir:
                    lost.setdefault(member_id, set()).add((topic_id, number))
    corrected: dict[str, Mapping[bytes, tuple[int, ...]]] = {}
    for member_id, partitions in lost.items():
        kept = {
            topic_id: tuple([number for number in numbers if (topic_id, number) not in partitions])
            for topic_id, numbers in group.target_of(member_id).items()
        }
        corrected[member_id] = {topic_id: numbers for topic_id, numbers in kept.items() if numbers}
    return corrected


def install_records(
    group: Group,
    spec: AssignmentSpec,
    answer: Mapping[str, MemberAssignment],
    epoch: int,
    ctx: Context,
    limits: Limits,
    assignor: str,
) -> list[RawRecord]:
    """All records of a new target for `epoch`, the group's epoch when `spec` was taken from it.

    The answer is validated against its spec, and written as `Installation` describes. Raises
    `PartitionAssignorError` if it is invalid or takes more than `limits.target_bytes_max`."""
    validate(spec, answer, assignor)
    records = Installation(spec, answer, epoch).records(group, ctx.wall_ms, -1)
    size = sum(len(raw.key) + len(raw.value or b"") for raw in records)
    if size > limits.target_bytes_max:
        raise PartitionAssignorError(
            f"The target of {len(spec.members)} members takes {size} bytes of log; the maximum is "
            f"{limits.target_bytes_max}. Subscribe to fewer partitions, or split the group."
        )
    return records
