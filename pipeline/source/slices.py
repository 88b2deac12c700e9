"""Many pieces of one buffer: gathered without a Python object for each, and the distinct among them.

Most bytes of a log are repetitions: keys, causes, sets of partitions. So what is costly to decode is decoded
once for each distinct piece, and rows refer to it by number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .frames import Flags, Ints

NONE = -1
"""A row without a value, where rows refer to values by number."""


def gather(data: bytes, begin: Ints, end: Ints, is_null: Flags | None = None) -> pa.Array:
    """The pieces as one binary array; they must be in the order of the buffer and not overlap.

    Pieces and what is between them are one array without a copy; taking every second item is one pass in C++.
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
    return pieces.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32), mask=is_null))


def distinct(data: bytes, begin: Ints, end: Ints) -> tuple[Ints, pa.Array]:
    """Which distinct piece each one is, and the distinct ones; pieces are as `gather` takes them."""
    coded = gather(data, begin, end).dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary


def edges_of(pieces: pa.Array, guard: bytes) -> tuple[bytes, Ints, Ints]:
    """The buffer of a binary array with ``guard`` behind, and where its pieces begin and end."""
    _, offsets, values = pieces.buffers()
    edges = np.frombuffer(offsets, np.int32)[pieces.offset : pieces.offset + len(pieces) + 1].astype(np.int64)
    return (b"" if values is None else values.to_pybytes()) + guard, edges[:-1], edges[1:]


def refer(values: pa.Array, places: Ints) -> pa.Array:
    """Row by row the value that its number says; null for `NONE`."""
    if len(places) and places.min() < 0:
        return values.take(pa.array(places, mask=places < 0))
    return values.take(pa.array(places))


def texts(pieces: pa.Array) -> tuple[pa.Array, Flags | None]:
    """The pieces as texts, and which of them are none (``None``: all are); those are empty."""
    try:
        return pieces.cast(pa.string()), None
    except pa.ArrowInvalid:
        wrong = np.array([not _is_text(piece) for piece in pieces.to_pylist()])
        sound = [
            b"" if is_wrong else piece for piece, is_wrong in zip(pieces.to_pylist(), wrong, strict=True)
        ]
        return pa.array(sound, pa.binary()).cast(pa.string()), wrong


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


class Referred:
    """A column whose rows refer to values that come part by part."""

    def __init__(self, rows: int) -> None:
        self.places = np.full(rows, NONE, np.int64)
        self._parts: list[pa.Array] = []
        self._count = 0

    def put(self, rows: Ints, values: pa.Array, places: Ints | None = None) -> None:
        """These rows have these values; with ``places`` those that they say."""
        self.places[rows] = self._count + (np.arange(len(values)) if places is None else places)
        self._parts.append(values)
        self._count += len(values)

    def values(self, kind: pa.DataType) -> pa.Array:
        """All values, to be referred to."""
        parts = [part if part.type == kind else part.cast(kind) for part in self._parts]
        return pa.concat_arrays(parts) if parts else pa.nulls(0, kind)

    def column(self, kind: pa.DataType, of_row: Ints | None = None) -> pa.Array:
        """The column; with ``of_row`` the rows of another table say which row here is theirs."""
        places = self.places if of_row is None else self.places[of_row]
        if not self._parts or not len(places) or places.max() < 0:
            return pa.nulls(len(places), kind)
        return refer(self.values(kind), places)


class Numbers:
    """A column of numbers, some of which are not there."""

    def __init__(self, rows: int) -> None:
        self._value = np.zeros(rows, np.int64)
        self._is_there = np.zeros(rows, np.bool_)

    def put(self, rows: Ints, value: Ints, none: int | None = None) -> None:
        """These rows have these numbers, of which ``none`` says that there is none."""
        self._value[rows] = value
        self._is_there[rows] = True if none is None else value != none

    def column(self, kind: pa.DataType, of_row: Ints | None = None) -> pa.Array:
        value, is_there = self._value, self._is_there
        if of_row is not None:
            value, is_there = value[of_row], is_there[of_row]
        if not is_there.any():
            return pa.nulls(len(value), kind)
        return pa.array(value.astype(kind.to_pandas_dtype()), kind, mask=~is_there)
