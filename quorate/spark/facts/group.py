"""One group in one run: its stored state and its new records in, rows and its next state out.

Rows are pushed in the order of their entries: stored ones first, then records. The invariant: the rows of all
runs together, with the open rows of the last run, equal those of a single walk over the whole log.

A new term concerns no group before its next record: none of its rows depends on terms after its last entry.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from history.diagnoses.incremental import VERSION as FINDINGS_VERSION
from history.diagnoses.incremental import GroupDiagnosis, dump_findings, load_findings
from history.export.sources import fact_rows
from history.facts.checkpoint import VERSION, StateError, dump_builder, load_builder
from history.facts.group import FactsBuilder
from history.facts.rows import TermRow
from history.moments import WHOLE_LOG
from quorate.spark.errors import OutputError
from records import Entry, RawRecord, RecordsError
from records.entry import load_cause
from records.packing import pack, unpack_nested

from .shared import Bridge, GroupNames, Shared

DRAIN_ROWS = 256
"""Concluded rows are emitted when so many have been added, and at the end of a run."""
STATE, FINDINGS = "state", "findings"
STATE_VERSION = f"2.{VERSION}.{FINDINGS_VERSION}"
"""Version of a group's stored state: the format of this module, of the builder, and of its findings."""
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
        self._has_records = self._is_noted = False
        self._happened: list[Bridge | TermRow] | None = None
        """Pending events that concern all groups, the last first."""
        self._findings = GroupDiagnosis()
        self._num_rows = 0
        self._taken_index = 0
        """The newest entry that was taken in; later terms are taken in before the next one."""
        self._at = (0, 0)
        self._is_bridge = False
        self._cause: bytes | None = None
        self._raws: list[RawRecord] = []

    # Stored by earlier runs.

    def stored(self, kind: str, sequence: int, blob: bytes) -> None:
        """Take the state that an earlier run stored; it comes first."""
        assert kind == STATE
        self._is_started, self._is_restless = True, sequence == RESTLESS
        with self._readable():
            builder, own, findings, self._taken_index = unpack_nested(blob)
            self._names.own.update(zip(own[::2], own[1::2], strict=True))
            self._builder = load_builder(builder, self._names)
            self._findings = load_findings(findings)
        self._num_rows = self._builder.num_rows

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
        findings = dump_findings(self._findings)
        return pack([dump_builder(self._builder), own, findings, self._taken_index])

    # New in this run.

    def record(
        self, index: int, ms: int, raw: RawRecord, cause: bytes | None, *, is_bridge: bool = False
    ) -> None:
        """Take the next record of `TOLD_TYPES`, from an entry or from a bridging snapshot."""
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
            self._note()
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
        happened = self._span.happened(self._taken_index, self._builder.last.index)
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
        self._taken_index = index

    def _bridge(self, bridge: Bridge, raws: Iterable[RawRecord]) -> None:
        self._has_records = self._is_started = True
        if bridge.after_index > self._builder.last.index:
            self._builder.passed(bridge.after_ms, bridge.after_index)
        self._builder.go_on_from(bridge.index, bridge.ms, raws)

    def _drain(self) -> None:
        """Emit the concluded rows, and once enough of them came what they conclude."""
        self._take_drained()
        if self._findings.is_due:
            now = self._findings.conclude(self._builder.finish(), is_last=False)
            self._sink.rows(f"rows:{FINDINGS}", FINDINGS, now.concluded)

    def _take_drained(self) -> None:
        drained = self._builder.drain()
        self._num_rows = self._builder.num_rows
        for table, rows in fact_rows(drained, WHOLE_LOG):
            self._sink.rows(f"rows:{table}", table, rows)
        self._findings.take(drained)

    def _note(self) -> bool:
        """Take the notes about the group; whether any is new."""
        if self._is_noted:
            return False
        self._is_noted = True
        notes: list[dict[str, Any]] = [json.loads(note) for note in self._noted]
        return self._findings.note(notes)

    # The end of a run.

    def finish(self) -> None:
        """Finish the group after its last row."""
        self._entry()
        if self._happened is None:
            if not self._is_started:
                return  # noted, but not in the log
            self._happened = self._to_come(self._span.to_index + 1)
        fresh = self._note() or self._has_records
        bridged = any(isinstance(one, Bridge) for one in self._happened)
        is_later = self._span.to_ms > self._builder.last.ms
        if not (fresh or bridged or (self._is_restless and is_later)):
            return
        if bridged:  # terms alone wait for the group's next record
            self._catch_up(self._span.to_index + 1)
        if self._span.to_index > self._builder.last.index:
            self._builder.passed(self._span.to_ms, self._span.to_index)
        self._take_drained()
        open_ = self._builder.finish()
        now = self._findings.conclude(open_)
        sequence = SETTLED if self._builder.is_settled else RESTLESS
        self._sink.blob(STATE, sequence, self._dumped())
        self._sink.rows(f"rows:{FINDINGS}", FINDINGS, now.concluded)
        if self._builder.is_known:
            for table, rows in fact_rows(open_, WHOLE_LOG):
                self._sink.rows(f"open:{table}", table, rows)
            self._sink.rows(f"open:{FINDINGS}", FINDINGS, now.open)
