"""Produce: writes records to partitions. Topics are identified by id from version 13 on (KIP-516).

A request with `acks` 0 expects no response. Records are not decoded here.
"""

from wire.schema import (
    Message,
    array_of,
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
class PartitionProduceData(Message):
    index: int = int32("0+")
    records: bytes | None = record_batches("0+", nullable="0+")


@nested
class TopicProduceData(Message):
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array_of(PartitionProduceData, "0+")


@message(versions="3-13", flexible="9+")
class ProduceRequest(Message):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array_of(TopicProduceData, "0+")


@nested
class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@nested
class LeaderIdAndEpoch(Message):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@nested
class PartitionProduceResponse(Message):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array_of(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = struct_of(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


@nested
class TopicProduceResponse(Message):
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array_of(PartitionProduceResponse, "0+")


@nested
class NodeEndpoint(Message):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@message(versions="3-13", flexible="9+")
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = array_of(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "10+", tag=0, tagged="10+")


def refusal(request: ProduceRequest, api_version: int, code: int, message: str | None) -> ProduceResponse:
    """The error response: the code per partition, for its whole batch, without codes for single records."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
