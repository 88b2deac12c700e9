"""The rows of each table, in one walk over each shard that keeps only the state and open rows.

Diagnoses also keep the rows of a group's last hours (`history.diagnoses.incremental`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from history.diagnoses.keeping import WalkFindings
from history.diagnoses.shards import ShardFindings
from history.facts.commits import CommitKeys, commit_rows
from history.facts.group import windowed
from history.facts.rows import EpochRow, GroupFinding, GroupRows, Moved, Wait
from history.facts.shard import DRAIN_ENTRIES, ShardFacts
from history.facts.terms import ShardTerms
from history.moments import LogWindow
from history.reading.catalog import CatalogHistory
from history.reading.source import LogGap, Reader, SnapshotLike, Walk
from history.words import reason_names, trigger_name, type_name
from raftlog.storage.frames import Frame
from records import (
    RawRecord,
    RecordsError,
    decode_cause,
    decode_key,
    group_id_of,
    iter_records,
)
from records.ids import METADATA_SHARD
from records.jsonform import body_to_json

FACT_TABLES = frozenset({"group_epochs", "ownership", "member_sessions", "moves", "waits", "findings"})
"""Tables that need more than a single entry."""
Take = Callable[[str, object], None]
"""Called with a table's name and one of its rows."""
_dumps = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class MoveRow:
    epoch: EpochRow
    moved: Moved


@dataclass(frozen=True, slots=True)
class WaitRow:
    epoch: EpochRow
    wait: Wait


class ShardRows:
    """Passes the rows of one shard to ``take``, table by table, as they come."""

    def __init__(
        self,
        shard: int,
        catalog: CatalogHistory,
        tables: Collection[str],
        groups: frozenset[str] | None,
        window: LogWindow,
        take: Take,
    ) -> None:
        self.unreadable = 0
        self._shard = shard
        self._tables = frozenset(tables)
        self._groups = groups
        self._window = window
        self._take = take
        self._facts = ShardFacts(shard, catalog, groups)
        self._keys = CommitKeys(groups)
        self._terms = ShardTerms(shard)
        self._leaders = ShardFindings()
        self._findings: WalkFindings | None = None

    def run(self, reader: Reader) -> Walk:
        """Walk the shard; raises `NothingToRead` and `Damaged` like the walk."""
        window = self._window
        walk = Walk(self._shard, reader, to_index=window.to_index, to_ms=window.to_ms)
        has_groups = self._shard != METADATA_SHARD
        has_facts = has_groups and (self._groups is not None or bool(FACT_TABLES & self._tables))
        last_ms = -1
        if has_groups and "findings" in self._tables:
            self._findings = WalkFindings(reader.evidence())
        for number, item in enumerate(walk, 1):
            self._term(item)
            if has_facts:
                self._facts.take(item)
            if isinstance(item, Frame):
                try:
                    self._frame(item)
                except RecordsError:
                    self.unreadable += 1
                last_ms = item.timestamp_ms
            elif not isinstance(item, LogGap):
                last_ms = item.header.last_timestamp_ms
            if number % DRAIN_ENTRIES == 0:
                for part in self._facts.drain():
                    self._of_group(part)
                    if self._findings is not None:
                        rest = self._facts.builders[part.group_id].finish
                        self._found(self._findings.drained(part, rest))
        for part in self._facts.finish():
            self._of_group(part)
            if self._findings is not None:
                self._found(self._findings.finished(part))
        if self._findings is not None:
            self._found(self._leaders.take((), last_ms))
            self._found(self._leaders.open())
        return walk

    def knows(self, group_id: str) -> bool:
        """Whether the group occurred in the entries read."""
        return group_id in self._facts.builders or group_id in self._keys.groups

    def _frame(self, frame: Frame) -> None:
        if not self._window.is_begun(frame.index, frame.timestamp_ms):
            if self._groups is not None:
                list(self._keys.of(frame))
            return
        if "records" in self._tables:
            for record in self._records(frame):
                self._take("records", record)
        if "commits" in self._tables and self._shard != METADATA_SHARD:
            for commit in commit_rows(self._shard, frame, self._keys):
                self._take("commits", commit)
        elif self._groups is not None:
            list(self._keys.of(frame))

    def _term(self, item: Frame | LogGap | SnapshotLike) -> None:
        term = self._terms.take(item)
        if term is None:
            return
        if "failovers" in self._tables and self._window.is_begun(term.index, term.timestamp_ms):
            self._take("failovers", term)
        if self._findings is not None:
            self._found(self._leaders.take((term,), term.timestamp_ms))

    def _found(self, findings: Iterable[GroupFinding]) -> None:
        for one in findings:
            if self._window.reaches(one.to_index, one.to_ms):
                self._take("findings", one)

    def _records(self, frame: Frame) -> Iterator[SimpleNamespace]:
        """A row for each record of interest, with the attributes that table `records` reads."""
        raws = list(enumerate(iter_records(frame.body)))
        if self._groups is not None:
            raws = [(at, raw) for at, raw in raws if group_id_of(raw) in self._groups]
        if not raws:
            return
        shown = body_to_json(frame.body)
        said = decode_cause(frame.body)
        cause = _dumps(shown.get("cause", {"base64": shown.get("cause_base64")}))
        for sequence, raw in raws:
            record = shown["records"][sequence]
            key = _key_of(raw)
            yield SimpleNamespace(
                shard=self._shard,
                index=frame.index,
                term=frame.term,
                timestamp_ms=frame.timestamp_ms,
                sequence=sequence,
                type=int(raw.type),
                type_name=type_name(raw.type),
                version=raw.version,
                group_id=group_id_of(raw),
                member_id=getattr(key, "member_id", None),
                topic=getattr(key, "topic", None) or getattr(key, "name", None),
                partition=getattr(key, "partition", None),
                key=_shown(record, "key"),
                value=None if raw.value is None else _shown(record, "value"),
                trigger=trigger_name(said.trigger),
                reasons=reason_names(said),
                cause_member_id=said.member_id or None,
                principal=said.principal or None,
                address=said.address or None,
                cause=cause,
            )

    def _of_group(self, part: GroupRows) -> None:
        for table, of_table in fact_rows(part, self._window):
            if table in self._tables:
                for row in of_table:
                    self._take(table, row)


