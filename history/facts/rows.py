"""The rows that facts are made of. Times are wall-clock epoch ms; indexes are those of the group's shard.

Every row names its group. The end of anything still open at the last entry read is ``None``. Members are full
ids and topics are names (an id in Kafka's text form where no record gives the name); shorter names are up to
the code that prints. The rows are what `quorate log export` and the pipeline write, one table per class, so
fields are only ever appended.

Nobody changes a row. The classes of which a log has most rows are not frozen, because a frozen dataclass
takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from history.protocols import CONSUMER, epoch_noun
from history.reading.catalog import TopicChange
from history.reading.source import Basis
from records import Cause, Certainty

MEMBERS_LISTED_MAX = 1_000
"""An epoch of a larger group does not list its members. With an epoch for each member that joins, the
lists alone would take more memory than the log. The sessions hold the same information."""

UNKNOWN_CAUSE = Cause(trigger=0, certainty=Certainty.INFERRED)
"""The cause of an epoch that began where entries are missing (`EpochRow.is_begin_known`)."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    """One partition by its topic's name; prints as ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Moved:
    """A partition whose owner in the target changed with an epoch; ``None``: no member."""

    partition: TopicPartition
    source: str | None
    target: str | None


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class MemberProgress:
    """One entry by which one member progressed within an epoch."""

    member_id: str
    index: int
    timestamp_ms: int
    released: tuple[TopicPartition, ...] = ()
    """Partitions given up: no longer assigned to the member nor pending revocation, or in a push group those
    that it stopped."""
    told: tuple[TopicPartition, ...] = ()
    """Partitions it was asked to revoke: moved from assigned to pending revocation by this entry."""
    took: tuple[TopicPartition, ...] = ()
    reached: bool = False
    """It reached the epoch with this entry."""


class WaitEnd(StrEnum):
    """The end of a wait."""

    RELEASED = "released"
    """The holder acknowledged the revocation."""
    FENCED = "fenced"
    """The holder was removed: its session or rebalance timeout expired, or an operator removed it."""
    LEFT = "left"
    OVERTAKEN = "overtaken"
    """A newer target made the wait pointless."""
    OPEN = "open"
    """Not ended at the last entry read."""
    UNKNOWN = "unknown"
    """It ended somewhere in missing entries."""


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Wait:
    """A member could not yet have a partition of its target, because another member still owned it.

    The wait begins with the target, not with the waiter's next heartbeat. If another static member replaces
    the waiter or the holder, the wait goes on under the new id.
    """

    group_id: str
    epoch: int
    """The group epoch when the wait began; it may last into later epochs."""
    partition: TopicPartition
    waiter: str
    holder: str
    from_index: int
    """The entry that gave the partition to the waiter's target while the holder had it."""
    from_ms: int
    told_index: int | None
    """The entry that asked the holder to revoke it (`MemberProgress.told`)."""
    told_ms: int | None
    to_index: int | None
    to_ms: int | None
    end: WaitEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Relapse:
    """A period within one epoch in which a settled group was neither Stable nor Empty."""

    from_index: int
    from_ms: int
    to_index: int | None
    """``None``: not settled again at the last entry read."""
    to_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One group epoch, from the entry that opened it to the one that opened the next, or to the end."""

    group_id: str
    shard: int
    epoch: int
    """The generation of a classic group or of one of the rewrite design; the round of a push group."""
    epoch_before: int
    """0 for a new group."""
    index: int
    timestamp_ms: int
    cause: Cause
    away: tuple[str, ...]
    """Static members that were away when the epoch began."""
    members: tuple[str, ...]
    """Member ids after the entry that opened the epoch, sorted; empty above `MEMBERS_LISTED_MAX`."""
    target_index: int | None
    """The entry that wrote the target of this epoch (record 6); ``None``: overtaken before, or not yet
    written."""
    target_ms: int | None
    moves: tuple[Moved, ...]
    progress: tuple[MemberProgress, ...]
    waits: tuple[Wait, ...]
    """The waits that began in this epoch; `waits_during` adds those of earlier epochs that went on."""
    settled_index: int | None
    """The entry after which the group was first Stable (or Empty) in this epoch; ``None``: never."""
    settled_ms: int | None
    state: str
    """Kafka's name of the group's state at the end of the epoch."""
    overtaken_by: int | None
    """The next epoch, if it began before this one was settled."""
    end_index: int | None
    """The entry that opened the next epoch or ended the group; ``None``: this is the last epoch read."""
    end_ms: int | None
    target_cause: Cause | None = None
    """The cause of the entry at ``target_index``: a member computed the target (`ASSIGNMENT_INSTALLED`),
    or the node did."""
    num_members: int = 0
    """Number of members after the entry that opened the epoch."""
    topics: tuple[TopicChange, ...] = ()
    """Changes to subscribed topics that the group noticed with the entry that opened the epoch."""
    is_begin_known: bool = True
    """False: the epoch began in missing entries; ``index`` is the snapshot's and ``cause`` is unknown."""
    is_end_known: bool = True
    """False: it ended, if it did, in missing entries; ``end_index`` is the last one read before them."""
    relapses: tuple[Relapse, ...] = ()
    """Periods in which it was not Stable after it had been settled, for instance when a static member was
    replaced."""
    protocol: str = CONSUMER
    """The protocol of the group when the epoch began, of `history.protocols`."""
    num_classic: int = 0
    """Number of its members that spoke the classic protocol."""
    unsettled_ms: int = -1
    """The time at which the unrest began that ends in this epoch: the begin of the first of the epochs that
    were overtaken before it; -1: unknown."""


