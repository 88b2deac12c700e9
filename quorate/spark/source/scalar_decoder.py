"""Decodes one record at a time with the decoders of `records`, for all data that `vector` cannot handle.

The invariant: if anything requested in an entry cannot be decoded, none of the entry's rows are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from history.words import type_name
from quorate.spark.schema import TableColumn
from records import (
    MalformedEntry,
    RawRecord,
    UnknownType,
    UnsupportedVersion,
    decode_key,
    decode_value,
    iter_records,
)
from records.entry import cause_bytes, load_cause

from .fields import CAUSE_COLUMNS, CAUSES, KEY_COLUMNS, KEYS, VALUE_COLUMNS, VALUES
from .options import Selection

CAUSES_MAX = 4096
"""Decoded causes that are cached; consecutive entries of one kind share a few."""

Row = dict[str, Any]


def key_row(raw: RawRecord) -> Row:
    """The columns of a key, none for a type unknown to this release; raises `RecordsError`."""
    try:
        key = decode_key(raw)
    except UnknownType:
        return {}
    return {one.column: one.of(key) for one in KEYS if hasattr(key, one.field)}


def value_row(raw: RawRecord) -> Row:
    """The columns of a value, none for a tombstone or a later version; raises `RecordsError`."""
    shown = VALUES.get(raw.type)
    if shown is None or raw.value is None:
        return {}
    try:
        value = decode_value(raw)
    except UnsupportedVersion:
        return {}
    return {one.column: one.of(value) for one in shown}


@lru_cache(maxsize=CAUSES_MAX)
def cause_row(data: bytes) -> Row:
    """The columns of an entry's cause; raises `RecordsError`."""
    cause = load_cause(data)
    return {one.column: one.of(cause) for one in CAUSES}


def type_row(raw: RawRecord) -> Row:
    return {
        "type": int(raw.type),
        "type_name": type_name(raw.type),
        "version": raw.version,
        "is_tombstone": raw.value is None,
        "key_bytes": raw.key,
        "value_bytes": raw.value,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSelection:
    """The wanted records, and the parts of them that must be decoded."""

    selection: Selection
    with_key: bool
    with_value: bool
    with_cause: bool

    @classmethod
    def of(cls, columns: tuple[TableColumn, ...], selection: Selection) -> ReadSelection:
        names = {column.name for column in columns}
        return cls(
            selection=selection,
            with_key=selection.groups is not None or not names.isdisjoint(KEY_COLUMNS),
            with_value=not names.isdisjoint(VALUE_COLUMNS),
            with_cause=not names.isdisjoint(CAUSE_COLUMNS),
        )

    def entry(self, body: bytes, count: int) -> list[Row]:
        """The rows of an entry with ``count`` records; raises `RecordsError` if any is unreadable."""
        raws = iter_records(body)
        if len(raws) != count:
            raise MalformedEntry(f"{count} records are announced, there are {len(raws)}")
        data = cause_bytes(body)
        cause = {"cause_bytes": data, **(cause_row(data) if self.with_cause else {})}
        return [{**row, **cause} for row in self.records(raws)]

    def records(self, raws: Iterable[RawRecord]) -> Iterator[Row]:
        """Rows of the wanted records, without the entry's columns; raises `RecordsError` at a bad one."""
        types, groups = self.selection.types, self.selection.groups
        for sequence, raw in enumerate(raws):
            if types is not None and raw.type not in types:
                continue
            key = key_row(raw) if self.with_key else {}
            if groups is not None and key.get("group_id") not in groups:
                continue
            value = value_row(raw) if self.with_value else {}
            yield {"sequence": sequence, **type_row(raw), **key, **value}
