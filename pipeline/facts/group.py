"""One group in one run: its stored state and its new records in, rows and its next state out.

Rows are pushed in the order of their entries: stored ones first, then records. The invariant: the rows of all
runs together, with the open rows of the last run, equal those of a single walk over the whole log.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from history.diagnoses.keeping import FINDING_ROWS_MAX, KeptRows
from history.export.sources import fact_rows
from history.facts.checkpoint import VERSION, StateError, dump_builder, dump_facts, load_builder, load_facts
from history.facts.group import FactsBuilder
from history.facts.rows import GroupFinding, GroupRows, Severity, TermRow
from history.moments import WHOLE_LOG
from pipeline.errors import OutputError
from records import Entry, RawRecord, RecordsError
from records.entry import load_cause
from records.packing import pack, unpack_nested

from .shared import Bridge, GroupNames, Shared

DRAIN_ROWS = 256
"""Concluded rows stay in the state, and among the open rows, until this many have been added.

A group to which each run adds only a little thus gets one part for several runs.
"""
TOO_MANY_ROWS = "TOO_MANY_ROWS"
"""Kind of the row in `findings` that says why a group has no other findings."""
STATE, NOTES, PART, FINDINGS = "state", "notes", "part", "findings"
STATE_VERSION = f"1.{VERSION}"
"""Version of a group's stored state: the format of this module, then that of the builder."""
SETTLED, RESTLESS = 0, 1
"""Sequence of a state row: RESTLESS if the mere passing of time may produce a finding."""


class Sink(Protocol):
    """Receives a group's output."""

    def rows(self, kind: str, table: str, rows: Iterable[Any]) -> None:
        """Take rows of a table in the form of `history.export`."""

    def blob(self, kind: str, sequence: int, blob: bytes) -> None:
        """Take data that a later run needs."""


