"""Every column of the source and of the tables; documents, readers and writers derive from these definitions.

The tables are those of `quorate log export` (`history.export.schema`) with a leading cluster id. An export's
moment ``X_ms`` is the TIMESTAMP ``X_time`` here, and ``timestamp_ms`` is ``timestamp``. `records` is wider
than an export for people, since states are rebuilt from it: frequently used fields have columns of their own,
beside the bytes of key, value and cause. As in the export, a column keeps its name, type and
meaning, and new columns are appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from history.export.columns import (
    ColumnKind,
    TableColumn,
    TableSchema,
    arrow_types,
    binary,
    boolean,
    column,
    int32,
    int64,
    json_text,
    partitions,
    text,
    texts,
)
from history.export.schema import SCHEMA_VERSION, SCHEMAS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SCHEMA_VERSION", "ColumnKind", "TableColumn", "TableSchema"]  # defined in history

moment = partial(column, ColumnKind.MOMENT)
"""A column with a point in time."""

MS_MIN, MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last ms of the years 1 to 9999, which SQL, Python and pandas can show."""


def micros(ms: int) -> int:
    """The microseconds since 1970 of a moment in ms, at least those of `MS_MIN` and at most of `MS_MAX`."""
    return min(max(ms, MS_MIN), MS_MAX) * 1000


def times(ms: npt.NDArray[np.int64] | Sequence[int | None]) -> pa.Array:
    """The same for many, as an Arrow array of timestamps; None stays null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    within = pc.min_element_wise(pa.array(ms, pa.int64()), MS_MAX, skip_nulls=False)
    within = pc.max_element_wise(within, MS_MIN, skip_nulls=False)
    return pc.multiply(within, 1000).cast(pa.timestamp("us", "UTC"))


def time_name(name: str) -> str:
    """The name in Spark of an export's moment: ``from_time`` for ``from_ms``, and ``timestamp``."""
    return "timestamp" if name == "timestamp_ms" else name.removesuffix("_ms") + "_time"


def ms_name(name: str) -> str:
    """The reverse of `time_name`."""
    return name.removesuffix("_time") + "_ms"


def _timed(column: TableColumn) -> TableColumn:
    """An export's column as Spark's tables have it: moments by name, and NOT NULL where it is never null."""
    if column.kind is ColumnKind.MOMENT:
        column = replace(column, name=time_name(column.name), unit="", get=column.get or column.name)
    return replace(column, is_required=not column.nullable)


CLUSTER_ID = text("cluster_id", "The cluster.")
_PLACE = (
    int32("shard", "The shard; -1 is the metadata shard. Indexes are of its log."),
    int64("raft_index", "The entry that holds it."),
    int64("term", "The term in which the entry was written."),
    moment("timestamp", "When the entry was written."),
)

RECORD_COLUMNS: tuple[TableColumn, ...] = (
    CLUSTER_ID,
    *_PLACE,
    int32("sequence", "The record's place in the entry, from 0."),
    int32("type", "The record type's number (`quorate docs records`)."),
    text("type_name", "The record type's name."),
    int32("version", "The version of the value."),
    boolean("is_tombstone", "True: the record is a tombstone."),
    text("group_id", "The group of the record; null: none."),
    text("member_id", "The member in the record's key."),
    text("topic", "The topic in the record's key."),
    int32("partition", "The partition in the record's key."),
    int32("epoch", "Group epoch (record 3), assignment epoch (6, 7), member epoch (8) or generation (2)."),
    int32(
        "previous_epoch",
        "The member's previous epoch (record 8); -1 if it must give up partitions that it never reported.",
    ),
    text("member_state", "`STABLE`, `UNREVOKED_PARTITIONS`, `UNRELEASED_PARTITIONS` (record 8)."),
    partitions(
        "assigned",
        "The partitions that the member owns (record 8) or that its target assigns to it (record 7).",
    ),
    partitions("pending", "The partitions that the member was told to give up and still owns (record 8)."),
    int64("offset", "The committed offset (record 1), or the pending one (record 1006)."),
    int32("leader_epoch", "The leader epoch of the commit; null: none."),
    text("metadata", "The metadata of the commit; null: none."),
    text("client_id", "The client id of the member (record 5)."),
    text("client_host", "The client host of the member (record 5)."),
    text("instance_id", "The member's group.instance.id (record 5)."),
    text("trigger", "The trigger of the entry's cause."),
    texts("reasons", "The cause's reasons for a new group epoch."),
    text("cause_member_id", "The member whose request the entry answers."),
    int32("cause_member_epoch", "The epoch of that member."),
    text("principal", "The principal of an operator's request."),
    text("address", "The address that the operator's request came from."),
    binary("key_bytes", "The bytes of the key in the log (msgpack)."),
    binary("value_bytes", "The bytes of the value in the log; null: a tombstone."),
    binary("cause_bytes", "The bytes of the entry's cause in the log."),
    moment(
        "join_began_time", "When the join phase began of the rebalance that the entry completed (its cause)."
    ),
    text("protocol_type", "The protocol type of a classic group (record 2); null: none."),
    json_text(
        "members",
        "The members of a classic group's generation (record 2): `member_id`, `instance_id`, `client_id`, "
        "`client_host`, subscribed `topics`, and partitions `assigned` by topic.",
    ),
    int64("producer_id", "The producer in whose transaction an offset is pending (record 1006)."),
)
"""One row for each record: the rows of ``format("quorate")`` and of the table `records`."""

ENTRY_COLUMNS: tuple[TableColumn, ...] = (
    CLUSTER_ID,
    int32("node_id", "The node whose file contains the entry; null: unknown."),
    *_PLACE,
    int64("commit_index", "The leader's commit index when it appended the entry."),
    int32("num_records", "Number of records in the entry."),
    int32("size", "Size of the entry on disk.", unit="bytes"),
    int64("crc", "CRC32C of the entry from its header, verified."),
)
"""One row for each entry of each node: ``option("rows", "entries")``."""

SPAN_COLUMNS: tuple[TableColumn, ...] = (
    CLUSTER_ID,
    _PLACE[0],
    int64("from_index", "The first new entry."),
    int64("to_index", "The last new entry."),
)
"""One row for each shard with new entries, without reading them: ``option("rows", "spans")`` of a stream."""

DAMAGE = text(
    "damage",
    "A description of what cannot be read, and where; all other columns but those of the place are null.",
)
"""Added as the last column under ``mode=permissive``."""


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


_PRESENT = {
    Presence.ALWAYS: ("cluster_id", "shard", "raft_index"),
    Presence.READABLE: (
        *("term", "timestamp", "sequence", "type", "type_name", "version", "is_tombstone", "key_bytes"),
        *("commit_index", "num_records", "size", "crc", "from_index", "to_index"),
    ),
    Presence.OF_ENTRIES: ("trigger", "reasons", "cause_bytes"),
}
_PRESENCE = {name: presence for presence, names in _PRESENT.items() for name in names}


def presence_of(column: TableColumn) -> Presence:
    """The presence of a column of `RECORD_COLUMNS`, `ENTRY_COLUMNS` or `SPAN_COLUMNS`."""
    return _PRESENCE.get(column.name, Presence.SOMETIMES)


TABLES: dict[str, TableSchema] = {
    name: replace(
        table,
        columns=tuple(
            replace(one, is_required=presence_of(one) >= Presence.READABLE) for one in RECORD_COLUMNS
        )
        if name == "records"
        else (replace(CLUSTER_ID, is_required=True), *map(_timed, table.columns)),
    )
    for name, table in SCHEMAS.items()
}
"""The tables that `quorate pipeline run` writes."""


def columns_text(columns: Iterable[TableColumn]) -> Iterator[str]:
    """Columns as a table in Markdown."""
    yield "| Column | Type | Unit | Meaning |"
    yield "|---|---|---|---|"
    for one in columns:
        yield f"| `{one.name}` | {one.kind.spark} | {one.unit} | {one.means} |"


def comment_of(column: TableColumn) -> str:
    """The comment of a column in SQL: its meaning, with its unit in brackets."""
    if not column.unit:
        return column.means
    return f"{column.means.removesuffix('.')} ({column.unit})."


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
        ColumnKind.JSON: t.StringType(),
        ColumnKind.INT32: t.IntegerType(),
        ColumnKind.INT64: t.LongType(),
        ColumnKind.MOMENT: t.TimestampType(),
        ColumnKind.BOOL: t.BooleanType(),
        ColumnKind.FLOAT64: t.DoubleType(),
        ColumnKind.BYTES: t.BinaryType(),
        ColumnKind.TEXTS: t.ArrayType(t.StringType()),
        ColumnKind.INTS: t.ArrayType(t.LongType()),
        ColumnKind.PARTITIONS: t.ArrayType(parts),
    }
    return t.StructType(
        [
            t.StructField(one.name, kinds[one.kind], not one.is_required, {"comment": comment_of(one)})
            for one in columns
        ]
    )


def arrow_type(columns: tuple[TableColumn, ...]) -> pa.Schema:
    """The Arrow schema that Spark expects for batches with these columns."""
    import pyarrow as pa

    kinds = {**arrow_types("element"), ColumnKind.MOMENT: pa.timestamp("us", "UTC")}
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
