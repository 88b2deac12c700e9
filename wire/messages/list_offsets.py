"""ListOffsets: offsets by timestamp. Timestamp −1 asks for the end of a partition, −2 for its start."""

from wire.schema import Message, array_of, int8, int16, int32, int64, message, nested, string


@nested
class ListOffsetsPartition(Message):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64("0+")


@nested
class ListOffsetsTopic(Message):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array_of(ListOffsetsPartition, "0+")


@message(versions="1-10", flexible="6+")
class ListOffsetsRequest(Message):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array_of(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+")


@nested
class ListOffsetsPartitionResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("0+", default=-1)
    offset: int = int64("0+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@nested
class ListOffsetsTopicResponse(Message):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array_of(ListOffsetsPartitionResponse, "0+")


@message(versions="1-10", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array_of(ListOffsetsTopicResponse, "0+")


def refusal(
    request: ListOffsetsRequest, api_version: int, code: int, message: str | None
) -> ListOffsetsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
