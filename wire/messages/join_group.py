"""JoinGroup: a member of the classic protocol joins its group's next generation, and waits for the others.

The leader's response lists the members with their metadata, from which it computes the assignment. From
version 4 on, a member without an id gets MEMBER_ID_REQUIRED and an id to join again with (KIP-394). Version 8
adds the client's reason (KIP-800). The metadata of consumers is a subscription (`wire.embedded`).
"""

from wire.schema import Message, array_of, binary, boolean, int16, int32, message, nested, string

FIRST_WITH_NULL_PROTOCOL = 7


@nested
class JoinGroupRequestProtocol(Message):
    name: str = string("0+")
    metadata: bytes = binary("0+")


@message(versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    """A rebalance timeout of −1, as in version 0, stands for the session timeout."""

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array_of(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None)


@nested
class JoinGroupResponseMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = binary("0+")


@message(versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array_of(JoinGroupResponseMember, "0+")


def refusal(request: JoinGroupRequest, api_version: int, code: int, message: str | None) -> JoinGroupResponse:
    """The error response: no generation, no protocol (null from version 7 on), and the member's own id."""
    protocol_name = None if api_version >= FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol_name, member_id=request.member_id)
