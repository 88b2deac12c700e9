"""The content of the log: typed records, their keys and their bytes, the body of an entry, compaction.

The state of every group is a projection over these records, so this package is the only description of what
the log can contain.  It is pure: bytes and values in, bytes and values out, no clock, no file, no randomness
(but for `installation`, which is here because every other package may import it).
Everything that other packages use is re-exported here; docs/records.md is the reference.

    values, cause   the dataclasses; their class bodies are the layouts
    types           record types and the shapes a record travels in; projections apply `RawRecord`
    kinds, layouts  the types a field may have, and how a class becomes an array and back
    compiled        functions compiled for one layout
    packing         msgpack, bounded by the bytes that are there
    schemas, codec  which classes belong to which type and version; bytes to values and back
    entry           one decision: a cause and its records, as one body of bytes
    jsonform        the same, lossless, as JSON
    compaction      the newest record of each key
    ids             topic ids, shards, the shard of a group
    errors          errors in bytes that claim to be records
    installation    how this copy was installed, for hints about missing packages
"""

from records.cause import (
    CAUSE_VERSION,
    Arrival,
    Cause,
    Certainty,
    Expiry,
    Phases,
    Reason,
    ReasonKind,
    Ref,
    Trigger,
)
from records.codec import (
    decode_ahead,
    decode_key,
    decode_key_and_value,
    decode_record,
    decode_value,
    encode_offset_commit,
    encode_record,
    encode_value,
    group_id_of,
    member_key,
    offset_commit_key,
)
from records.compaction import compact
from records.entry import (
    Entry,
    cause_from_json,
    cause_to_json,
    decode_cause,
    decode_entry,
    dump_cause,
    encode_entry,
    iter_records,
    join_body,
)
from records.errors import (
    RELEASE,
    MalformedEntry,
    MalformedId,
    MalformedRecord,
    RecordsError,
    UnknownType,
    UnsupportedVersion,
)
from records.ids import (
    METADATA_SHARD,
    SCRATCH_TERM_BITS,
    TOPIC_ID_BYTES,
    ZERO_UUID,
    parse_topic_id,
    shard_of,
    topic_id_text,
)
from records.jsonform import (
    body_from_json,
    body_to_json,
    entry_from_json,
    entry_to_json,
    record_from_json,
    record_to_json,
)
from records.types import (
    LATEST_FORMAT_LEVEL,
    LEADERSHIP_SINCE,
    LEASES_SINCE,
    NUMBERS_SINCE,
    OLD_GROUPS_SINCE,
    RACKS_SINCE,
    TRANSACTIONS_SINCE,
    RawRecord,
    Record,
    RecordType,
    Stamped,
    UnknownRecord,
)
from records.values import (
    AskedLeader,
    ClassicMember,
    ClassicMemberMetadata,
    ClassicProtocol,
    ClientAssignor,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    FormatLevelKey,
    FormatLevelValue,
    GroupConfigKey,
    GroupConfigValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    LeadershipKey,
    LeadershipValue,
    LegacyOffsetCommitKey,
    MemberLeasesKey,
    MemberLeasesValue,
    MemberNumberKey,
    MemberNumberValue,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRacks,
    PendingOffsetKey,
    PendingOffsetValue,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushPartitions,
    PushState,
    PushTopic,
    RewriteConsumer,
    RewriteGroupKey,
    RewriteGroupValue,
    RewritePartitions,
    RewriteTopic,
    TermStartKey,
    TermStartValue,
    TermWhy,
    TopicKey,
    TopicLeases,
    TopicMetadata,
    TopicPartitions,
    TopicRacksKey,
    TopicRacksValue,
    TopicValue,
    TransactionGroup,
    TransactionKey,
    TransactionsResolvedKey,
    TransactionsResolvedValue,
    TransactionState,
    TransactionTopic,
    TransactionValue,
    Value,
)

__all__ = [
    "CAUSE_VERSION", "LATEST_FORMAT_LEVEL", "LEADERSHIP_SINCE", "LEASES_SINCE", "METADATA_SHARD",
    "NUMBERS_SINCE", "OLD_GROUPS_SINCE", "RACKS_SINCE", "RELEASE", "SCRATCH_TERM_BITS", "TOPIC_ID_BYTES",
    "TRANSACTIONS_SINCE", "ZERO_UUID",
    "Arrival", "AskedLeader", "Cause", "Certainty", "ClassicMember", "ClassicMemberMetadata",
    "ClassicProtocol", "ClientAssignor", "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue", "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue", "ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey", "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey", "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey", "ConsumerGroupTargetAssignmentMetadataValue", "Entry",
    "Expiry", "FormatLevelKey", "FormatLevelValue", "GroupConfigKey", "GroupConfigValue",
    "GroupMetadataKey", "GroupMetadataValue", "Key", "LeadershipKey", "LeadershipValue",
    "LegacyOffsetCommitKey", "MalformedEntry", "MalformedId", "MalformedRecord", "MemberLeasesKey",
    "MemberLeasesValue", "MemberNumberKey", "MemberNumberValue", "MemberState", "OffsetCommitKey",
    "OffsetCommitValue", "PartitionRacks",
    "PendingOffsetKey", "PendingOffsetValue", "Phases", "PushConsumer", "PushGroupKey", "PushGroupValue",
    "PushPartitions", "PushState", "PushTopic", "RawRecord", "Reason", "ReasonKind", "Record", "RecordType",
    "RecordsError", "Ref", "RewriteConsumer", "RewriteGroupKey", "RewriteGroupValue", "RewritePartitions",
    "RewriteTopic", "Stamped", "TermStartKey", "TermStartValue", "TermWhy", "TopicKey", "TopicLeases",
    "TopicMetadata", "TopicPartitions", "TopicRacksKey", "TopicRacksValue", "TopicValue",
    "TransactionGroup", "TransactionKey", "TransactionState", "TransactionTopic", "TransactionValue",
    "TransactionsResolvedKey", "TransactionsResolvedValue", "Trigger", "UnknownRecord", "UnknownType",
    "UnsupportedVersion", "Value", "body_from_json", "body_to_json", "cause_from_json", "cause_to_json",
    "compact", "decode_ahead", "decode_cause", "decode_entry", "decode_key", "decode_key_and_value",
    "decode_record", "decode_value", "dump_cause", "encode_entry", "encode_offset_commit", "encode_record",
    "encode_value", "entry_from_json", "entry_to_json", "group_id_of", "iter_records", "join_body",
    "member_key", "offset_commit_key", "parse_topic_id", "record_from_json", "record_to_json", "shard_of",
    "topic_id_text",
]  # fmt: skip
