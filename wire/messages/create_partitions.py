"""CreatePartitions: grows topics to a total number of partitions."""

from wire.schema import Message, array_of, boolean, int16, int32, message, nested, string


@nested
class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = array_of(int32, "0+")


@nested
class CreatePartitionsTopic(Message):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array_of(
        CreatePartitionsAssignment, "0+", nullable="0+"
    )


@message(versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = array_of(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@nested
class CreatePartitionsTopicResult(Message):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@message(versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array_of(CreatePartitionsTopicResult, "0+")


def refusal(
    request: CreatePartitionsRequest, api_version: int, code: int, message: str | None
) -> CreatePartitionsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
