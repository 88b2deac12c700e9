"""Tables of an output as multisets of rows: EXCEPT ALL of two outputs, both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from quorate.spark.schema import TABLES
from quorate.spark.tables.reading import arrow_table

RowSets = Mapping[str, Counter[tuple[Any, ...]]]


def row_sets(output: Path | str, tables: Iterable[str] = TABLES) -> RowSets:
    """Return how often each row is there, by table, with every column."""
    return {name: rows_counted(arrow_table(output, name)) for name in tables}


def rows_counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*map(_hashable, rows.to_pydict().values()), strict=True))


def _hashable(column: list[Any]) -> list[Any]:
    if any(isinstance(value, list) for value in column):
        return [str(value) if isinstance(value, list) else value for value in column]
    return column


def except_all(left: RowSets, right: RowSets) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows that either side has more often than the other, by table with any."""
    found = {name: [*(left[name] - right[name]), *(right[name] - left[name])] for name in {*left, *right}}
    return {name: rows for name, rows in found.items() if rows}
