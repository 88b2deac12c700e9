"""The representation of values in each format.

Invariant: every text survives the round trip, whatever a client called itself.

- JSON lines: one object per line, ASCII; a lone surrogate is written as its escape.
- CSV: UTF-8 with a header, ``\\n`` between rows. Texts are always quoted, so that null (nothing at all)
  and the empty text differ; lists are JSON. A text that begins with one of `GUARDED` gets a leading
  apostrophe, so that no spreadsheet takes it for a formula; readers remove one apostrophe.
- Parquet: lists are lists, compressed with zstd.

UTF-8 has no lone surrogates: in CSV and Parquet a text that holds one, or that begins with `ESCAPED` itself,
is written as `ESCAPED` and its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii
from typing import IO, Any, Protocol

from records.installation import how_to_install

from .columns import ColumnKind, TableSchema, arrow_types
from .schema import SCHEMA_VERSION

FORMATS = ("parquet", "jsonl", "csv")
GUARDED = ("=", "+", "-", "@", "\t", "\r", "'")
ESCAPED = "json:"
ROWS_AT_ONCE = 20_000
"""Number of rows of a table buffered before they are written: a Parquet row group, some tens of megabytes."""


class CannotWrite(Exception):
    """The export cannot be written where or as requested; the message says what to do."""


class DiskRefuses(CannotWrite):
    """The disk did not take the export: it is full, read-only, or not this user's."""


class PackageMissing(CannotWrite):
    """The package that writes the format is not installed."""


class TableWriter(Protocol):
    """Writes the rows of one table to a file opened by the caller."""

    def write(self, values: Sequence[Any]) -> None:
        """Write one row: a value for each column."""

    def close(self) -> None:
        """Finish the table, after its last row."""


def writer_of(format_: str, table: TableSchema, file: IO[bytes]) -> TableWriter:
    """The writer for a format; raises `CannotWrite` if a package is missing."""
    if format_ == "parquet":
        return _ParquetWriter(table, file)
    if format_ == "csv":
        return _LinesWriter(file, csv_line(tuple(one.name for one in table.columns)), _csv_row(table))
    return _LinesWriter(file, "", _json_row(table))


class _LinesWriter:
    def __init__(self, file: IO[bytes], head: str, line: Callable[[Sequence[Any]], str]) -> None:
        self._file = file
        self._line = line
        self._lines = [head] if head else []

    def write(self, values: Sequence[Any]) -> None:
        self._lines.append(self._line(values))
        if len(self._lines) >= ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._file.write("".join(self._lines).encode())
        self._lines.clear()


def _json_row(table: TableSchema) -> Callable[[Sequence[Any]], str]:
    names = [json.dumps(column.name) + ":" for column in table.columns]
    is_json = [column.kind is ColumnKind.JSON for column in table.columns]

    def line(values: Sequence[Any]) -> str:
        parts = [
            name + (value if embeds and value is not None else _json_value(value))
            for name, embeds, value in zip(names, is_json, values, strict=True)
        ]
        return "{" + ",".join(parts) + "}\n"

    return line


def _json_value(value: Any) -> str:
    """The same as `json.dumps`, which takes five times as long for texts and numbers, the usual values."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    return json.dumps(value, separators=(",", ":"))


def _csv_row(table: TableSchema) -> Callable[[Sequence[Any]], str]:
    is_list = [column.kind in (ColumnKind.TEXTS, ColumnKind.INTS) for column in table.columns]

    def line(values: Sequence[Any]) -> str:
        return csv_line(
            [
                json.dumps(value) if listed and value is not None else value
                for listed, value in zip(is_list, values, strict=True)
            ]
        )

    return line


def csv_line(values: Sequence[Any]) -> str:
    """Format one row of CSV."""
    return ",".join(map(_csv_cell, values)) + "\n"


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    text = writable(value)
    if text.startswith(GUARDED):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"'


def writable(text: str) -> str:
    """Encode a text so that UTF-8 can hold it."""
    if not text.startswith(ESCAPED):
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return ESCAPED + json.dumps(text)


class _ParquetWriter:
    """Writes rows as columns, one row group at a time."""

    def __init__(self, table: TableSchema, file: IO[bytes]) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise PackageMissing(
                f"parquet needs pyarrow, which is not installed: {how_to_install('export')} "
                "(jsonl and csv need nothing)"
            ) from None
        self._arrow = pa
        self._kinds = [column.kind for column in table.columns]
        self._schema = pa.schema(
            [
                pa.field(
                    one.name, arrow_types()[one.kind], nullable=one.nullable, metadata={"means": one.means}
                )
                for one in table.columns
            ],
            metadata={"quorate.table": table.name, "quorate.schema_version": str(SCHEMA_VERSION)},
        )
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Sequence[Any]] = []

    def write(self, values: Sequence[Any]) -> None:
        self._rows.append(values)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [
            self._array(kind, list(column), spec.type)
            for kind, column, spec in zip(self._kinds, columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()

    def _array(self, kind: ColumnKind, column: list[Any], type_: Any) -> Any:
        if kind is ColumnKind.TEXT:
            column = [None if text is None else writable(text) for text in column]
        elif kind is ColumnKind.TEXTS:
            column = [None if texts is None else [writable(text) for text in texts] for texts in column]
        return self._arrow.array(column, type_)
