"""Error responses: each carries the error where clients of that API and version look for it.

Kafka has no common place for errors. Some responses have one code at the top level, some one per group, topic
or partition, and several changed between versions. A message module has its own function `refusal` unless
its response has one code, and perhaps a message, at the top level.
"""

from typing import Any

from wire.apis import ApiKey, message_classes, message_module
from wire.errors import ErrorCode
from wire.schema import Message


def refuse(
    api_key: int,
    api_version: int,
    request: Message | None,
    code: ErrorCode,
    message: str | None = None,
    throttle: int = 0,
) -> Message:
    """The response to `request` that reports `code` for everything it asked for.

    `message` is included if the version has a field for it; `throttle` is in ms. Only ApiVersions may be
    refused without a request, since its version may be one that cannot be decoded.
    """
    module = message_module(ApiKey(api_key))
    if hasattr(module, "refusal"):
        response: Any = module.refusal(request, api_version, code, message)
    else:
        response = message_classes(ApiKey(api_key))[1]()
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = message
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle
    answer: Message = response
    return answer
