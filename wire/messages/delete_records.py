"""DeleteRecords: deletes the records before an offset; offset −1 stands for the high watermark."""

from wire.schema import Message, array_of, int16, int32, int64, message, nested, string

NO_WATERMARK = -1


@nested
class DeleteRecordsPartition(Message):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


@nested
class DeleteRecordsTopic(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array_of(DeleteRecordsPartition, "0+")


@message(versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = array_of(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


@nested
class DeleteRecordsPartitionResult(Message):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@nested
class DeleteRecordsTopicResult(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array_of(DeleteRecordsPartitionResult, "0+")


@message(versions="0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array_of(DeleteRecordsTopicResult, "0+")


def refusal(
    request: DeleteRecordsRequest, api_version: int, code: int, message: str | None
) -> DeleteRecordsResponse:
    """The error response: the code per partition, and no watermark."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=NO_WATERMARK,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
