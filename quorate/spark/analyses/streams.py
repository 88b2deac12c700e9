"""Iteration over ordered Arrow batches group by group, with one group's rows in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Row = dict[str, Any]


def in_groups(frame: DataFrame, keys: tuple[str, ...], *order: str) -> DataFrame:
    """Sort a frame so that each group's rows are consecutive, for `groups_of` in `mapInArrow`."""
    return frame.repartition(*keys).sortWithinPartitions(*keys, *order)


def groups_of(
    batches: Iterable[pa.RecordBatch], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], Iterator[Row]]]:
    """The keys and rows of each group; its rows must be consumed before the next group is taken."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return groupby(rows, key=itemgetter(*keys))
