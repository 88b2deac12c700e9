"""The interface of an assignor, in the shapes of KIP-848's `PartitionAssignor`.

An assignor is a pure function: the members with their subscriptions and present targets, the topics, out
comes a new target for each member. It must give each partition of each subscribed topic to exactly one
subscribed member, and the same answer for the same members in any order; whatever it answers is validated
before a record is written (`validate`), and an answer that fails costs nobody a place: the
old target stays in force.

The KIP speaks of collections of TopicPartition and of topics by name; here partitions are grouped by topic,
and topics go by id, as the records hold them. Mappings handed in are never changed, and a member whose part
stays as it was should get the same mapping back: that is how the delta is found cheaply. Shapes of which
there is one per member are named tuples, because a group may have 10,000 members.

Source: KIP-848, "Server Side Assignor"; docs/assignors.md tells how to write, install and test one.
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

    `subscribed_topics`: ids (16 bytes each) of the topics that it subscribes to by name or expression and
    that exist; members with equal subscriptions share one set. `target_partitions`: its present *target*,
    which is what to be sticky to; it may name topics and partitions that are gone. `instance_id`:
    group.instance.id of a static member, else None. `rack_id`: its client.rack, else None."""

    subscribed_topics: frozenset[bytes]
    target_partitions: Partitions = NO_PARTITIONS
    instance_id: str | None = None
    rack_id: str | None = None


class AssignmentTopicMetadata(NamedTuple):
    """A topic: its name, and how many partitions it has (1 or more, numbered from 0).

    `partition_racks`: the racks that hold replicas, by partition. Only for an assignor that asks for them
    (see `PartitionAssignor`), and of partitions for which they are known."""

    topic_name: str
    num_partitions: int
    partition_racks: Mapping[int, tuple[str, ...]] = NO_RACKS


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """The input: members by member id, in no order that an answer may depend on, and topics by topic id,
    at least those that somebody subscribes to."""

    members: Mapping[str, AssignmentMemberSpec]
    topics: Mapping[bytes, AssignmentTopicMetadata]


class MemberAssignment(NamedTuple):
    """The new target of one member.

    `target_partitions`: what it is to own. The rest is for client-side assignors, server-side ones leave it:
    `error`, an i8 that the member's own assignor understands (0 = none); `metadata_bytes`, whatever the
    assignor has to tell the member, in the layout `metadata_version` (i16, −1 = none)."""

    target_partitions: Partitions
    error: int = 0
    metadata_version: int = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The answer: the new target of each member, by member id. A member that is absent gets nothing."""

    members: Mapping[str, MemberAssignment]


class PartitionAssignor(Protocol):
    """What an assignor has to be; no base class is needed.

    One that asks for the racks of partitions is named in the entry points `quorate.assignors.racks` too: the
    groups that choose it have them in their record 4, and begin an epoch when one of them changes, or the
    rack of a member."""

    @property
    def name(self) -> str:
        """What members put into ServerAssignor and operators into group.consumer.assignors; unique."""
        ...

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """The new target of the group. Must not change `spec`, and must not depend on the order of members,
        on time or on chance. Raises `PartitionAssignorError` when there is no assignment, with a message for
        the people who look after the group."""
        ...


class PartitionAssignorError(Exception):
    """There is no assignment, or the answer is none; the old target stays in force."""


def require_known_topics(spec: AssignmentSpec) -> None:
    """A subscription to a topic that the spec does not describe cannot be served (Kafka does the same)."""
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
