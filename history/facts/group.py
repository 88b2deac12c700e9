"""The facts of one group, from one walk over its shard that reads every entry once.

`facts_of` walks a log. `FactsBuilder` is for callers with a walk of their own: several groups in one walk, a
growing log, simulated entries. The builder's cost is that of what entries change; its memory is that of the
group's state and the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from coordinator.state.group_records import APPLY, TOLD_TYPES
from coordinator.state.model import Group
from history.reading.catalog import TopicNames
from history.reading.groups import unknown_group
from history.reading.node import NodeLog
from history.reading.source import LogGap, NothingToRead, SnapshotLike, Walk
from history.state.old_groups import ShapeOf, newest_old
from raftlog.offline.group_filter import Passed
from raftlog.storage.frames import Frame
from records import (
    Cause,
    Entry,
    RawRecord,
    RecordsError,
    RecordType,
    TermStartValue,
    decode_cause,
    decode_key_and_value,
    decode_value,
    group_id_of,
    iter_records,
)

from .change import EntryPosition, Follower, Partition, apart, shapes
from .epochs import Epochs
from .generations import with_epochs
from .ownership import Ownership
from .rows import EpochRow, GroupRows, MemberSession, OwnershipSpan, TermRow, TopicPartition
from .sessions import Sessions
from .terms import term_row
from .waits import Waits


def facts_of(
    log: NodeLog,
    group_id: str,
    *,
    shard: int | None = None,
    from_index: int | None = None,
    from_ms: int | None = None,
    to_index: int | None = None,
    to_ms: int | None = None,
) -> GroupRows:
    """The rows of one group that touch the window; what is open at its end is open in the rows.

    The walk begins at the oldest entry kept, whatever the window. Raises `NothingToRead` if the shard is
    missing or the log does not know the group; in the latter case the message names the groups that exist.
    """
    number = log.shard_of_group(group_id) if shard is None else shard
    walk = Walk(number, log.reader(number), to_index=to_index, to_ms=to_ms)
    builder = FactsBuilder(group_id, log.catalog(), number)
    feed(builder, walk.about({group_id}))
    if not builder.is_known:
        raise NothingToRead(unknown_group(log, group_id, walk.basis))
    return windowed(replace(builder.finish(), basis=walk.basis), from_index, from_ms)


@dataclass(slots=True)
class FactsBuilder:
    """Builds the rows of one group from the entries of its shard, given in order.

    All of its state is in its fields and their fields: `checkpoint` serialises and restores it.
    """

    group_id: str
    _names: TopicNames
    _shard: int
    is_known: bool = False
    """The group existed at some time."""
    _follower: Follower = field(init=False)
    _ownership: Ownership = field(default_factory=Ownership)
    _waits: Waits = field(default_factory=Waits)
    _sessions: Sessions = field(default_factory=Sessions)
    _epochs: Epochs = field(default_factory=Epochs)
    _terms: list[TermRow] = field(default_factory=list)
    _term: TermRow | None = None
    """The newest term, held back until it is known to matter."""
    _gone: list[tuple[EntryPosition, Cause]] = field(default_factory=list)
    _gaps: list[tuple[int, int, int]] = field(default_factory=list)
    _unreadable: list[tuple[int, int, str]] = field(default_factory=list)
    _last: EntryPosition = field(default_factory=lambda: EntryPosition(0, -1))

    def __post_init__(self) -> None:
        self._follower = Follower(Group(self.group_id))

    @property
    def num_rows(self) -> int:
        """Approximate number of rows so far, as a measure of memory."""
        return len(self._epochs) + len(self._ownership) + len(self._sessions)

    @property
    def last(self) -> EntryPosition:
        """The newest entry given or passed."""
        return self._last

    @property
    def is_settled(self) -> bool:
        """Whether no finding can arise from elapsed time alone: the target is there, each partition owned."""
        return self._epochs.is_settled and self._ownership.is_settled

    @property
    def group(self) -> Group:
        """The current state of the group; read-only."""
        return self._follower.group

    def passed(self, timestamp_ms: int, index: int | None = None) -> None:
        """Note an entry of the shard that says nothing about the group."""
        self._last = EntryPosition(self._last.index + 1 if index is None else index, timestamp_ms)

    def unreadable(self, index: int, timestamp_ms: int, what: str) -> None:
        """Note an entry of the shard that cannot be decoded."""
        self._unreadable.append((index, timestamp_ms, what))
        self.passed(timestamp_ms, index)

    def term(self, index: int, timestamp_ms: int, term: TermStartValue) -> None:
        """Note the start of a term of the shard."""
        last_ms = None if self._last.ms < 0 else self._last.ms
        self.began(term_row(self._shard, index, timestamp_ms, term, last_ms))

    def began(self, term: TermRow) -> None:
        """Note the start of a term whose row already exists."""
        self._term = term
        self._keep_term()
        self.passed(term.timestamp_ms, term.index)

    def entry(self, index: int, timestamp_ms: int, entry: Entry) -> None:
        """Take an entry about the group; ``entry.records`` holds only its own records of `TOLD_TYPES`.

        Raises `RecordsError` if one of them cannot be decoded; nothing is changed in that case.
        """
        at = EntryPosition(index, timestamp_ms)
        change = self._follower.take(at, entry, self._names)
        if change.after.topics is not change.before.topics:
            self._names.learn(shapes(change.after.topics))
        touched = self._ownership.update(change, self.group)
        ended = self._sessions.update(change)
        self._epochs.update(change, self.group)
        self._epochs.wait(
            self._waits.update(
                change, touched.union(change.target), self._ownership, self._follower.target_owner, ended
            )
        )
        if change.is_end:
            self._gone.append((at, entry.cause))
        self._keep_term()
        self._last = at

    def go_on_from(self, index: int, timestamp_ms: int, raws: Iterable[RawRecord]) -> None:
        """Continue from a snapshot, as the entries before it are missing; the rows mark what is unknown."""
        last, at = self._last, EntryPosition(index, timestamp_ms)
        self._gaps.append((last.index, last.ms, index))
        self._epochs.cut(last, self._follower.now.state)
        self._waits.cut(last)
        self._ownership.cut(last)
        self._follower, numbered = in_snapshot(
            self.group_id, raws, lambda name: self._names.shape(name, timestamp_ms)
        )
        follower = self._follower
        group, epoch = follower.group, follower.now.epoch
        self._names.learn(shapes(group.topics))
        self._ownership.begin(group, epoch, at)
        self._sessions.begin(group, at, last, follower.protocol, numbered)
        self._epochs.begin(group, at, follower.protocol)
        self._epochs.wait(self._waits.begin(epoch, self._ownership, self._follower.target_owner, at))
        self._keep_term()
        self._last = at

    def finish(self) -> GroupRows:
        """The rows so far; may be called again after more entries."""
        named = _Named(self._names)
        state = self._follower.now.state
        rows = self._rows(
            self._epochs.rows(self.group_id, self._shard, named, state),
            self._ownership.spans(self.group_id, self._shard, named),
            self._sessions.rows(self.group_id, self._shard),
        )
        return replace(rows, state=state)

    def drain(self) -> GroupRows:
        """Remove and return the rows that can no longer change; `finish` returns only the rest.

        For walks over logs larger than memory. Rows come in the order in which they end.
        """
        named = _Named(self._names)
        drained = self._rows(
            self._epochs.drain(self.group_id, self._shard, named),
            self._ownership.drain(self.group_id, self._shard, named),
            self._sessions.drain(self.group_id, self._shard),
        )
        self._terms, self._gone, self._gaps, self._unreadable = [], [], [], []
        return drained

    def _rows(
        self,
        epochs: tuple[EpochRow, ...],
        spans: tuple[OwnershipSpan, ...],
        sessions: tuple[MemberSession, ...],
    ) -> GroupRows:
        """These rows, with everything else that is known so far."""
        return GroupRows(
            group_id=self.group_id,
            shard=self._shard,
            epochs=epochs,
            spans=spans,
            sessions=sessions,
            terms=tuple(self._terms),
            gone=tuple((at.index, at.ms) for at, _ in self._gone),
            gone_causes=tuple(cause for _, cause in self._gone),
            gaps=tuple(self._gaps),
            last_index=self._last.index,
            last_ms=self._last.ms,
            unreadable=tuple(self._unreadable),
        )

    def _keep_term(self) -> None:
        if not self._follower.now.exists:
            return
        self.is_known = True
        if self._term is not None:
            self._terms.append(self._term)
            self._term = None


class _Named:
    """Partitions by topic name, each object created once."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._made: dict[Partition, TopicPartition] = {}

    def __call__(self, partition: Partition) -> TopicPartition:
        made = self._made.get(partition)
        if made is None:
            topic = self._names.name(partition[0])
            made = self._made[partition] = TopicPartition(topic=topic, partition=partition[1])
        return made


