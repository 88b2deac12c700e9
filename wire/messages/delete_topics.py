"""DeleteTopics: deletes topics by name up to version 5, by name or id from version 6 on."""

from wire.schema import Message, array_of, int16, int32, message, nested, string, uuid

FIRST_WITH_IDS = 6


@nested
class DeleteTopicState(Message):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


@message(versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = array_of(DeleteTopicState, "6+")
    topic_names: list[str] = array_of(string, "0-5")
    timeout_ms: int = int32("0+")


@nested
class DeletableTopicResult(Message):
    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None)


@message(versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = int32("0+")
    responses: list[DeletableTopicResult] = array_of(DeletableTopicResult, "0+")


def refusal(
    request: DeleteTopicsRequest, api_version: int, code: int, message: str | None
) -> DeleteTopicsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    topics = request.topics if api_version >= FIRST_WITH_IDS else map(_by_name, request.topic_names)
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
            for topic in topics
        ]
    )


def _by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)
