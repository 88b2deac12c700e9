"""Parquet files of tables: written and read by any process, driver or executor.

A `FileWriter` writes one row group for each call of `write`, sorted, so that statistics of row groups and
pages let readers skip other groups and times. A file counts once a transaction has committed it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quorate.spark.errors import OutputError

from . import names
from .failures import told
from .store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import FileMetaData

FILE_ROWS_MAX = 2_000_000
"""A file is closed once it has this many rows, …"""
FILE_BYTES_MAX = 128 << 20
"""… or this many bytes; one more row group may be added to either."""
BATCH_ROWS = 64 << 10
"""Rows of a batch of `iter_batches`."""
STATS_COLUMNS_MAX = 32
"""Columns of a file for which the table's log has a minimum and a maximum, as in Spark."""
STATS_CHARACTERS_MAX = 256
"""A longer text is neither minimum nor maximum in the table's log."""
_COMPRESSION = "zstd"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a transaction may commit."""

    table: str
    part: str
    path: str
    """Relative to the table's folder."""
    rows: int
    size: int
    stats: str
    """Statistics in Delta's JSON: numRecords, minValues, maxValues, nullCount."""


class FileWriter:
    """Writes files of one part of a table; as a context manager it deletes them if the block raises.

    `close` must be called in the block; what it returns may then be committed.
    """

    def __init__(
        self, store: Store, table: str, part: str, schema: pa.Schema, sort_by: Sequence[str] | None = None
    ) -> None:
        """``table`` "": rows that are staged in the store's folder itself.

        ``sort_by`` are the columns that each row group is sorted by; None: the table's order.
        """
        names.new_file(part)  # refuses a wrong part early
        self._store = store.below(names.folder_of(table))
        self._table, self._part, self._schema = table, part, schema
        self._sort_by = [
            (name, "ascending") for name in (names.sort_keys(schema.names) if sort_by is None else sort_by)
        ]
        self._open: _OpenFile | None = None
        self._written: list[WrittenFile] = []

    def write(self, rows: pa.Table) -> None:
        """Write a row group; raises `OutputError` if the store fails."""
        if not rows.num_rows:
            return
        with told(f"write to {self._store.place}", writes=True):
            if self._open is None:
                self._open = _OpenFile(self._store, self._part, self._schema)
            self._open.write(rows.sort_by(self._sort_by) if self._sort_by else rows)
            if self._open.is_large:
                self._roll()

    def close(self) -> list[WrittenFile]:
        """Finish; returns the files, durable on a local disk and never deleted by this writer."""
        with told(f"write to {self._store.place}", writes=True):
            self._roll()
        written, self._written = self._written, []
        return written

    def discard(self) -> None:
        """Delete what was written, as far as the store allows."""
        paths = [file.path for file in self._written]
        if self._open is not None:
            self._open.abandon()
            paths.append(self._open.name)
            self._open = None
        self._written = []
        for path in paths:
            self._store.discard(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _roll(self) -> None:
        if self._open is None:
            return
        name, (rows, size, stats) = self._open.name, self._open.close()
        self._open = None
        self._written.append(WrittenFile(self._table, self._part, name, rows, size, stats))


def _repeating(schema: pa.Schema) -> list[str]:
    """The columns that gain by a dictionary: not times, places in the log, offsets and a record's bytes.

    Values that hardly repeat fill a dictionary before the writer gives it up. Without them files are 40 to
    60 % smaller.
    """
    import pyarrow.types as types

    return [
        one.name
        for one in schema
        if not types.is_timestamp(one.type)
        and not (types.is_int64(one.type) and one.name != "term")
        and one.name != "value_bytes"
    ]


class _OpenFile:
    """A file that is being written."""

    def __init__(self, folder: Store, part: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.name = names.new_file(part)
        self._folder, self._schema = folder, schema
        self._rows = 0
        self._metadata: list[FileMetaData] = []
        if folder.is_local:
            os.makedirs(folder.root, exist_ok=True)
        self._sink = folder.filesystem().open_output_stream(folder.path(self.name))
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=_COMPRESSION,
            use_dictionary=_repeating(schema),
            write_page_index=True,
            metadata_collector=self._metadata,
        )

    @property
    def is_large(self) -> bool:
        return self._rows >= FILE_ROWS_MAX or int(self._sink.tell()) >= FILE_BYTES_MAX

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema), rows.num_rows)
        self._rows += rows.num_rows

    def close(self) -> tuple[int, int, str]:
        """Rows, bytes and statistics."""
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        if self._folder.is_local:
            synced(self._folder.path(self.name))
        return self._rows, size, stats_of(self._metadata[0])

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.close()
        self._writer.is_open = False  # else it would try again when it is deleted
        with contextlib.suppress(Exception):
            self._sink.close()