class SpanKind(StrEnum):
    OWNED = "owned"
    REVOKING = "revoking"
    """Still owned by the member, which was asked to revoke it."""
    UNOWNED = "unowned"
    """Owned by no member, though the group has members and subscribes to the topic."""


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class OwnershipSpan:
    """A period in which a partition of one group had one owner, or none."""

    group_id: str
    shard: int
    partition: TopicPartition
    kind: SpanKind
    member_id: str | None
    """``None``: no owner."""
    epoch: int
    """The group epoch when the span began."""
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None
    topic_id: str = ""
    """The topic id in Kafka's text form: a deleted and a recreated topic of one name may have spans that
    overlap."""


class SessionEnd(StrEnum):
    LEFT = "left"
    SESSION_EXPIRED = "session expired"
    REBALANCE_EXPIRED = "rebalance expired"
    REMOVED = "removed"
    """Removed by an operator, or together with the group."""
    REPLACED = "replaced"
    """Another member id took its place (static membership)."""
    OPEN = "open"
    JOIN_EXPIRED = "join expired"
    """A member of a classic group did not join again within the longest rebalance timeout; a consumer of the
    rewrite design did not send JoinGroup within its session."""
    SYNC_EXPIRED = "sync expired"
    """A member of a classic group did not send SyncGroup within the longest rebalance timeout."""
    FORGOTTEN = "forgotten"
    """A new coordinator of a push group forgot all consumers, and waits for them to register again."""
    UNKNOWN = "unknown"
    """The log does not say: the entry is missing, or was imported from a log without causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A period in which a static member was away, having left with member epoch −2.

    ``to_ms`` is ``None`` if it did not come back before its session ended. Returning under a new member id
    ends the period and also the session (`SessionEnd.REPLACED`).
    """

    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSession:
    """A member's session in a group, from the entry that admitted it to the one that removed it."""

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
    """Timeout of the expiry that ended it."""
    last_heartbeat_ms: int | None
    """Time of the last heartbeat, by the expiry that ended it; ``None``: the leader had received none, or
    it did not expire."""
    deadline_ms: int | None
    rejoins: int
    """The number of joins with epoch 0 while it was a member, except returns from being away."""
    aways: tuple[Away, ...]
    rebalance_timeout_ms: int | None = None
    """Its last reported rebalance timeout (record 5); ``None``: it reported none."""
    replaced: str | None = None
    """The member id that it replaced (static membership)."""
    is_begin_known: bool = True
    """False: it was admitted before the first entry read, or in missing entries."""
    rejoined: tuple[tuple[int, int], ...] = ()
    """(index, ms) of the rejoins."""
    protocol: str = CONSUMER
    """`CONSUMER`, `CLASSIC`, `PUSH` or `REWRITE`; empty if the log does not say."""
    number: int | None = None
    """Its number by arrival in the group's life; ``None``: the log, of an older release, does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRow:
    """The start of a term of a shard."""

    shard: int
    term: int
    index: int
    timestamp_ms: int
    node_id: int
    previous_leader: int
    """-1: unknown."""
    why: str
    """`START`, `EXPIRY`, `RESET` or `TRANSFER`."""
    is_takeover: bool
    """A failover or a hand-over."""
    gap_ms: int | None
    """Time since the previous entry: for a takeover, an upper bound of the time without a leader."""


class Severity(StrEnum):
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinding:
    """A diagnosis: something that a healthy group does not show, detected by a named rule."""

    kind: str
    """The rule's name, in capitals (docs/history.md lists them)."""
    severity: Severity
    group_id: str | None
    """``None``: it is a finding of the shard, about its leaders."""
    shard: int
    epochs: tuple[int, ...]
    """The epochs that were disturbed."""
    members: tuple[str, ...]
    """Members that caused it or were affected; the first is the one to investigate."""
    partitions: tuple[TopicPartition, ...]
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None
    words: str
    """One or two plain sentences, with members and topics by name."""
    rests_on: tuple[int, ...]
    """Indexes of the entries that show it."""
    is_certain: bool
    """The log alone proves it. Otherwise the finding used evidence outside the log, or lacked it, and
    ``words`` say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRow:
    """One offset commit (record 1), or its removal (``offset`` ``None``)."""

    group_id: str
    shard: int
    partition: TopicPartition
    index: int
    sequence: int
    """Its position among the entry's records: of two commits of one partition the later one counts."""
    timestamp_ms: int
    offset: int | None
    leader_epoch: int
    metadata: str
    member_id: str
    """Empty: a client without membership."""
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    """The rows of one group."""

    group_id: str
    shard: int
    epochs: tuple[EpochRow, ...]
    spans: tuple[OwnershipSpan, ...]
    """Sorted by partition, then by index."""
    sessions: tuple[MemberSession, ...]
    terms: tuple[TermRow, ...]
    """Terms of its shard while the group existed, including the one in which it began."""
    gone: tuple[tuple[int, int], ...] = ()
    """(index, ms) of the entries that deleted the group."""
    last_index: int = 0
    last_ms: int = -1
    """Time of the last entry of the shard that was read: open spans last at least until then."""
    state: str = ""
    """Kafka's name of the group's state at the last entry read."""
    unreadable: tuple[tuple[int, int, str], ...] = ()
    """(index, ms, what) of entries of the shard that could not be decoded and were skipped."""
    gone_causes: tuple[Cause, ...] = ()
    """The cause of each deletion in ``gone``."""
    gaps: tuple[tuple[int, int, int], ...] = ()
    """(index, ms, index) of the last entry before a gap, and the index of the snapshot after it."""
    basis: Basis | None = None
    """The basis of the rows; ``None`` unless `facts_of` or `facts_of_all` made the walk."""


