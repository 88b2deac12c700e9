"""What the members of one group did, as its log tells it: all that a replay needs, and nothing of what was
decided.

Plain data, made by `extract` from the group's own entries, so that it can travel to wherever it is
replayed. Times are wall-clock epoch ms; ``index`` orders what happened within one millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordinator.limits import GroupSettings
from history.facts.rows import GroupFacts
from history.reading.notes import Owned
from records import ConsumerGroupMemberMetadataValue, RawRecord, TermStartValue, TopicMetadata

from .due import DueKind

INTERVAL_MS = GroupSettings().heartbeat_interval_ms
"""Between a member's heartbeats, where nothing tells it."""


class ActKind(StrEnum):
    """What happened to a group by somebody's will."""

    JOIN = "join"
    """For the first time, again, or in the place of a static member that is away."""
    UPDATE = "update"
    LEAVE = "leave"
    AWAY = "away"
    REMOVE = "remove"
    """Members, by an operator."""
    DELETE = "delete"
    """The group, by an operator or because nothing was left of it."""
    HEARTBEAT = "heartbeat"
    """One that did more than to bring its member on: it found a changed topic, or a target was due."""
    CHECK = "check"
    """The coordinator compared the group with the catalog."""
    SCENE = "scene"
    """Topics are other than before, or targets have to wait: what happens at the same index finds it so."""
    RESOLVE = "resolve"
    """A round of resolution of regular expressions ended."""
    TARGET = "target"
    """A target was computed that had to wait, or was handed in."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a member lets the coordinator know of the partitions that it has, where that is out of the
    ordinary."""

    owns_nothing: bool = False
    """It said at once that it does not own what it was to give up, as one does that never learned of it."""
    never_reported: bool = False
    """It had not said yet that it has what it was told to give up."""


ORDINARY: Final = Holding()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One of these, at its moment."""

    kind: ActKind
    index: int
    at_ms: int
    member_id: str = ""
    metadata: ConsumerGroupMemberMetadataValue | None = None
    """Of a member that joins or updates: what it says of itself from then on."""
    members: tuple[str, ...] = ()
    """Of a removal."""
    acknowledges: bool = False
    """The member said besides that it gave up what it had to."""
    holding: Holding = ORDINARY
    topics: tuple[TopicMetadata, ...] = ()
    """Topics that are new or other than before to the group at this moment."""
    gone: tuple[str, ...] = ()
    """Names of topics that it found deleted."""
    target_waits: bool | None = None
    """The epoch moved and its target was left for later; False: a target was written; None: neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What a member had due, and when it did it."""

    kind: DueKind
    since_ms: int
    at_ms: int | None
    """``None``: never; something else came before, or it was removed."""
    closed_ms: int | None
    """When it was not due any more, whatever the reason; ``None``: it still was at the end."""
    index: int = 0
    """Of the entry that closed it."""
    holding: Holding = ORDINARY
    fenced_ms: int | None = None
    """When it was removed because it did not give up in time."""
    owed: frozenset[tuple[str, int]] = frozenset()
    """What it had not given up then: (topic id, partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A session that ran out: the proof that the log has of it."""

    member_id: str
    instance_id: str | None
    index: int
    at_ms: int
    timeout_ms: int
    heard_ms: int
    """When the session was armed last: its last heartbeat, or the begin of a term."""
    deadline_ms: int
    was_away: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The longest silence between two heartbeats of a member that was noted in a minute."""

    member_id: str
    minute_ms: int
    gap_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A heartbeat of a member that had been removed."""

    at_ms: int
    owned: Owned | None = None
    """What it said that the member owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The membership of one group over the time that was read."""

    group_id: str
    shard: int
    start: tuple[RawRecord, ...]
    """The group's records where the log begins with a snapshot."""
    acts: tuple[Act, ...]
    reactions: dict[str, tuple[Reaction, ...]]
    """By member, in order."""
    sessions_ended: tuple[Ended, ...]
    terms: tuple[tuple[int, int, TermStartValue], ...]
    """(index, ms, what began): of the shard, while it was read."""
    first_ms: int
    last_ms: int
    gaps: tuple[Gap, ...] = ()
    refused: dict[str, tuple[Refusal, ...]] | None = None
    """Heartbeats of removed members, by member, in order; ``None``: no evidence was kept."""
    evidence_from_ms: int = 0
    interval_ms: int = INTERVAL_MS
    """Between a member's heartbeats: the median of what was noted, where anything was."""
    facts: GroupFacts | None = None
    """What really happened, as rows; ``None`` where nothing is to be replayed."""
    left_out: str = ""
    """Why there is nothing to replay, in words; empty: there is."""
    notes: tuple[str, ...] = ()
    """What the log says and a replay leaves out."""
