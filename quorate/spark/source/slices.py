"""Many pieces of one buffer: gathered without a Python object for each, and made into columns.

Text is copied from the buffer. Values that are expensive to decode repeat, so each distinct one is decoded
once, and rows refer to it by number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .frames import Data, Flags, Ints

NONE = -1
"""The number of a row without a value."""


def gather(data: Data, begin: Ints, end: Ints) -> pa.Array:
    """The pieces as one binary array; they must be in the order of the buffer and not overlap.

    Pieces and the gaps between them form one array without a copy; taking every second item is one pass in
    C++.
    """
    count = len(begin)
    if not count:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = begin
    edges[1::2] = end
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


def distinct(data: Data, begin: Ints, end: Ints) -> tuple[Ints, pa.Array]:
    """The place of each piece among the distinct ones, and the distinct ones; pieces are as for `gather`."""
    coded = gather(data, begin, end).dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary


def edges_of(pieces: pa.Array, guard: bytes) -> tuple[bytes, Ints, Ints]:
    """The buffer of a binary array followed by ``guard``, and where its pieces begin and end."""
    edges = _offsets(pieces).astype(np.int64)
    values = pieces.buffers()[2]
    return (b"" if values is None else values.to_pybytes()) + guard, edges[:-1], edges[1:]


def numbered(numbers: Ints) -> tuple[Ints, Ints]:
    """The distinct values of 16-bit numbers, and each number's place among them."""
    slots = numbers & 0xFFFF
    is_there = np.zeros(1 << 16, np.bool_)
    is_there[slots] = True
    found = np.flatnonzero(is_there)
    place = np.zeros(1 << 16, np.int64)
    place[found] = np.arange(len(found))
    return found.astype(np.uint16).view(np.int16).astype(np.int64), place[slots]


def refer(values: pa.Array, places: Ints) -> pa.Array:
    """The value that each row refers to; null for `NONE`."""
    if len(places) and places.min() < 0:
        rows = np.flatnonzero(places >= 0)
        return spread(values.take(pa.array(places[rows])), rows, len(places))
    return values.take(pa.array(places))


def spread(values: pa.Array, rows: Ints, count: int) -> pa.Array:
    """A column of ``count`` rows with these non-null values at ``rows``, and null elsewhere.

    For texts, bytes and lists only the offsets are rebuilt, which is far faster than `take` with nulls.
    """
    if len(rows) == count:
        return values
    is_there = np.zeros(count, np.bool_)
    is_there[rows] = True
    lengths = np.zeros(count + 1, np.int32)
    offsets = _offsets(values)
    lengths[1 + rows] = np.diff(offsets)
    lengths[0] = offsets[0]
    edges = pa.py_buffer(np.cumsum(lengths, dtype=np.int32))
    if pa.types.is_list(values.type):
        return pa.Array.from_buffers(values.type, count, [_bitmap(is_there), edges], children=[values.values])
    return pa.Array.from_buffers(values.type, count, [_bitmap(is_there), edges, values.buffers()[2]])


def texts(pieces: pa.Array) -> tuple[pa.Array, Flags | None]:
    """The pieces as text, and which of them are not valid text (``None``: all are); those become empty."""
    try:
        return pieces.cast(pa.string()), None
    except pa.ArrowInvalid:
        wrong = np.array([not _is_text(piece) for piece in pieces.to_pylist()])
        sound = [
            b"" if is_wrong else piece for piece, is_wrong in zip(pieces.to_pylist(), wrong, strict=True)
        ]
        return pa.array(sound, pa.binary()).cast(pa.string()), wrong


def _offsets(values: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _bitmap(flags: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


class Texts:
    """A column of texts in the buffer, in the order of the rows; some rows have none."""

    def __init__(self, rows: int) -> None:
        self._begin = np.zeros(rows, np.int64)
        self._end = np.full(rows, NONE, np.int64)

    def put(self, rows: Ints, begin: Ints, end: Ints) -> None:
        """Set the positions of these rows' texts."""
        self._begin[rows] = begin
        self._end[rows] = end

    def column(self, data: Data, of_row: Ints | None = None) -> tuple[pa.Array, Ints]:
        """The column, and the rows whose bytes are not text; ``of_row`` is as in `Referred.column`."""
        rows = np.flatnonzero(self._end >= 0)
        found, wrong = texts(gather(data, self._begin[rows], self._end[rows]))
        bad = rows[:0] if wrong is None else rows[wrong]
        if of_row is None:
            return spread(found, rows, len(self._end)), bad
        places = np.full(len(self._end), NONE, np.int64)
        places[rows] = np.arange(len(rows))
        return refer(found, places[of_row]), bad


class Referred:
    """A column whose rows refer to values that are added in parts."""

    def __init__(self, rows: int, kind: pa.DataType) -> None:
        self._kind = kind
        self._places = np.full(rows, NONE, np.int64)
        self._parts: list[pa.Array] = [pa.nulls(0, kind)]
        self._count = 0

    def put(self, rows: Ints, values: pa.Array, places: Ints) -> None:
        """Set these rows to the values at ``places``."""
        self._places[rows] = self._count + places
        self._parts.append(values.cast(self._kind))
        self._count += len(values)

    def column(self, of_row: Ints | None = None) -> pa.Array:
        """The column; ``of_row`` maps the rows of another table to rows here."""
        places = self._places if of_row is None else self._places[of_row]
        return refer(pa.concat_arrays(self._parts), places)


class Numbers:
    """A column of numbers, some of which are null."""

    def __init__(self, rows: int, kind: pa.DataType) -> None:
        self._kind = kind
        self._value = np.zeros(rows, kind.to_pandas_dtype())
        self._is_there = np.zeros(rows, np.bool_)

    def put(self, rows: Ints, value: Ints, none: int | None = None) -> None:
        """Set these rows to these numbers; a number equal to ``none`` becomes null."""
        self._value[rows] = value
        self._is_there[rows] = True if none is None else value != none

    def column(self, of_row: Ints | None = None) -> pa.Array:
        """The column; ``of_row`` is as in `Referred.column`."""
        value, is_there = self._value, self._is_there
        if of_row is not None:
            value, is_there = value[of_row], is_there[of_row]
        return pa.Array.from_buffers(self._kind, len(value), [_bitmap(is_there), pa.py_buffer(value)])
