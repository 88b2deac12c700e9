"""The key and value classes of each record type, and the version at which values are written.

To append a field: add it at the end of its class in `values` with a default and `Since(n)`, and raise the
version here to n.  If n also changes what an older field means, add the upcast that brings an array of n-1 to
n.  Never change a layout in place: `tests/records/test_golden.py` holds the bytes of every version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from records import values as v
from records.layouts import Layout, Versioned, layout_of
from records.types import RecordType


@dataclass(frozen=True, slots=True)
class Schema:
    """One record type: the layout of its key and the versioned layout of its value."""

    type: int
    name: str
    key: Layout
    value: Versioned


# Record types 0 and 1 share one value, as in Kafka.
_CLASSES: tuple[tuple[RecordType, type[Any], type[Any]], ...] = (
    (RecordType.OFFSET_COMMIT_LEGACY, v.LegacyOffsetCommitKey, v.OffsetCommitValue),
    (RecordType.OFFSET_COMMIT, v.OffsetCommitKey, v.OffsetCommitValue),
    (RecordType.GROUP_METADATA, v.GroupMetadataKey, v.GroupMetadataValue),
    (RecordType.CONSUMER_GROUP_METADATA, v.ConsumerGroupMetadataKey, v.ConsumerGroupMetadataValue),
    (
        RecordType.CONSUMER_GROUP_PARTITION_METADATA,
        v.ConsumerGroupPartitionMetadataKey,
        v.ConsumerGroupPartitionMetadataValue,
    ),
    (
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        v.ConsumerGroupMemberMetadataKey,
        v.ConsumerGroupMemberMetadataValue,
    ),
    (
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        v.ConsumerGroupTargetAssignmentMetadataKey,
        v.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    (
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        v.ConsumerGroupTargetAssignmentMemberKey,
        v.ConsumerGroupTargetAssignmentMemberValue,
    ),
    (
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        v.ConsumerGroupCurrentMemberAssignmentKey,
        v.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    (
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        v.ConsumerGroupRegularExpressionKey,
        v.ConsumerGroupRegularExpressionValue,
    ),
    (RecordType.TERM_START, v.TermStartKey, v.TermStartValue),
    (RecordType.TOPIC, v.TopicKey, v.TopicValue),
    (RecordType.GROUP_CONFIG, v.GroupConfigKey, v.GroupConfigValue),
    (RecordType.FORMAT_LEVEL, v.FormatLevelKey, v.FormatLevelValue),
    (RecordType.TOPIC_RACKS, v.TopicRacksKey, v.TopicRacksValue),
    (RecordType.TRANSACTION, v.TransactionKey, v.TransactionValue),
    (RecordType.PENDING_OFFSET, v.PendingOffsetKey, v.PendingOffsetValue),
    (RecordType.TRANSACTIONS_RESOLVED, v.TransactionsResolvedKey, v.TransactionsResolvedValue),
    (RecordType.MEMBER_LEASES, v.MemberLeasesKey, v.MemberLeasesValue),
    (RecordType.MEMBER_NUMBER, v.MemberNumberKey, v.MemberNumberValue),
    (RecordType.REWRITE_GROUP, v.RewriteGroupKey, v.RewriteGroupValue),
    (RecordType.PUSH_GROUP, v.PushGroupKey, v.PushGroupValue),
    (RecordType.LEADERSHIP, v.LeadershipKey, v.LeadershipValue),
)

# Versions above 0. No node wrote version 0 of the old groups, so their format level stays what it was.
_VERSIONS: Mapping[RecordType, int] = {
    RecordType.REWRITE_GROUP: 1,  # ids of topics
    RecordType.PUSH_GROUP: 1,  # the topics that were divided
}

SCHEMAS: Mapping[int, Schema] = {
    int(type_): Schema(
        int(type_),
        type_.name,
        layout_of(key),
        Versioned(type_.name, layout_of(value), _VERSIONS.get(type_, 0)),
    )
    for type_, key, value in _CLASSES
}
SCHEMA_OF_KEY: Mapping[type[Any], Schema] = {schema.key.cls: schema for schema in SCHEMAS.values()}
