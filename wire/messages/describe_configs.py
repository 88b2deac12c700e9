"""DescribeConfigs: the configs of brokers, topics and groups, and the source of each value."""

from wire.schema import Message, array_of, boolean, int8, int16, int32, message, nested, string


@nested
class DescribeConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array_of(string, "0+", nullable="0+")


@message(versions="1-4", flexible="4+")
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = array_of(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@nested
class DescribeConfigsSynonym(Message):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@nested
class DescribeConfigsResourceResult(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array_of(DescribeConfigsSynonym, "1+")
    config_type: int = int8("3+", default=0)
    documentation: str | None = string("3+", nullable="0+")


@nested
class DescribeConfigsResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array_of(DescribeConfigsResourceResult, "0+")


@message(versions="1-4", flexible="4+")
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array_of(DescribeConfigsResult, "0+")


def refusal(
    request: DescribeConfigsRequest, api_version: int, code: int, message: str | None
) -> DescribeConfigsResponse:
    """The error response: it carries `code` where clients of this version look for it."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
