"""Fetch: reads records of partitions. Topics are named by id from version 13 on.

Incremental fetch sessions (KIP-227) only carry changes: an empty topic list then means "as before".
"""

from wire.schema import (
    Message,
    array_of,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    record_batches,
    string,
    struct_of,
    uuid,
)


@nested
class ReplicaState(Message):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@nested
class FetchPartition(Message):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: bytes = uuid("17+", tag=0, tagged="17+")


@nested
class FetchTopic(Message):
    topic_id: bytes = uuid("13+")
    topic: str = string("0-12")
    partitions: list[FetchPartition] = array_of(FetchPartition, "0+")


@nested
class ForgottenTopic(Message):
    topic_id: bytes = uuid("13+")
    topic: str = string("7-12")
    partitions: list[int] = array_of(int32, "7+")


@message(versions="4-17", flexible="12+")
class FetchRequest(Message):
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, tagged="12+")
    replica_state: ReplicaState = struct_of(ReplicaState, "15+", tag=1, tagged="15+")
    replica_id: int = int32("0-14", default=-1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=2**31 - 1)
    isolation_level: int = int8("0+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array_of(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array_of(ForgottenTopic, "7+")
    rack_id: str = string("11+")


@nested
class EpochEndOffset(Message):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@nested
class LeaderIdAndEpoch(Message):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@nested
class SnapshotId(Message):
    end_offset: int = int64("12+", default=-1)
    epoch: int = int32("12+", default=-1)


@nested
class AbortedTransaction(Message):
    producer_id: int = int64("0+")
    first_offset: int = int64("0+")


@nested
class PartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("0+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset = struct_of(EpochEndOffset, "12+", tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = struct_of(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    snapshot_id: SnapshotId = struct_of(SnapshotId, "12+", tag=2, tagged="12+")
    aborted_transactions: list[AbortedTransaction] | None = array_of(AbortedTransaction, "0+", nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: bytes | None = record_batches("0+", nullable="0+")


@nested
class FetchableTopicResponse(Message):
    topic_id: bytes = uuid("13+")
    topic: str = string("0-12")
    partitions: list[PartitionData] = array_of(PartitionData, "0+")


@nested
class NodeEndpoint(Message):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@message(versions="4-17", flexible="12+")
class FetchResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array_of(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "16+", tag=0, tagged="16+")


def refusal(request: FetchRequest, api_version: int, code: int, message: str | None) -> FetchResponse:
    """The error response: the code per partition, and from version 7 on at the top level too.

    Clients differ in which they read first."""
    return FetchResponse(
        error_code=code,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=partition.partition, error_code=code, high_watermark=-1)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
