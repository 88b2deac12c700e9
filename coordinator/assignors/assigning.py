"""An assignment as work for a child process: request and answer as msgpack values.

Users' assignors never run in the node, and built-in ones only if the group is small
(`Limits.assign_inline_cost_max`). The child receives everything that the assignor may see. It answers with
one array per topic that has, for each partition, the position of the owning member, or −1 for no owner. This
form cannot contain a partition twice or one that does not exist, so the remaining checks on this side are
cheap.

Invariants: `spec_of(question(spec))` equals `spec`. Any answer is either refused by `parts_of` or assigns
partitions only to existing members.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from coordinator.assignors.spi import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    MemberAssignment,
    PartitionAssignor,
    PartitionAssignorError,
    Partitions,
    validate,
)

OWNER = "i"
"""Type code of an array of owners: a C int in native byte order, as both processes run on the same
machine."""

ERROR_CHARS_MAX = 1_000
"""Maximum characters of an assignor's error, which is shown by describe and in the log."""


def question(spec: AssignmentSpec, assignor: str) -> dict[str, Any]:
    """The request for the child process. Equal subscriptions are sent once; targets are sent unchanged."""
    place = {topic_id: number for number, topic_id in enumerate(spec.topics)}
    subscriptions: dict[frozenset[bytes], int] = {}
    members = [
        (
            member_id,
            subscriptions.setdefault(member.subscribed_topics, len(subscriptions)),
            member.target_partitions,
            member.instance_id,
            member.rack_id,
        )
        for member_id, member in spec.members.items()
    ]
    return {
        "assignor": assignor,
        "topics": [
            (topic_id, topic.topic_name, topic.num_partitions, list(topic.partition_racks.items()))
            for topic_id, topic in spec.topics.items()
        ],
        "subscriptions": [[place[topic_id] for topic_id in sorted(topics)] for topics in subscriptions],
        "members": members,
    }


def spec_of(asked: Mapping[str, Any]) -> AssignmentSpec:
    """Decode the assignor's input in the child process."""
    topic_ids = [topic_id for topic_id, *_ in asked["topics"]]
    sets = [frozenset([topic_ids[place] for place in places]) for places in asked["subscriptions"]]
    return AssignmentSpec(
        {
            member_id: AssignmentMemberSpec(
                sets[subscription],
                {topic_id: tuple(numbers) for topic_id, numbers in target.items()},
                instance_id,
                rack_id,
            )
            for member_id, subscription, target, instance_id, rack_id in asked["members"]
        },
        {
            topic_id: AssignmentTopicMetadata(name, count, {number: tuple(names) for number, names in racks})
            for topic_id, name, count, racks in asked["topics"]
        },
    )


def answer(asked: Mapping[str, Any], find: Callable[[str], PartitionAssignor]) -> dict[str, Any]:
    """Compute the child's answer. Any failure of the assignor becomes an answer too."""
    name = asked["assignor"]
    try:
        spec = spec_of(asked)
        members = normal(find(name).assign(spec), name)
        validate(spec, members, name)
        return {"owners": _owners(spec, members)}
    except (Exception, SystemExit) as error:  # it may be third-party code
        return {"error": _in_words(error)}


def _in_words(error: BaseException) -> str:
    """The error message, and the source location for the authors of the assignor."""
    if isinstance(error, PartitionAssignorError):
        return str(error)[:ERROR_CHARS_MAX]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        where = f", in {code.co_filename}, line {trace.tb_lineno}"
    return f"{type(error).__name__}: {str(error)[:ERROR_CHARS_MAX]}{where}"


