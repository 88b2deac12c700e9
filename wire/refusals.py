"""Error responses: each carries the error where clients of that API and version look for it.

Kafka has no common place for errors. Some responses have one code at the top level, some one per group, topic
or partition, and several changed between versions. Each message module has its own function `refusal`.
"""

from wire.apis import ApiKey, message_module
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
    response: Message = message_module(ApiKey(api_key)).refusal(request, api_version, code, message)
    response.throttle_time_ms = throttle  # type: ignore[attr-defined]
    return response
