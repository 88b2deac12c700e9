"""LeaveGroup: members leave, or an operator removes them; several at once from version 3 on.

A member is identified by its member id, or by its instance id alone. Up to version 2, there is one at the top
level.
"""

from wire.schema import Message, array_of, int16, int32, message, nested, string

MEMBERS_SINCE = 3


@nested
class MemberIdentity(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


@message(versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array_of(MemberIdentity, "3+")


@nested
class MemberResponse(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    error_code: int = int16("3+")


@message(versions="0-5", flexible="4+")
class LeaveGroupResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    members: list[MemberResponse] = array_of(MemberResponse, "3+")
