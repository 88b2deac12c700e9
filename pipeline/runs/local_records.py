"""The questions of `ingest` about few new records, answered from an Arrow table in this process.

`losses` and `projections` answer them with Spark for any number of records.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema import TABLES, arrow_type
from records import RecordType
from records.ids import METADATA_SHARD

from .losses import WrittenEntries
from .projections import SAID_NOTHING, START_COLUMNS, Place


def reached_of(records: pa.Table) -> dict[int, WrittenEntries]:
    """Progress by shard; every entry has a record with sequence 0."""
    entries = _entries(records).sort_by([("shard", "ascending"), ("raft_index", "ascending")])
    asked = [
        ("raft_index", "count"),
        ("raft_index", "last"),
        ("timestamp_ms", "first"),
        ("timestamp_ms", "last"),
    ]
    return {
        row["shard"]: WrittenEntries(
            entries=row["raft_index_count"],
            first_ms=row["timestamp_ms_first"],
            last_index=row["raft_index_last"],
            last_ms=row["timestamp_ms_last"],
        )
        for row in entries.group_by("shard", use_threads=False).aggregate(asked).to_pylist()
    }


def starts_of(records: pa.Table) -> list[dict[str, Any]]:
    """The records that start a term."""
    found = records.filter(pc.equal(records.column("type"), int(RecordType.TERM_START)))
    return list(_entries(found).select(START_COLUMNS).to_pylist())


def times_of(records: pa.Table, places: Collection[Place]) -> dict[Place, int]:
    """The timestamps of the entries of ``places`` that exist."""
    indexes = pa.array([index for _, index in places], pa.int64())
    found = _entries(records.filter(pc.is_in(records.column("raft_index"), indexes)))
    rows = found.select(["shard", "raft_index", "timestamp_ms"]).to_pylist()
    times = {(row["shard"], row["raft_index"]): row["timestamp_ms"] for row in rows}
    return {place: times[place] for place in places if place in times}


def commits_of(records: pa.Table) -> pa.Table:
    """The rows of table `commits`."""
    is_commit = pc.equal(records.column("type"), int(RecordType.OFFSET_COMMIT))
    mine = records.filter(pc.and_(is_commit, pc.not_equal(records.column("shard"), METADATA_SHARD)))
    schema, columns = arrow_type(TABLES["commits"].columns), []
    for one in schema:
        known = SAID_NOTHING.get(one.name)
        column = mine.column(one.name if known is None else known[0])
        if known is not None:
            column = pc.if_else(pc.not_equal(column, known[1]), column, pa.scalar(None, column.type))
        columns.append(column.cast(one.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _entries(records: pa.Table) -> pa.Table:
    return records.filter(pc.equal(records.column("sequence"), 0))
