"""FindCoordinator: finds the node that coordinates a group.

From version 4 on, one request may have many keys."""

from wire.schema import Message, array_of, int8, int16, int32, message, nested, string

FIRST_WITH_MANY_KEYS = 4


@message(versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array_of(string, "4+")


@nested
class Coordinator(Message):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


@message(versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = int32("1+")
    coordinators: list[Coordinator] = array_of(Coordinator, "4+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")


def refusal(
    request: FindCoordinatorRequest, api_version: int, code: int, message: str | None
) -> FindCoordinatorResponse:
    """The error response: the code at the top level up to version 3, and per key from version 4 on."""
    if api_version >= FIRST_WITH_MANY_KEYS:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(node_id=-1, port=-1, error_code=code, error_message=message)
