"""Computing a target assignment: from the group to the assignor's input, and from its answer to records.

The input is the group as it is when the step runs: record 4 says which topics there are, so every member is
judged by the same topics. The answer is validated before anything is written; what is written is the delta,
one record 7 per member whose part differs, closed by a record 6 (KIP-848, "Target Assignment").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator import writes
from coordinator.api import Context
from coordinator.assignors.spi import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    MemberAssignment,
    PartitionAssignorError,
)
from coordinator.limits import Limits
from coordinator.model import Group
from records import ConsumerGroupMemberMetadataValue, RawRecord

NO_PART = MemberAssignment({})


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


def assignment_spec(group: Group) -> AssignmentSpec:
    """The assignor's input. Members with equal subscriptions share one set, which keeps comparing cheap."""
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
        topic.topic_id: AssignmentTopicMetadata(topic.topic_name, topic.num_partitions)
        for topic in group.topics
    }
    return AssignmentSpec(members, topics)


def _without_doubles(group: Group) -> Mapping[str, Mapping[bytes, tuple[int, ...]]]:
    """The parts of members who share a partition with another one, without it; empty for any whole target.

    One that a former leader left half written may name a partition twice, in a part of the new target and in
    one of the old. It is whose it is today, else the first one's by name."""
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


class Installation:
    """An answer on its way into the group: written against the group as it is whenever a part of it is
    written, not as it was when the assignor was asked (KAFKA-20292).

    Who left since gets nothing, a static member that was replaced since passes its part on, who joined
    since has to wait. A large target takes several decisions, because each record costs every node some 20
    µs in one go. What is half written is no target yet: it is one when record 6 closes it, partitions are
    handed over by the ownership of today alone, and a leader who finds it half written computes another."""

    def __init__(self, spec: AssignmentSpec, answer: Mapping[str, MemberAssignment], epoch: int) -> None:
        self.epoch = epoch
        self.is_done = False
        self._spec = spec
        self._answer = answer
        self._left = iter(spec.members)

    def records(self, group: Group, wall_ms: int, records_max: int) -> list[RawRecord]:
        """The next records 7, or the last ones and record 6; nothing where the group has a target of that
        epoch already."""
        changed: list[RawRecord] = []
        if self.epoch <= group.assignment_epoch:
            self.is_done = True
            return changed
        heirs = _heirs(group, self._spec)
        for member_id in self._left:
            present_id = member_id if group.member(member_id) is not None else heirs.get(member_id)
            if present_id is None:
                continue
            part = self._answer.get(member_id, NO_PART)
            if _differs(group, present_id, part):
                changed.append(writes.target_member(group.group_id, present_id, part, self.epoch))
                if len(changed) == records_max:
                    return changed
        covered = set(heirs.values())
        changed += [
            writes.target_member(group.group_id, member_id, NO_PART, self.epoch)
            for member_id in group.target  # or its partitions might be in two members' parts
            if member_id not in self._spec.members
            and member_id not in covered
            and group.member(member_id) is not None
            and _differs(group, member_id, NO_PART)
        ]
        self.is_done = True
        return [*changed, writes.target_epoch(group.group_id, self.epoch, wall_ms)]


@dataclass(frozen=True, slots=True)
class Computation:
    """What a child process was asked: the group as it was, at which epoch, and which entry made that
    epoch."""

    spec: AssignmentSpec
    epoch: int
    assignor: str
    bumped_at: int | None
    cost_ms: float


@dataclass(slots=True)
class Installing:
    """An answer that is being installed; `cost_ms` of the loop so far."""

    computation: Computation
    installation: Installation
    cost_ms: float


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

    The answer is judged by the spec that it is the answer to, and written as `Installation` says. Raises
    `PartitionAssignorError` when it is not valid or takes more than `limits.target_bytes_max`."""
    validate(spec, answer, assignor)
    records = Installation(spec, answer, epoch).records(group, ctx.wall_ms, -1)
    size = sum(len(raw.key) + len(raw.value or b"") for raw in records)
    if size > limits.target_bytes_max:
        raise PartitionAssignorError(
            f"The target of {len(spec.members)} members takes {size} bytes of log, more than "
            f"{limits.target_bytes_max}: subscribe to fewer partitions, or split the group."
        )
    return records


def _heirs(group: Group, spec: AssignmentSpec) -> dict[str, str]:
    """Static members that another one replaced since the spec was taken: the old member id → the new one."""
    gone = {
        member.instance_id: member_id
        for member_id, member in spec.members.items()
        if member.instance_id is not None and group.member(member_id) is None
    }
    if not gone:
        return {}
    return {
        gone[instance_id]: member.member_id
        for member in group.joined()
        if (instance_id := member.metadata and member.metadata.instance_id) in gone
        and member.member_id not in spec.members
    }


def _differs(group: Group, member_id: str, part: MemberAssignment) -> bool:
    """Whether the part is another one than the member's record 7 holds; no record is as good as nothing."""
    present = group.target_of(member_id)
    if part.target_partitions is not present and part.target_partitions != present:
        return True
    value = group.target.get(member_id)
    if value is None:
        return part[1:] != NO_PART[1:]
    return (part.error, part.metadata_version, part.metadata_bytes) != (
        value.error,
        value.metadata_version,
        value.metadata_bytes,
    )


def validate(spec: AssignmentSpec, answer: Mapping[str, MemberAssignment], assignor: str) -> None:
    """Each partition exists, belongs to a topic that its member subscribes to, and is given once."""
    given: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.topics}
    counts = dict.fromkeys(spec.topics, 0)
    for member_id, part in answer.items():
        member = spec.members.get(member_id)
        if member is None:
            raise PartitionAssignorError(f"Assignor {assignor} answered for {member_id}, which is no member.")
        for topic_id, partitions in part.target_partitions.items():
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
