"""OffsetDelete: removes committed offsets of a group, partition by partition."""

from wire.schema import Message, array_of, int16, int32, message, nested, string


@nested
class OffsetDeleteRequestPartition(Message):
    partition_index: int = int32("0+")


@nested
class OffsetDeleteRequestTopic(Message):
    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array_of(OffsetDeleteRequestPartition, "0+")


@message(versions="0", flexible=None)
class OffsetDeleteRequest(Message):
    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array_of(OffsetDeleteRequestTopic, "0+")


@nested
class OffsetDeleteResponsePartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@nested
class OffsetDeleteResponseTopic(Message):
    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array_of(OffsetDeleteResponsePartition, "0+")


@message(versions="0", flexible=None)
class OffsetDeleteResponse(Message):
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+")
    topics: list[OffsetDeleteResponseTopic] = array_of(OffsetDeleteResponseTopic, "0+")
