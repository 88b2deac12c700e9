"""Proofs in the evidence file about a member that was removed.

A heartbeat from a member that was removed is refused, and noted with its contents. It proves that the member
was alive and, if it listed the member's partitions, whether the member had given up those it had to revoke.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wire.apis import ApiKey
from wire.errors import ErrorCode

Owned = Mapping[str, Sequence[int]]
"""Topic id -> partitions."""

_HEARTBEATS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT)
_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


def is_of_removed(note: Mapping[str, Any]) -> bool:
    """Whether the note is a heartbeat refused because its member had been removed."""
    return note.get("kind") == "refused" and note.get("api") in _HEARTBEATS and note.get("error") in _REMOVED


def owned_in(note: Mapping[str, Any]) -> Owned | None:
    """The partitions that the heartbeat reported as owned; ``None``: it reported none."""
    owned = note.get("owned")
    return owned if isinstance(owned, Mapping) else None


def has_none_of(owned: Owned | None, owed: Iterable[tuple[str, int]]) -> bool:
    """Whether the heartbeat listed the member's partitions, and none of ``owed`` among them.

    ``owed`` are (topic id, partition).
    """
    return owned is not None and all(number not in owned.get(topic, ()) for topic, number in owed)
