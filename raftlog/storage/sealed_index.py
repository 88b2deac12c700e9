"""The sealed index: one row per record of a segment that will not change any more.

Readers that look for a group, a type or a time use it to skip entries: Spark, explain, the log endpoint.

    magic          8 bytes  b"QRTEIDX1"
    crc            u32      CRC32C of everything after this field
    types          u32      how many distinct record types follow the header
    first, last    u64 u64  Raft indexes of the segment
    frames, rows   u32 u32
    log bytes      u64      size of the segment file
    log crc        u32      CRC32C of the whole segment file
    -              u32      0
    timestamps     i64 i64  least and greatest
    chain before   16       hash chain before the first frame
    chain after    16       hash chain after the last frame
    types          i32 ...  ascending
    rows           (raft index u64, timestamp i64, frame offset u32, sequence u32, CRC32 of group id u32,
                    type i32), in log order; a record without a group has CRC 0

Built by the merge job from the segment's bytes alone (`raftlog.storage.index_build`); an index exists only
for a segment whose frames are all committed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from raftlog.env.errors import Corrupt
from raftlog.env.files import File

MAGIC = b"QRTEIDX1"
_HEAD = struct.Struct("<8sIIQQIIQIIqq16s16s")
_CRC_START = 12
ROW = struct.Struct("<QqIIIi")
ROWS_CRC_OFFSET = 24
"""The offset in a row of the group's CRC32, which the type follows."""

REBUILD_HINT = "the index can be rebuilt from its segment: remove it and start the node"


class Row(NamedTuple):
    """One record of a sealed segment."""

    raft_index: int
    timestamp_ms: int
    frame_offset: int
    sequence: int
    group_crc: int
    type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """The header of a sealed index; the archive's manifest keeps the same facts."""

    first_index: int
    last_index: int
    frame_count: int
    log_bytes: int
    log_crc: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    chain_before: bytes
    chain_after: bytes
    types: tuple[int, ...]


def encode_index(sealed: Sealed, rows: list[bytes]) -> bytes:
    """The bytes of an index file: the header, then the rows, each packed with `ROW`."""
    head = _HEAD.pack(
        MAGIC,
        0,
        len(sealed.types),
        sealed.first_index,
        sealed.last_index,
        sealed.frame_count,
        len(rows),
        sealed.log_bytes,
        sealed.log_crc,
        0,
        sealed.timestamp_ms_min,
        sealed.timestamp_ms_max,
        sealed.chain_before,
        sealed.chain_after,
    )
    types = struct.pack(f"<{len(sealed.types)}i", *sealed.types)
    rest = head[_CRC_START:] + types + b"".join(rows)
    return MAGIC + struct.pack("<I", crc32c(rest)) + rest


def decode_index(data: bytes, path: str) -> Sealed:
    """Check all of an index file and return its header; raises Corrupt."""
    if len(data) < _HEAD.size:
        raise Corrupt(path, len(data), "too short for a sealed index", REBUILD_HINT)
    magic, crc, types, *_ = _HEAD.unpack_from(data)
    rows = _HEAD.unpack_from(data)[6]
    if magic != MAGIC:
        raise Corrupt(path, 0, f"begins with {magic!r} instead of {MAGIC!r}", REBUILD_HINT)
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise Corrupt(path, 8, "the CRC of the sealed index does not match", REBUILD_HINT)
    if len(data) != _HEAD.size + 4 * types + ROW.size * rows:
        raise Corrupt(path, len(data), f"is too short for {rows} rows and {types} types", REBUILD_HINT)
    return _sealed(data, struct.unpack_from(f"<{types}i", data, _HEAD.size))


def read_header(file: File, path: str) -> Sealed:
    """The header of an index, with as few bytes as possible; its CRC is not checked.  Raises Corrupt."""
    head = file.pread(_HEAD.size, 0)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        raise Corrupt(path, 0, "is not a sealed index", REBUILD_HINT)
    return _sealed(head, ())


def _sealed(head: bytes, types: tuple[int, ...]) -> Sealed:
    _, _, _, first, last, frames, _, size, log_crc, _, least, most, before, after = _HEAD.unpack_from(head)
    return Sealed(
        first_index=first,
        last_index=last,
        frame_count=frames,
        log_bytes=size,
        log_crc=log_crc,
        timestamp_ms_min=least,
        timestamp_ms_max=most,
        chain_before=before,
        chain_after=after,
        types=types,
    )


def index_rows(data: bytes) -> Iterator[Row]:
    """The rows of an index file that `decode_index` has checked."""
    return map(Row._make, ROW.iter_unpack(memoryview(data)[rows_start(data) :]))


def rows_start(data: bytes) -> int:
    """The offset of the rows in an index file."""
    return _HEAD.size + 4 * int(struct.unpack_from("<I", data, _CRC_START)[0])


def find_frame(file: File, path: str, index: int) -> tuple[int, int] | None:
    """(index, offset) of the last frame with records at or before `index`; None when there is none.

    Uses binary search: an index may be large, so it is not read whole and its CRC is not checked; the caller
    must check the frame it finds.  Raises Corrupt.
    """
    head = file.pread(_HEAD.size, 0)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        raise Corrupt(path, 0, "is not a sealed index", REBUILD_HINT)
    types, rows = _HEAD.unpack(head)[2], _HEAD.unpack(head)[6]
    start, found, low, high = _HEAD.size + 4 * types, None, 0, rows
    while low < high:
        middle = (low + high) // 2
        data = file.pread(ROW.size, start + ROW.size * middle)
        if len(data) < ROW.size:
            raise Corrupt(path, start + ROW.size * middle, "ends before its last row", REBUILD_HINT)
        row = Row._make(ROW.unpack(data))
        if row.raft_index <= index:
            found, low = (row.raft_index, row.frame_offset), middle + 1
        else:
            high = middle
    return found
