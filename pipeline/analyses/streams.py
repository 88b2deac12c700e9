"""Rows that come as Arrow batches in order, taken group by group: memory holds one group's."""

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
    """Each group's rows one behind the other, in order: for `groups_of` in `mapInArrow`."""
    return frame.repartition(*keys).sortWithinPartitions(*keys, *order)


def groups_of(
    batches: Iterable[pa.RecordBatch], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], Iterator[Row]]]:
    """The keys of each group and its rows, which must be taken before the next group is."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return groupby(rows, key=itemgetter(*keys))
