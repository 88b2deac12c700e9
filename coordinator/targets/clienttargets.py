"""Validation of targets that members install, and detection of repeated requests.

A target is validated against the input that its author was shown (`AssignmentSpec`), so a group that has
moved on does not make a correct target wrong. Error messages name the member and the partition. A request
that is longer than any valid one is refused before it is examined.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from coordinator.assignors.spi import AssignmentSpec, MemberAssignment, PartitionAssignorError
from coordinator.leader_state.clientrounds import Choice
from coordinator.limits import Limits
from coordinator.state.model import Group, assignor_metadata_of
from coordinator.state.reconcile import AssignorMetadata
from wire.messages import consumer_group_install_assignment as install


def metadata_fault(version: int, metadata: bytes, low: int, high: int) -> str | None:
    """The reason why versioned metadata is invalid, or None."""
    if version == -1:
        return (
            (f"MetadataVersion -1 means no metadata, but there are {len(metadata)} bytes")
            if metadata
            else None
        )
    if not low <= version <= high:
        return f"MetadataVersion is {version}, outside {low} to {high}"
    return None


def is_installed(group: Group, request: install.ConsumerGroupInstallAssignmentRequest) -> bool:
    """Whether the group's target is already the one in the request."""
    if request.group_epoch != group.assignment_epoch or not request.members:
        return False
    parts = {part.member_id: part for part in request.members}
    if len(parts) < len(request.members):
        return False
    for member in group.joined():
        part = parts.get(member.member_id, install.Member(member_id=member.member_id))
        assignor_metadata = AssignorMetadata(part.error, part.metadata_version, part.metadata_bytes)
        if assignor_metadata_of(group.target.get(member.member_id)) != assignor_metadata:
            return False
        if not part.error and not _is_part(part, group.target_of(member.member_id)):
            return False
    return True


def _is_part(part: install.Member, target: Mapping[bytes, tuple[int, ...]]) -> bool:
    """Whether the part has exactly the target's partitions.

    Lengths are compared first, because the request is not validated yet."""
    given = [topic for topic in part.topic_partitions if topic.partitions]
    return len(given) == len(target) and all(
        len(numbers := target.get(topic.topic_id, ())) == len(topic.partitions)
        and numbers == tuple(sorted(topic.partitions))
        for topic in given
    )


def answer_of(
    request: install.ConsumerGroupInstallAssignmentRequest,
    spec: AssignmentSpec,
    choice: Choice,
    limits: Limits,
) -> Mapping[str, MemberAssignment]:
    """Convert the request into the form of an assignor's answer.

    Raises `PartitionAssignorError`, which names the member and the partition."""
    _check_size(request, spec)
    owners: dict[bytes, dict[int, str]] = {topic_id: {} for topic_id in spec.topics}
    answer: dict[str, MemberAssignment] = {}
    for part in request.members:
        member_id = part.member_id
        if member_id not in spec.members:
            raise PartitionAssignorError(
                f"Members: {member_id} is not a member of epoch {request.group_epoch}."
            )
        if member_id in answer:
            raise PartitionAssignorError(f"Members: {member_id} occurs twice.")
        if len(part.metadata_bytes) > limits.client_metadata_bytes_max:
            raise PartitionAssignorError(
                f"Members: MetadataBytes of {member_id} are {len(part.metadata_bytes)} bytes; at most "
                f"{limits.client_metadata_bytes_max} are allowed."
            )
        fault = metadata_fault(part.metadata_version, part.metadata_bytes, choice.version_min, choice.version)
        if fault is not None:
            raise PartitionAssignorError(f"Members: {fault}, at {member_id}.")
        if part.error:
            if part.topic_partitions:
                raise PartitionAssignorError(
                    f"Members: {member_id} has error {part.error}, so it keeps its partitions; assign none "
                    "to it."
                )
            partitions = _kept(spec, member_id)
        else:
            partitions = _given(part)
        _own(spec, owners, member_id, partitions)
        answer[member_id] = MemberAssignment(
            partitions, part.error, part.metadata_version, part.metadata_bytes
        )
    return answer


def _check_size(request: install.ConsumerGroupInstallAssignmentRequest, spec: AssignmentSpec) -> None:
    """Raise `PartitionAssignorError` for a request that is longer than any valid target."""
    partitions_max = sum(topic.num_partitions for topic in spec.topics.values())
    for what, number, number_max in (
        ("members", len(request.members), len(spec.members)),
        (
            "topics",
            sum(len(part.topic_partitions) for part in request.members),
            len(spec.members) * len(spec.topics),
        ),
        (
            "partitions",
            sum(len(topic.partitions) for part in request.members for topic in part.topic_partitions),
            partitions_max,
        ),
    ):
        if number > number_max:
            raise PartitionAssignorError(f"Members: {number} {what} exceed the {number_max} that exist.")


def _given(part: install.Member) -> dict[bytes, tuple[int, ...]]:
    given: dict[bytes, list[int]] = {}
    for topic in part.topic_partitions:
        given.setdefault(topic.topic_id, []).extend(topic.partitions)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in given.items() if numbers}


def _kept(spec: AssignmentSpec, member_id: str) -> dict[bytes, tuple[int, ...]]:
    """The member's old target, restricted to topics that it subscribes to and partitions that still exist."""
    member = spec.members[member_id]
    kept = {
        topic_id: tuple(one for one in numbers if one < spec.topics[topic_id].num_partitions)
        for topic_id, numbers in member.target_partitions.items()
        if topic_id in member.subscribed_topics
    }
    return {topic_id: numbers for topic_id, numbers in kept.items() if numbers}


def _own(
    spec: AssignmentSpec,
    owners: dict[bytes, dict[int, str]],
    member_id: str,
    partitions: Mapping[bytes, tuple[int, ...]],
) -> None:
    """Record the owner of each partition, which must be valid and not assigned yet.

    Raises `PartitionAssignorError` otherwise."""
    subscribed = spec.members[member_id].subscribed_topics
    for topic_id, numbers in partitions.items():
        if topic_id not in subscribed:
            raise PartitionAssignorError(
                f"Members: {member_id} is assigned topic id {topic_id.hex()}, to which it is not subscribed."
            )
        topic = spec.topics[topic_id]
        owner_of = owners[topic_id]
        for number in numbers:
            if not 0 <= number < topic.num_partitions:
                raise PartitionAssignorError(
                    f"Members: {member_id} is assigned {topic.topic_name}-{number}; the topic has partitions "
                    f"0 to {topic.num_partitions - 1}."
                )
            other = owner_of.setdefault(number, member_id)
            if other != member_id:
                raise PartitionAssignorError(
                    f"Members: {topic.topic_name}-{number} is assigned to both {other} and {member_id}."
                )
        if len(set(numbers)) != len(numbers):
            twice = next(one for one, two in pairwise(numbers) if one == two)
            raise PartitionAssignorError(
                f"Members: {topic.topic_name}-{twice} is assigned to {member_id} twice."
            )
