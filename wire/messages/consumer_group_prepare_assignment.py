"""ConsumerGroupPrepareAssignment (KIP-848): the member chosen to compute the target asks for the input.

An extension under a private key. The response shows the group at one moment, with its epoch. The target in
ConsumerGroupInstallAssignment is validated against this response, not against the group's later state.
"""

from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.schema import Message, array_of, binary, int8, int16, int32, message, nested, string, uuid


@message(versions="0", flexible="0+")
class ConsumerGroupPrepareAssignmentRequest(Message):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")


@nested
class Member(Message):
    """One member of the group. Reason, version and bytes are its entry for the chosen assignor;
    `topic_partitions` is its present target."""

    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    subscribed_topic_ids: list[bytes] = array_of(uuid, "0+")
    reason: int = int8("0+")
    metadata_version: int = int16("0+")
    metadata_bytes: bytes = binary("0+")
    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions, "0+")


@nested
class Topic(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupPrepareAssignmentResponse(Message):
    """The group at one moment. `assignor_version` is the newest that all members support."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    assignor_version: int = int16("0+")
    members: list[Member] = array_of(Member, "0+")
    topics: list[Topic] = array_of(Topic, "0+")
