"""ConsumerGroupHeartbeat (KIP-848): one request by which a member joins, acknowledges, stays and leaves.

Null means "unchanged since my last heartbeat", unlike an empty value. From version 1 on, the client chooses
the member id and may subscribe by regular expression. Epoch 0 joins, −1 leaves, −2 leaves temporarily as a
static member.
"""

from wire.schema import Message, array_of, int16, int32, message, nested, string, struct_of, uuid


@nested
class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array_of(int32, "0+")


@message(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array_of(string, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array_of(
        TopicPartitions, "0+", nullable="0+", default=None
    )


@nested
class Assignment(Message):
    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions, "0+")


@message(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct_of(Assignment, "0+", nullable="0+", default=None)
