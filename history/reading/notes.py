"""What a note beside the log proves of a member that was removed.

A heartbeat of a member that is none any more is refused, and noted with what it said. It shows that the
member lived; and, where it said what the member owns, whether it had given up what it had to.
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
    """Whether it is a heartbeat that was refused because its member was removed."""
    return note.get("kind") == "refused" and note.get("api") in _HEARTBEATS and note.get("error") in _REMOVED


def owned_in(note: Mapping[str, Any]) -> Owned | None:
    """What the heartbeat said that its member owns; ``None``: it did not say."""
    owned = note.get("owned")
    return owned if isinstance(owned, Mapping) else None


def has_none_of(owned: Owned | None, owed: Iterable[tuple[str, int]]) -> bool:
    """Whether a heartbeat said what its member owns, and nothing of what it owed (topic id, partition) was in
    it."""
    return owned is not None and all(number not in owned.get(topic, ()) for topic, number in owed)
