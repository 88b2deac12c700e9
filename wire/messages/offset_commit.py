"""OffsetCommit: stores a group's offsets, per partition.

Version 9 carries KIP-848's member epoch in the field that classic members use for their generation. Version
10 identifies topics by id only. Commits by clients outside any group have generation −1 and an empty member
id.
"""

from wire.schema import Message, array_of, int16, int32, int64, message, nested, string, uuid


@nested
class OffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string("0+", nullable="0+")


@nested
class OffsetCommitRequestTopic(Message):
    topic_id: bytes = uuid("10+")
    name: str = string("0-9")
    partitions: list[OffsetCommitRequestPartition] = array_of(OffsetCommitRequestPartition, "0+")


@message(versions="2-10", flexible="8+")
class OffsetCommitRequest(Message):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("0+", default=-1)
    member_id: str = string("0+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("0-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array_of(OffsetCommitRequestTopic, "0+")


@nested
class OffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@nested
class OffsetCommitResponseTopic(Message):
    topic_id: bytes = uuid("10+")
    name: str = string("0-9")
    partitions: list[OffsetCommitResponsePartition] = array_of(OffsetCommitResponsePartition, "0+")


@message(versions="2-10", flexible="8+")
class OffsetCommitResponse(Message):
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array_of(OffsetCommitResponseTopic, "0+")


def refusal(
    request: OffsetCommitRequest, api_version: int, code: int, message: str | None
) -> OffsetCommitResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
