"""Groups out of Arrow batches and their rows into others: the code that runs in a Spark task.

Input rows are sorted by shard and group, then stored rows before others, then index, origin and sequence. A
batch of output holds rows of one kind only: every table has a struct column of its own, and those of the
other tables are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from history.export.columns import binary, int32, int64, text
from history.export.formats import writable
from history.export.schema import SCHEMAS
from quorate.spark.schema import TABLES, arrow_type, times
from records import RawRecord

from .group import STATE, GroupRun
from .shared import Shared

IN_COLUMNS = (
    ("shard", "int"),
    ("group_id", "string"),
    ("origin", "int"),
    ("raft_index", "bigint"),
    ("sequence", "bigint"),
    ("timestamp", "timestamp"),
    ("type", "int"),
    ("version", "int"),
    ("key", "binary"),
    ("value", "binary"),
    ("cause", "binary"),
)
"""Input columns. A stored row only fills sequence and, with its blob, value; a record fills all of them."""
RAW = {"key": "key_bytes", "value": "value_bytes", "cause": "cause_bytes"}
"""The names of these columns among the records."""
STORED_ORIGINS = {STATE: 0}
BRIDGE_ORIGIN, RECORD_ORIGIN = 1, 2
_KINDS = {origin: kind for kind, origin in STORED_ORIGINS.items()}

FACT_TABLES = ("group_epochs", "moves", "ownership", "member_sessions", "waits", "findings")
ROWS_AT_ONCE = 500
"""At most this many rows of a batch are Python objects at a time: a stored row may take some 100 kB."""
BATCH_ROWS = 5_000
"""Rows of one kind that are buffered before a batch is emitted: some megabytes."""
BATCH_BYTES = 8 << 20
"""Bytes of blobs that are buffered before a batch is emitted."""
_FIELDS = {name: list(arrow_type(TABLES[name].columns)) for name in SCHEMAS}
_STORED = (
    text("kind", "What it is: `state`."),
    int32("shard", "The group's shard."),
    text("group_id", "The group."),
    int64("sequence", "1: the group is not settled, so that time alone may produce a finding; else 0."),
    binary("blob", "The stored content."),
)
STORED = arrow_type(_STORED)
"""Schema of the rows that are stored and passed in again by the next run."""
_OUT = pa.schema([*STORED, *((name, pa.struct(_FIELDS[name])) for name in FACT_TABLES)])


def derive_batches(shared: Shared, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that `mapInArrow` applies to the batches of a partition."""
    out = Batches(shared.cluster_id)
    run: GroupRun | None = None
    present: tuple[Any, Any] | None = None
    for shard, group_id, origin, index, sequence, ms, type_, version, key, value, cause in _rows(batches):
        if (group_id, shard) != present:
            if run is not None:
                run.finish()
            present = group_id, shard
            out.shard, out.group_id = shard, group_id
            run = GroupRun(shared, shard, group_id, out)
        assert run is not None
        if origin in _KINDS:
            run.stored(_KINDS[origin], sequence, value)
        else:
            raw = RawRecord(type_, version, key, value)
            run.record(index, ms, raw, cause, is_bridge=origin == BRIDGE_ORIGIN)
        if out.ready:
            yield from out.taken()
    if run is not None:
        run.finish()
    yield from out.rest()


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            some = batch.slice(start, ROWS_AT_ONCE)
            yield from zip(*(_values(some.column(name)) for name, _ in IN_COLUMNS), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column in Python; moments as ms since 1970."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


class Batches:
    """A `Sink` that collects its input into record batches."""

    def __init__(self, cluster_id: str) -> None:
        self.shard = -1
        self.group_id = ""
        self.ready: list[pa.RecordBatch] = []
        self._cluster_id = cluster_id
        self._held: dict[str, list[tuple[int, str, Any]]] = {}
        """Kind -> shard, group id, and a table's row object, or sequence and blob."""
        self._bytes = 0

    def rows(self, kind: str, table: str, rows: Iterable[Any]) -> None:
        held = self._held.setdefault(kind, [])
        held.extend(zip(repeat(self.shard), repeat(self.group_id), rows))
        if len(held) >= BATCH_ROWS:
            self._flush(kind)

    def blob(self, kind: str, sequence: int, blob: bytes) -> None:
        held = self._held.setdefault(kind, [])
        held.append((self.shard, self.group_id, (sequence, blob)))
        self._bytes += len(blob)
        if len(held) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            for one in STORED_ORIGINS:
                self._flush(one)
            self._bytes = 0

    def taken(self) -> Iterator[pa.RecordBatch]:
        ready, self.ready = self.ready, []
        yield from ready

    def rest(self) -> Iterator[pa.RecordBatch]:
        for kind in self._held:
            self._flush(kind)
        return self.taken()

    def _flush(self, kind: str) -> None:
        held = self._held.get(kind)
        if not held:
            return
        shards, group_ids, rows = zip(*held, strict=True)
        held.clear()
        count = len(shards)
        table = kind.rpartition(":")[2]
        arrays: dict[str, Any] = {
            "kind": pa.repeat(pa.scalar(kind), count),
            "shard": pa.array(shards, pa.int32()),
            "group_id": pa.array(group_ids, pa.string()),
        }
        if table in FACT_TABLES:
            columns = table_arrays(table, self._cluster_id, rows)
            arrays[table] = pa.StructArray.from_arrays(columns, fields=_FIELDS[table])
        else:
            sequences, blobs = zip(*rows, strict=True)
            arrays["sequence"], arrays["blob"] = pa.array(sequences, pa.int64()), pa.array(blobs, pa.binary())
        every = [arrays[one.name] if one.name in arrays else pa.nulls(count, one.type) for one in _OUT]
        self.ready.append(pa.RecordBatch.from_arrays(every, schema=_OUT))


def table_arrays(table: str, cluster_id: str, rows: Sequence[Any]) -> list[pa.Array]:
    """Row objects of `history` as the columns of a documented table."""
    first, *others = _FIELDS[table]
    columns = (list(map(get, rows)) for get in SCHEMAS[table].getters)
    arrays = [_array(column, one.type) for column, one in zip(columns, others, strict=True)]
    return [pa.repeat(pa.scalar(cluster_id, first.type), len(rows)), *arrays]


def _array(column: list[Any], type_: pa.DataType) -> pa.Array:
    """An Arrow array of an export's values; text that UTF-8 cannot encode is escaped as an export does."""
    if pa.types.is_timestamp(type_):
        return times(column)
    try:
        return pa.array(column, type_)
    except UnicodeEncodeError:
        return pa.array([_encodable(item) for item in column], type_)


def _encodable(item: Any) -> Any:
    if isinstance(item, list):
        return [_encodable(one) for one in item]
    if not isinstance(item, str):
        return item
    try:
        item.encode()
    except UnicodeEncodeError:
        return writable(item)
    return item