def synced(path: str) -> None:
    """Make a local file or folder durable."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def stats_of(footer: FileMetaData) -> str:
    """Delta's statistics of a file, of its plain columns: nested and binary ones have none."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    for at in range(footer.num_columns):
        if len(nulls) == STATS_COLUMNS_MAX:
            break
        name = footer.schema.column(at).path
        chunks = [group.column(at).statistics for group in groups]
        if "." in name or any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        with_values = [chunk for chunk in chunks if chunk.num_values]
        if with_values and all(chunk.has_min_max for chunk in with_values):
            lowest = _said(min(chunk.min for chunk in with_values), up=False)
            highest = _said(max(chunk.max for chunk in with_values), up=True)
            if lowest is not None and highest is not None:
                low[name], high[name] = lowest, highest
    stats = {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(stats, separators=(",", ":"))


def _said(value: object, *, up: bool) -> int | float | str | None:
    """A minimum or (``up``) a maximum in JSON; None if it is not of a kind that Delta's readers compare."""
    if isinstance(value, datetime):
        past = timedelta(microseconds=value.microsecond % 1000)
        value = value - past + timedelta(milliseconds=1 if up and past else 0)
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, str):
        return value if len(value) <= STATS_CHARACTERS_MAX else None
    if isinstance(value, bool | bytes | date):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) else None


def read_file(
    store: Store,
    table: str,
    path: str,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
) -> pa.Table:
    """Rows of a file with the table's columns; those that an older file lacks are null."""
    with _reading(store, table, path):
        return _dataset(store, table, [path]).to_table(
            columns=list(columns) if columns else None, filter=filter
        )


def iter_batches(
    store: Store,
    table: str,
    path: str,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same in batches of at most `BATCH_ROWS` rows, read ahead by a few only."""
    with _reading(store, table, path):
        yield from _dataset(store, table, [path]).to_batches(
            columns=list(columns) if columns else None,
            filter=filter,
            batch_size=BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
        )


def dataset_of(store: Store, table: str, paths: Sequence[str]) -> Any:
    """A pyarrow dataset of these files with the table's columns."""
    return _dataset(store, table, paths)


def _dataset(store: Store, table: str, paths: Sequence[str]) -> Any:
    from pyarrow import dataset

    folder = store.below(names.folder_of(table))
    schema = names.schema_of(table) if table in names.all_tables() else None
    return dataset.dataset(
        [folder.path(path) for path in paths], schema=schema, filesystem=folder.filesystem(), format="parquet"
    )


@contextlib.contextmanager
def _reading(store: Store, table: str, path: str) -> Iterator[None]:
    try:
        with told(f"read {path} of {table} in {store.place}"):
            yield
    except OutputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise gone(store, table, path) from error
        raise


def gone(store: Store, table: str, path: str) -> OutputError:
    """The error for a file that the table's log names and the store lacks."""
    return OutputError(
        f"the table {table} in {store.place} names {path}, which is missing: another tool has vacuumed or "
        "deleted it",
        "restore the file, or run into a new output: quorate pipeline run -i … -o NEW",
    )
