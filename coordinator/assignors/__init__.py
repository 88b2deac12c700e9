"""Assignors: pure functions from members and topics to a target assignment."""

from coordinator.assignors.range import RangeAssignor
from coordinator.assignors.spi import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
    PartitionAssignorError,
    Partitions,
    require_known_topics,
)
from coordinator.assignors.uniform import UniformAssignor

BUILT_IN: tuple[PartitionAssignor, ...] = (UniformAssignor(), RangeAssignor())

__all__ = [
    "BUILT_IN",
    "AssignmentMemberSpec",
    "AssignmentSpec",
    "AssignmentTopicMetadata",
    "GroupAssignment",
    "MemberAssignment",
    "PartitionAssignor",
    "PartitionAssignorError",
    "Partitions",
    "RangeAssignor",
    "UniformAssignor",
    "require_known_topics",
]
