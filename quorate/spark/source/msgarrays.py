"""Decodes many msgpack arrays of one layout at once with numpy: the position of each field, and its numbers.

The layouts are those of `records`, with the same kinds that decode a single record. The invariant: the input
is not trusted. Every step is checked against the end of its array, every tag against its kind, every number
against its range. An array that is not exactly what the newest writer produces is *irregular*, and is left to
the decoder of single records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from records.layouts import Column, Layout

from .frames import Data, Flags, Ints, fixed

Octets = npt.NDArray[np.uint8]

SKIP_STEPS_MAX = 512
"""Limit on the steps through a nested field; an array with more items is irregular."""

GUARD = bytes(16)
"""Padding after the data, the size of the longest tag with its number, to allow unchecked reads."""

_INT_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_FIXARRAY, _ARRAY16, _NIL, _UNSIGNED64 = 0x90, 0xDC, 0xC0, 0xCF
_ITEMS_MAX = 15
"""The most items that the first byte of an array can state; every layout is smaller."""
_UUID_HEAD = b"\xc4\x10"
"""The head of a topic id: 16 bytes as msgpack's bin 8."""


def _tables() -> tuple[bytes, bytes, bytes, bytes]:
    """Tables by an item's first byte: its known size, class, number of items, width of its length."""
    size, kind, items, is_long = bytearray(b"\1" * 256), bytearray(256), bytearray(256), bytearray(256)
    for tag in (*range(0x80), *range(0xE0, 0x100)):
        kind[tag] = _INT
    for tag, of in _WIDE.items():
        size[tag], kind[tag] = 1 + np.dtype(of).itemsize, _INT
    for tag in range(0xA0, 0xC0):
        size[tag], kind[tag] = 1 + tag - 0xA0, _TEXT
    for tag, width, of_long in ((0xD9, 1, _TEXT), (0xDA, 2, _TEXT), (0xC4, 1, _BYTES), (0xC5, 2, _BYTES)):
        size[tag], kind[tag], is_long[tag] = 1 + width, of_long, width
    for tag in range(0x90, 0xA0):
        kind[tag], items[tag] = _ARRAY, tag - 0x90
    size[_ARRAY16], kind[_ARRAY16] = 3, _ARRAY
    kind[_NIL] = _NOTHING
    return bytes(size), bytes(kind), bytes(items), bytes(is_long)


_OTHER, _INT, _TEXT, _BYTES, _ARRAY, _NOTHING = range(6)
_WIDE = {0xCC: "u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">i8", 0xD0: "i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8"}
"""Number types by tag; an unsigned 64-bit number that does not fit becomes negative, and so irregular."""
_SIZE, _CLASS, _ITEMS, _LENGTH_BYTES = _tables()
_IS_RARE = bytes(_CLASS[tag] == _OTHER or _LENGTH_BYTES[tag] > 0 or tag == _ARRAY16 for tag in range(256))
"""Whether the first byte leaves something open."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of every array.

    ``at`` is the position of its tag, ``value`` a number's value if wanted, ``content`` the position of the
    contents of texts and bytes.
    """

    at: Ints
    end: Ints
    value: Ints | None = None
    is_number: bool = False
    content: Ints | None = None
    is_nil: Flags | None = None


def read_fields(
    columns: Sequence[Column], data: Data, begin: Ints, end: Ints, lead: int = 0, *, wanted: Collection[str]
) -> tuple[list[Field], Flags]:
    """The columns' fields in each array between ``begin`` and ``end``, and which arrays are irregular.

    ``data`` has `GUARD` after the arrays. All results for irregular arrays are undefined. ``lead`` is the
    number of items before the first field, each of which must be the number 0 (a cause's version). Numbers
    that are not ``wanted`` are checked, but not returned.
    """
    octets = np.frombuffer(data, np.uint8)
    width = len(columns) + lead
    irregular = begin >= end
    irregular |= octets[begin] != _FIXARRAY + width if width <= _ITEMS_MAX else True
    at = begin + 1
    for _ in range(lead):
        irregular |= octets[np.minimum(at, end)] != 0
        at = at + 1
    np.minimum(at, end, out=at)
    found = []
    for column in columns:
        field = _field(column.kind.name, data, octets, at, end, irregular, is_wanted=column.name in wanted)
        at = field.end
        found.append(field)
    irregular |= at != end
    return found, irregular


def read_items(
    layout: Layout, data: Data, begin: Ints, end: Ints, *, wanted: Collection[str]
) -> tuple[Ints, Ints, list[Field], Flags]:
    """The fields of arrays of arrays of one layout.

    Returns the number of items in each array, the array that each item belongs to, the items' fields in the
    order of the buffer, and which of the outer arrays are irregular. Otherwise as `read_fields`.
    """
    octets = np.frombuffer(data, np.uint8)
    tags = octets[begin]
    is_long = tags == _ARRAY16
    counts = np.where(is_long, fixed(data, ">u2", begin + 1), _told(_ITEMS, tags))
    irregular = (_told(_CLASS, tags) != _ARRAY) | (begin >= end) | (counts > SKIP_STEPS_MAX)
    counts[irregular] = 0
    at = np.minimum(begin + np.where(is_long, 3, 1), end)
    found: list[tuple[Ints, Ints, Ints]] = []
    for place in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > place)
        wrong = np.zeros(len(rows), np.bool_)
        behind = _skip(data, octets, at[rows], end[rows], wrong)
        irregular[rows[wrong]] = True
        found.append((rows, at[rows], behind))
        at[rows] = behind
    irregular |= at != end
    if not found:
        return (
            counts,
            np.zeros(0, np.int64),
            read_fields(layout.columns, data, at[:0], at[:0], wanted=wanted)[0],
            irregular,
        )
    owner, item_begin, item_end = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.lexsort((item_begin, owner))
    owner, item_begin, item_end = owner[order], item_begin[order], item_end[order]
    fields, item_irregular = read_fields(layout.columns, data, item_begin, item_end, wanted=wanted)
    irregular[owner[item_irregular]] = True
    return counts, owner, fields, irregular


