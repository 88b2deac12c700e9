"""Searching for some groups' entries without reading those of other groups where that is sound.

The index of a sealed segment locates a group's entries, so nothing else of it is read.  The bytes of other
groups' entries are then *not* checked: damage to them is not found, and does not matter, because the index is
checked whole, and so is each entry that it leads to.  `verify` checks all.  A segment without an index is
read and checked completely; the only saving is that no `Frame` is made of other groups' entries.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from zlib import crc32

from crc32c import crc32c

from raftlog.env.errors import Corrupt, Damaged
from raftlog.env.files import File, Files, join
from raftlog.storage.archive import ARCHIVE
from raftlog.storage.frames import CRC_START, FRAME_MAGIC, HEADER, HEADER_BYTES, Frame, read_frame
from raftlog.storage.sealed_index import ROW, ROWS_CRC_OFFSET, Sealed, decode_index, rows_start
from raftlog.storage.segments import HEADER_BYTES_MAX, decode_header, index_name, log_name
from records import RecordType

GROUPS_MAX = 16
"""At most this many groups are searched for: of more, nearly every stretch of a log holds one."""

_TERM_START = int(RecordType.TERM_START)
_TYPE = struct.Struct(">h")
_CAUSE_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Passed:
    """The entries from `first_index` to `last_index` are decided and do not concern the groups.

    `timestamp_ms` is the time of the last of them (that has records).
    """

    first_index: int
    last_index: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The entries searched for: those of these groups, and starts of terms.

    Also all entries after the end (`to_index`, `to_ms`), or not known to be decided (`decided_to`; None: all
    are).
    """

    group_ids: Collection[str]
    to_index: int | None = None
    to_ms: int | None = None
    decided_to: int | None = None

    def is_behind_end(self, index: int, timestamp_ms: int) -> bool:
        """Whether an entry must be returned whatever it holds: it lies after the end, or is undecided."""
        return (
            (self.to_index is not None and index > self.to_index)
            or (self.to_ms is not None and timestamp_ms > self.to_ms)
            or (self.decided_to is not None and index > self.decided_to)
        )


class GroupFilter:
    """Passes over the entries in the bytes of one segment that are not searched for."""

    def __init__(self, data: bytes, looked: Looked) -> None:
        self._data = data
        self._view = memoryview(data)
        self._looked = looked
        needles = (re.escape(group_id.encode()) for group_id in looked.group_ids)
        self._pattern = re.compile(b"|".join(needles))
        self._hit = -1
        """The next place that names one of the groups: every record of it does, and few others do."""

    def by(self, at: int, expected: int) -> tuple[Passed | None, int]:
        """(entries that can be passed over from `at` on, or None; where they end).

        Entry `expected` is due at `at`.  They end at a frame that is searched for, or where no frame is
        whole.
        """
        data, view, is_behind_end = self._data, self._view, self._looked.is_behind_end
        unpack, crc_of, size = HEADER.unpack_from, crc32c, len(data)
        first, last_ms = expected, -1
        if self._hit < at:
            found = self._pattern.search(data, at)
            self._hit = size if found is None else found.start()
        hit = self._hit
        while at + HEADER_BYTES <= size:
            magic, crc, length, count, index, _, _, timestamp_ms = unpack(data, at)
            end = at + HEADER_BYTES + length
            if hit < end or index != expected or magic != FRAME_MAGIC:
                break
            if crc_of(view[at + CRC_START : end]) != crc or is_behind_end(index, timestamp_ms):
                break
            if count == 1 and _begins_term(data, at, end):
                break
            at, expected, last_ms = end, expected + 1, timestamp_ms
        return (Passed(first, expected - 1, last_ms) if expected > first else None), at


def _begins_term(data: bytes, at: int, end: int) -> bool:
    """Whether the first record of the frame between `at` and `end` of `data` begins a term."""
    body = at + HEADER_BYTES
    if body + _CAUSE_LENGTH.size > end:
        return False
    record = body + _CAUSE_LENGTH.size + int(_CAUSE_LENGTH.unpack_from(data, body)[0])
    return record + _TYPE.size <= end and _TYPE.unpack_from(data, record)[0] == _TERM_START


