"""The rows of a log's tables, as `quorate log export` has them and as an output of the pipeline has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from history.export.schema import SCHEMAS
from history.export.sources import ShardRows
from history.moments import LogWindow
from history.reading.node import NodeLog
from history.reading.opening import open_node
from quorate.spark.schema import TABLES, ColumnKind, TableColumn, time_name
from quorate.spark.tables.files import read_file
from quorate.spark.tables.reading import table_files
from quorate.spark.tables.store import Store

NOT_IN_RECORDS = ("key", "value", "cause")
"""Columns for people; the pipeline has the bytes instead."""
OF_FACTS = ("group_epochs", "moves", "ownership", "member_sessions", "waits", "findings")
Rows = list[dict[str, Any]]


def exported(path: Path | str | NodeLog, *tables: str) -> dict[str, Rows]:
    """Return the rows of these tables (or all) as `history` exports them."""
    log = open_node(path if isinstance(path, NodeLog) else str(path))
    wanted = tables or tuple(SCHEMAS)
    rows: dict[str, Rows] = {name: [] for name in wanted}

    def take(table: str, row: object) -> None:
        names = [column.name for column in SCHEMAS[table].columns]
        made = dict(zip(names, SCHEMAS[table].values(row), strict=True))
        rows[table].append({name: value for name, value in made.items() if _is_shared(table, name)})

    catalog = log.catalog()
    for shard in log.shards:
        ShardRows(shard, catalog, wanted, None, LogWindow(), take).run(log.reader(shard))
    return {name: in_order(of_table) for name, of_table in rows.items()}


def held(output: Path | str, *tables: str, part: str | None = None) -> dict[str, Rows]:
    """Return the rows of these tables (or all) in an output, in the columns and units of the export."""
    return {name: in_order(_held(output, name, part)) for name in tables or TABLES}


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row.values()])


def _held(output: Path | str, table: str, part: str | None) -> Rows:
    store, shared = Store.at(output), in_table(table)
    rows: Rows = []
    for file in table_files(output, table, part):
        found = read_file(store, table, file.path)
        columns = {name: in_ms(found.column(named)) for name, named in shared.items()}
        rows += pa.table(columns).to_pylist()
    return rows


def in_table(table: str) -> dict[str, str]:
    """Return the columns of the export that a table has, with their names in the table."""
    there = {one.name for one in TABLES[table].columns}
    named = {column.name: _name_in_table(column) for column in SCHEMAS[table].columns}
    return {name: other for name, other in named.items() if _is_shared(table, name) and other in there}


def in_ms(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with moments as the export has them."""
    return pc.divide(column.cast(pa.int64()), 1_000) if pa.types.is_timestamp(column.type) else column


def _name_in_table(column: TableColumn) -> str:
    return time_name(column.name) if column.kind is ColumnKind.MOMENT else column.name


def _is_shared(table: str, name: str) -> bool:
    return table != "records" or name not in NOT_IN_RECORDS
