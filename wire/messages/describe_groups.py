"""DescribeGroups: the classic protocol's description of groups; version 6 can add a message to an error."""

from wire.schema import (
    NOT_REQUESTED,
    Message,
    array_of,
    binary,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
)


@message(versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
    groups: list[str] = array_of(string, "0+")
    include_authorized_operations: bool = boolean("3+")


@nested
class DescribedGroupMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


@nested
class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array_of(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=NOT_REQUESTED)


@message(versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array_of(DescribedGroup, "0+")


def refusal(
    request: DescribeGroupsRequest, api_version: int, code: int, message: str | None
) -> DescribeGroupsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.groups
        ]
    )
