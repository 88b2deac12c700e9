"""The rows that facts are made of. Times are wall-clock epoch ms, indexes are of the group's shard.

Every row names its group; what is still open at the end of what was read is ``None``. Members are full ids,
topics are names (an id in Kafka's text form where no record tells the name): words and compact names are the
business of those who print. The rows are what `quorate log export` and the pipeline write, one table
per class, so a field is only ever appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from history.reading.catalog import TopicChange
from history.reading.source import Basis
from records import Cause, Certainty

MEMBERS_LISTED_MAX = 1_000
"""An epoch of a larger group does not list its members: with an epoch for each that joins, the lists alone
would take more memory than the log. The sessions tell who they were."""

UNKNOWN_CAUSE = Cause(trigger=0, certainty=Certainty.INFERRED)
"""Of an epoch that began where entries are missing (`EpochRow.is_begin_known`)."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    """One partition by its topic's name; prints as ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A partition whose place in the target changed with an epoch; ``None`` is nobody."""

    partition: TopicPartition
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One entry that brought one member on inside an epoch."""

    member_id: str
    index: int
    timestamp_ms: int
    released: tuple[TopicPartition, ...] = ()
    """Given up: neither assigned to it nor pending revocation any more."""
    told: tuple[TopicPartition, ...] = ()
    """Told to give up: moved from assigned to pending revocation by this entry."""
    took: tuple[TopicPartition, ...] = ()
    reached: bool = False
    """It came to the epoch by this entry."""


class WaitEnd(StrEnum):
    """How a wait came to its end."""

    RELEASED = "released"
    """The holder acknowledged the revocation."""
    FENCED = "fenced"
    """The holder was removed: its session or its time to revoke ran out, or an operator removed it."""
    LEFT = "left"
    OVERTAKEN = "overtaken"
    """Another target made the wait pointless."""
    OPEN = "open"
    """Not ended at the end of what was read."""
    UNKNOWN = "unknown"
    """It ended somewhere in entries that are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A member could not have a partition of its target yet, because another one still held it.

    It begins with the target and not with the waiter's next heartbeat. Where another static member took the
    place of the waiter or the holder meanwhile, the wait goes on under the newer id.
    """

    group_id: str
    epoch: int
    """The group's, when it began; it may last into later ones."""
    partition: TopicPartition
    waiter: str
    holder: str
    from_index: int
    """The entry that gave the partition to the waiter's target while the holder had it."""
    from_ms: int
    told_index: int | None
    """The entry that told the holder to give it up (`Progress.told`)."""
    told_ms: int | None
    to_index: int | None
    to_ms: int | None
    end: WaitEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Relapse:
    """A settled group was not Stable (nor Empty) for a while, in the same epoch."""

    from_index: int
    from_ms: int
    to_index: int | None
    """``None``: not settled again at the end of what was read."""
    to_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One group epoch, from the entry that opened it to the next one or the end."""

    group_id: str
    shard: int
    epoch: int
    epoch_before: int
    """0 for a new group."""
    index: int
    timestamp_ms: int
    cause: Cause
    away: tuple[str, ...]
    """Static members that were away when it began."""
    members: tuple[str, ...]
    """Member ids after the entry that opened it, sorted; empty above `MEMBERS_LISTED_MAX`."""
    target_index: int | None
    """The entry that wrote the target of this epoch (record 6); ``None``: overtaken before, or not yet."""
    target_ms: int | None
    moves: tuple[Moved, ...]
    progress: tuple[Progress, ...]
    waits: tuple[Wait, ...]
    """Those that began in this epoch; `waits_during` adds those of earlier epochs that went on."""
    settled_index: int | None
    """The entry after which the group was first Stable (or Empty) in this epoch; ``None``: never."""
    settled_ms: int | None
    state: str
    """Kafka's name of the state that the epoch ended in."""
    overtaken_by: int | None
    """The next epoch, where that began before this one was settled."""
    end_index: int | None
    """The entry that opened the next epoch or ended the group; ``None``: it is the last one read."""
    end_ms: int | None
    target_cause: Cause | None = None
    """Of the entry at ``target_index``: a member computed it (`ASSIGNMENT_INSTALLED`), or the node did."""
    num_members: int = 0
    """After the entry that opened it."""
    topics: tuple[TopicChange, ...] = ()
    """What the group saw change of the topics that it subscribes to, with the entry that opened it."""
    is_begin_known: bool = True
    """False: it began in entries that are missing. ``index`` is the snapshot's, ``cause`` is unknown."""
    is_end_known: bool = True
    """False: it ended (if it did) in entries that are missing; ``end_index`` is the last one read before."""
    relapses: tuple[Relapse, ...] = ()
    """When it was not Stable again after it had been settled: a static member was replaced, say."""


