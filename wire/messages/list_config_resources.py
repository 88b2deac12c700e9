"""ListConfigResources (KIP-1142): the resources that have configs of their own, or may have."""

from wire.schema import Message, array_of, int8, int16, int32, message, nested, string

CLIENT_METRICS = 16
"""The only resource type of version 0, whose request cannot name types."""


@message(versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Message):
    resource_types: list[int] = array_of(int8, "1+")


@nested
class ConfigResource(Message):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=CLIENT_METRICS)


@message(versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array_of(ConfigResource, "0+")
