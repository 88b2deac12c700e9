"""Many msgpack arrays of one layout at once: where each field is, and the numbers in it, by numpy.

The layouts are those of `records`: what a field may hold is read off the same kinds that decode one record.
What must stay true: nothing is believed. Every step is checked against the end of its own array, every tag
against its kind, every number against its range; an array that is not exactly what the newest writer writes
is *odd*, and is left to the decoder of single records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from records.layouts import Layout

from .frames import Flags, Ints, fixed

SKIP_STEPS_MAX = 512
"""Items of a nested field that are stepped over together; an array with more of them is odd."""

GUARD = bytes(16)
"""Behind the bytes that are read: the longest tag with its number fits, so that the last one may be looked at
before it is known to be whole."""

_INT_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_FIXARRAY, _ARRAY16, _NIL = 0x90, 0xDC, 0xC0
_ITEMS_MAX = 15
"""What the first byte of a small array can say; every layout is smaller."""
_UUID_HEAD = b"\xc4\x10"
"""A topic id: 16 bytes as msgpack's bin 8."""


def _tables() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """By an item's first byte: its length as far as that byte tells, its class, how many items it holds."""
    size, kind, items = np.ones(256, np.int64), np.full(256, _OTHER, np.uint8), np.zeros(256, np.int64)
    kind[0x00:0x80] = kind[0xE0:] = _INT
    for tag, width in (
        (0xCC, 1),
        (0xCD, 2),
        (0xCE, 4),
        (0xCF, 8),
        (0xD0, 1),
        (0xD1, 2),
        (0xD2, 4),
        (0xD3, 8),
    ):
        size[tag], kind[tag] = 1 + width, _INT
    kind[0xA0:0xC0] = _TEXT
    size[0xA0:0xC0] = 1 + np.arange(32)
    for tag, width, of in ((0xD9, 1, _TEXT), (0xDA, 2, _TEXT), (0xC4, 1, _BYTES), (0xC5, 2, _BYTES)):
        size[tag], kind[tag] = 1 + width, of
    kind[0x90:0xA0] = _ARRAY
    items[0x90:0xA0] = np.arange(16)
    size[_ARRAY16], kind[_ARRAY16] = 3, _ARRAY
    kind[_NIL] = _NOTHING
    return size, kind, items


