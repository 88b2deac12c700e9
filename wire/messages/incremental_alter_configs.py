"""IncrementalAlterConfigs (KIP-339): sets or deletes single configs of brokers, topics and groups."""

from wire.schema import Message, array_of, boolean, int8, int16, int32, message, nested, string


@nested
class AlterableConfig(Message):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@nested
class AlterConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array_of(AlterableConfig, "0+")


@message(versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = array_of(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@nested
class AlterConfigsResourceResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@message(versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array_of(AlterConfigsResourceResponse, "0+")


def refusal(
    request: IncrementalAlterConfigsRequest, api_version: int, code: int, message: str | None
) -> IncrementalAlterConfigsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
