"""The actions of one group's members according to its log: the input of a replay, without any decisions.

Plain data, made by `extract` from the group's own entries, so that it can be replayed anywhere. Times are
wall-clock epoch ms; ``index`` orders events within one millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordinator.limits import GroupSettings
from history.facts.rows import GroupRows
from history.reading.notes import Owned
from records import ConsumerGroupMemberMetadataValue, RawRecord, TermStartValue, TopicMetadata

from .due import DueKind

INTERVAL_MS = GroupSettings().heartbeat_interval_ms
"""Milliseconds between two heartbeats of a member, if nothing else is known."""


class ActKind(StrEnum):
    """Kinds of events that come to a group from outside."""

    JOIN = "join"
    """A first join, a rejoin, or a replacement of a static member that is away."""
    UPDATE = "update"
    LEAVE = "leave"
    AWAY = "away"
    REMOVE = "remove"
    """Members were removed by an operator."""
    DELETE = "delete"
    """The group was deleted, by an operator or because it was empty."""
    HEARTBEAT = "heartbeat"
    """A heartbeat that also did something else: it noticed a changed topic, or a target was due."""
    CHECK = "check"
    """The coordinator compared the group with the catalog."""
    SCENE = "scene"
    """Topics changed, or whether targets must wait; other events of the same index find it so."""
    RESOLVE = "resolve"
    """A round of resolving regular expressions ended."""
    TARGET = "target"
    """A target was computed after a delay, or installed by a member."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A member's report about its partitions, where it differs from the usual."""

    owns_nothing: bool = False
    """It reported at once that it does not own what it was asked to revoke, as if it never learned of it."""
    never_reported: bool = False
    """It had not yet reported as owned what it was asked to revoke."""


ORDINARY: Final = Holding()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One event from outside, with its time."""

    kind: ActKind
    index: int
    at_ms: int
    member_id: str = ""
    metadata: ConsumerGroupMemberMetadataValue | None = None
    """The member's metadata after a join or an update."""
    members: tuple[str, ...] = ()
    """The members removed by `ActKind.REMOVE`."""
    acknowledges: bool = False
    """The member also acknowledged the revocation of its partitions."""
    holding: Holding = ORDINARY
    topics: tuple[TopicMetadata, ...] = ()
    """Topics that the group learned of or saw changed at this moment."""
    gone: tuple[str, ...] = ()
    """Names of topics that the group found deleted."""
    target_waits: bool | None = None
    """True: the epoch was raised and its target deferred; False: a target was written; ``None``: neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """Something that a member had due, and when it did it."""

    kind: DueKind
    since_ms: int
    at_ms: int | None
    """``None``: never, because something else came first or the member was removed."""
    closed_ms: int | None
    """Time at which it ceased to be due, for any reason; ``None``: still due at the end."""
    index: int = 0
    """Index of the entry that closed it."""
    holding: Holding = ORDINARY
    fenced_ms: int | None = None
    """Time at which the member was removed for not revoking partitions in time."""
    owed: frozenset[tuple[str, int]] = frozenset()
    """Partitions that it had not given up by then: (topic id, partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A session that expired, as the log proves it."""

    member_id: str
    instance_id: str | None
    index: int
    at_ms: int
    timeout_ms: int
    heard_ms: int
    """Time at which the session was last armed: by its last heartbeat, or by the start of a term."""
    deadline_ms: int
    was_away: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSilence:
    """The longest silence between two heartbeats of a member noted in a minute."""

    member_id: str
    minute_ms: int
    gap_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedHeartbeat:
    """A heartbeat of a member that had been removed."""

    at_ms: int
    owned: Owned | None = None
    """The partitions that it reported as owned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The membership of one group over the period read."""

    group_id: str
    shard: int
    start: tuple[RawRecord, ...]
    """The group's records in the snapshot with which the log begins."""
    acts: tuple[Act, ...]
    reactions: dict[str, tuple[Reaction, ...]]
    """By member, in order."""
    sessions_ended: tuple[Ended, ...]
    terms: tuple[tuple[int, int, TermStartValue], ...]
    """(index, ms, term) of the terms of the shard that began in the period read."""
    first_ms: int
    last_ms: int
    gaps: tuple[HeartbeatSilence, ...] = ()
    refused: dict[str, tuple[FencedHeartbeat, ...]] | None = None
    """Heartbeats of removed members, by member, in order; ``None``: no evidence was kept."""
    evidence_from_ms: int = 0
    interval_ms: int = INTERVAL_MS
    """Milliseconds between two heartbeats of a member: the median of those noted, if any."""
    facts: GroupRows | None = None
    """The real course, as rows; ``None`` if nothing can be replayed."""
    left_out: str = ""
    """The reason why nothing can be replayed; empty: it can."""
    notes: tuple[str, ...] = ()
    """Parts of the log that a replay leaves out, in words."""
