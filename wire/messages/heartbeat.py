"""Heartbeat: keeps a member of the classic protocol alive; REBALANCE_IN_PROGRESS tells it to join again."""

from wire.schema import Message, int16, int32, message, string


@message(versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
