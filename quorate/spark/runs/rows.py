"""Rows that the driver itself adds to tables: few, and made from row objects of `history`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from history.export.schema import SCHEMAS
from quorate.spark.schema import TABLES, arrow_type, micros
from quorate.spark.tables.files import FileWriter, WrittenFile
from quorate.spark.tables.names import ROWS
from quorate.spark.tables.store import Store


def table_rows(table: str, cluster_id: str, rows: Iterable[Any]) -> pa.Table:
    """Row objects of `history` as rows of a documented table."""
    schema = arrow_type(TABLES[table].columns)
    values = [(cluster_id, *SCHEMAS[table].values(row)) for row in rows]
    columns = zip(*values, strict=True) if values else [()] * len(schema)
    arrays = [_array(list(column), one.type) for column, one in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


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


def _array(column: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):  # milliseconds in history
        return pa.array([None if ms is None else micros(ms) for ms in column], type_)
    return pa.array(column, type_)
