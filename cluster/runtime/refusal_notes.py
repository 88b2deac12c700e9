"""Find the error in a response, to be noted as evidence: what was refused, with which code, and why.

Kafka's responses carry errors in many places. Only the first one of a response is noted, and only for
requests that change something, because nobody asks later how a read was answered.
"""

from __future__ import annotations

from typing import Any, Final

from records.ids import topic_id_text
from wire.apis import ApiKey
from wire.errors import ErrorCode

NOTED_APIS: Final = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_TOPICS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)

ORDINARY: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED)
"""Errors by which the classic protocol tells members what to do next."""

_ITEMS: Final = ("topics", "groups", "results", "responses", "partitions", "members")
"""The fields of a response that hold its answers item by item."""


PARTITIONS_NOTED_MAX: Final = 200
"""A heartbeat that names more topics and partitions is noted without them, so that notes stay small."""


def owned_partitions(request: Any) -> dict[str, list[int]] | None:
    """Return the partitions that a heartbeat claims to own, by topic id; None if it does not say.

    If a member was removed for not revoking partitions, this shows whether the heartbeat acknowledged the
    revocation.
    """
    topics = getattr(request, "topic_partitions", None)
    if topics is None or getattr(request, "member_epoch", None) is None:
        return None
    if len(topics) + sum(len(topic.partitions) for topic in topics) > PARTITIONS_NOTED_MAX:
        return None
    return {topic_id_text(topic.topic_id): list(topic.partitions) for topic in topics}


def first_error(response: Any) -> tuple[int, str] | None:
    """Return Kafka's code and message of the first error in a response body, or None if there is no error."""
    code = getattr(response, "error_code", 0)
    if code:
        return int(code), getattr(response, "error_message", None) or ""
    for name in _ITEMS:
        for item in getattr(response, name, None) or ():
            error = first_error(item)
            if error is not None:
                return error
    return None
