"""The errors with which the runtime, rather than the coordinator, answers a request.

Clients act on the code alone: NOT_COORDINATOR makes them look for another node, LOAD_IN_PROGRESS makes them
wait, COORDINATOR_NOT_AVAILABLE makes them retry. In Kafka, requests that change topics go to a controller and
have error codes of their own. Kafka's clients treat COORDINATOR_NOT_AVAILABLE as fatal in OffsetFetch, so
that API is answered NOT_COORDINATOR instead, as Kafka's own coordinator does.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, cast

from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.refusals import refuse
from wire.schema import Message


class Unavailable(Enum):
    """The reason why a request cannot be served: the runtime answers it itself."""

    NOT_LEADER = "this node does not lead the shard; find the coordinator again"
    LOADING = "the shard is still reading its log; try again shortly"
    STALE = "this node has not received news of the topic catalog for a while; find the coordinator again"
    OVERLOADED = "too many writes wait for this node's disk; try again shortly"
    DISK_FULL = "the node's disk is full; writes are refused until space is freed"
    TIMED_OUT = "the change was not durable in time; it may still happen, so check and try again"
    DEPOSED = "leadership was lost before the change was durable; it may still happen, so check and try again"
    STOPPED = "the node is stopping; find the coordinator again"
    FAILED = "the node failed on this request; its log has the details"


READ_APIS: Final = frozenset(
    {ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE}
)
"""APIs that never write an entry to the log, whatever the answer."""

ADMIN_APIS: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
)

_E = ErrorCode

CODES: Final[dict[Unavailable, tuple[ErrorCode, ErrorCode, ErrorCode]]] = {
    # why: (group requests, OffsetFetch, requests that change topics or configs)
    Unavailable.NOT_LEADER: (_E.NOT_COORDINATOR, _E.NOT_COORDINATOR, _E.NOT_CONTROLLER),
    Unavailable.LOADING: (_E.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    Unavailable.STALE: (_E.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    Unavailable.OVERLOADED: (_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.REQUEST_TIMED_OUT),
    Unavailable.DISK_FULL: (_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.KAFKA_STORAGE_ERROR),
    Unavailable.TIMED_OUT: (_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.REQUEST_TIMED_OUT),
    Unavailable.DEPOSED: (_E.NOT_COORDINATOR, _E.NOT_COORDINATOR, _E.REQUEST_TIMED_OUT),
    Unavailable.STOPPED: (_E.NOT_COORDINATOR, _E.NOT_COORDINATOR, _E.REQUEST_TIMED_OUT),
    Unavailable.FAILED: (_E.UNKNOWN_SERVER_ERROR,) * 3,
}


def code_for(why: Unavailable, api_key: int) -> ErrorCode:
    """Return the error code for this reason in a response of this API."""
    if why is Unavailable.LOADING and api_key == ApiKey.HEARTBEAT:
        return ErrorCode.NONE  # as in Kafka: the member stays, and its session begins with the new leader
    group, offset_fetch, admin = CODES[why]
    if api_key in ADMIN_APIS:
        return admin
    return offset_fetch if api_key == ApiKey.OFFSET_FETCH else group


def refusal(why: Unavailable, api_key: int, api_version: int, request: object, message: str = "") -> object:
    """Return a response body of this API that reports the reason."""
    return refuse(
        api_key, api_version, cast("Message", request), code_for(why, api_key), message or why.value
    )
