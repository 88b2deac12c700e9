"""Runs over a log without Spark, cut anywhere, and the export of the same log to compare with.

`Runs` does what a run of the pipeline does around the facts: it keeps appended rows, replaces open ones, and
passes stored ones to the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from coordinator.state.group_records import GROUP_TYPES
from history.diagnoses.shards import shard_findings
from history.export.schema import SCHEMAS
from history.export.sources import FACT_TABLES, ShardRows
from history.facts.rows import TermRow
from history.moments import LogWindow
from history.reading.node import NodeLog
from history.reading.source import LogGap, Walk
from quorate.spark.facts.batches import (
    BRIDGE_ORIGIN,
    IN_COLUMNS,
    RECORD_ORIGIN,
    STORED_ORIGINS,
    derive_batches,
)
from quorate.spark.facts.group import STATE
from quorate.spark.facts.shared import Bridge, ShardShared, Shared, notes_by_group
from quorate.spark.schema import TABLES
from raftlog.storage.frames import Frame
from records import RawRecord, decode_entry, group_id_of
from records.entry import cause_bytes
from records.ids import METADATA_SHARD

from .rows import moment, ms_of

CLUSTER = "tests"
Rows = dict[str, list[tuple[Any, ...]]]
InRow = tuple[Any, ...]


def in_order(rows: Rows) -> Rows:
    return {table: sorted(map(_plain, of), key=repr) for table, of in rows.items()}


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def exported(log: NodeLog) -> Rows:
    """Return the rows of every fact table, as `quorate log export` has them."""
    found: Rows = {table: [] for table in FACT_TABLES}

    def take(table: str, row: object) -> None:
        found[table].append((CLUSTER, *SCHEMAS[table].values(row)))

    for shard in log.shards:
        ShardRows(shard, log.catalog(), FACT_TABLES, None, LogWindow(), take).run(log.reader(shard))
    return in_order(found)


def of_groups(rows: Rows) -> Rows:
    """Leave out findings about leaders, which no group derives."""
    return {**rows, "findings": [row for row in rows["findings"] if row[3] is not None]}


@dataclass
class ShardLog:
    """One shard's log as a run finds it."""

    frames: list[Frame]
    bridges: list[tuple[Bridge, list[RawRecord]]]
    terms: list[TermRow]
    end: int

    @classmethod
    def of(cls, log: NodeLog, shard: int) -> ShardLog:
        reader, terms = log.reader(shard), []

        def take(_: str, row: object) -> None:
            assert isinstance(row, TermRow)
            terms.append(row)

        ShardRows(shard, log.catalog(), {"failovers"}, None, LogWindow(), take).run(reader)
        frames, bridges, last, gap, end = [], [], (0, -1), None, None
        for item in Walk(shard, reader):
            if isinstance(item, Frame):
                frames.append(item)
                last = item.index, item.timestamp_ms
            elif isinstance(item, LogGap):
                gap = item
                end = None if item.bridged_by else item.after_index
            else:
                assert gap is not None
                header = item.header
                bridge = Bridge(
                    after_index=gap.after_index,
                    after_ms=last[1],
                    index=header.last_index,
                    ms=header.last_timestamp_ms,
                )
                bridges.append((bridge, list(item.records)))
                last = bridge.index, bridge.ms
        written = getattr(reader, "written", frames)
        broken = getattr(reader, "broken", set())
        return cls(
            [one for one in written if one.index not in broken and one.decided],
            bridges,
            terms,
            last[0] if end is None else end,
        )

    def cut(self, index: int) -> int:
        """Return the last entry that a run ending with ``index`` can know of."""
        for bridge, _ in self.bridges:
            if bridge.after_index < index < bridge.index:
                index = bridge.after_index
        return min(index, self.end)

    def ms(self, index: int) -> int:
        places = {one.index: one.timestamp_ms for one in self.frames}
        return {**places, **{one.index: one.ms for one, _ in self.bridges}}.get(index, -1)

    def shared(self, begin: int, end: int) -> ShardShared:
        before = [term for term in self.terms if term.index <= begin][-1:]
        return ShardShared(
            from_index=begin + 1,
            to_index=end,
            to_ms=self.ms(end),
            terms=(*before, *(term for term in self.terms if begin < term.index <= end)),
            bridges=tuple(one for one, _ in self.bridges if begin < one.index <= end),
        )

    def rows(self, shard: int, begin: int, end: int) -> Iterator[InRow]:
        for frame in self.frames:
            if begin < frame.index <= end:
                cause, place = bytes(cause_bytes(frame.body)), (frame.index, frame.timestamp_ms)
                yield from _rows(shard, place, RECORD_ORIGIN, decode_entry(frame.body).records, cause)
        for bridge, raws in self.bridges:
            if begin < bridge.index <= end:
                yield from _rows(shard, (bridge.index, bridge.ms), BRIDGE_ORIGIN, raws, None)


