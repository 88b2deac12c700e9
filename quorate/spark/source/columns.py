"""Builds the columns of keys, values and causes (`fields`) many rows at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from quorate.spark.schema import RECORD_COLUMNS, arrow_type
from records import RecordsError
from records.kinds import Kind
from records.layouts import Column, Layout
from records.packing import unpack_nested

from .fields import ShownField
from .frames import Data, Flags, Ints
from .msgarrays import GUARD, Field, read_fields, read_items
from .slices import Numbers, Referred, Texts, distinct, edges_of, gather, numbered, refer, texts

_KINDS = {field.name: field.type for field in arrow_type(RECORD_COLUMNS)}


class Columns:
    """Columns being built: rows of keys, values or causes, each filled by the layout of its type."""

    def __init__(self, data: Data, rows: int, names: Collection[str]) -> None:
        self._data = data
        self._rows = rows
        self._names = names
        self._made: dict[str, Numbers | Referred | Texts] = {}

    def fill(
        self,
        columns: Sequence[Column],
        shown: Sequence[ShownField],
        rows: Ints,
        begin: Ints,
        end: Ints,
        lead: int = 0,
    ) -> Flags:
        """Fill rows from their arrays, which are in buffer order; returns which of them are irregular."""
        by_field = {one.field: one for one in shown if one.column in self._names}
        fields, irregular = read_fields(columns, self._data, begin, end, lead, wanted=by_field)
        if irregular.any():  # field positions of irregular arrays are undefined: repeat without them
            sound = np.flatnonzero(~irregular)
            irregular[sound] = self.fill(columns, shown, rows[sound], begin[sound], end[sound], lead)
            return irregular
        for field, column in zip(fields, columns, strict=True):
            one = by_field.get(column.name)
            if one is None:
                _check(field, column.kind, self._data, irregular)
            elif field.content is not None:
                self._show_texts(one, field, rows)
            else:
                self._show(one, field, column.kind.load, rows, irregular)
        return irregular

    def column(self, name: str, of_row: Ints | None = None) -> tuple[pa.Array, Ints]:
        """A column, and its rows that turn out irregular; ``of_row`` maps rows of the batch to rows here."""
        made = self._made.get(name)
        if isinstance(made, Texts):
            return made.column(self._data, of_row)
        if made is None:
            column = pa.nulls(self._rows if of_row is None else len(of_row), _KINDS[name])
        else:
            column = made.column(of_row)
        return column, np.zeros(0, np.int64)

    def _show_texts(self, one: ShownField, field: Field, rows: Ints) -> None:
        assert field.content is not None
        assert field.is_nil is not None
        is_shown = field.end > field.content if one.none == "" else ~field.is_nil
        chosen = np.flatnonzero(is_shown)
        made = self._made.setdefault(one.column, Texts(self._rows))
        assert isinstance(made, Texts)
        made.put(rows[chosen], field.content[chosen], field.end[chosen])

    def _show(
        self, one: ShownField, field: Field, load: Callable[[Any], Any], rows: Ints, irregular: Flags
    ) -> None:
        """Fill in a column that is not text; values that cannot be loaded are marked in ``irregular``."""
        if field.value is not None and one.words is None:
            assert not isinstance(one.none, str)
            numbers = self._made.setdefault(one.column, Numbers(self._rows, _KINDS[one.column]))
            assert isinstance(numbers, Numbers)
            numbers.put(rows, field.value, one.none)
            return
        if field.value is not None and one.words is not None:
            values, places = _worded(field.value, one.words)
        else:
            places, pieces = distinct(self._data, field.at, field.end)
            if one.each is not None and one.words is not None:
                values, is_wrong = _lists(pieces, one.each, one.words)
            else:
                loaded = [_loaded(piece, load, one.load) for piece in pieces.to_pylist()]
                is_wrong = np.array([item is _WRONG for item in loaded], np.bool_)
                values = pa.array([None if item is _WRONG else item for item in loaded], _KINDS[one.column])
            irregular |= is_wrong[places]
        referred = self._made.setdefault(one.column, Referred(self._rows, _KINDS[one.column]))
        assert isinstance(referred, Referred)
        referred.put(rows, values, places)


def _worded(numbers: Ints, words: Callable[[int], str]) -> tuple[pa.Array, Ints]:
    """The names of the distinct numbers, and each number's place among them."""
    known, places = numbered(numbers)
    return pa.array([words(number) for number in known.tolist()], pa.string()), places


def _lists(pieces: pa.Array, each: Layout, words: Callable[[int], str]) -> tuple[pa.Array, Flags]:
    """The name of each item's first number, for pieces that are arrays of arrays; and which are irregular."""
    buffer, begin, end = edges_of(pieces, GUARD)
    counts, owner, fields, irregular = read_items(each, buffer, begin, end, wanted=[each.columns[0].name])
    item_irregular = np.zeros(len(owner), np.bool_)
    for field, column in zip(fields, each.columns, strict=True):
        _check(field, column.kind, buffer, item_irregular)
    irregular[owner[item_irregular]] = True
    offsets = np.concatenate(([0], np.cumsum(counts)))
    shown = fields[0].value
    assert shown is not None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), refer(*_worded(shown, words))), irregular


def _check(field: Field, kind: Kind, data: Data, irregular: Flags) -> None:
    """Mark arrays with a field that cannot be loaded, shown or not: a partly readable entry is damage."""
    if field.content is not None and kind.name.startswith("string"):
        chosen = np.flatnonzero(field.end > field.content)
        _, wrong = texts(gather(data, field.content[chosen], field.end[chosen]))
        if wrong is not None:
            irregular[chosen[wrong]] = True
    elif field.content is None and not field.is_number:
        codes, pieces = distinct(data, field.at, field.end)
        is_wrong = np.array(
            [_loaded(piece, kind.load, None) is _WRONG for piece in pieces.to_pylist()], np.bool_
        )
        irregular |= is_wrong[codes]


_WRONG = object()


def _loaded(piece: bytes, load: Callable[[Any], Any], show: Callable[[Any], Any] | None) -> Any:
    try:
        loaded = load(unpack_nested(piece))
    except RecordsError:
        return _WRONG
    return loaded if show is None else show(loaded)