def fact_rows(part: GroupRows, window: LogWindow) -> tuple[tuple[str, Iterable[Any]], ...]:
    """The rows of each table derived from facts of a group, except for findings."""
    shown = windowed(part, window.from_index, window.from_ms)
    return (
        ("group_epochs", shown.epochs),
        ("ownership", shown.spans),
        ("member_sessions", shown.sessions),
        ("moves", _moves(part.epochs, window)),
        ("waits", _waits(part.epochs, window)),
    )


def _moves(epochs: Iterable[EpochRow], window: LogWindow) -> Iterator[MoveRow]:
    for epoch in epochs:
        index, ms = epoch.index, epoch.timestamp_ms
        if epoch.target_index is not None and epoch.target_ms is not None:
            index, ms = epoch.target_index, epoch.target_ms
        if window.is_begun(index, ms):
            for moved in epoch.moves:
                yield MoveRow(epoch, moved)


def _waits(epochs: Iterable[EpochRow], window: LogWindow) -> Iterator[WaitRow]:
    for epoch in epochs:
        for wait in epoch.waits:
            if window.reaches(wait.to_index, wait.to_ms):
                yield WaitRow(epoch, wait)


def _key_of(raw: RawRecord) -> object:
    try:
        return decode_key(raw)
    except RecordsError:
        return None


def _shown(record: dict[str, Any], name: str) -> str:
    """A key or a value as `record_to_json` shows it."""
    return _dumps(record[name] if name in record else {"base64": record[f"{name}_base64"]})