class GroupRun:
    """Processes the rows of one group; `finish` emits the rest, or nothing if nothing is new."""

    def __init__(self, shared: Shared, shard: int, group_id: str, sink: Sink) -> None:
        self._shard = shard
        self._group_id = group_id
        self._sink = sink
        self._span = shared.shards[shard]
        self._noted = shared.notes.get((shard, group_id), ())
        self._names = GroupNames(shared.names, {}, shared.shapes)
        self._builder = FactsBuilder(group_id, self._names, shard)
        self._is_started = self._is_restless = False
        self._has_records = False
        self._happened: list[Bridge | TermRow] | None = None
        """Pending events that concern all groups, the last first."""
        self._parts: list[bytes] = []
        self._new_parts: list[GroupRows] = []
        self._num_parts = self._num_concluded = self._num_rows = 0
        self._notes: list[str] = []
        self._num_notes = 0
        self._at = (0, 0)
        self._is_bridge = False
        self._cause: bytes | None = None
        self._raws: list[RawRecord] = []

    # Stored by earlier runs.

    def stored(self, kind: str, sequence: int, blob: bytes) -> None:
        """Take a row that an earlier run stored; the state comes first."""
        if kind == STATE:
            self._is_started, self._is_restless = True, sequence == RESTLESS
            self._load(blob)
        elif kind == NOTES:
            with self._readable():
                self._notes += json.loads(blob)
            self._num_notes = max(self._num_notes, sequence + 1)
        elif kind == PART and self._num_concluded <= FINDING_ROWS_MAX:
            self._parts.append(blob)

    def _load(self, blob: bytes) -> None:
        with self._readable():
            builder, own, *numbers = unpack_nested(blob)
            self._names.own.update(zip(own[::2], own[1::2], strict=True))
            self._num_parts, self._num_concluded, self._num_rows = numbers
            self._builder = load_builder(builder, self._names)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (StateError, RecordsError, ValueError, TypeError) as error:
            raise OutputError(
                f"the stored state of group {self._group_id!r} cannot be read: {error}",
                "write to a new output",
            ) from error

    def _dumped(self) -> bytes:
        own = [item for pair in self._names.own.items() for item in pair]
        numbers = (self._num_parts, self._num_concluded, self._num_rows)
        return pack([dump_builder(self._builder), own, *numbers])

    # New in this run.

    def record(
        self, index: int, ms: int, raw: RawRecord, cause: bytes | None, *, is_bridge: bool = False
    ) -> None:
        """Take the next record of `GROUP_TYPES`, from an entry or from a bridging snapshot."""
        if index != self._at[0] or is_bridge is not self._is_bridge:
            self._entry()
            self._at, self._is_bridge, self._cause = (index, ms), is_bridge, cause
        self._raws.append(raw)

    def _entry(self) -> None:
        """Process the pushed records as one entry or one snapshot."""
        if not self._raws:
            return
        (index, ms), raws, self._raws = self._at, self._raws, []
        if index <= self._builder.last.index or index > self._span.to_index:
            return
        if self._happened is None:
            self._happened = self._to_come(index)
        self._catch_up(index)
        if self._is_bridge:
            bridge = self._happened.pop()
            assert isinstance(bridge, Bridge)
            self._bridge(bridge, raws)
        elif not any(one.covers(index) for one in self._span.bridges):
            self._has_records = self._is_started = True
            try:
                cause = load_cause(self._cause or b"")
                self._builder.entry(index, ms, Entry(cause=cause, records=tuple(raws)))
            except RecordsError as error:
                self._builder.unreadable(index, ms, str(error))
        if self._builder.num_rows >= self._num_rows + DRAIN_ROWS:
            self._drain()

    def _to_come(self, first_index: int) -> list[Bridge | TermRow]:
        """Pending events, newest first; of those before a new group, only the newest term counts."""
        known = self._builder.last.index
        happened = [one for one in self._span.happened() if one.index > known]
        if not self._is_started:
            before = [one for one in happened if one.index < first_index]
            terms = [one for one in before if isinstance(one, TermRow)]
            happened = [*terms[-1:], *happened[len(before) :]]
        return happened[::-1]

    def _catch_up(self, index: int) -> None:
        """Feed the builder the events before an entry."""
        assert self._happened is not None
        while self._happened and self._happened[-1].index < index:
            one = self._happened.pop()
            if isinstance(one, TermRow):
                self._builder.began(one)
            elif self._is_started:
                self._bridge(one, ())

    def _bridge(self, bridge: Bridge, raws: Iterable[RawRecord]) -> None:
        self._has_records = self._is_started = True
        if bridge.after_index > self._builder.last.index:
            self._builder.passed(bridge.after_ms, bridge.after_index)
        self._builder.go_on_from(bridge.index, bridge.ms, raws)

    def _drain(self) -> None:
        drained = self._builder.drain()
        count = len(drained.epochs) + len(drained.spans) + len(drained.sessions)
        self._num_rows = self._builder.num_rows
        self._num_concluded += count
        for table, rows in fact_rows(drained, WHOLE_LOG):
            self._sink.rows(f"rows:{table}", table, rows)
        if self._num_concluded > FINDING_ROWS_MAX:
            self._parts.clear()
            self._new_parts.clear()
        else:
            self._new_parts.append(drained)
            self._sink.blob(PART, self._num_parts, dump_facts(drained))
            self._num_parts += 1

    # The end of a run.

    def finish(self) -> None:
        """Finish the group after its last row."""
        self._entry()
        known = frozenset(self._notes)
        fresh = [note for note in self._noted if note not in known]
        if self._happened is None:
            if not self._is_started:
                return  # noted, but not in the log
            self._happened = self._to_come(self._span.to_index + 1)
        is_due = self._has_records or fresh or self._happened
        is_later = self._span.to_ms > self._builder.last.ms
        if not (is_due or (self._is_restless and is_later)):
            return
        self._catch_up(self._span.to_index + 1)
        if self._span.to_index > self._builder.last.index:
            self._builder.passed(self._span.to_ms, self._span.to_index)
        if self._builder.num_rows >= self._num_rows + DRAIN_ROWS:
            self._drain()
        if fresh:
            self._sink.blob(NOTES, self._num_notes, json.dumps(fresh).encode())
            self._notes += fresh
        sequence = SETTLED if self._builder.is_settled else RESTLESS
        self._sink.blob(STATE, sequence, self._dumped())
        if self._builder.is_known:
            open_ = self._builder.finish()
            for table, rows in fact_rows(open_, WHOLE_LOG):
                self._sink.rows(f"open:{table}", table, rows)
            self._sink.rows(FINDINGS, FINDINGS, self._findings(open_))

    def _findings(self, open_: GroupRows) -> Iterable[GroupFinding]:
        kept = KeptRows(FINDING_ROWS_MAX)
        if self._num_concluded <= FINDING_ROWS_MAX:
            for part in self._parts:
                with self._readable():
                    facts = load_facts(part)
                kept.take(facts)
            for drained in self._new_parts:
                kept.take(drained)
            kept.take(open_)
            if not kept.is_full:
                return kept.findings(self._shard, [json.loads(note) for note in self._notes])
        return [self._too_many_rows()]

    def _too_many_rows(self) -> GroupFinding:
        return GroupFinding(
            kind=TOO_MANY_ROWS,
            severity=Severity.NOTE,
            group_id=self._group_id,
            shard=self._shard,
            epochs=(),
            members=(),
            partitions=(),
            from_index=self._span.to_index,
            from_ms=self._span.to_ms,
            to_index=None,
            to_ms=None,
            words=(
                f"the group has more than {FINDING_ROWS_MAX:,} epochs, spans and sessions, too many to check "
                "for diagnoses"
            ),
            rests_on=(),
            is_certain=True,
        )
