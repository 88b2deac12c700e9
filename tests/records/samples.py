"""One plausible record of every type, and hypothesis strategies made from the layouts themselves."""

import types
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from records import (
    AskedLeader,
    Cause,
    Certainty,
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
    Expiry,
    FormatLevelKey,
    FormatLevelValue,
    GroupConfigKey,
    GroupConfigValue,
    GroupMetadataKey,
    GroupMetadataValue,
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
    RawRecord,
    Reason,
    ReasonKind,
    Record,
    RecordType,
    Ref,
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
    Trigger,
    encode_entry,
    encode_record,
)
from records.kinds import Since
from records.schemas import SCHEMAS

TOPIC_ID = bytes(range(16))
WHEN_MS = 1_760_000_000_000
OWNED = TopicPartitions(topic_id=TOPIC_ID, partitions=(0, 300), assignment_epochs=(6, 7))

SAMPLES: dict[RecordType, Record] = {
    RecordType.OFFSET_COMMIT_LEGACY: Record(
        LegacyOffsetCommitKey(group_id="g", topic="t", partition=3),
        OffsetCommitValue(offset=42, commit_timestamp_ms=WHEN_MS),
    ),
    RecordType.OFFSET_COMMIT: Record(
        OffsetCommitKey(group_id="g", topic="t", partition=3),
        OffsetCommitValue(
            offset=1 << 40,
            leader_epoch=5,
            commit_timestamp_ms=WHEN_MS,
            expire_timestamp_ms=WHEN_MS + 1,
            metadata="mé",
            topic_id=TOPIC_ID,
        ),
    ),
    RecordType.GROUP_METADATA: Record(
        GroupMetadataKey(group_id="g"),
        GroupMetadataValue(
            generation=9,
            current_state_timestamp_ms=WHEN_MS,
            protocol_type="consumer",
            protocol="range",
            leader="m1",
            members=(
                ClassicMember(
                    rebalance_timeout_ms=60_000,
                    session_timeout_ms=45_000,
                    member_id="m1",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/127.0.0.1",
                    subscription=b"\x00\x01",
                    assignment=b"",
                ),
            ),
        ),
    ),
    RecordType.CONSUMER_GROUP_METADATA: Record(
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=-2, creation_time_ms=WHEN_MS),
    ),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: Record(
        ConsumerGroupPartitionMetadataKey(group_id="g"),
        ConsumerGroupPartitionMetadataValue(
            catalog_version=17,
            topics=(
                TopicMetadata(
                    num_partitions=2,
                    topic_id=TOPIC_ID,
                    topic_name="t",
                    partition_racks=(PartitionRacks(partition=0, racks=("a", "b")),),
                ),
            ),
            epoch=7,
        ),
    ),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: Record(
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            rebalance_timeout_ms=300_000,
            client_id="c",
            client_host="/127.0.0.1",
            instance_id="i",
            rack_id=None,
            subscribed_topic_names=("s", "t"),
            subscribed_topic_regex="o.*",
            server_assignor="uniform",
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=45_000,
                supported_protocols=(ClassicProtocol(name="range", metadata=b"\xff"),),
            ),
            group_epoch=7,
            assignors=(
                ClientAssignor(
                    reason=1, minimum_version=0, maximum_version=3, version=2, name="mine", metadata=b"\x01"
                ),
            ),
        ),
    ),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp_ms=WHEN_MS),
    ),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(OWNED,), assignment_epoch=7, error=1, metadata_version=2, metadata_bytes=b"\x03"
        ),
    ),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned_partitions=(OWNED,),
            partitions_pending_revocation=(TopicPartitions(topic_id=TOPIC_ID, partitions=(4,)),),
            error=1,
            metadata_version=2,
            metadata_bytes=b"\x03",
        ),
    ),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: Record(
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="o.*"),
        ConsumerGroupRegularExpressionValue(version=17, timestamp_ms=WHEN_MS, topics=("orders",)),
    ),
    RecordType.TERM_START: Record(
        TermStartKey(),
        TermStartValue(
            term=4, node_id=1, why=TermWhy.EXPIRY, previous_leader=2, incarnation="a", boot_id="b"
        ),
    ),
    RecordType.TOPIC: Record(TopicKey(name="t"), TopicValue(num_partitions=12, topic_id=TOPIC_ID)),
    RecordType.GROUP_CONFIG: Record(
        GroupConfigKey(group_id="g", name="consumer.session.timeout.ms"), GroupConfigValue(value="30000")
    ),
    RecordType.FORMAT_LEVEL: Record(FormatLevelKey(), FormatLevelValue(level=1)),
    RecordType.LEADERSHIP: Record(
        LeadershipKey(), LeadershipValue(drained=(3,), asked=(AskedLeader(shard=-1, node_id=2),))
    ),
    RecordType.TOPIC_RACKS: Record(
        TopicRacksKey(name="t"),
        TopicRacksValue(partition_racks=(PartitionRacks(partition=0, racks=("a", "b")),)),
    ),
    RecordType.TRANSACTION: Record(
        TransactionKey(transactional_id="t"),
        TransactionValue(
            producer_id=7,
            producer_epoch=3,
            state=TransactionState.ONGOING,
            timeout_ms=60_000,
            began=17,
            decided=-1,
            start_timestamp_ms=WHEN_MS,
            last_update_timestamp_ms=WHEN_MS + 1,
            previous_producer_id=6,
            previous_producer_epoch=2,
            topics=(TransactionTopic(name="orders", topic_id=TOPIC_ID, partitions=(0, 3)),),
            groups=(TransactionGroup(group_id="g", shard=2),),
        ),
    ),
    RecordType.PENDING_OFFSET: Record(
        PendingOffsetKey(group_id="g", topic="t", partition=3, producer_id=7),
        PendingOffsetValue(
            offset=5,
            leader_epoch=2,
            commit_timestamp_ms=WHEN_MS,
            metadata="m",
            topic_id=TOPIC_ID,
            producer_epoch=3,
            transaction=17,
            index=40,
            superseded=1,
        ),
    ),
    RecordType.TRANSACTIONS_RESOLVED: Record(
        TransactionsResolvedKey(), TransactionsResolvedValue(decided=19)
    ),
    RecordType.MEMBER_LEASES: Record(
        MemberLeasesKey(group_id="g", member_id="m"),
        MemberLeasesValue(topics=(TopicLeases(topic_id=TOPIC_ID, partitions=(0, 7), tokens=(12, 300)),)),
    ),
    RecordType.MEMBER_NUMBER: Record(
        MemberNumberKey(group_id="g", member_id="m"), MemberNumberValue(number=300, has_left=1)
    ),
    RecordType.REWRITE_GROUP: Record(
        RewriteGroupKey(group_id="g"),
        RewriteGroupValue(
            generation=3,
            strategy="range",
            topics=(RewriteTopic(num_partitions=2, name="t", topic_id=TOPIC_ID),),
            consumers=(
                RewriteConsumer(
                    session_timeout_ms=30_000,
                    consumer_id="g-1",
                    client_id="c",
                    client_host="/127.0.0.1",
                    topics=("t",),
                    fixed=(RewritePartitions(topic="f", partitions=(4,)),),
                    owned=(RewritePartitions(topic="t", partitions=(0, 1)),),
                ),
            ),
        ),
    ),
    RecordType.PUSH_GROUP: Record(
        PushGroupKey(group_id="g"),
        PushGroupValue(
            consumers=(
                PushConsumer(
                    state=PushState.STARTED,
                    auto_commit=1,
                    max_ping_retries=3,
                    ping_interval_ms=3_000,
                    consumer_id="c",
                    auto_offset_reset="smallest",
                    owned=(PushPartitions(topic="t", partitions=(0, 300)),),
                ),
            ),
            topics=(PushTopic(topic_id=TOPIC_ID, num_partitions=301, name="t"),),
            round=3,
        ),
    ),
}

