"""AddPartitionsToTxn: a producer adds the partitions that it is about to write to its transaction.

Versions 0 to 3 are those of clients, one transaction each. Kafka's brokers use 4 and 5 among themselves, to
check and add for several producers at once (KIP-890), and clients never do, so these are not defined here.
Field names are Kafka's.
"""

from wire.schema import Message, array_of, int16, int32, int64, message, nested, string


@nested
class AddPartitionsToTxnTopic(Message):
    name: str = string("0+")
    partitions: list[int] = array_of(int32, "0+")


@message(versions="0-3", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array_of(AddPartitionsToTxnTopic, "0-3")


@nested
class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@nested
class AddPartitionsToTxnTopicResult(Message):
    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array_of(
        AddPartitionsToTxnPartitionResult, "0+"
    )


@message(versions="0-3", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array_of(
        AddPartitionsToTxnTopicResult, "0-3"
    )


def refusal(
    request: AddPartitionsToTxnRequest, api_version: int, code: int, message: str | None
) -> AddPartitionsToTxnResponse:
    """The error response: the code per partition."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
