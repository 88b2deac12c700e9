"""Every column of the source and of the tables; documents, readers and writers derive from these definitions.

The tables are those of `quorate log export` (`history.export.schema`) with a leading cluster id. `records` is
wider than an export for people, since states are rebuilt from it: frequently used fields have columns of
their own, beside the bytes of key, value and cause. As in the export, a column keeps its name, type and
meaning, and new columns are appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from history.export.columns import ExportKind
from history.export.schema import SCHEMA_VERSION, SCHEMAS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "ENTRY_COLUMNS",
    "RECORD_COLUMNS",
    "SCHEMA_VERSION",
    "SPAN_COLUMNS",
    "TABLES",
    "ColumnKind",
    "Presence",
    "TableColumn",
    "TableSchema",
]


class ColumnKind(StrEnum):
    """The type of a column, by Spark's name."""

    TEXT = "string"
    INT32 = "int"
    INT64 = "bigint"
    BOOL = "boolean"
    FLOAT64 = "double"
    BYTES = "binary"
    TEXTS = "array<string>"
    INTS = "array<bigint>"
    PARTITIONS = "array<struct<topic_id:string,partitions:array<int>>>"


class Presence(IntEnum):
    """The rows of the source in which a column is never null; each level includes those before it."""

    SOMETIMES = 0
    """No row is guaranteed to have it."""
    OF_ENTRIES = 1
    """Every row that comes from an entry; a record in a snapshot no longer has a cause."""
    READABLE = 2
    """Every row that could be read."""
    ALWAYS = 3
    """Every row, including those for damage, whose place it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column; ``unit`` is empty if it has none."""

    name: str
    kind: ColumnKind
    means: str
    unit: str = ""
    is_raw: bool = False
    """Bytes as they are in the log; the source reads them only on request."""
    presence: Presence = Presence.SOMETIMES
    is_required: bool = False
    """Never null in this read, and declared so to Spark; a table's columns are all nullable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table that `quorate pipeline run` writes, partitioned by ``date`` and ``shard``."""

    name: str
    means: str
    columns: tuple[TableColumn, ...]
    date_of: str
    """The column whose day (UTC) becomes the row's ``date``."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def spark(self) -> StructType:
        return spark_type(self.columns)


def _col(
    name: str,
    kind: ColumnKind,
    means: str,
    unit: str = "",
    *,
    presence: Presence = Presence.SOMETIMES,
    is_raw: bool = False,
) -> TableColumn:
    return TableColumn(name=name, kind=kind, means=means, unit=unit, presence=presence, is_raw=is_raw)


_always = partial(_col, presence=Presence.ALWAYS)
_readable = partial(_col, presence=Presence.READABLE)
_of_entry = partial(_col, presence=Presence.OF_ENTRIES)

CLUSTER_ID = _always("cluster_id", ColumnKind.TEXT, "The cluster.")
_SHARD = _always("shard", ColumnKind.INT32, "The shard; -1 is the metadata shard. Indexes are of its log.")
_INDEX = _always("raft_index", ColumnKind.INT64, "The entry that holds it.")
_TERM = _readable("term", ColumnKind.INT64, "The term in which the entry was written.")
_WHEN = _readable("timestamp_ms", ColumnKind.INT64, "When the entry was written.", "ms since 1970, UTC")

RECORD_COLUMNS: tuple[TableColumn, ...] = (
    CLUSTER_ID,
    _SHARD,
    _INDEX,
    _TERM,
    _WHEN,
    _readable("sequence", ColumnKind.INT32, "The record's place in the entry, from 0."),
    _readable("type", ColumnKind.INT32, "The record type's number (docs/records.md)."),
    _readable("type_name", ColumnKind.TEXT, "The record type's name."),
    _readable("version", ColumnKind.INT32, "The version of the value."),
    _readable("is_tombstone", ColumnKind.BOOL, "True: it deletes what its key names."),
    _col("group_id", ColumnKind.TEXT, "The group that it is about; null: none."),
    _col("member_id", ColumnKind.TEXT, "The member that its key names."),
    _col("topic", ColumnKind.TEXT, "The topic that its key names."),
    _col("partition", ColumnKind.INT32, "The partition that its key names."),
    _col("epoch", ColumnKind.INT32, "Group epoch (record 3), assignment epoch (6, 7) or member epoch (8)."),
    _col(
        "previous_epoch",
        ColumnKind.INT32,
        "The member's epoch before (record 8); -1 if it is to give up what it never reported.",
    ),
    _col(
        "member_state",
        ColumnKind.TEXT,
        "`STABLE`, `UNREVOKED_PARTITIONS`, `UNRELEASED_PARTITIONS` (record 8).",
    ),
    _col("assigned", ColumnKind.PARTITIONS, "What the member has (record 8) or is to have (record 7)."),
    _col("pending", ColumnKind.PARTITIONS, "What the member was told to give up and still has (record 8)."),
    _col("offset", ColumnKind.INT64, "The committed offset (record 1)."),
    _col("leader_epoch", ColumnKind.INT32, "The leader epoch that the client gave with it; null: none."),
    _col("metadata", ColumnKind.TEXT, "What the client wrote beside it; null: nothing."),
    _col("client_id", ColumnKind.TEXT, "What the member's client calls itself (record 5)."),
    _col("client_host", ColumnKind.TEXT, "From where it came (record 5)."),
    _col("instance_id", ColumnKind.TEXT, "The member's group.instance.id (record 5)."),
    _of_entry("trigger", ColumnKind.TEXT, "The trigger of the entry's cause."),
    _of_entry("reasons", ColumnKind.TEXTS, "The reasons for a new group epoch that the cause names."),
    _col("cause_member_id", ColumnKind.TEXT, "The member whose request the entry answers."),
    _col("cause_member_epoch", ColumnKind.INT32, "That member's epoch."),
    _col("principal", ColumnKind.TEXT, "Who asked, of an operator's request."),
    _col("address", ColumnKind.TEXT, "From where."),
    _readable("key_bytes", ColumnKind.BYTES, "The key as it stands in the log (msgpack).", is_raw=True),
    _col(
        "value_bytes", ColumnKind.BYTES, "The value as it stands in the log; null: a tombstone.", is_raw=True
    ),
    _of_entry("cause_bytes", ColumnKind.BYTES, "The entry's cause as it stands in the log.", is_raw=True),
)
"""One row for each record: the rows of ``format("quorate")`` and of the table `records`."""

ENTRY_COLUMNS: tuple[TableColumn, ...] = (
    CLUSTER_ID,
    _col("node_id", ColumnKind.INT32, "The node whose file it was read from; null: the files do not say."),
    _SHARD,
    _INDEX,
    _TERM,
    _WHEN,
    _readable("commit_index", ColumnKind.INT64, "The leader's commit index when it appended the entry."),
    _readable("num_records", ColumnKind.INT32, "How many records it holds."),
    _readable("size", ColumnKind.INT32, "Its size on disk.", "bytes"),
    _readable("crc", ColumnKind.INT64, "CRC32C of the entry, as it stands in its header and was checked."),
)
"""One row for each entry of each node: ``option("rows", "entries")``."""

SPAN_COLUMNS: tuple[TableColumn, ...] = (
    CLUSTER_ID,
    _SHARD,
    _readable("from_index", ColumnKind.INT64, "The first entry that is new."),
    _readable("to_index", ColumnKind.INT64, "The last one."),
)
"""One row for each shard with new entries, without reading them: ``option("rows", "spans")`` of a stream."""

DAMAGE = _col(
    "damage", ColumnKind.TEXT, "What cannot be read, and where; of such a row all but its place is null."
)
"""Added as the last column under ``mode=permissive``."""

_OF_EXPORT = {
    ExportKind.TEXT: ColumnKind.TEXT,
    ExportKind.JSON: ColumnKind.TEXT,
    ExportKind.INT32: ColumnKind.INT32,
    ExportKind.INT64: ColumnKind.INT64,
    ExportKind.BOOL: ColumnKind.BOOL,
    ExportKind.TEXTS: ColumnKind.TEXTS,
    ExportKind.INTS: ColumnKind.INTS,
}
_DATE_OF = {"moves": "target_ms"}


def _tables() -> dict[str, TableSchema]:
    found = {}
    for table in SCHEMAS.values():
        columns = [_col(c.name, _OF_EXPORT[c.kind], c.means, _unit(c.name, c.means)) for c in table.columns]
        names = [column.name for column in columns]
        date_of = _DATE_OF.get(table.name, "timestamp_ms" if "timestamp_ms" in names else "from_ms")
        found[table.name] = TableSchema(
            name=table.name, means=table.means, columns=(CLUSTER_ID, *columns), date_of=date_of
        )
    return {**found, "records": replace(found["records"], columns=RECORD_COLUMNS)}


def _unit(name: str, means: str) -> str:
    if not name.endswith("_ms"):
        return ""
    is_span = name.startswith(("duration", "time_to", "gap", "timeout", "rebalance_timeout"))
    return "ms" if is_span else "ms since 1970, UTC"


TABLES: dict[str, TableSchema] = _tables()


def columns_named(columns: tuple[TableColumn, ...], names: list[str]) -> tuple[TableColumn, ...]:
    """The columns with these names, in the order of the names; raises `KeyError` with the missing name."""
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in names)


def spark_type(columns: tuple[TableColumn, ...]) -> StructType:
    """Spark type of rows with these columns; needs no session."""
    from pyspark.sql import types as t

    parts = t.StructType(
        [t.StructField("topic_id", t.StringType()), t.StructField("partitions", t.ArrayType(t.IntegerType()))]
    )
    kinds: dict[ColumnKind, t.DataType] = {
        ColumnKind.TEXT: t.StringType(),
        ColumnKind.INT32: t.IntegerType(),
        ColumnKind.INT64: t.LongType(),
        ColumnKind.BOOL: t.BooleanType(),
        ColumnKind.FLOAT64: t.DoubleType(),
        ColumnKind.BYTES: t.BinaryType(),
        ColumnKind.TEXTS: t.ArrayType(t.StringType()),
        ColumnKind.INTS: t.ArrayType(t.LongType()),
        ColumnKind.PARTITIONS: t.ArrayType(parts),
    }
    return t.StructType([t.StructField(one.name, kinds[one.kind], not one.is_required) for one in columns])


def arrow_type(columns: tuple[TableColumn, ...]) -> pa.Schema:
    """The Arrow schema that Spark expects for batches with these columns."""
    import pyarrow as pa

    def listed(of: pa.DataType) -> pa.DataType:
        return pa.list_(pa.field("element", of))

    kinds = {
        ColumnKind.TEXT: pa.string(),
        ColumnKind.INT32: pa.int32(),
        ColumnKind.INT64: pa.int64(),
        ColumnKind.BOOL: pa.bool_(),
        ColumnKind.FLOAT64: pa.float64(),
        ColumnKind.BYTES: pa.binary(),
        ColumnKind.TEXTS: listed(pa.string()),
        ColumnKind.INTS: listed(pa.int64()),
        ColumnKind.PARTITIONS: listed(
            pa.struct([pa.field("topic_id", pa.string()), pa.field("partitions", listed(pa.int32()))])
        ),
    }
    return pa.schema([pa.field(one.name, kinds[one.kind], not one.is_required) for one in columns])


def conformed(
    rows: pa.Table, schema: pa.Schema, *, known: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> pa.Table:
    """Rows with the columns of ``schema``; those in ``known`` are constant, missing ones are null.

    ``names`` maps a column to its name in ``rows``, where that differs.
    """
    import pyarrow as pa

    columns = []
    for one in schema:
        name = (names or {}).get(one.name, one.name)
        if one.name in known:
            columns.append(pa.repeat(pa.scalar(known[one.name], one.type), rows.num_rows))
        elif name in rows.column_names:
            columns.append(rows.column(name).cast(one.type))
        else:
            columns.append(pa.nulls(rows.num_rows, one.type))
    return pa.Table.from_arrays(columns, schema=schema)
