"""The rows that the source reads."""

from __future__ import annotations

from typing import Any

from quorate.spark.schema import arrow_type
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import plan
from quorate.spark.source.reading import read_task

Row = dict[str, Any]


def rows_of(path: object, **options: str) -> list[Row]:
    """Return the rows that the source reads, in the order of the log."""
    asked = parse_options({"path": str(path), **options})
    batches = [batch for task in plan(asked) for batch in read_task(task)]
    assert all(batch.schema == arrow_type(asked.columns) for batch in batches)
    assert [null for batch in batches for null in _nulls_that_may_not_be(batch)] == []
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: [row.get(name) or 0 for name in ("shard", "raft_index", "sequence")])


def _nulls_that_may_not_be(batch: Any) -> list[str]:
    """Return the non-nullable columns with nulls: Arrow does not check, and Spark would show zeros."""
    return [one.name for one in batch.schema if not one.nullable and batch.column(one.name).null_count]