class SpanKind(StrEnum):
    OWNED = "owned"
    REVOKING = "revoking"
    """Still the member's, which was told to give it up."""
    UNOWNED = "unowned"
    """Nobody's, though the group has members and subscribes to its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSpan:
    """A partition in one hand (or in nobody's) for a while, in one group."""

    group_id: str
    shard: int
    partition: TopicPartition
    kind: SpanKind
    member_id: str | None
    """``None``: nobody."""
    epoch: int
    """The group's, when it began."""
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None
    topic_id: str = ""
    """In Kafka's text form: of a topic made anew under its old name, both may have spans at one time."""


class SessionEnd(StrEnum):
    LEFT = "left"
    SESSION_EXPIRED = "session expired"
    REBALANCE_EXPIRED = "rebalance expired"
    REMOVED = "removed"
    """By an operator, or with the group."""
    REPLACED = "replaced"
    """Another member id took its place (static membership)."""
    OPEN = "open"
    UNKNOWN = "unknown"
    """The log does not say: the entry is missing, or was imported from a log without causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A static member was away (it left with −2); ``to_ms`` ``None``: it did not come back in its session.

    Coming back under a new member id ends it too (and the session, `SessionEnd.REPLACED`).
    """

    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSession:
    """A member's stay in a group, from the entry that admitted it to the one that removed it."""

    group_id: str
    shard: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None
    end: SessionEnd
    timeout_ms: int | None
    """Of the expiry that ended it."""
    last_heartbeat_ms: int | None
    """As the expiry that ended it says; ``None``: the leader had none of it, or it did not expire."""
    deadline_ms: int | None
    rejoins: int
    """How often it joined again with epoch 0 while a member, returns from being away not counted."""
    aways: tuple[Away, ...]
    rebalance_timeout_ms: int | None = None
    """As it last said (record 5); ``None``: it did not."""
    replaced: str | None = None
    """The member id whose place it took (static membership)."""
    is_begin_known: bool = True
    """False: it was admitted before what was read, or in entries that are missing."""
    rejoined: tuple[tuple[int, int], ...] = ()
    """(index, ms) of the rejoins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRow:
    """A term of a shard began."""

    shard: int
    term: int
    index: int
    timestamp_ms: int
    node_id: int
    previous_leader: int
    """-1: not known."""
    why: str
    """`START`, `EXPIRY`, `RESET`, `TRANSFER`."""
    is_takeover: bool
    """A failover or a hand-over."""
    gap_ms: int | None
    """Since the entry before: of a takeover an upper bound of the time without a leader."""


class Severity(StrEnum):
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A diagnosis: something that a healthy group does not show, by a named rule."""

    kind: str
    """The rule's name, in capitals (docs/history.md has them all)."""
    severity: Severity
    group_id: str
    shard: int
    epochs: tuple[int, ...]
    """The epochs that it disturbed."""
    members: tuple[str, ...]
    """Who is to blame or was hit, first the one to look at."""
    partitions: tuple[TopicPartition, ...]
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None
    words: str
    """One or two plain sentences, members and topics by name."""
    rests_on: tuple[int, ...]
    """Indexes of the entries that show it."""
    is_certain: bool
    """The log alone proves it; otherwise evidence beside it was used or is missing, and ``words`` say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRow:
    """One offset commit (one record 1), or its removal (``offset`` ``None``)."""

    group_id: str
    shard: int
    partition: TopicPartition
    index: int
    sequence: int
    """Its place among the entry's records: of two of one partition the later one counts."""
    timestamp_ms: int
    offset: int | None
    leader_epoch: int
    metadata: str
    member_id: str
    """Empty: a client without membership."""
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The rows of one group."""

    group_id: str
    shard: int
    epochs: tuple[EpochRow, ...]
    spans: tuple[OwnershipSpan, ...]
    """By partition, then by index."""
    sessions: tuple[MemberSession, ...]
    terms: tuple[TermRow, ...]
    """Of its shard, while the group existed, and the one in which it began."""
    gone: tuple[tuple[int, int], ...] = ()
    """(index, ms) of the entries that deleted the group."""
    last_index: int = 0
    last_ms: int = -1
    """The last entry of the shard that was read: open spans end here at the earliest."""
    state: str = ""
    """Kafka's name of the group's state at the end of what was read."""
    unreadable: tuple[tuple[int, int, str], ...] = ()
    """(index, ms, what) of entries of the shard that cannot be decoded, and were passed over."""
    gone_causes: tuple[Cause, ...] = ()
    """Why, of each of ``gone``."""
    gaps: tuple[tuple[int, int, int], ...] = ()
    """(index, ms, index) of the last entry before a gap, and of the snapshot behind it."""
    basis: Basis | None = None
    """What the rows rest on; ``None`` where somebody else than `facts_of` walked."""


def waits_during(epochs: Iterable[EpochRow]) -> Iterator[tuple[EpochRow, tuple[Wait, ...]]]:
    """Each epoch of a group, in order, with all waits that went on in it, also those that began before."""
    open_waits: list[Wait] = []
    for row in epochs:
        open_waits = [wait for wait in open_waits if wait.to_index is None or wait.to_index > row.index]
        open_waits.extend(row.waits)
        yield row, tuple(open_waits)