def _field(
    kind: str, data: Data, octets: Octets, at: Ints, end: Ints, irregular: Flags, *, is_wanted: bool
) -> Field:
    """The field at ``at``; updates ``irregular``. Positions never exceed ``end``."""
    name = kind.split(" ")[0]
    tags = octets[at]
    if len(tags) and (tags == tags[0]).all():
        tags = tags[:1]  # usually all tags are equal: evaluate just one
    if name in _INT_BITS:
        irregular |= _told(_CLASS, tags) != _INT
        following = _behind(at, _told(_SIZE, tags), end, irregular)
        if name == "i64" and not is_wanted:
            irregular |= (tags == _UNSIGNED64) & (octets[at + 1] >= 0x80)
            return Field(at, following, is_number=True)
        return Field(at, following, _numbers(data, tags, at, _INT_BITS[name], irregular), is_number=True)
    if name == "uuid":
        irregular |= (tags != _UUID_HEAD[0]) | (octets[at + 1] != _UUID_HEAD[1])
        return Field(at, _behind(at, 18, end, irregular), content=at + 2)
    if name in ("string", "string?", "bytes"):
        of = _told(_CLASS, tags)
        is_nil = of == _NOTHING
        wrong = of != (_BYTES if name == "bytes" else _TEXT)
        irregular |= wrong & ~is_nil if name.endswith("?") else wrong
        head, size = _text_size(data, octets, tags, at)
        is_nil = np.broadcast_to(is_nil, len(at))
        return Field(at, _behind(at, size, end, irregular), content=at + head, is_nil=is_nil)
    return Field(at, _skip(data, octets, at, end, irregular))


def _told(table: bytes, tags: Octets) -> Octets:
    """The table's entry for each byte; several times faster than numpy's indexing."""
    return np.frombuffer(tags.tobytes().translate(table), np.uint8)


def _behind(at: Ints, size: Ints | Octets | int, end: Ints, irregular: Flags) -> Ints:
    following = at + size
    is_over = following > end
    if is_over.any():
        irregular |= is_over
        np.minimum(following, end, out=following)
    return following


def _numbers(data: Data, tags: Octets, at: Ints, bits: int, irregular: Flags) -> Ints:
    """The numbers with these tags (one tag: it is common to all); a small number is its own tag."""
    is_one = len(tags) < len(at)
    wide = np.flatnonzero(np.bincount(tags[(tags >= 0x80) & (tags < 0xE0)])).tolist()
    if is_one and wide:
        value = np.empty(len(at), np.int64)
    else:
        value = np.array(np.broadcast_to(tags.view(np.int8), len(at)), np.int64)
    for tag in wide:
        if tag not in _WIDE:
            continue
        rows = slice(None) if is_one else np.flatnonzero(tags == tag)
        found = fixed(data, _WIDE[tag], at[rows] + 1)
        value[rows] = found
        if tag == _UNSIGNED64:
            irregular[rows] |= found < 0
        if bits < 64:
            limit = 1 << (bits - 1)
            irregular[rows] |= (found < -limit) | (found >= limit)
    return value


def _text_size(data: Data, octets: Octets, tags: Octets, at: Ints) -> tuple[Ints | int, Ints | Octets]:
    """The size of the head and of the whole item; for other than text and bytes, as its tag says."""
    size = _told(_SIZE, tags)
    length_bytes = _told(_LENGTH_BYTES, tags)
    if not length_bytes.any():
        return 1, size
    length_bytes = np.broadcast_to(length_bytes, len(at))
    whole = np.array(np.broadcast_to(size, len(at)), np.int64)
    for width, of in ((1, "u1"), (2, ">u2")):
        rows = np.flatnonzero(length_bytes == width)
        whole[rows] += fixed(data, of, at[rows] + 1)
    return 1 + length_bytes.astype(np.int64), whole


def _skip(data: Data, octets: Octets, at: Ints, end: Ints, irregular: Flags) -> Ints:
    """The position after one item and everything in it."""
    behind = at.copy()
    rows = np.flatnonzero(~irregular)
    here, left, ends = at[rows], np.ones(len(rows), np.int64), end[rows]
    for _ in range(SKIP_STEPS_MAX):
        size, held, is_other = _item(data, octets, here)
        following = here + size
        left += held
        left -= 1
        wrong = (following > ends) | is_other
        if wrong.any():
            irregular[rows[np.flatnonzero(wrong)]] = True
            following, left = np.where(wrong, here, following), np.where(wrong, 0, left)
        done = np.flatnonzero(left == 0)
        here = following
        if len(done):
            behind[rows[done]] = following[done]
            going = np.flatnonzero(left)
            rows, here, left, ends = rows[going], following[going], left[going], ends[going]
        if not len(rows):
            return behind
    irregular[rows] = True
    return behind


def _item(
    data: Data, octets: Octets, at: Ints
) -> tuple[Ints | Octets, Ints | Octets, npt.NDArray[np.bool_] | bool]:
    """For the items at ``at``: their size without nested items, how many they nest, and which are invalid."""
    tags = octets[at]
    if not _told(_IS_RARE, tags).any():
        return _told(_SIZE, tags), _told(_ITEMS, tags), False
    _, size = _text_size(data, octets, tags, at)
    held = _told(_ITEMS, tags).astype(np.int64)
    many = np.flatnonzero(tags == _ARRAY16)
    held[many] = fixed(data, ">u2", at[many] + 1)
    return size, held, _told(_CLASS, tags) == _OTHER
