"""DeleteGroups: removes groups without members, with their offsets."""

from wire.schema import Message, array_of, int16, int32, message, nested, string


@message(versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    groups_names: list[str] = array_of(string, "0+")


@nested
class DeletableGroupResult(Message):
    group_id: str = string("0+")
    error_code: int = int16("0+")


@message(versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array_of(DeletableGroupResult, "0+")


def refusal(
    request: DeleteGroupsRequest, api_version: int, code: int, message: str | None
) -> DeleteGroupsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names
        ]
    )
