"""CreateTopics: an admin request. A partition count or replication factor of −1 means the default."""

from wire.schema import Message, array_of, boolean, int8, int16, int32, message, nested, string, uuid


@nested
class CreatableReplicaAssignment(Message):
    partition_index: int = int32("0+")
    broker_ids: list[int] = array_of(int32, "0+")


@nested
class CreatableTopicConfig(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@nested
class CreatableTopic(Message):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array_of(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array_of(CreatableTopicConfig, "0+")


@message(versions="2-7", flexible="5+")
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = array_of(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60_000)
    validate_only: bool = boolean("0+")


@nested
class CreatableTopicConfigs(Message):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


@nested
class CreatableTopicResult(Message):
    name: str = string("0+")
    topic_id: bytes = uuid("7+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0, tagged="5+")
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array_of(CreatableTopicConfigs, "5+", nullable="5+")


@message(versions="2-7", flexible="5+")
class CreateTopicsResponse(Message):
    throttle_time_ms: int = int32("0+")
    topics: list[CreatableTopicResult] = array_of(CreatableTopicResult, "0+")


def refusal(
    request: CreateTopicsRequest, api_version: int, code: int, message: str | None
) -> CreateTopicsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