def normal(answered: object, assignor: str) -> dict[str, MemberAssignment]:
    """Normalise an assignor's answer, of whatever types, into the form that records use."""

    def refuse(what: str) -> PartitionAssignorError:
        return PartitionAssignorError(f"Assignor {assignor} {what}.")

    members = getattr(answered, "members", None)
    if not isinstance(members, Mapping):
        raise refuse(f"returned {type(answered).__name__} instead of a GroupAssignment")
    parts: dict[str, MemberAssignment] = {}
    for member_id, part in members.items():
        target = getattr(part, "target_partitions", None)
        if not isinstance(target, Mapping):
            raise refuse(
                f"returned {type(part).__name__} for member {member_id} instead of a MemberAssignment"
            )
        partitions: dict[bytes, tuple[int, ...]] = {}
        for topic_id, given in target.items():
            numbers = tuple(given)
            if any(type(number) is not int for number in numbers):
                raise refuse(f"gave member {member_id} partitions that are not integers")
            if numbers:
                partitions[topic_id] = tuple(sorted(numbers))
        parts[member_id] = MemberAssignment(partitions)
    return parts


def _owners(spec: AssignmentSpec, members: Mapping[str, MemberAssignment]) -> list[bytes]:
    owners = {topic_id: array(OWNER, [-1]) * topic.num_partitions for topic_id, topic in spec.topics.items()}
    for position, member_id in enumerate(spec.members):
        part = members.get(member_id)
        if part is not None:
            for topic_id, numbers in part.target_partitions.items():
                owner_of = owners[topic_id]
                for number in numbers:
                    owner_of[number] = position
    return [owner_of.tobytes() for owner_of in owners.values()]


def parts_of(spec: AssignmentSpec, answered: object) -> dict[str, MemberAssignment]:
    """Decode the new target of every member.

    Raises `PartitionAssignorError` if `answered` does not fit `spec`, or with the error that the child
    reported."""
    if not isinstance(answered, dict):
        raise PartitionAssignorError(
            f"The assignor's process returned an invalid result of type {type(answered).__name__}."
        )
    if "error" in answered:
        raise PartitionAssignorError(str(answered["error"])[: 2 * ERROR_CHARS_MAX])
    owners = answered.get("owners")
    if not isinstance(owners, list) or len(owners) != len(spec.topics):
        raise PartitionAssignorError("The assignor's process did not return a result for every topic.")
    subscribed = [member.subscribed_topics for member in spec.members.values()]
    parts: list[dict[bytes, tuple[int, ...]]] = [{} for _ in subscribed]
    for (topic_id, topic), packed in zip(spec.topics.items(), owners, strict=True):
        owner_of = _owner_of(topic, packed, len(subscribed))
        by_owner = sorted(range(topic.num_partitions), key=owner_of)  # partition numbers stay in order
        for position, numbers in groupby(by_owner, owner_of):
            if position >= 0:
                if topic_id not in subscribed[position]:
                    raise PartitionAssignorError(
                        f"The assignor gave partitions of {topic.topic_name} to a member that is not "
                        "subscribed to it."
                    )
                parts[position][topic_id] = tuple(numbers)
    return {
        member_id: MemberAssignment(_as_before(member, part))
        for (member_id, member), part in zip(spec.members.items(), parts, strict=True)
    }


def _owner_of(topic: AssignmentTopicMetadata, packed: object, num_members: int) -> Callable[[int], int]:
    """Decode the owners of a topic's partitions.

    The result maps a partition to a position among the members, or -1."""
    if not isinstance(packed, bytes) or len(packed) != topic.num_partitions * array(OWNER).itemsize:
        raise PartitionAssignorError(
            f"The assignor's process did not return a result for every partition of {topic.topic_name}."
        )
    positions = array(OWNER, packed).tolist()
    if min(positions) < -1 or max(positions) >= num_members:
        raise PartitionAssignorError(
            f"The assignor gave partitions of {topic.topic_name} to an unknown member."
        )
    return positions.__getitem__


def _as_before(member: AssignmentMemberSpec, part: Partitions) -> Partitions:
    """Return the member's old mapping if nothing changed, which makes comparison cheap."""
    return member.target_partitions if part == member.target_partitions else part
