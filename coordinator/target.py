"""Computing a target assignment: from the group to the assignor's input, and from its answer to records.

The input is the group as it is when the step runs: record 4 says which topics there are, so every member is
judged by the same topics. The answer is validated before anything is written; what is written is the delta,
one record 7 per member whose part differs, closed by a record 6 (KIP-848, "Target Assignment").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator import writes
from coordinator.assignors.spi import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    PartitionAssignor,
    PartitionAssignorError,
    Partitions,
)
from coordinator.model import Group
from records import ConsumerGroupMemberMetadataValue, ConsumerGroupTargetAssignmentMemberValue, RawRecord

NO_PARTITIONS: Partitions = {}


def preferred_assignor(group: Group, configured: Sequence[str]) -> str:
    """The assignor with the most votes; ties go to the one configured first, no votes mean the default."""
    votes = group.server_assignors
    return max(configured, key=lambda name: votes[name]) if votes else configured[0]


def topic_ids_by_name(group: Group) -> dict[str, bytes]:
    """The topics that the group decides on."""
    return {topic.topic_name: topic.topic_id for topic in group.topics}


def subscribed_ids(
    group: Group, metadata: ConsumerGroupMemberMetadataValue, ids: Mapping[str, bytes]
) -> frozenset[bytes]:
    """Ids of the topics that a member subscribes to, by name or by expression, as far as they exist."""
    names = (*metadata.subscribed_topic_names, *group.resolved(metadata.subscribed_topic_regex))
    return frozenset([ids[name] for name in names if name in ids])


def partitions_of(value: ConsumerGroupTargetAssignmentMemberValue | None) -> Partitions:
    """A record 7 as topic id → partitions."""
    if value is None:
        return NO_PARTITIONS
    return {topic.topic_id: topic.partitions for topic in value.topic_partitions}


def assignment_spec(group: Group) -> AssignmentSpec:
    """The assignor's input. Members with equal subscriptions share one set, which keeps comparing cheap."""
    ids = topic_ids_by_name(group)
    sets: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
    members: dict[str, AssignmentMemberSpec] = {}
    for member in group.joined():
        metadata = member.metadata
        assert metadata is not None
        subscription = (metadata.subscribed_topic_names, metadata.subscribed_topic_regex)
        subscribed = sets.get(subscription)
        if subscribed is None:
            subscribed = sets[subscription] = subscribed_ids(group, metadata, ids)
        target = partitions_of(group.target.get(member.member_id))
        members[member.member_id] = AssignmentMemberSpec(
            subscribed, target, metadata.instance_id, metadata.rack_id
        )
    topics = {
        topic.topic_id: AssignmentTopicMetadata(topic.topic_name, topic.num_partitions)
        for topic in group.topics
    }
    return AssignmentSpec(members, topics)


def target_records(
    group: Group, assignor: PartitionAssignor, wall_ms: int, bytes_max: int
) -> list[RawRecord]:
    """The records of a new target for the group's epoch.

    Raises `PartitionAssignorError` when the answer is not valid or takes more than `bytes_max`, and whatever
    the assignor raises."""
    spec = assignment_spec(group)
    answer = assignor.assign(spec).members
    validate(spec, answer, assignor.name)
    epoch = group.epoch
    changed = [
        writes.target_member(group.group_id, member_id, sorted(part.items()), epoch)
        for member_id, member in spec.members.items()
        if (part := answer.get(member_id, NO_PARTITIONS)) is not member.target_partitions
        and part != member.target_partitions
    ]
    size = sum(len(raw.key) + len(raw.value or b"") for raw in changed)
    if size > bytes_max:
        raise PartitionAssignorError(
            f"The target of {len(spec.members)} members takes {size} bytes of log, more than {bytes_max}: "
            "subscribe to fewer partitions, or split the group."
        )
    return [*changed, writes.target_epoch(group.group_id, epoch, wall_ms)]


def validate(spec: AssignmentSpec, answer: Mapping[str, Partitions], assignor: str) -> None:
    """Each partition exists, belongs to a topic that its member subscribes to, and is given once."""
    given: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.topics}
    counts = dict.fromkeys(spec.topics, 0)
    for member_id, part in answer.items():
        member = spec.members.get(member_id)
        if member is None:
            raise PartitionAssignorError(f"Assignor {assignor} answered for {member_id}, which is no member.")
        for topic_id, partitions in part.items():
            if topic_id not in member.subscribed_topics:
                raise PartitionAssignorError(
                    f"Assignor {assignor} gave {member_id} partitions of topic id {topic_id.hex()}, "
                    "to which it is not subscribed."
                )
            given[topic_id].update(partitions)
            counts[topic_id] += len(partitions)
    for topic_id, partitions_given in given.items():
        topic = spec.topics[topic_id]
        if counts[topic_id] != len(partitions_given):
            raise PartitionAssignorError(
                f"Assignor {assignor} gave a partition of {topic.topic_name} to two members."
            )
        if partitions_given and (min(partitions_given) < 0 or max(partitions_given) >= topic.num_partitions):
            raise PartitionAssignorError(
                f"Assignor {assignor} gave a partition that {topic.topic_name} does not have."
            )
