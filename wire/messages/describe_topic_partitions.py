"""DescribeTopicPartitions (KIP-966): topics in pages, with a cursor between pages."""

from wire.schema import (
    NOT_REQUESTED,
    Message,
    array_of,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
    struct_of,
    uuid,
)


@nested
class TopicRequest(Message):
    name: str = string("0+")


@nested
class Cursor(Message):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest] = array_of(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct_of(Cursor, "0+", nullable="0+", default=None)


@nested
class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1)
    replica_nodes: list[int] = array_of(int32, "0+")
    isr_nodes: list[int] = array_of(int32, "0+")
    eligible_leader_replicas: list[int] | None = array_of(int32, "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = array_of(int32, "0+", nullable="0+", default=None)
    offline_replicas: list[int] = array_of(int32, "0+")


@nested
class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+")
    is_internal: bool = boolean("0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array_of(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", default=NOT_REQUESTED)


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = array_of(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct_of(Cursor, "0+", nullable="0+", default=None)


def refusal(
    request: DescribeTopicPartitionsRequest, api_version: int, code: int, message: str | None
) -> DescribeTopicPartitionsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in request.topics
        ]
    )
