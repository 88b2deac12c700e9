"""The facts of every group of a shard in one walk, for tables, statistics and searches for findings.

Only the state of the groups and rows that are still open are kept. `rows_of` emits concluded rows at
intervals, so that its memory is bounded by the state and not by the log.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import replace

from coordinator.state.group_records import TOLD_TYPES
from history.reading.catalog import CatalogHistory
from history.reading.node import NodeLog
from history.reading.source import LogGap, SnapshotLike, Walk
from raftlog.offline.group_filter import Passed
from raftlog.storage.frames import Frame
from records import (
    Entry,
    RawRecord,
    RecordsError,
    RecordType,
    TermStartValue,
    decode_cause,
    decode_value,
    group_id_of,
    iter_records,
)

from .group import FactsBuilder
from .rows import GroupRows

ROWS_MAX = 200_000
"""Maximum number of epochs, spans and sessions of several groups in memory at once: some hundred
megabytes."""
COUNT_ENTRIES = 1_000
"""Rows are counted every so many entries, because counting visits each group."""
DRAIN_ENTRIES = 20_000
"""Concluded rows are emitted every so many entries: some thousands of rows, some megabytes."""


class ShardFacts:
    """A `FactsBuilder` for each group of one shard, or only for the groups in ``only``."""

    def __init__(self, shard: int, catalog: CatalogHistory, only: Container[str] | None = None) -> None:
        self.builders: dict[str, FactsBuilder] = {}
        self._shard = shard
        self._catalog = catalog
        self._only = only
        self.is_put_off: set[str] = set()
        """Groups postponed because there were too many rows; their entries are skipped from then on."""
        self._last = (0, -1)
        """Index and epoch ms of the newest entry."""
        self._term: tuple[tuple[int, int], Frame, TermStartValue] | None = None
        """The newest term with the place before it, for groups that first appear in it."""

    def take(self, item: Frame | LogGap | SnapshotLike | Passed) -> None:
        """Take the next item of a walk."""
        if isinstance(item, Frame):
            try:
                self._frame(item)
            except RecordsError as error:
                for builder in self._caught_up():
                    builder.unreadable(item.index, item.timestamp_ms, str(error))
            self._last = (item.index, item.timestamp_ms)
        elif isinstance(item, Passed):
            self._last = (item.last_index, item.timestamp_ms)
        elif not isinstance(item, LogGap):
            self._snapshot(item)

    def drain(self) -> Iterator[GroupRows]:
        """Yield and remove the concluded rows of each group that has any."""
        for builder in self.builders.values():
            drained = builder.drain()
            if drained.epochs or drained.spans or drained.sessions or drained.terms or drained.gone:
                yield drained

    def finish(self) -> Iterator[GroupRows]:
        """Yield the remaining rows, open ones included, by group id."""
        for builder in sorted(self._caught_up(), key=lambda one: one.group_id):
            if builder.is_known:
                yield builder.finish()

    def put_off(self, rows_max: int) -> None:
        """Postpone half of the groups, repeatedly, until there are at most ``rows_max`` rows or one group."""
        while len(self.builders) > 1 and sum(one.num_rows for one in self.builders.values()) > rows_max:
            later = sorted(self.builders)[(len(self.builders) + 1) // 2 :]
            for group_id in later:
                del self.builders[group_id]
            self.is_put_off.update(later)

    def _is_wanted(self, group_id: str) -> bool:
        return (self._only is None or group_id in self._only) and group_id not in self.is_put_off

    def _frame(self, frame: Frame) -> None:
        mine: dict[str, list[RawRecord]] = {}
        for raw in iter_records(frame.body):
            if raw.type in TOLD_TYPES:
                group_id = group_id_of(raw) or ""
                if self._is_wanted(group_id):
                    mine.setdefault(group_id, []).append(raw)
            elif raw.type == RecordType.TERM_START:
                term = decode_value(raw)
                if isinstance(term, TermStartValue):
                    self._term = self._last, frame, term
                    for builder in self._caught_up():
                        builder.term(frame.index, frame.timestamp_ms, term)
        if mine:
            cause = decode_cause(frame.body)
            for group_id, raws in mine.items():
                entry = Entry(cause=cause, records=tuple(raws))
                self._builder(group_id).entry(frame.index, frame.timestamp_ms, entry)

    def _snapshot(self, snapshot: SnapshotLike) -> None:
        index, ms = snapshot.header.last_index, snapshot.header.last_timestamp_ms
        by_group: dict[str, list[RawRecord]] = {group_id: [] for group_id in self.builders}
        for raw in snapshot.records:
            group_id = group_id_of(raw) or ""
            if raw.type in TOLD_TYPES and self._is_wanted(group_id):
                by_group.setdefault(group_id, []).append(raw)
        for group_id, raws in by_group.items():
            self._builder(group_id).go_on_from(index, ms, raws)
        self._last = (index, ms)

    def _builder(self, group_id: str) -> FactsBuilder:
        builder = self.builders.get(group_id)
        if builder is None:
            builder = self.builders[group_id] = FactsBuilder(group_id, self._catalog, self._shard)
            if self._term is not None:
                (index, ms), frame, term = self._term
                if index:
                    builder.passed(ms, index)
                builder.term(frame.index, frame.timestamp_ms, term)
        self._catch_up(builder)
        return builder

    def _caught_up(self) -> Iterator[FactsBuilder]:
        for builder in self.builders.values():
            self._catch_up(builder)
            yield builder

    def _catch_up(self, builder: FactsBuilder) -> None:
        """Pass all skipped entries of other groups at once, when a builder needs its position."""
        if self._last[0]:
            builder.passed(self._last[1], self._last[0])


def rows_of(
    shard: int, catalog: CatalogHistory, items: Iterable[Frame | LogGap | SnapshotLike]
) -> Iterator[GroupRows]:
    """Yield the rows of every group in a walk over a shard, in parts.

    Concluded rows come first, in the order in which they end. Rows still open at the end of the walk come
    last.
    """
    facts = ShardFacts(shard, catalog)
    for number, item in enumerate(items, 1):
        facts.take(item)
        if number % DRAIN_ENTRIES == 0:
            yield from facts.drain()
    yield from facts.finish()


def facts_of_all(
    log: NodeLog,
    shard: int,
    only: Collection[str] | None = None,
    *,
    to_index: int | None = None,
    to_ms: int | None = None,
    rows_max: int = ROWS_MAX,
) -> Iterator[GroupRows]:
    """Yield the complete facts of every group of one shard (or of those in ``only``), with their basis.

    The log is walked as often as needed to keep no more than about ``rows_max`` rows in memory: if there are
    more, half of the groups are postponed to the next walk. Within each walk the groups come by id.
    """
    catalog, wanted = log.catalog(), only
    while True:
        facts = ShardFacts(shard, catalog, wanted)
        walk = Walk(shard, log.reader(shard), to_index=to_index, to_ms=to_ms)
        for number, item in enumerate(walk if wanted is None else walk.about(wanted), 1):
            facts.take(item)
            if number % COUNT_ENTRIES == 0:
                facts.put_off(rows_max)
        for found in facts.finish():
            yield replace(found, basis=walk.basis)
        if not facts.is_put_off:
            return
        wanted = facts.is_put_off
