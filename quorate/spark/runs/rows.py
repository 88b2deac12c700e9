"""Rows that the driver itself adds to tables: few, and made from row objects of `history`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from quorate.spark.facts.batches import table_arrays
from quorate.spark.schema import TABLES, arrow_type
from quorate.spark.tables.files import FileWriter, WrittenFile
from quorate.spark.tables.names import ROWS
from quorate.spark.tables.store import Store


def table_rows(table: str, cluster_id: str, rows: Iterable[Any]) -> pa.Table:
    """Row objects of `history` as rows of a documented table."""
    arrays = table_arrays(table, cluster_id, list(rows))
    return pa.Table.from_arrays(arrays, schema=arrow_type(TABLES[table].columns))


def write_rows(
    store: Store, table: str, cluster_id: str, rows: Iterable[Any] | pa.Table, *, part: str = ROWS
) -> list[WrittenFile]:
    """Write few rows of a documented table; no file if there are none."""
    made = rows if isinstance(rows, pa.Table) else table_rows(table, cluster_id, rows)
    if not made.num_rows:
        return []
    with FileWriter(store, table, part, made.schema) as writer:
        writer.write(made)
        return writer.close()
