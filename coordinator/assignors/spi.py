"""The interface of an assignor, in the shapes of KIP-848's `PartitionAssignor`.

An assignor is a pure function from the members, with their subscriptions and present targets, and the topics
to a new target for each member. It must assign each partition of each subscribed topic to exactly one
subscribed member, and give the same answer for the same members in any order. Its answer is validated before
a record is written (`validate`). If it is invalid, no member is removed and the old target stays in force.

The KIP uses collections of TopicPartition and topics by name. Here, partitions are grouped by topic, and
topics are identified by id, as in the records. The mappings passed in must not be changed. A member whose
part stays the same should get the same mapping back, which makes finding the differences cheap. Types with
one object per member are named tuples, because a group may have 10,000 members.

Source: KIP-848, "Server Side Assignor". docs/assignors.md explains how to write, install and test an
assignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Partitions = Mapping[bytes, tuple[int, ...]]
"""Topic id (16 bytes) → partition numbers, ascending, each once, never an empty tuple."""

NO_PARTITIONS: Partitions = {}


NO_RACKS: Mapping[int, tuple[str, ...]] = {}


class AssignmentMemberSpec(NamedTuple):
    """One member, as the assignor sees it.

    `subscribed_topics`: ids (16 bytes each) of the existing topics that it subscribes to, by name or by
    expression; members with equal subscriptions share one set. `target_partitions`: its present *target*, to
    which the assignment should be sticky; it may name topics and partitions that no longer exist.
    `instance_id`: group.instance.id of a static member, else None. `rack_id`: its client.rack, else None."""

    subscribed_topics: frozenset[bytes]
    target_partitions: Partitions = NO_PARTITIONS
    instance_id: str | None = None
    rack_id: str | None = None


class AssignmentTopicMetadata(NamedTuple):
    """A topic: its name, and how many partitions it has (1 or more, numbered from 0).

    `partition_racks`: by partition, the racks that hold replicas. Only given to an assignor that asks for
    them (see `PartitionAssignor`), and only for partitions whose racks are known."""

    topic_name: str
    num_partitions: int
    partition_racks: Mapping[int, tuple[str, ...]] = NO_RACKS


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """The input of an assignor.

    Contains members by member id, in an order that must not affect the answer, and topics by topic id, at
    least all that are subscribed to."""

    members: Mapping[str, AssignmentMemberSpec]
    topics: Mapping[bytes, AssignmentTopicMetadata]


class MemberAssignment(NamedTuple):
    """The new target of one member.

    `target_partitions`: the partitions it is to own. The other fields are for client-side assignors;
    server-side ones leave their defaults: `error`, an i8 defined by the member's own assignor (0 = none);
    `metadata_bytes`, data from the assignor for the member, in the layout `metadata_version` (i16, −1 =
    none)."""

    target_partitions: Partitions
    error: int = 0
    metadata_version: int = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The answer: the new target of each member, by member id. A missing member gets no partitions."""

    members: Mapping[str, MemberAssignment]


class PartitionAssignor(Protocol):
    """The interface of an assignor; no base class is needed.

    An assignor that asks for the racks of partitions must also be listed in the entry points
    `quorate.assignors.racks`. Groups that use it have the racks in their record 4, and begin a new epoch when
    one of them or the rack of a member changes."""

    @property
    def name(self) -> str:
        """Unique name, used by members in ServerAssignor and by operators in group.consumer.assignors."""
        ...

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """The new target of the group.

        Must not change `spec`, and must not depend on the order of members, on time or on chance. Raises
        `PartitionAssignorError`, with a message for the operators of the group, if there is no valid
        assignment."""
        ...


class PartitionAssignorError(Exception):
    """There is no valid assignment, or the answer is invalid; the old target stays in force."""


def require_known_topics(spec: AssignmentSpec) -> None:
    """Raise `PartitionAssignorError` if a subscribed topic is missing in the spec (as Kafka does)."""
    seen: frozenset[bytes] | None = None
    for member_id, member in spec.members.items():
        if member.subscribed_topics is seen:
            continue
        seen = member.subscribed_topics
        for topic_id in seen:
            if topic_id not in spec.topics:
                raise PartitionAssignorError(
                    f"Member {member_id} is subscribed to topic id {topic_id.hex()}, which does not exist."
                )


def is_homogeneous(spec: AssignmentSpec) -> bool:
    """Whether all members subscribe to the same topics."""
    first: frozenset[bytes] | None = None
    for member in spec.members.values():
        if first is None:
            first = member.subscribed_topics
        elif member.subscribed_topics is not first and member.subscribed_topics != first:
            return False
    return True


def validate(spec: AssignmentSpec, answer: Mapping[str, MemberAssignment], assignor: str) -> None:
    """Raise `PartitionAssignorError` unless the answer is valid.

    Each assigned partition must exist, be assigned once, and belong to a topic that its member subscribes
    to."""
    given: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.topics}
    counts = dict.fromkeys(spec.topics, 0)
    for member_id, part in answer.items():
        member = spec.members.get(member_id)
        if member is None:
            raise PartitionAssignorError(
                f"Assignor {assignor} assigned partitions to {member_id}, which is not a member."
            )
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
