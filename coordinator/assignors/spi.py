"""The interface of an assignor, in the shapes of KIP-848's `PartitionAssignor`.

An assignor is a pure function: the members with their subscriptions and present targets, the topics, out
comes a new target for each member. It must give each partition of each subscribed topic to exactly one
subscribed member, and the same answer for the same members in any order; whatever it answers is validated
before a record is written.

The KIP speaks of collections of TopicPartition; here they are grouped by topic, topic id → sorted partition
numbers, as the records hold them. Mappings handed in are never changed, and a member whose part stays as it
was should get the same object back: that is how the delta is found cheaply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Partitions = Mapping[bytes, tuple[int, ...]]
"""Topic id (16 bytes) → partition numbers, ascending, never empty."""


@dataclass(frozen=True, slots=True)
class AssignmentMemberSpec:
    """One member: the ids of the topics it subscribes to, and its present target."""

    subscribed_topics: frozenset[bytes]
    target_partitions: Partitions
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentTopicMetadata:
    topic_name: str
    num_partitions: int


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """Members by member id, topics by topic id."""

    members: Mapping[str, AssignmentMemberSpec]
    topics: Mapping[bytes, AssignmentTopicMetadata]


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The answer: the new target of each member."""

    members: Mapping[str, Partitions]


class PartitionAssignor(Protocol):
    """`name` is what members put into ServerAssignor."""

    @property
    def name(self) -> str: ...

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """The new target; raises `PartitionAssignorError` when there is none."""
        ...


class PartitionAssignorError(Exception):
    """The assignor found no assignment; the old target stays in force."""


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
