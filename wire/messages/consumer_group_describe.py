"""ConsumerGroupDescribe (KIP-848): consumer groups, with members and their current and target assignments."""

from wire.schema import (
    NOT_REQUESTED,
    Message,
    array_of,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    string,
    struct_of,
    uuid,
)


@message(versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = array_of(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@nested
class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array_of(int32, "0+")


@nested
class Assignment(Message):
    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions, "0+")


@nested
class Member(Message):
    member_id: str = string("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array_of(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    assignment: Assignment = struct_of(Assignment, "0+")
    target_assignment: Assignment = struct_of(Assignment, "0+")
    member_type: int = int8("1+", default=-1)


@nested
class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[Member] = array_of(Member, "0+")
    authorized_operations: int = int32("0+", default=NOT_REQUESTED)


@message(versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array_of(DescribedGroup, "0+")


def refusal(
    request: ConsumerGroupDescribeRequest, api_version: int, code: int, message: str | None
) -> ConsumerGroupDescribeResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.group_ids
        ]
    )