def begun_ms(row: EpochRow) -> int:
    """The time at which the rebalance of the epoch began: in a classic group, with its join phase."""
    phases = row.cause.phases
    return row.timestamp_ms if phases is None else min(phases.began_ms, row.timestamp_ms)


def time_to_stable_ms(row: EpochRow) -> int | None:
    """Milliseconds for which the group had not been Stable when it settled in this epoch.

    They count from the begin of the first epoch after a settled one, so overtaken epochs are included;
    ``None``: it did not settle in this epoch, or that begin is in missing entries.
    """
    if row.settled_ms is None or row.unsettled_ms < 0:
        return None
    return max(row.settled_ms - row.unsettled_ms, 0)


def shared_noun(epochs: Iterable[EpochRow]) -> str:
    """The word of the group's protocol for its epochs; `epoch` if it spoke several."""
    nouns = {epoch_noun(row.protocol) for row in epochs}
    return nouns.pop() if len(nouns) == 1 else "epoch"


def waits_during(epochs: Iterable[EpochRow]) -> Iterator[tuple[EpochRow, tuple[Wait, ...]]]:
    """Yield each epoch of a group, in order, with all waits that went on in it, including earlier ones."""
    open_waits: list[Wait] = []
    for row in epochs:
        open_waits = [wait for wait in open_waits if wait.to_index is None or wait.to_index > row.index]
        open_waits.extend(row.waits)
        yield row, tuple(open_waits)
