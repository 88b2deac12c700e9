"""The tables: their folders, columns, order of rows, and the names of their files.

    TABLE/PART-UNIQUE.parquet, TABLE/_delta_log/        a documented table, and `progress`
    _quorate/TABLE/…                                    an internal table
    _quorate/staging/HOST-PID-UNIQUE/…                  intermediate results of a transaction

Tables are not partitioned. The name of a file begins with its *part*, a set of files that runs treat alike:
files of `rows` are only ever added, files of `open` hold what may still change. A file that another tool
wrote when it compacted a table has no part in its name and counts as `rows`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from uuid import uuid4

from quorate.spark.schema import TABLES, TableColumn, arrow_type
from quorate.spark.schema import ColumnKind as Kind

if TYPE_CHECKING:
    import pyarrow as pa

OURS = "_quorate"
STAGING = f"{OURS}/staging"
FORMAT_3 = f"{OURS}/manifest.json"
"""Every output of releases before Delta has this file."""
PROGRESS = "progress"
ROWS, OPEN = "rows", "open"
"""The part that is only added to, and the part whose files are replaced."""
SORTED_BY = (
    *("group_id", "kind", "from_index", "raft_index", "target_index", "sequence", "epoch", "term"),
    *("topic", "partition"),
)
"""Order of rows within a row group, as far as a table has these columns."""
_INTERNAL = (
    TableColumn(name="shard", kind=Kind.INT32, means="The shard."),
    TableColumn(name="group_id", kind=Kind.TEXT, means="The group; null: none.", nullable=True),
    TableColumn(name="kind", kind=Kind.TEXT, means="The kind of the row."),
    TableColumn(name="sequence", kind=Kind.INT64, means="The row's place among those of its kind."),
    TableColumn(name="blob", kind=Kind.BYTES, means="Its content (msgpack).", nullable=True),
)
_BRIDGES = (
    TableColumn(name="shard", kind=Kind.INT32, means="The shard."),
    TableColumn(name="raft_index", kind=Kind.INT64, means="The last entry that the snapshot includes."),
    TableColumn(name="timestamp", kind=Kind.MOMENT, means="The time of that entry."),
    TableColumn(name="after_index", kind=Kind.INT64, means="The last entry before the lost ones."),
    TableColumn(name="after_ms", kind=Kind.INT64, means="The time of that entry, in ms since 1970."),
    TableColumn(name="sequence", kind=Kind.INT64, means="The record's place; -1: the snapshot as a whole."),
    TableColumn(name="type", kind=Kind.INT32, means="The record type's number."),
    TableColumn(name="version", kind=Kind.INT32, means="The version of the value."),
    TableColumn(name="group_id", kind=Kind.TEXT, means="The group.", nullable=True),
    TableColumn(name="key_bytes", kind=Kind.BYTES, means="The bytes of the key.", nullable=True),
    TableColumn(name="value_bytes", kind=Kind.BYTES, means="The bytes of the value.", nullable=True),
)
INTERNAL: dict[str, tuple[TableColumn, ...]] = {"group_states": _INTERNAL, "fact_bridges": _BRIDGES}
"""Tables that only runs read: states of groups, and snapshots that stand in for lost entries."""
_FILE = re.compile(r"([a-z][a-z0-9_]*)-[0-9a-f]{32}\.parquet")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The columns that say when a row holds."""

    begin: str
    end: str | None
    """None: a row is of one moment. A null in the column: it has not ended."""


def all_tables() -> tuple[str, ...]:
    """Documented and internal tables, without `progress`."""
    return (*TABLES, *INTERNAL)


def folder_of(table: str) -> str:
    """The folder of a table; raises `ValueError` for one that does not exist. Staged rows have none ("")."""
    if not table:
        return ""
    if table in INTERNAL:
        return f"{OURS}/{table}"
    if table in TABLES or table == PROGRESS:
        return table
    raise ValueError(f"there is no table {table!r}")


def columns_of(table: str) -> tuple[TableColumn, ...]:
    """The columns of a table in order; raises `ValueError` for one that does not exist."""
    if table not in INTERNAL and table not in TABLES:
        raise ValueError(f"there is no table {table!r}")
    return INTERNAL[table] if table in INTERNAL else TABLES[table].columns


@cache
def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of the table's rows."""
    return arrow_type(columns_of(table))


def sort_keys(columns: Iterable[str]) -> list[str]:
    """The columns by which rows with these columns are sorted."""
    there = set(columns)
    return [name for name in SORTED_BY if name in there]


@cache
def span_of(table: str) -> TimeSpan | None:
    """The times of the table's rows; None for an internal table."""
    import pyarrow as pa

    times = [one.name for one in schema_of(table) if pa.types.is_timestamp(one.type)]
    begin = next((name for name in ("timestamp", "from_time", "target_time") if name in times), None)
    end = next((name for name in ("to_time", "end_time") if name in times), None)
    return None if begin is None else TimeSpan(begin, end)


def new_file(part: str) -> str:
    """A name that no file has had."""
    if not _NAME.fullmatch(part):
        raise ValueError(f"{part!r} is not the name of a part")
    return f"{part}-{uuid4().hex}.parquet"


def part_of(path: str) -> str:
    """The part of a file of a table."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    return match[1] if match else ROWS
