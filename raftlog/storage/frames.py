"""A frame is one Raft entry on disk: a fixed-width header, then the entry's body, which is opaque here.

    magic         4 bytes   b"QFR1"; lets a scan find the next whole frame after a damaged one
    crc           u32       CRC32C of everything after this field
    length        u32       bytes of the body
    record count  u32       records in the body, so that tails are counted without decoding
    index         u64       Raft index
    term          u64       Raft term
    commit index  u64       the leader's commit index when it appended: proof for a later reader
    timestamp     i64       ms since the epoch; never goes back within a shard
    body          `length` bytes, `records.encode_entry`

Numbers are little-endian.  Followers store the leader's frames byte for byte, so frames of equal index are
equal on all nodes and can be hashed and compared.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt

FRAME_MAGIC = b"QFR1"
HEADER = struct.Struct("<4sIIIQQQq")
HEADER_BYTES = HEADER.size
CRC_START = 8
"""The offset at which the bytes covered by the CRC begin: after the magic and the CRC itself."""

_COVERED = struct.Struct("<IIQQQq")
_PREFIX = struct.Struct("<4sI")
_unpack = HEADER.unpack_from


@dataclass(slots=True)
class Frame:
    """One entry as read back.

    `file` and `offset` locate it (bytes from the start of the file); `decided` is False for an entry that is
    whole but not known to be committed.  Neither frozen nor keyword-only: each would double the cost of
    creating one.
    """

    index: int
    term: int
    commit_index: int
    timestamp_ms: int
    record_count: int
    body: bytes
    file: str = ""
    offset: int = 0
    decided: bool = True

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return HEADER_BYTES + len(self.body)

    def encode(self) -> bytes:
        """The frame's bytes, equal to those on disk."""
        return encode_frame(
            self.index, self.term, self.commit_index, self.timestamp_ms, self.record_count, self.body
        )


def encode_frame(
    index: int, term: int, commit_index: int, timestamp_ms: int, record_count: int, body: bytes
) -> bytes:
    """The bytes of one frame."""
    rest = _COVERED.pack(len(body), record_count, index, term, commit_index, timestamp_ms) + body
    return _PREFIX.pack(FRAME_MAGIC, crc32c(rest)) + rest


def frame_at(view: memoryview, offset: int) -> tuple[int, int, int, int, int, int] | None:
    """Check the frame at `offset`: (end, index, term, commit index, timestamp ms, record count).

    None if there is no whole frame with a matching CRC.
    """
    if offset + HEADER_BYTES > len(view):
        return None
    magic, crc, length, count, index, term, commit, timestamp = HEADER.unpack_from(view, offset)
    end = offset + HEADER_BYTES + length
    if magic != FRAME_MAGIC or end > len(view) or crc32c(view[offset + CRC_START : end]) != crc:
        return None
    return end, index, term, commit, timestamp, count


def last_in(frames: bytes) -> int:
    """The index of the last of these whole frames."""
    at, index = 0, 0
    while at < len(frames):
        _, _, length, _, index, _, _, _ = HEADER.unpack_from(frames, at)
        at += HEADER_BYTES + length
    return index


def read_frame(
    view: memoryview, at: int, path: str, offset: int, decided_to: int | None = None
) -> Frame | None:
    """The whole frame at `at` in `view`, which is at `offset` of the file `path`; None when there is none.

    It is decided if its index is at most `decided_to`; None: all are.  The checks are those of `frame_at`,
    inlined, because this call is the hot path of every reader of history.
    """
    body = at + HEADER_BYTES
    if body > len(view):
        return None
    magic, crc, length, count, index, term, commit_index, timestamp_ms = _unpack(view, at)
    end = body + length
    if magic != FRAME_MAGIC or end > len(view) or crc32c(view[at + CRC_START : end]) != crc:
        return None
    is_decided = decided_to is None or index <= decided_to
    return Frame(
        index, term, commit_index, timestamp_ms, count, bytes(view[body:end]), path, offset, is_decided
    )


def frames_in(data: bytes, path: str = "", start: int = 0) -> list[Frame]:
    """Consecutive whole frames, `start` bytes into the file at `path`; raises Corrupt where one is not."""
    view, at = memoryview(data), 0
    found: list[Frame] = []
    while at < len(data):
        frame = read_frame(view, at, path, start + at)
        if frame is None:
            expected = f"entry {found[-1].index + 1}" if found else "the first entry"
            raise Corrupt(path, start + at, f"no complete frame where {expected} should be", RESTORE_HINT)
        found.append(frame)
        at += frame.size
    return found