def _rows(shard: int, place: tuple[int, int], origin: int, raws: Any, cause: bytes | None) -> Iterator[InRow]:
    index, ms = place
    for sequence, raw in enumerate(raws):
        if raw.type in GROUP_TYPES:
            group_id = group_id_of(raw)
            said = (int(raw.type), raw.version, bytes(raw.key), raw.value and bytes(raw.value), cause)
            yield (shard, group_id, origin, index, sequence, moment(ms), *said)


@dataclass
class Runs:
    """The tables of a log after several runs."""

    log: NodeLog
    batch_rows: int = 1_000
    tables: Rows = field(default_factory=lambda: {table: [] for table in FACT_TABLES})
    open: dict[tuple[str, int, str], list[tuple[Any, ...]]] = field(default_factory=dict)
    stored: dict[tuple[int, str], dict[str, list[tuple[int, bytes]]]] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    """The kinds of the rows that the last run produced."""

    def __post_init__(self) -> None:
        shards = [shard for shard in self.log.shards if shard != METADATA_SHARD]
        self.shards = {shard: ShardLog.of(self.log, shard) for shard in shards}

    def run(self, to: Mapping[int, int] | None = None, *, with_notes_to: float = float("inf")) -> None:
        """Run up to an entry of each shard; to the end of shards that are not in ``to``."""
        spans, rows, notes = {}, [], {}
        for shard, shard_log in self.shards.items():
            begin = self.reached.get(shard, 0)
            end = max(shard_log.cut((to or {}).get(shard, shard_log.end)), begin)
            spans[shard] = shard_log.shared(begin, end)
            rows += shard_log.rows(shard, begin, end)
            self.reached[shard] = end
            noted = self.log.reader(shard).evidence()
            notes |= notes_by_group(shard, (one for one in noted if one["at_ms"] <= with_notes_to))
        for (shard, group_id), kinds in self.stored.items():
            for kind, blobs in kinds.items():
                blank = (None,) * (len(IN_COLUMNS) - 5)
                rows += [
                    (shard, group_id, STORED_ORIGINS[kind], None, sequence, *blank[:4], blob, None)
                    for sequence, blob in blobs
                ]
        catalog = self.log.catalog()
        shared = Shared(
            cluster_id=CLUSTER, shards=spans, names=catalog.names, shapes=catalog.shapes, notes=notes
        )
        batches = derive_batches(shared, self._batches(rows))
        self._take([row for batch in batches for row in batch.to_pylist()])

    def _batches(self, rows: list[InRow]) -> Iterator[pa.RecordBatch]:
        rows.sort(key=lambda r: (r[0], r[1], min(r[2], BRIDGE_ORIGIN), r[3] or 0, r[2], r[4]))
        names = [name for name, _ in IN_COLUMNS]
        kinds = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
        kinds["timestamp"] = pa.timestamp("us", "UTC")
        schema = pa.schema([(name, kinds[kind]) for name, kind in IN_COLUMNS])
        for start in range(0, len(rows), self.batch_rows):
            some = rows[start : start + self.batch_rows]
            yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in some], schema)

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self.kinds = [row["kind"] for row in rows]
        looked_at = [(row["shard"], row["group_id"]) for row in rows if row["kind"] == STATE]
        assert len(looked_at) == len(set(looked_at))
        for group in looked_at:
            self.stored[group] = {STATE: []}
            for table in FACT_TABLES:
                self.open.pop((table, *group), None)
        for row in rows:
            kind, group = row["kind"], (row["shard"], row["group_id"])
            assert group in looked_at
            if kind in STORED_ORIGINS:
                self.stored[group][kind].append((row["sequence"], row["blob"]))
                continue
            of, _, table = kind.rpartition(":")
            assert [name for name in row if isinstance(row[name], dict)] == [table]
            values = tuple(ms_of(row[table][name]) for name in TABLES[table].names)
            if of == "rows":
                self.tables[table].append(values)
            else:
                self.open.setdefault((table, *group), []).append(values)

    def rows(self) -> Rows:
        found = {table: list(of) for table, of in self.tables.items()}
        for (table, _, _), of in self.open.items():
            found[table] += of
        for shard, shard_log in self.shards.items():
            terms = [one for one in shard_log.terms if one.index <= self.reached.get(shard, 0)]
            of_shard = shard_findings(terms)
            found["findings"] += ((CLUSTER, *SCHEMAS["findings"].values(one)) for one in of_shard)
        return in_order(found)
