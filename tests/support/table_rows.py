"""The rows of a log's tables, as `quorate log export` has them and as an output of the pipeline has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from history.export.schema import SCHEMAS
from history.export.sources import ShardRows
from history.moments import LogWindow
from history.reading.opening import open_node
from pipeline.schema import TABLES
from pipeline.tables.reading import table_files

NOT_IN_RECORDS = ("key", "value", "cause")
"""Columns for people; the pipeline has the bytes instead."""
OF_FACTS = ("group_epochs", "moves", "ownership", "member_sessions", "waits", "findings")
Rows = list[dict[str, Any]]


def exported(path: Path | str, *tables: str) -> dict[str, Rows]:
    """Return the rows of these tables (or all) as `history` exports them."""
    log = open_node(str(path))
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
    """Return the rows of these tables (or all) in an output, without the columns that the export lacks."""
    return {name: in_order(_held(Path(output), name, part)) for name in tables or TABLES}


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row.values()])


def _held(output: Path, table: str, part: str | None) -> Rows:
    names = [column.name for column in SCHEMAS[table].columns]
    rows: Rows = []
    for file in table_files(output, table, part):
        for row in pq.ParquetFile(output / file.path).read().to_pylist():
            row["shard"] = file.shard
            rows.append({name: row[name] for name in names if _is_shared(table, name)})
    return rows


def _is_shared(table: str, name: str) -> bool:
    return table != "records" or name not in NOT_IN_RECORDS
