"""The rows that facts are made of. Times are wall-clock epoch ms, indexes are of the group's shard.

Every row names its group; what is still open at the end of what was read is ``None``. Members are full ids,
topics are names (an id in Kafka's text form where no record tells the name): words and compact names are the
business of those who print. The rows are what `quorate log export` and the pipeline write, one table
per class, so a field is only ever appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from records import Cause


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A member could not have a partition of its target yet, because another one still held it."""

    group_id: str
    epoch: int
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
    """Member ids after the entry that opened it, sorted."""
    target_index: int | None
    """The entry that wrote the target of this epoch (record 6); ``None``: overtaken before, or not yet."""
    target_ms: int | None
    moves: tuple[Moved, ...]
    progress: tuple[Progress, ...]
    waits: tuple[Wait, ...]
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


class SessionEnd(StrEnum):
    LEFT = "left"
    SESSION_EXPIRED = "session expired"
    REBALANCE_EXPIRED = "rebalance expired"
    REMOVED = "removed"
    """By an operator, or with the group."""
    REPLACED = "replaced"
    """Another member id took its place (static membership)."""
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A static member was away (it left with −2); ``to_ms`` ``None``: it did not come back in its session."""

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
    """How often it joined again with epoch 0 while a member."""
    aways: tuple[Away, ...]
    rebalance_timeout_ms: int | None = None
    """As it last said (record 5); ``None``: it did not."""


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
    """Of its shard, while the group existed."""
    gone: tuple[tuple[int, int], ...] = ()
    """(index, ms) of the entries that deleted the group."""
    last_index: int = 0
    last_ms: int = -1
    """The last entry of the shard that was read: open spans end here at the earliest."""
