"""TxnOffsetCommit: stores a group's offsets as part of a transaction; they count once it commits.

Version 3 adds the member, which fences commits of former members (KIP-447). Version 5, in which the group
need not have been added to the transaction before (KIP-890), belongs to transaction version 2 and is not
served.
"""

from wire.schema import Message, array_of, int16, int32, int64, message, nested, string


@nested
class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string("0+", nullable="0+")


@nested
class TxnOffsetCommitRequestTopic(Message):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array_of(TxnOffsetCommitRequestPartition, "0+")


@message(versions="0-4", flexible="3+")
class TxnOffsetCommitRequest(Message):
    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array_of(TxnOffsetCommitRequestTopic, "0+")


@nested
class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@nested
class TxnOffsetCommitResponseTopic(Message):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array_of(TxnOffsetCommitResponsePartition, "0+")


@message(versions="0-4", flexible="3+")
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array_of(TxnOffsetCommitResponseTopic, "0+")


def refusal(
    request: TxnOffsetCommitRequest, api_version: int, code: int, message: str | None
) -> TxnOffsetCommitResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
