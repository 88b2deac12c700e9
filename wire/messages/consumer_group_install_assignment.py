"""ConsumerGroupInstallAssignment (KIP-848): the chosen member sends the target that it computed.

An extension under a private key. `group_epoch` is the one in the response to ConsumerGroupPrepareAssignment.
A member that is left out gets no partitions. A member with an error other than 0 keeps its target, and the
error is passed on to it.
"""

from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.schema import Message, array_of, binary, int8, int16, int32, message, nested, string


@nested
class Member(Message):
    member_id: str = string("0+")
    error: int = int8("0+")
    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions, "0+")
    metadata_version: int = int16("0+", default=-1)
    metadata_bytes: bytes = binary("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupInstallAssignmentRequest(Message):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    group_epoch: int = int32("0+")
    members: list[Member] = array_of(Member, "0+")


@message(versions="0", flexible="0+")
class ConsumerGroupInstallAssignmentResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
