"""Finds the error in a response, to be noted as evidence: what was refused, with which code, and why.

Kafka's responses carry errors in many places; only the first one of a response is noted, and only for
requests that want to change something: what a read was told, nobody asks about later.
"""

from __future__ import annotations

from typing import Any, Final

from records.ids import topic_id_text
from wire.apis import ApiKey

NOTED_APIS: Final = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.LEAVE_GROUP,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_TOPICS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)

_ITEMS: Final = ("topics", "groups", "results", "responses", "partitions", "members")
"""Where a response keeps what it answers item by item."""


PARTITIONS_NOTED_MAX: Final = 200
"""A heartbeat that names more is noted without them: a note stays small, whatever a client sends."""


def owned_partitions(request: Any) -> dict[str, list[int]] | None:
    """What a heartbeat says that its member owns: topic id -> partitions; None where it does not say.

    Of a member that was removed for not giving partitions up, it shows whether this was the acknowledgement.
    """
    topics = getattr(request, "topic_partitions", None)
    if topics is None or getattr(request, "member_epoch", None) is None:
        return None
    if len(topics) + sum(len(topic.partitions) for topic in topics) > PARTITIONS_NOTED_MAX:
        return None
    return {topic_id_text(topic.topic_id): list(topic.partitions) for topic in topics}


def first_error(response: Any) -> tuple[int, str] | None:
    """Kafka's code and message of the first error in a response body; None when there is none."""
    code = getattr(response, "error_code", 0)
    if code:
        return int(code), getattr(response, "error_message", None) or ""
    for name in _ITEMS:
        for item in getattr(response, name, None) or ():
            error = first_error(item)
            if error is not None:
                return error
    return None
