"""ListGroups: the groups of one node, filtered by state (version 4) and by type (version 5)."""

from wire.schema import Message, array_of, int16, int32, message, nested, string


@message(versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    states_filter: list[str] = array_of(string, "4+")
    types_filter: list[str] = array_of(string, "5+")


@nested
class ListedGroup(Message):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+")
    group_type: str = string("5+")


@message(versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array_of(ListedGroup, "0+")