def sealed_index(files: Files, home: str, first: int) -> tuple[Sealed, bytes] | None:
    """The index of the segment that begins with `first`, checked whole; None if there is no intact one."""
    for path in (join(home, index_name(first)), join(home, ARCHIVE, index_name(first))):
        with contextlib.suppress(FileNotFoundError, Corrupt):
            data = files.read(path)
            return decode_index(data, path), data
    return None


def indexed_frames(files: Files, home: str, first: int, looked: Looked) -> Iterator[Frame | Passed] | None:
    """The entries of a sealed segment that are searched for, located by its index.

    None where the segment must be read itself: it has no intact index, is not the file that was indexed, or
    the end of the search is in it.
    """
    found = sealed_index(files, home, first)
    if found is None:
        return None
    sealed, data = found
    if sealed.first_index != first or looked.is_behind_end(sealed.last_index, sealed.timestamp_ms_max):
        return None
    path, file = _opened(files, home, first)
    if file is None:
        return None
    try:
        if file.size() == sealed.log_bytes:
            header = decode_header(file.pread(HEADER_BYTES_MAX, 0), path)
            if header.first_index == first:
                return _frames(file, path, sealed, data, _places(sealed, data, looked))
    except Corrupt:
        pass
    file.close()
    return None


def _opened(files: Files, home: str, first: int) -> tuple[str, File | None]:
    live, archived = join(home, log_name(first)), join(home, ARCHIVE, log_name(first))
    for path in (live, archived, live):  # it may be moved in the meantime
        with contextlib.suppress(FileNotFoundError):
            return path, files.open(path, "r")
    return live, None


def _places(sealed: Sealed, data: bytes, looked: Looked) -> list[int]:
    """Offsets in the index of the first rows of the entries that are searched for, ascending."""
    needles = [struct.pack("<I", crc32(group_id.encode())) for group_id in looked.group_ids]
    if _TERM_START in sealed.types:
        needles.append(struct.pack("<Ii", 0, _TERM_START))
    start, entries = rows_start(data), dict[bytes, int]()
    rows = sorted(row for needle in needles for row in _rows_with(data, start, needle))
    for row in rows:
        entries.setdefault(data[row : row + _INDEX_BYTES], row)
    return list(entries.values())


_INDEX_BYTES = 8
"""The length of the entry's index, with which a row begins."""


def _rows_with(data: bytes, start: int, needle: bytes) -> Iterator[int]:
    """Offsets of the rows that have `needle` in the place of the group's CRC.

    A search in the raw bytes, because rows are many and hits are few.
    """
    at = data.find(needle, start)
    while at >= 0:
        row, beside = divmod(at - start - ROWS_CRC_OFFSET, ROW.size)
        if not beside:
            yield start + row * ROW.size
        at = data.find(needle, at + 1)


def _frames(
    file: File, path: str, sealed: Sealed, data: bytes, places: list[int]
) -> Iterator[Frame | Passed]:
    start = rows_start(data)
    expected = sealed.first_index
    try:
        for place in places:
            index, _, offset = ROW.unpack_from(data, place)[:3]
            if index > expected:
                before_ms = ROW.unpack_from(data, place - ROW.size)[1] if place > start else -1
                yield Passed(expected, index - 1, before_ms)
            yield _frame(file, path, index, offset)
            expected = index + 1
        if expected <= sealed.last_index:
            yield Passed(expected, sealed.last_index, sealed.timestamp_ms_max)
    finally:
        file.close()


def _frame(file: File, path: str, index: int, offset: int) -> Frame:
    head = file.pread(HEADER_BYTES, offset)
    if len(head) == HEADER_BYTES:
        length = min(HEADER.unpack(head)[2], file.size() - offset)  # if damaged, the CRC detects it
        frame = read_frame(memoryview(head + file.pread(length, offset + HEADER_BYTES)), 0, path, offset)
        if frame is not None and frame.index == index:
            return frame
    what = f"no complete frame where entry {index} should be"
    raise Damaged(path, offset, what, "`log verify` lists all damage")
