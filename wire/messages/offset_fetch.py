"""OffsetFetch: reads a group's committed offsets.

Versions up to 7 ask for one group in top-level fields, later ones for several in `groups`. From version 10
on, topics are identified by id only. A null topic list asks for all offsets of the group.
"""

from wire.schema import Message, array_of, boolean, int16, int32, int64, message, nested, string, uuid

FIRST_WITH_ERROR_CODE = 2
FIRST_WITH_GROUPS = 8


@nested
class OffsetFetchRequestTopics(Message):
    topic_id: bytes = uuid("10+")
    name: str = string("8-9")
    partition_indexes: list[int] = array_of(int32, "8+")


@nested
class OffsetFetchRequestGroup(Message):
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array_of(OffsetFetchRequestTopics, "8+", nullable="8+")


@nested
class OffsetFetchRequestTopic(Message):
    name: str = string("0-7")
    partition_indexes: list[int] = array_of(int32, "0-7")


@message(versions="1-10", flexible="6+")
class OffsetFetchRequest(Message):
    groups: list[OffsetFetchRequestGroup] = array_of(OffsetFetchRequestGroup, "8+")
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array_of(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    require_stable: bool = boolean("7+")


@nested
class OffsetFetchResponsePartitions(Message):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@nested
class OffsetFetchResponseTopics(Message):
    topic_id: bytes = uuid("10+")
    name: str = string("8-9")
    partitions: list[OffsetFetchResponsePartitions] = array_of(OffsetFetchResponsePartitions, "8+")


@nested
class OffsetFetchResponseGroup(Message):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array_of(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@nested
class OffsetFetchResponsePartition(Message):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@nested
class OffsetFetchResponseTopic(Message):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array_of(OffsetFetchResponsePartition, "0-7")


@message(versions="1-10", flexible="6+")
class OffsetFetchResponse(Message):
    throttle_time_ms: int = int32("3+")
    groups: list[OffsetFetchResponseGroup] = array_of(OffsetFetchResponseGroup, "8+")
    topics: list[OffsetFetchResponseTopic] = array_of(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")


def refusal(
    request: OffsetFetchRequest, api_version: int, code: int, message: str | None
) -> OffsetFetchResponse:
    """The error response: the code per group from version 8 on, before at the top level, or per partition.

    The top-level field exists from version 2 on."""
    if api_version >= FIRST_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
            ]
        )
    if api_version >= FIRST_WITH_ERROR_CODE:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )
