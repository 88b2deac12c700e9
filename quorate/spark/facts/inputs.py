"""The rows that facts are derived from: records of groups, and what earlier runs stored for each group.

All have the same columns, so that they can be brought together by group and sorted: stored rows first, then
records and the records of snapshots that replace lost ones, by index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.state.group_records import TOLD_TYPES
from quorate.spark.schema import conformed

from .batches import BRIDGE_ORIGIN, IN_COLUMNS, RAW, STORED_ORIGINS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
PLACE = "place"
"""Stored rows come before all others; the records of a snapshot sort with those of the log."""
IN_SCHEMA = pa.schema([*((name, _TYPES[type_]) for name, type_ in IN_COLUMNS), (PLACE, pa.int32())])
IN_ORDER = ("shard", "group_id", PLACE, "raft_index", "origin", "sequence")
_TOLD_TYPES = pa.array(sorted(int(one) for one in TOLD_TYPES), pa.int32())


def of_groups(records: pa.Table) -> pa.Table:
    """The records from which facts are derived, without their columns for readers."""
    is_mine = pc.and_(pc.is_in(records.column("type"), _TOLD_TYPES), pc.is_valid(records.column("group_id")))
    return records.filter(is_mine)


def record_rows(records: pa.Table, origin: int) -> pa.Table:
    """Rows of `IN_SCHEMA` for records of groups, with their raw columns."""
    return conformed(records, IN_SCHEMA, known={"origin": origin, PLACE: BRIDGE_ORIGIN}, names=RAW)


def stored_rows(stored: pa.Table) -> pa.Table:
    """Rows of `IN_SCHEMA` for what earlier runs stored (`batches.STORED`)."""
    kinds = pa.array(list(STORED_ORIGINS), pa.string())
    origins = pa.array(list(STORED_ORIGINS.values()), pa.int32())
    origin = origins.take(pc.index_in(stored.column("kind").combine_chunks(), kinds))
    made = stored.append_column("origin", origin).append_column(PLACE, origin)
    return conformed(made, IN_SCHEMA, known={}, names={"value": "blob"})


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in IN_ORDER])


def spark_in_type() -> StructType:
    """`IN_SCHEMA` for Spark; needs no session."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(IN_SCHEMA)