def feed(builder: FactsBuilder, items: Iterable[Frame | LogGap | SnapshotLike | Passed]) -> None:
    """Feed a walk to a builder; entries about other groups are passed without decoding."""
    needle = builder.group_id.encode()
    for item in items:
        if isinstance(item, Frame):
            try:
                if needle in item.body or item.record_count == 1:
                    _feed_frame(builder, item)
                else:
                    builder.passed(item.timestamp_ms, item.index)
            except RecordsError as error:
                builder.unreadable(item.index, item.timestamp_ms, str(error))
        elif isinstance(item, Passed):
            builder.passed(item.timestamp_ms, item.last_index)
        elif not isinstance(item, LogGap):
            header = item.header
            builder.go_on_from(header.last_index, header.last_timestamp_ms, item.records)


def _feed_frame(builder: FactsBuilder, frame: Frame) -> None:
    mine: list[RawRecord] = []
    for raw in iter_records(frame.body):
        if raw.type == RecordType.TERM_START:
            term = decode_value(raw)
            if isinstance(term, TermStartValue):
                builder.term(frame.index, frame.timestamp_ms, term)
        elif raw.type in TOLD_TYPES and group_id_of(raw) == builder.group_id:
            mine.append(raw)
    if mine:
        entry = Entry(cause=decode_cause(frame.body), records=tuple(mine))
        builder.entry(frame.index, frame.timestamp_ms, entry)
    else:
        builder.passed(frame.timestamp_ms, frame.index)


