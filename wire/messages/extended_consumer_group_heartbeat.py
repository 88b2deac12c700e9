"""The heartbeat of members with client-side assignors (KIP-848, "Client-Side Assignor").

An extension under a private key: Kafka never shipped this part of the KIP. The request is Kafka's, plus the
assignors that the client can run, in order of preference; null means "unchanged", as everywhere in a
heartbeat. The response adds whether this member must compute the group's assignment, the assignor's data for
it, and which of its partitions their previous owners still hold. From version 1 on, a member may ask for
fencing tokens with every heartbeat, and gets one for each of its partitions (docs/leases.md).
"""

from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.schema import (
    Message,
    array_of,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct_of,
    uuid,
)


@nested
class Assignor(Message):
    """One assignor that the client can run.

    Versions refer to the metadata's schema, which only the clients know."""

    name: str = string("0+")
    minimum_version: int = int16("0+")
    maximum_version: int = int16("0+")
    reason: int = int8("0+")
    metadata_version: int = int16("0+")
    metadata_bytes: bytes = binary("0+")


@message(versions="0-1", flexible="0+")
class ExtendedConsumerGroupHeartbeatRequest(Message):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array_of(string, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    client_assignors: list[Assignor] | None = array_of(Assignor, "0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array_of(
        TopicPartitions, "0+", nullable="0+", default=None
    )
    fencing_tokens: bool = boolean("1+")


@nested
class AssignedTopicPartitions(Message):
    """Partitions that the member may use; the tokens are parallel to them, -1 without a lease."""

    topic_id: bytes = uuid("0+")
    partitions: list[int] = array_of(int32, "0+")
    fencing_tokens: list[int] = array_of(int64, "1+")


@nested
class Assignment(Message):
    error: int = int8("0+")
    assigned_topic_partitions: list[AssignedTopicPartitions] = array_of(AssignedTopicPartitions, "0+")
    pending_topic_partitions: list[TopicPartitions] = array_of(TopicPartitions, "0+")
    metadata_version: int = int16("0+")
    metadata_bytes: bytes = binary("0+")


@message(versions="0-1", flexible="0+")
class ExtendedConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    should_compute_assignment: bool = boolean("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct_of(Assignment, "0+", nullable="0+", default=None)
