"""Notes of the evidence file: their kinds, refusals in words, and proofs about a member that was removed.

A heartbeat from a member that was removed is refused, and noted with its contents. It proves that the member
was alive and, if it listed the member's partitions, whether the member had given up those it had to revoke.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wire.apis import ApiKey, api_title
from wire.errors import ErrorCode, error_name

Note = Mapping[str, Any]
REFUSED, TROUBLE, HEARTBEAT_GAP = "refused", "trouble", "heartbeat_gap"
GAP_WINDOW_MS = 600_000
"""Milliseconds before an expiry in which heartbeat gaps count: several of the longest usual timeouts."""
Owned = Mapping[str, Sequence[int]]
"""Topic id -> partitions."""

_HEARTBEATS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT)
_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


def by_group(notes: Iterable[Note]) -> dict[object, list[Note]]:
    """The notes of each group."""
    found: dict[object, list[Note]] = {}
    for note in notes:
        found.setdefault(note.get("group"), []).append(note)
    return found


def refusal_words(note: Note) -> str:
    """The refused API, the error, and the reason if there is one."""
    reason = f": {note['reason']}" if note["reason"] else ""
    return f"{api_title(note['api'])}, {error_name(note['error'])}{reason}"


def is_of_removed(note: Note) -> bool:
    """Whether the note is a heartbeat refused because its member had been removed."""
    return note.get("kind") == REFUSED and note.get("api") in _HEARTBEATS and note.get("error") in _REMOVED


def owned_in(note: Note) -> Owned | None:
    """The partitions that the heartbeat reported as owned; ``None``: it reported none."""
    owned = note.get("owned")
    return owned if isinstance(owned, Mapping) else None


def has_none_of(owned: Owned | None, owed: Iterable[tuple[str, int]]) -> bool:
    """Whether the heartbeat listed the member's partitions, and none of ``owed`` among them.

    ``owed`` are (topic id, partition).
    """
    return owned is not None and all(number not in owned.get(topic, ()) for topic, number in owed)
