"""Few rows, read and written by this process: planning a Spark query takes longer than the work itself.

The files are like those that Spark writes (`layout`): same paths, same columns, same sort order except for
nulls. The invariant: whatever the size of the log, no more than `FEW_ROWS` rows, `FEW_BYTES` and `FEW_MEMORY`
are read for one table.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import OutputError
from pipeline.schema import TableSchema, arrow_type, conformed

from . import names
from .buckets import hash_of
from .disk import join
from .layout import DAY_MS, DAYS, EPOCH, SORTED_BY
from .manifest import TableFile

FEW_ROWS = 100_000
"""Rows that are written within some tenths of a second."""
FEW_BYTES = 32 << 20
"""Bytes in files before compression, the amount to decode."""
FEW_MEMORY = 128 << 20
"""Bytes in Arrow, where repeated values take their space each time.

A run may hold a dozen such tables, and `transaction.SIDE_BY_SIDE` of them twice while they are sorted; most
take about 10 MB.
"""
ROWS_AT_ONCE = 2_000
"""Rows read between two checks of `FEW_MEMORY`."""
LOOKED_THROUGH = 8
"""Factor by which more may be scanned to find few rows; this also takes some tenths of a second."""


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows ready to be written; ``keys`` are the columns that determine their folder."""

    rows: pa.Table
    keys: tuple[str, ...]

    def write(self, folder: str) -> int:
        """Write them to a new folder; returns the number of rows."""
        os.makedirs(folder, exist_ok=True)
        for place, rows in self._by_place():
            os.makedirs(join(folder, place), exist_ok=True)
            path = join(folder, place, "part-00000.parquet")
            pq.write_table(rows, path, compression="zstd", store_schema=False, write_page_index=True)
        return int(self.rows.num_rows)

    def _by_place(self) -> Iterator[tuple[str, pa.Table]]:
        if not self.rows.num_rows:
            return
        rows = in_order(self.rows, self.keys)
        of_keys = [rows.column(key).to_numpy() for key in self.keys]
        changes = np.zeros(rows.num_rows - 1, bool)
        for values in of_keys:
            changes |= values[1:] != values[:-1]
        begins = [0, *(np.flatnonzero(changes) + 1).tolist()]
        plain = rows.drop_columns(list(self.keys))
        for begin, end in zip(begins, [*begins[1:], rows.num_rows], strict=True):
            pairs = zip(self.keys, (values[begin] for values in of_keys), strict=True)
            yield (
                "/".join(f"{key}={_shown(key, value)}" for key, value in pairs),
                plain.slice(begin, end - begin),
            )


def lay_out_locally(rows: pa.Table, schema: TableSchema | None, buckets: int = 1) -> LocalRows:
    """Lay out rows of a documented or (None) internal table; raises `ValueError` if columns are missing."""
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
        rows = rows.append_column("bucket", _buckets(rows.column("group_id"), buckets))
        keys.append("bucket")
    return LocalRows(rows, tuple(keys))


def in_order(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows sorted by ``keys``, then as by `layout.sorted_for_files`."""
    by = [*keys, *(name for name in SORTED_BY if name in rows.column_names and name not in keys)]
    return rows.sort_by([(name, "ascending") for name in by]) if by else rows


def is_few(rows: int, size: int) -> bool:
    return rows <= FEW_ROWS and size <= FEW_BYTES


def size_of(root: str, paths: Iterable[str]) -> tuple[int, int]:
    """Rows and uncompressed bytes of Parquet files, from their footers."""
    rows = size = 0
    for path in paths:
        with _sound(root, path):
            foot = pq.read_metadata(join(root, path))
        rows += foot.num_rows
        size += sum(foot.row_group(number).total_byte_size for number in range(foot.num_row_groups))
    return rows, size


def read_locally(
    root: str,
    files: Collection[TableFile],
    schema: pa.Schema,
    only: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table | None:
    """The rows of these files; None if they are not few. Columns that an older release's file lacks are null.

    ``only`` filters each chunk of rows read from a file.
    """
    rows, size = size_of(root, (file.path for file in files))
    times = 1 if only is None else LOOKED_THROUGH
    if rows > times * FEW_ROWS or size > times * FEW_BYTES:
        return None
    found, room = [schema.empty_table()], FEW_MEMORY
    for some in _read(root, files, schema):
        found.append(some if only is None else only(some))
        room -= found[-1].nbytes
        if room < 0:
            return None
    return pa.concat_tables(found)


def read_all(root: str, files: Iterable[TableFile], schema: pa.Schema) -> pa.Table:
    """The rows of files that are known to be few."""
    return pa.concat_tables([schema.empty_table(), *_read(root, files, schema)])


def read_file(root: str, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a small file, unconverted; raises `OutputError`."""
    with _sound(root, path), pq.ParquetFile(join(root, path)) as file:
        return file.read(columns=columns)


def schema_of(root: str, path: str) -> pa.Schema:
    """The columns of a file; raises `OutputError`."""
    with _sound(root, path):
        return pq.read_schema(join(root, path)).remove_metadata()


def _read(root: str, files: Iterable[TableFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """Chunks of rows; date and shard are filled in from a file's path if ``schema`` has them."""
    for one in files:
        known = {"shard": one.shard, "date": day_of(one.date)}
        with _sound(root, one.path), pq.ParquetFile(join(root, one.path)) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield conformed(pa.Table.from_batches([batch]), schema, known=known)


@contextlib.contextmanager
def _sound(root: str, path: str) -> Iterator[None]:
    """Turn a failure to read a file into `OutputError`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OutputError(
            f"{path} of the output {root} cannot be read: {str(why).partition(chr(10))[0]}",
            "restore it, or write to a new output",
        ) from error


def day_of(day: str | None) -> int:
    """The day since 1970 of a file with this date, or the placeholder for rows without a date."""
    return (date.fromisoformat(day or names.UNDATED) - EPOCH).days


def _buckets(group_ids: pa.ChunkedArray, buckets: int) -> pa.ChunkedArray:
    """The bucket of each row, as Spark's `layout.bucket_of_group` gives it."""
    named = group_ids.combine_chunks().dictionary_encode()
    of_each = [hash_of(one) % buckets for one in named.dictionary.to_pylist()]
    indices = named.indices.fill_null(len(of_each))  # rows without a group go to the first
    return pa.chunked_array([pa.array([*of_each, 0], pa.int32()).take(indices)])


def _days(moments_ms: pa.ChunkedArray) -> pa.ChunkedArray:
    """The day since 1970 of each timestamp, or the placeholder if it is missing or out of range."""
    nowhere = (DAYS[0] - 1) * DAY_MS
    days = moments_ms.fill_null(nowhere).to_numpy() // DAY_MS
    dated = np.where((days >= DAYS[0]) & (days <= DAYS[1]), days, day_of(None))
    return pa.chunked_array([pa.array(dated.astype(np.int32))])


def _shown(key: str, value: int) -> str:
    return str(EPOCH + timedelta(days=int(value))) if key == "date" else str(value)
