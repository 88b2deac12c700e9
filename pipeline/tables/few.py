"""Few rows, read and written by this process: a query of Spark is planned for longer than they take.

They come to lie as Spark lays them out (`layout`): the same files, sorted in the same way, with the same
columns in them. What must stay true: no more than `FEW_ROWS` rows and `FEW_BYTES` are ever asked for at a
time, whatever the size of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.schema import TableSchema, arrow_type

from . import names
from .disk import join
from .layout import DAY_MS, DAYS, EPOCH, SORTED_BY
from .manifest import TableFile

__all__ = [
    "FEW_BYTES",
    "FEW_ROWS",
    "Few",
    "are_few",
    "buckets_by_group",
    "day_of",
    "is_few",
    "laid_few",
    "read_few",
    "size_of",
]

FEW_ROWS = 100_000
"""Written in some tenths of a second."""
FEW_BYTES = 32 << 20
"""As files have them before compression, of which Arrow makes a few times as many; `transaction.SIDE_BY_SIDE`
tables may be under way: some hundred MB at worst."""


@dataclass(frozen=True, slots=True)
class Few:
    """Rows as they are to be written, in order; ``keys`` are the columns that say into which folder."""

    rows: pa.Table
    keys: tuple[str, ...]

    def write(self, folder: str) -> int:
        """Writes them to a new folder; how many rows."""
        os.makedirs(folder, exist_ok=True)
        for place, rows in self._by_place():
            os.makedirs(join(folder, place), exist_ok=True)
            path = join(folder, place, "part-00000.parquet")
            pq.write_table(rows, path, compression="zstd", store_schema=False, write_page_index=True)
        return int(self.rows.num_rows)

    def _by_place(self) -> Iterator[tuple[str, pa.Table]]:
        if not self.rows.num_rows:
            return
        of_keys = [self.rows.column(key).to_numpy() for key in self.keys]
        changes = np.zeros(self.rows.num_rows - 1, bool)
        for values in of_keys:
            changes |= values[1:] != values[:-1]
        begins = [0, *(np.flatnonzero(changes) + 1).tolist()]
        plain = self.rows.drop_columns(list(self.keys))
        for begin, end in zip(begins, [*begins[1:], self.rows.num_rows], strict=True):
            pairs = zip(self.keys, (values[begin] for values in of_keys), strict=True)
            yield (
                "/".join(f"{key}={_shown(key, value)}" for key, value in pairs),
                plain.slice(begin, end - begin),
            )


def laid_few(rows: pa.Table, schema: TableSchema | None, buckets: int = 1) -> Few:
    """Rows of a documented table, or (None) of an internal one; raises `ValueError` for other columns."""
    keys = []
    if schema is not None:
        missing = [name for name in schema.names if name not in rows.column_names]
        if missing:
            raise ValueError(f"rows of {schema.name} lack {', '.join(missing)}")
        rows = rows.select(schema.names).cast(arrow_type(schema.columns))
        rows = rows.append_column("date", _days(rows.column(schema.date_of)))
        keys.append("date")
    if "shard" in rows.column_names:
        keys.append("shard")
    if buckets > 1:
        rows = rows.append_column("bucket", buckets_by_group(rows.column("group_id"), buckets))
        keys.append("bucket")
    return in_order(rows, keys)


def in_order(rows: pa.Table, keys: Sequence[str]) -> Few:
    """Rows that have the columns ``keys`` already."""
    by = [*keys, *(name for name in SORTED_BY if name in rows.column_names and name not in keys)]
    return Few(rows.sort_by([(name, "ascending") for name in by]) if by else rows, tuple(keys))


def read_few(root: str, files: Iterable[TableFile], schema: pa.Schema) -> pa.Table:
    """These files' rows; what a file of an older release lacks is null."""
    found = [_conformed(pq.ParquetFile(join(root, one.path)).read(), schema, one.shard) for one in files]
    return pa.concat_tables(found) if found else schema.empty_table()


def size_of(paths: Iterable[str]) -> tuple[int, int]:
    """The rows of Parquet files and their bytes before compression, from their feet."""
    rows = size = 0
    for path in paths:
        foot = pq.read_metadata(path)
        rows += foot.num_rows
        size += sum(foot.row_group(number).total_byte_size for number in range(foot.num_row_groups))
    return rows, size


def is_few(rows: int, size: int) -> bool:
    return rows <= FEW_ROWS and size <= FEW_BYTES


def are_few(root: str, files: Iterable[TableFile]) -> bool:
    """Whether all rows of these files may be read at a time."""
    return is_few(*size_of(join(root, file.path) for file in files))


def day_of(day: str | None) -> int:
    """The day since 1970 that a file of this date is of, or the one that stands for none."""
    return (date.fromisoformat(day or names.UNDATED) - EPOCH).days


def buckets_by_group(group_ids: pa.ChunkedArray, buckets: int) -> pa.ChunkedArray:
    """In which bucket each row is, as `layout.bucket_of_group` says it to Spark."""
    named = group_ids.combine_chunks().dictionary_encode()
    of_each = [0 if one is None else crc32(one.encode()) % buckets for one in named.dictionary.to_pylist()]
    indices = named.indices.fill_null(len(of_each))  # rows of no group are in the first
    return pa.chunked_array([pa.array([*of_each, 0], pa.int32()).take(indices)])


def _conformed(rows: pa.Table, schema: pa.Schema, shard: int | None) -> pa.Table:
    columns = []
    for one in schema:
        if one.name == "shard":
            columns.append(pa.repeat(pa.scalar(shard, one.type), rows.num_rows))
        elif one.name in rows.column_names:
            columns.append(rows.column(one.name).cast(one.type))
        else:
            columns.append(pa.nulls(rows.num_rows, one.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _days(moments_ms: pa.ChunkedArray) -> pa.ChunkedArray:
    """Of each moment the day since 1970, or the one that stands for none."""
    nowhere = (DAYS[0] - 1) * DAY_MS
    days = moments_ms.fill_null(nowhere).to_numpy() // DAY_MS
    dated = np.where((days >= DAYS[0]) & (days <= DAYS[1]), days, day_of(None))
    return pa.chunked_array([pa.array(dated.astype(np.int32))])


def _shown(key: str, value: int) -> str:
    return str(EPOCH + timedelta(days=int(value))) if key == "date" else str(value)
