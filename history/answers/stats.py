"""`stats`: rebalances, unstable time, unowned partitions, evictions and commits, by group.

One walk over each shard, aggregated on the way. It keeps only the state of the groups, their figures, and the
rows for diagnoses, up to `FINDING_ROWS_MAX`. `figures` defines each figure, `stalls` a stalled partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from history.diagnoses.keeping import WalkFindings
from history.diagnoses.shards import ShardFindings
from history.facts.commits import CommitKey, CommitKeys
from history.facts.naming import name_in
from history.facts.rows import (
    EpochRow,
    GroupFinding,
    GroupRows,
    MemberSession,
    OwnershipSpan,
    SpanKind,
    TopicPartition,
    begun_ms,
    time_to_stable_ms,
)
from history.facts.shard import DRAIN_ENTRIES, ShardFacts
from history.facts.terms import ShardTerms
from history.reading.groups import unknown_group
from history.reading.node import NodeLog
from history.reading.source import NothingToRead, Walk
from history.render import LOCAL, TimeStyle
from history.words import is_takeover, reason_names, shard_name, trigger_name
from raftlog.storage.frames import Frame
from records import (
    RecordsError,
    RecordType,
    TermStartValue,
    Trigger,
    decode_cause,
    decode_value,
    iter_records,
)
from records.ids import METADATA_SHARD

from .figures import Figures, summed
from .stalls import Committed, PartitionCommits, Stall, stalls_of

SLICES = 60
"""Number of parts of the window in which rebalances are counted for a chart: as many bars as fit on a
page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """One group in the window."""

    group_id: str
    shard: int
    from_ms: int
    until_ms: int
    """The window, cut at the last entry of the shard's log, since what came later is unknown."""
    figures: Figures
    stalls: tuple[Stall, ...]
    commits: tuple[Committed, ...]
    """Partitions with a commit in the window, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Rebalances in one part of the window."""

    from_ms: int
    by_trigger: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Every group in a window, and their total."""

    from_ms: int
    until_ms: int
    groups: tuple[GroupStats, ...]
    """Sorted by group id."""
    total: Figures
    slices: tuple[Slice, ...]
    """Parts of equal length, in order, including those without a rebalance."""
    rests_on: tuple[str, ...]
    remarks: tuple[str, ...]
    """Limitations of the figures, in words."""


@dataclass(frozen=True, slots=True)
class StatsWindow:
    """``from_ms`` <= t < ``until_ms``; if open, the last entry of the log is included."""

    from_ms: int
    until_ms: int
    is_open: bool
    """True: the window extends to the end of the log."""

    def holds(self, at_ms: int | None) -> bool:
        return at_ms is not None and at_ms >= self.from_ms and (self.is_open or at_ms < self.until_ms)

    def overlap(self, from_ms: int, to_ms: int | None, end_ms: int) -> int:
        """Milliseconds of a span within the window; an open span lasts until ``end_ms``."""
        end = end_ms if to_ms is None else min(to_ms, end_ms)
        return max(min(end, self.until_ms) - max(from_ms, self.from_ms), 0)


def stats(
    log: NodeLog,
    *,
    group: str | None = None,
    shard: int | None = None,
    from_index: int | None = None,
    from_ms: int | None = None,
    until_index: int | None = None,
    until_ms: int | None = None,
    style: TimeStyle = LOCAL,
) -> Stats:
    """The figures of every group of a log, or of one, in a window of time.

    Times are epoch ms, ``until_ms`` excluded; by default the window is from the first entry kept to the last.
    An index stands for the millisecond of its entry, which is included at both ends. Raises `NothingToRead`
    if the window is empty or the log does not know the group.
    """
    numbers = _shards(log, group, shard)
    if from_index is not None:
        from_ms = _ms_of(log, numbers[0], from_index)
    if until_index is not None:
        until_ms = _ms_of(log, numbers[0], until_index) + 1
    first = min((at for number in numbers if (at := log.first_ms(number)) >= 0), default=-1)
    last = max((log.last_ms(number) for number in numbers), default=-1)
    if first < 0:
        raise NothingToRead(f"{log.path} holds no entry of a group shard")
    window = StatsWindow(
        first if from_ms is None else from_ms, last if until_ms is None else until_ms, until_ms is None
    )
    if window.from_ms > window.until_ms or (window.from_ms == window.until_ms and not window.is_open):
        start, kept = style.full(window.from_ms), f"{style.full(first)} to {style.full(last)}"
        where = f"after {start}" if until_ms is None else f"between {start} and {style.full(until_ms)}"
        raise NothingToRead(f"there are no entries {where}: the log is kept from {kept}")
    folds = []
    rests_on: list[str] = []
    remarks: list[str] = []
    for number in numbers:
        fold = _ShardFold(log, number, window, None if group is None else frozenset((group,)))
        walk = fold.run(until_ms)
        folds.append(fold)
        rests_on.append(walk.basis.words())
        if fold.unreadable:
            remarks.append(f"{fold.unreadable} entries cannot be decoded and are not counted")
        if group is not None and not fold.groups:
            raise NothingToRead(unknown_group(log, group, walk.basis))
    groups = [one for fold in folds for one in fold.finished()]
    total = summed(one.figures for one in groups)
    total.failovers = sum(fold.failovers for fold in folds)
    for fold in folds:
        total.findings.update(fold.of_shard)
    return Stats(
        from_ms=window.from_ms,
        until_ms=window.until_ms,
        groups=tuple(sorted(groups, key=lambda one: one.group_id)),
        total=total,
        slices=_slices(window, [fold.slices for fold in folds]),
        rests_on=tuple(rests_on),
        remarks=tuple(remarks),
    )


def _shards(log: NodeLog, group: str | None, shard: int | None) -> tuple[int, ...]:
    if shard is None and group is not None:
        shard = log.shard_of_group(group)
    if shard is not None:
        log.reader(shard)
        return (shard,)
    return tuple(number for number in log.shards if number != METADATA_SHARD)


def _ms_of(log: NodeLog, shard: int, index: int) -> int:
    """The time of an entry; 0 for index 0, which precedes every entry."""
    if index == 0:
        return 0
    frame = next(log.reader(shard).frames(index, index), None)
    if frame is None:
        raise NothingToRead(f"there is no entry {index} in {shard_name(shard)} of {log.path}")
    return frame.timestamp_ms


@dataclass(slots=True)
class _Group:
    """One group's figures while they are collected."""

    figures: Figures = field(default_factory=Figures)
    commits: dict[TopicPartition, PartitionCommits] = field(default_factory=dict)
    owned: list[OwnershipSpan] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The names of the members at the end, by id."""
    """Spans of ownership still open at the end."""


class _ShardFold:
    """Collects the figures of the groups of one shard."""

    def __init__(self, log: NodeLog, shard: int, window: StatsWindow, only: frozenset[str] | None) -> None:
        self.groups: defaultdict[str, _Group] = defaultdict(_Group)
        self.slices: Counter[tuple[int, str]] = Counter()
        self.failovers = 0
        self.unreadable = 0
        self._log = log
        self._shard = shard
        self._window = window
        self._facts = ShardFacts(shard, log.catalog(), only)
        self._keys = CommitKeys(only)
        self.of_shard: Counter[str] = Counter()
        """Findings about the leaders, which concern all groups."""
        self._findings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._diagnosed = WalkFindings(log.reader(shard).evidence())
        self._terms = ShardTerms(shard)
        self._leaders = ShardFindings()
        self._end_ms = min(window.until_ms, log.last_ms(shard))

    def run(self, until_ms: int | None) -> Walk:
        """Walk the shard up to a moment."""
        walk = Walk(
            self._shard, self._log.reader(self._shard), to_ms=None if until_ms is None else until_ms - 1
        )
        for number, item in enumerate(walk, 1):
            self._facts.take(item)
            if (term := self._terms.take(item)) is not None:
                self._found(self._leaders.take((term,), term.timestamp_ms))
            if isinstance(item, Frame):
                try:
                    self._frame(item)
                except RecordsError:
                    self.unreadable += 1
            if number % DRAIN_ENTRIES == 0:
                for part in self._facts.drain():
                    self._take(part)
                    rest = self._facts.builders[part.group_id].finish
                    self._found(self._diagnosed.drained(part, rest))
        for part in self._facts.finish():
            self._take(part)
            self._found(self._diagnosed.finished(part))
        self._found(self._leaders.open())
        return walk

    def _found(self, findings: Iterable[GroupFinding]) -> None:
        for one in findings:
            if one.to_ms is None or one.to_ms >= self._window.from_ms:
                counted = self.of_shard if one.group_id is None else self._findings[one.group_id]
                counted[one.kind] += 1

    def finished(self) -> Iterator[GroupStats]:
        """The groups with complete figures; call after `run`."""
        start_ms = self._window.from_ms
        for group_id, one in self.groups.items():
            for commits in one.commits.values():
                commits.end(self._end_ms, start_ms)
            stalls = stalls_of(group_id, self._shard, one.owned, one.commits, self._end_ms, one.names)
            made = {partition: each for partition, each in one.commits.items() if each.commits}
            figures = one.figures
            figures.commits = sum(each.commits for each in made.values())
            figures.removals = sum(each.removals for each in one.commits.values())
            figures.committed = len(made)
            figures.longest_silence_ms = max((each.silence_ms for each in made.values()), default=None)
            figures.stalled = len(stalls)
            figures.findings = self._findings[group_id]
            yield GroupStats(
                group_id=group_id,
                shard=self._shard,
                from_ms=start_ms,
                until_ms=self._end_ms,
                figures=figures,
                stalls=stalls,
                commits=tuple(_committed(partition, made[partition]) for partition in sorted(made)),
            )

    def _frame(self, frame: Frame) -> None:
        """Count commits and terms, which the facts do not keep for all groups."""
        at_ms, start_ms = frame.timestamp_ms, self._window.from_ms
        counted: set[CommitKey] = set()
        for (group_id, partition), _, raw in self._keys.of(frame):
            known = self.groups[group_id].commits
            commits = known.get(partition) or known.setdefault(partition, PartitionCommits())
            if raw.value is None:
                commits.remove(at_ms, start_ms)
            else:
                commits.commit(at_ms, start_ms)
                counted.add((group_id, partition))
        if self._keys.pending and self._window.holds(at_ms):
            self._transactional(frame, counted)
        if frame.record_count == 1 and self._window.holds(at_ms):
            for raw in iter_records(frame.body):
                if raw.type == RecordType.TERM_START:
                    term = decode_value(raw)
                    self.failovers += isinstance(term, TermStartValue) and is_takeover(term)

    def _transactional(self, frame: Frame, committed: Collection[CommitKey]) -> None:
        """Count offsets that became pending, and what became of others."""
        trigger = decode_cause(frame.body).trigger
        for key, raw in self._keys.pending:
            figures = self.groups[key[0]].figures
            if trigger == Trigger.OFFSETS_PENDING:
                figures.transactional["pending"] += raw.value is not None
            elif trigger == Trigger.OFFSETS_RESOLVED and raw.value is None:
                figures.transactional["committed" if key in committed else "dropped"] += 1

    def _take(self, part: GroupRows) -> None:
        group = self.groups[part.group_id]
        for epoch in part.epochs:
            self._epoch(group.figures, epoch)
        for span in part.spans:
            self._span(group, span)
        for session in part.sessions:
            self._session(group.figures, session)
            if session.to_index is None:
                group.names[session.member_id] = name_in(session)
        group.figures.failovers += sum(
            term.is_takeover and self._window.holds(term.timestamp_ms) for term in part.terms
        )

    def _epoch(self, figures: Figures, row: EpochRow) -> None:
        window, end_ms = self._window, self._end_ms
        is_begun = row.is_begin_known and window.holds(row.timestamp_ms)
        is_rebalance = row.num_members > 0
        figures.epochs += is_begun
        if is_begun and is_rebalance:
            self._rebalance(figures, row)
        existed_ms = window.overlap(row.timestamp_ms, row.end_ms, end_ms)
        if existed_ms or is_begun:
            figures.existed_ms += existed_ms
            figures.members(row.num_members, existed_ms)
        unsettled_until = row.end_ms if row.settled_ms is None else row.settled_ms
        figures.unstable_ms += window.overlap(begun_ms(row), unsettled_until, end_ms)
        figures.unstable_ms += sum(window.overlap(r.from_ms, r.to_ms, end_ms) for r in row.relapses)
        to_stable_ms = time_to_stable_ms(row)
        if to_stable_ms is not None and is_rebalance and window.holds(row.settled_ms):
            figures.settle(to_stable_ms)
        if window.holds(row.timestamp_ms if row.target_ms is None else row.target_ms):
            for moved in row.moves:
                figures.moves += moved.source is not None and moved.target is not None
                figures.given += moved.source is None
                figures.taken += moved.target is None

    def _rebalance(self, figures: Figures, row: EpochRow) -> None:
        trigger = trigger_name(row.cause.trigger)
        figures.rebalances += 1
        figures.overtaken += row.overtaken_by is not None
        figures.by_trigger[trigger] += 1
        figures.by_reason.update(set(reason_names(row.cause)))
        span_ms = max(self._window.until_ms - self._window.from_ms, 1)
        place = min((row.timestamp_ms - self._window.from_ms) * SLICES // span_ms, SLICES - 1)
        self.slices[place, trigger] += 1

    def _span(self, group: _Group, span: OwnershipSpan) -> None:
        lasted = self._window.overlap(span.from_ms, span.to_ms, self._end_ms)
        if span.kind is SpanKind.OWNED:
            group.figures.owned_ms += lasted
            if span.to_ms is None:
                group.owned.append(span)
        elif span.kind is SpanKind.REVOKING:
            group.figures.revoking_ms += lasted
        else:
            group.figures.unowned_ms += lasted

    def _session(self, figures: Figures, session: MemberSession) -> None:
        holds = self._window.holds
        figures.joined += session.is_begin_known and holds(session.from_ms)
        figures.rejoined += sum(holds(at_ms) for _, at_ms in session.rejoined)
        if session.to_ms is not None and holds(session.to_ms):
            figures.ended[session.end.value] += 1


def _committed(partition: TopicPartition, one: PartitionCommits) -> Committed:
    return Committed(
        partition=partition,
        commits=one.commits,
        last_commit_ms=-1 if one.last_ms is None else one.last_ms,
        longest_silence_ms=one.silence_ms,
        usual_ms=one.usual_ms,
    )


def _slices(window: StatsWindow, counted: list[Counter[tuple[int, str]]]) -> tuple[Slice, ...]:
    span_ms = window.until_ms - window.from_ms
    by_place: list[Counter[str]] = [Counter() for _ in range(SLICES)]
    for one in counted:
        for (place, trigger), count in one.items():
            by_place[place][trigger] += count
    return tuple(
        Slice(from_ms=window.from_ms + place * span_ms // SLICES, by_trigger=dict(by_trigger))
        for place, by_trigger in enumerate(by_place)
    )
