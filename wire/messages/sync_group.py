"""SyncGroup: a member of the classic protocol waits for its assignment, and the leader brings all of them.

Version 5 names the protocol on both sides, so that a mismatch is detected (KIP-559). `wire.embedded` has the
format of the assignments of consumers.
"""

from wire.schema import Message, array_of, binary, int16, int32, message, nested, string


@nested
class SyncGroupRequestAssignment(Message):
    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@message(versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array_of(SyncGroupRequestAssignment, "0+")


@message(versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = binary("0+")
