"""Notes of the evidence file: their kinds, refusals in words, and proofs about a member that was removed.

A heartbeat from a member that was removed is refused, and noted with its contents. It proves that the member
was alive and, if it listed the member's partitions, whether the member had given up those it had to revoke.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from history.render import duration
from wire.apis import ApiKey, api_title
from wire.errors import ErrorCode, error_name

Note = Mapping[str, Any]
REFUSED, TROUBLE, HEARTBEAT_GAP, FAULT = "refused", "trouble", "heartbeat_gap", "fault"
GAP_WINDOW_MS = 600_000
"""Milliseconds before an expiry in which heartbeat gaps count: several of the longest usual timeouts."""
Owned = Mapping[str, Sequence[int]]
"""Topic id -> partitions."""

_HEARTBEATS = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT,
    *(ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
)
"""The APIs that a member calls by itself, which shows that it is alive."""
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


def fault_words(note: Note, who: str) -> str:
    """The effect of an operator's fault on a request of ``who``, in words."""
    api, by = api_title(note["api"]), f"fault {note['fault']} of an operator"
    later = f" {duration(note['delay_ms'])} later" if note["delay_ms"] else ""
    match note["action"]:
        case "delay":
            return f"the reply to {api} of {who} was delayed by {duration(note['delay_ms'])} by {by}"
        case "drop":
            return f"the reply to {api} of {who} was dropped by {by}; the request was carried out"
        case "error":
            error = error_name(note["error"])
            return f"{api} of {who} was answered {error}{later} by {by}; the request was not carried out"
        case "close":
            return f"the connection of {who} was closed{later} at {api} by {by}"
        case "silence":
            return f"the connection of {who} was not answered any more from {api} on, by {by}"
        case "throttle":
            throttled = duration(note["throttle_ms"])
            return f"the reply to {api} of {who} was given a throttle time of {throttled} by {by}"
        case other:
            return f"{api} of {who} met {by} ({other})"


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