_OTHER, _INT, _TEXT, _BYTES, _ARRAY, _NOTHING = range(6)
_SIZE, _CLASS, _ITEMS = _tables()
_LENGTH8, _LENGTH16 = (0xD9, 0xC4), (0xDA, 0xC5)
_IS_LONG = np.isin(np.arange(256), _LENGTH8 + _LENGTH16)
_SHORT = np.where(np.isin(np.arange(256), np.arange(0xA0, 0xC0)), np.arange(256) - 0xA0, 0)
"""Bytes of a text's contents where its first byte tells."""
_WIDE = {0xCC: "u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">i8", 0xD0: "i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8"}
"""Numbers behind a tag; one of 64 bits without a sign that does not fit comes out negative: odd."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of every array: ``value`` of a number; else where it is with its tag, and its contents
    without."""

    at: Ints
    end: Ints
    value: Ints | None = None
    content: Ints | None = None
    is_nil: Flags | None = None


def read_fields(
    layout: Layout, data: bytes, begin: Ints, end: Ints, lead: int = 0
) -> tuple[list[Field], Flags]:
    """The fields of a layout in each array between ``begin`` and ``end``, and which arrays are odd.

    ``data`` has `GUARD` behind what the arrays are in. Of the odd nothing else is right. With ``lead`` so
    many items before the first field must each be the number 0 (a cause's version).
    """
    octets = np.frombuffer(data, np.uint8)
    width = len(layout.columns) + lead
    odd = begin >= end
    odd |= octets[begin] != _FIXARRAY + width if width <= _ITEMS_MAX else True
    at = begin + 1
    for _ in range(lead):
        odd |= octets[np.minimum(at, end)] != 0
        at = at + 1
    found = []
    for column in layout.columns:
        field = _field(column.kind.name, data, octets, at, end, odd)
        at = field.end
        found.append(field)
    odd |= at != end
    return found, odd


def _field(kind: str, data: bytes, octets: npt.NDArray[np.uint8], at: Ints, end: Ints, odd: Flags) -> Field:
    """The field at ``at``; ``odd`` is told. Positions never pass ``end``."""
    name = kind.split(" ")[0]
    tag = octets[at]
    odd |= at >= end
    if name in _INT_BITS:
        odd |= _CLASS[tag] != _INT
        value = _numbers(data, tag, at, _INT_BITS[name], odd)
        return Field(at, _next(at, _SIZE[tag], end, odd), value=value)
    if name == "uuid":
        odd |= (tag != _UUID_HEAD[0]) | (octets[at + 1] != _UUID_HEAD[1])
        return Field(at, _next(at, 18, end, odd), content=at + 2)
    if name in ("string", "string?", "bytes"):
        of = _CLASS[tag]
        is_nil = of == _NOTHING
        wrong = of != (_BYTES if name == "bytes" else _TEXT)
        odd |= wrong & ~is_nil if name.endswith("?") else wrong
        head, length = _text_size(data, octets, tag, at)
        return Field(at, _next(at, head + length, end, odd), content=at + head, is_nil=is_nil)
    return Field(at, _skip(data, octets, at, end, odd))


def _next(at: Ints, size: Ints | int, end: Ints, odd: Flags) -> Ints:
    following = at + size
    odd |= following > end
    clipped: Ints = np.minimum(following, end)
    return clipped


def _numbers(data: bytes, tag: npt.NDArray[np.uint8], at: Ints, bits: int, odd: Flags) -> Ints:
    value = tag.view(np.int8).astype(np.int64)  # a small number is its own tag
    wide = np.flatnonzero((tag >= 0x80) & (tag < 0xE0))
    if len(wide):
        tags = tag[wide]
        for one in np.flatnonzero(np.bincount(tags)).tolist():
            if one in _WIDE:
                rows = wide[tags == one]
                value[rows] = fixed(data, _WIDE[one], at[rows] + 1)
                if one == 0xCF:
                    odd[rows] |= value[rows] < 0
        if bits < 64:
            limit = 1 << (bits - 1)
            odd |= (value < -limit) | (value >= limit)
    return value


def _text_size(
    data: bytes, octets: npt.NDArray[np.uint8], tag: npt.NDArray[np.uint8], at: Ints
) -> tuple[Ints, Ints]:
    """Bytes before the contents, and of the contents."""
    length = _SHORT[tag]
    head = np.ones(len(tag), np.int64)
    rows = np.flatnonzero(_IS_LONG[tag])
    if len(rows):
        tags, places = tag[rows], at[rows] + 1
        head[rows] = _SIZE[tags]
        length[rows] = np.where(np.isin(tags, _LENGTH8), octets[places], fixed(data, ">u2", places))
    return head, length


def _skip(data: bytes, octets: npt.NDArray[np.uint8], at: Ints, end: Ints, odd: Flags) -> Ints:
    """Behind one item with all that it holds."""
    behind = at.copy()
    rows = np.flatnonzero(~odd)
    here, left, ends = at[rows], np.ones(len(rows), np.int64), end[rows]
    for _ in range(SKIP_STEPS_MAX):
        tag = octets[here]
        of = _CLASS[tag]
        head, length = _text_size(data, octets, tag, here)
        is_sized = (of == _TEXT) | (of == _BYTES)
        held = _ITEMS[tag]
        many = np.flatnonzero(tag == _ARRAY16)
        if len(many):
            held[many] = fixed(data, ">u2", here[many] + 1)
        following = here + np.where(is_sized, head + length, _SIZE[tag])
        left = left - 1 + held
        wrong = (of == _OTHER) | (here >= ends) | (following > ends)
        done = (left == 0) & ~wrong
        behind[rows[done]] = following[done]
        odd[rows[wrong]] = True
        going = np.flatnonzero(~(wrong | done))
        if not len(going):
            return behind
        rows, here, left, ends = rows[going], following[going], left[going], ends[going]
    odd[rows] = True
    return behind
