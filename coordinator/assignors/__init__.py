"""Assignors: pure functions from members and topics to a target assignment.

spi            the interface of an assignor
uniform        balance first, then stickiness
heterogeneous  the same for members with different subscriptions
range          contiguous ranges per topic
assigning      an assignment as work for a child process
checking       the properties of assignors, as a check for their authors
"""

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