CAUSE = Cause(
    trigger=Trigger.SESSION_EXPIRED,
    certainty=Certainty.INFERRED,
    member_epoch=7,
    member_id="m",
    principal="p",
    address="/127.0.0.1",
    detail="d",
    reasons=(Reason(kind=ReasonKind.SESSION_EXPIRED, member_id="m", topic="t", detail="x"),),
    refs=(Ref(shard=-1, index=17),),
    expiries=(Expiry(member_id="m", timeout_ms=45_000, armed_ms=1, last_heartbeat_ms=2, deadline_ms=45_002),),
    owned=(OWNED,),
)

_INTEGERS = {f"i{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}


def strategy_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a dataclass whose class body is a layout."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{one.name: _strategy(hints[one.name]) for one in fields(cls)})


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated and isinstance(arguments[1], Since):
        return _strategy(arguments[0])
    if origin is Annotated:
        name = arguments[1].name.split(" ")[0]
        return st.binary(min_size=16, max_size=16) if name == "uuid" else _INTEGERS[name]
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not types.NoneType)
        return st.none() | _strategy(inner)
    if origin is tuple:
        return st.lists(_strategy(arguments[0]), max_size=3).map(tuple)
    if is_dataclass(hint) and isinstance(hint, type):
        return strategy_of(hint)
    return st.text(max_size=40) if hint is str else st.binary(max_size=40)


def record_strategy(type_: int) -> st.SearchStrategy[Record]:
    """Any record of one type, tombstones among them."""
    schema = SCHEMAS[type_]
    value = st.none() | strategy_of(schema.value.layout.cls)
    return st.builds(Record, strategy_of(schema.key.cls), value)


causes = strategy_of(Cause)
records = st.sampled_from(sorted(SCHEMAS)).flatmap(record_strategy)


RAWS = tuple(encode_record(record) for record in SAMPLES.values())
BODY = encode_entry(CAUSE, RAWS)
i16 = st.integers(-(1 << 15), (1 << 15) - 1)
raw_records = st.builds(RawRecord, i16, i16, st.binary(max_size=40), st.none() | st.binary(max_size=40))