def in_snapshot(
    group_id: str, raws: Iterable[RawRecord], shape_of: ShapeOf
) -> tuple[Follower, dict[str, int]]:
    """The state of the group in a snapshot, and the numbers of its members."""
    group = Group(group_id)
    mine = [raw for raw in raws if raw.type in TOLD_TYPES and group_id_of(raw) == group_id]
    decoded, numbered = apart([decode_key_and_value(raw) for raw in mine])
    for key, value in with_epochs(group, None, decoded, shape_of):
        APPLY[type(key)](group, key, value)
    return Follower.of(group, newest_old(None, decoded)), numbered


def windowed(facts: GroupRows, from_index: int | None, from_ms: int | None) -> GroupRows:
    """The rows that touch what comes after an index or a time."""
    if from_index is None and from_ms is None:
        return facts
    index, ms = from_index or 0, -1 if from_ms is None else from_ms

    def is_in(end_index: int | None, end_ms: int | None) -> bool:
        return end_index is None or end_ms is None or (end_index > index and end_ms > ms)

    gone = [number for number, place in enumerate(facts.gone) if place[0] >= index and place[1] >= ms]
    return replace(
        facts,
        epochs=tuple(row for row in facts.epochs if is_in(row.end_index, row.end_ms)),
        spans=tuple(row for row in facts.spans if is_in(row.to_index, row.to_ms)),
        sessions=tuple(row for row in facts.sessions if is_in(row.to_index, row.to_ms)),
        terms=tuple(row for row in facts.terms if row.index >= index and row.timestamp_ms >= ms),
        gone=tuple(facts.gone[number] for number in gone),
        gone_causes=tuple(facts.gone_causes[number] for number in gone),
        gaps=tuple(one for one in facts.gaps if one[2] >= index),
        unreadable=tuple(one for one in facts.unreadable if one[0] >= index and one[1] >= ms),
    )
