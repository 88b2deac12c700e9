"""Keys and values of every record; their class bodies define the layout of the bytes.

The order of the fields in a class is their order in the msgpack array, so it may never change: fields are
only ever appended, with a default and `Since(n)`, and the schema's version raised to n.  Hot integers come
first, so that a columnar reader finds them at fixed places.  The fields that only the first text of KIP-848
has come last, with defaults, and may be missing from version 0 on.  Keys start with the group id wherever
there is one.

Names are Kafka's, in snake case.  Collections are tuples: topics sorted by id, partitions and topic names
ascending; the writer sorts, and a reader keeps the order that it finds.  Sources field by field:
docs/records.md.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from records.ids import ZERO_UUID
from records.kinds import I8, I16, I32, I64, Since, TopicId, named_i8


class MemberState(IntEnum):
    """State of a consumer group's member in record 8 (KIP-848, "Member's State Machine")."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127  # readers treat any other number as this


class TransactionState(IntEnum):
    """State of a transactional id in record 1005; the numbers are those of Kafka's transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


class PushState(IntEnum):
    """State of a consumer in record 1011 (`lineage.push`), as its coordinator sees it."""

    WAITING = 0
    STOPPING = 1
    STARTING = 2
    STARTED = 3


class TermWhy(IntEnum):
    """The reason why a term began."""

    START = 1  # the node started and is alone, or is the first to lead
    EXPIRY = 2  # no message from the leader in time
    RESET = 3  # the leader's connection broke
    TRANSFER = 4  # the leader handed over


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic; `assignment_epochs`, if any, are parallel to them (KIP-1251)."""

    topic_id: TopicId
    partitions: tuple[I32, ...]
    assignment_epochs: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """The partition that a group's committed offset is for."""

    group_id: str
    topic: str
    partition: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyOffsetCommitKey:
    """The same key in Kafka's record type 0, which only imported logs hold."""

    group_id: str
    topic: str
    partition: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue:
    """The committed offset; times in ms since the epoch, -1 = not given."""

    offset: I64
    leader_epoch: I32 = -1
    commit_timestamp_ms: I64
    expire_timestamp_ms: I64 = -1
    metadata: str = ""
    topic_id: TopicId = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """A classic group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group: timeouts in ms, subscription and assignment as its client wrote them."""

    rebalance_timeout_ms: I32
    session_timeout_ms: I32
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A classic group's generation and members."""

    generation: I32
    current_state_timestamp_ms: I64
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: tuple[ClassicMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataKey:
    """A consumer group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue:
    """A consumer group's epoch.

    `metadata_hash` is a hash of the subscribed topics' metadata (0 = none); `creation_time_ms` is -1 if
    unknown.
    """

    epoch: I32
    metadata_hash: I64 = 0
    creation_time_ms: I64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataKey:
    """The metadata of the topics that a consumer group is subscribed to."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRacks:
    """The racks that hold replicas of one partition."""

    partition: I32
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A subscribed topic as the group last saw it."""

    num_partitions: I32
    topic_id: TopicId
    topic_name: str
    partition_racks: tuple[PartitionRacks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataValue:
    """The topics that the group's decisions rely on, with their catalog version and group epoch."""

    catalog_version: I64
    topics: tuple[TopicMetadata, ...]
    epoch: I32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey:
    """A member of a consumer group, as it described itself."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    """An embedded protocol of a classic consumer, with the metadata as the client wrote it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """State of a consumer group member that speaks the classic protocol; the timeout is in ms."""

    session_timeout_ms: I32
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignor:
    """An assignor that the client runs (KIP-848, "Client-Side Assignor").

    The versions are of its metadata schema.
    """

    reason: I8
    minimum_version: I16
    maximum_version: I16
    version: I16
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue:
    """The member's client and its subscription; the rebalance timeout is in ms (-1 = not given)."""

    rebalance_timeout_ms: I32 = -1
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None
    group_epoch: I32 = 0
    assignors: tuple[ClientAssignor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """A consumer group's target assignment as a whole."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch that the target was computed for, and when (ms since the epoch, 0 = not recorded)."""

    assignment_epoch: I32
    assignment_timestamp_ms: I64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """One member's part of the target assignment."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions that the member is to own; error, version and bytes come from a client-side assignor."""

    topic_partitions: tuple[TopicPartitions, ...]
    assignment_epoch: I32 = -1
    error: I8 = 0
    metadata_version: I16 = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """The current assignment of one member."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """The member's epochs and state, the partitions it may use, and those it still has to revoke."""

    member_epoch: I32
    previous_member_epoch: I32
    state: Annotated[int, named_i8(MemberState)]
    assigned_partitions: tuple[TopicPartitions, ...]
    partitions_pending_revocation: tuple[TopicPartitions, ...]
    error: I8 = 0
    metadata_version: I16 = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey:
    """A regular expression that members of a group subscribe with."""

    group_id: str
    regular_expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that it matched, the catalog version it was resolved at, and when (ms since the epoch)."""

    version: I64
    timestamp_ms: I64
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeasesKey:
    """A member of a consumer group that asked for fencing tokens."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLeases:
    """Partitions of one topic with their fencing tokens, which are parallel to them.

    A token is the Raft index of the entry that gave the partition to the member."""

    topic_id: TopicId
    partitions: tuple[I32, ...]
    tokens: tuple[I64, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeasesValue:
    """The fencing tokens of all partitions that the member may use."""

    topics: tuple[TopicLeases, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberNumberKey:
    """A member of a group of any protocol; an empty member id is the group itself."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberNumberValue:
    """The member's number by arrival in the group's life, from 1 on; the group has that of its newest.

    `has_left` is 1 for one that is no member any more, and would have the number again if it came back."""

    number: I32
    has_left: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TermStartKey:
    """The latest term of a shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermStartValue:
    """The term's leader and why the term began; `previous_leader` is a node id, -1 = unknown."""

    term: I64
    node_id: I32
    why: Annotated[int, named_i8(TermWhy)]
    previous_leader: I32 = -1
    incarnation: str
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey:
    """A topic of the catalog."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicValue:
    """The topic's id and number of partitions."""

    num_partitions: I32
    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigKey:
    """One setting of one group."""

    group_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigValue:
    """The setting's value as text."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLevelKey:
    """The cluster's format level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLevelValue:
    """The highest format level that writers may use."""

    level: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipKey:
    """Requests of operators about leadership."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLeader:
    """The node that shall lead a shard; the metadata shard is -1."""

    shard: I32
    node_id: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipValue:
    """The drained nodes, ascending, and the leaders that were asked for, by shard."""

    drained: tuple[I32, ...]
    asked: tuple[AskedLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRacksKey:
    """The racks of a topic's replicas."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRacksValue:
    """The racks of the topic's partitions, for those where they are known."""

    partition_racks: tuple[PartitionRacks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionKey:
    """A transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTopic:
    """Partitions of one topic to which a transaction writes, ascending."""

    name: str
    topic_id: TopicId
    partitions: tuple[I32, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionGroup:
    """A group whose offsets a transaction commits, and the group's shard."""

    group_id: str
    shard: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """A transactional id's producer and its newest transaction; times in ms since the epoch.

    `began` is the index of the entry that began the transaction, and its number; `decided` that of the entry
    that decided to commit or to abort it; -1 = none.  `previous_producer_id` and `previous_producer_epoch`
    are what the last InitProducerId named and replaced.
    """

    producer_id: I64
    producer_epoch: I16
    state: Annotated[int, named_i8(TransactionState)]
    timeout_ms: I32
    began: I64 = -1
    decided: I64 = -1
    start_timestamp_ms: I64 = -1
    last_update_timestamp_ms: I64
    previous_producer_id: I64 = -1
    previous_producer_epoch: I16 = -1
    topics: tuple[TransactionTopic, ...] = ()
    groups: tuple[TransactionGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffsetKey:
    """An offset that a producer commits for a group in a transaction that has not ended."""

    group_id: str
    topic: str
    partition: I32
    producer_id: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffsetValue:
    """The pending offset; times in ms since the epoch.

    `transaction` is the transaction's number (`TransactionValue.began`), `index` that of the entry in which
    the offset was committed.  An offset that is `superseded` (1) does not count even if the transaction
    commits, because a later one of its partition was committed meanwhile.
    """

    offset: I64
    leader_epoch: I32 = -1
    commit_timestamp_ms: I64
    metadata: str = ""
    topic_id: TopicId = ZERO_UUID
    producer_epoch: I16
    transaction: I64
    index: I64
    superseded: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsResolvedKey:
    """The position up to which a group shard has followed the decisions about transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsResolvedValue:
    """Every decision up to this index of the metadata shard's log that names a group of the shard is done."""

    decided: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class PushGroupKey:
    """A group of the push protocol."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPartitions:
    """Partitions of one topic that a consumer of a push group owns, ascending."""

    topic: str
    partitions: tuple[I32, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumer:
    """A registered consumer: its state, the fields of its Register, and what it owns, sorted by topic."""

    state: Annotated[int, named_i8(PushState)]
    auto_commit: I8
    max_ping_retries: I16
    ping_interval_ms: I32
    consumer_id: str
    auto_offset_reset: str
    owned: tuple[PushPartitions, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTopic:
    """A topic of a push group as the newest round found it: its id, and its number of partitions."""

    topic_id: TopicId
    num_partitions: I32
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushGroupValue:
    """The state of a push group but its offsets: consumers by id, the topics divided, the newest round."""

    consumers: tuple[PushConsumer, ...]
    topics: Annotated[tuple[PushTopic, ...], Since(1)] = ()
    round: Annotated[I32, Since(1)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteGroupKey:
    """A group of the consumer rewrite design of 2013 (`lineage.rewrite`)."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTopic:
    """A topic that the group subscribes to, and how many partitions were shared out (0 = no such topic)."""

    num_partitions: I32
    name: str
    topic_id: Annotated[TopicId, Since(1)] = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePartitions:
    """Partitions of one topic, which this protocol knows by name only."""

    topic: str
    partitions: tuple[I32, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteConsumer:
    """A consumer of such a group: what it asked for, as topics or as `fixed` partitions, and what it owns."""

    session_timeout_ms: I32
    consumer_id: str
    client_id: str
    client_host: str
    topics: tuple[str, ...] = ()
    fixed: tuple[RewritePartitions, ...] = ()
    owned: tuple[RewritePartitions, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteGroupValue:
    """Everything about the group but its offsets, "in one atomic write"; consumers sorted by id."""

    generation: I32
    strategy: str
    topics: tuple[RewriteTopic, ...]
    consumers: tuple[RewriteConsumer, ...]


Key = (
    LegacyOffsetCommitKey
    | OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
    | TermStartKey
    | TopicKey
    | GroupConfigKey
    | FormatLevelKey
    | TopicRacksKey
    | TransactionKey
    | PendingOffsetKey
    | TransactionsResolvedKey
    | MemberLeasesKey
    | MemberNumberKey
    | PushGroupKey
    | LeadershipKey
    | RewriteGroupKey
)
Value = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | TermStartValue
    | TopicValue
    | GroupConfigValue
    | FormatLevelValue
    | TopicRacksValue
    | TransactionValue
    | PendingOffsetValue
    | TransactionsResolvedValue
    | MemberLeasesValue
    | MemberNumberValue
    | PushGroupValue
    | LeadershipValue
    | RewriteGroupValue
)
