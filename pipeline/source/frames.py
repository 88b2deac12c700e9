"""The whole frames of a segment as arrays, and what is lost between them.

Each frame is found and checked by itself. What must stay true is what `history.reading.source.Walk` says of
a stateless walk: an entry is read when its frame is whole and the next one due; behind damage it goes on
with the next whole frame of a later entry; what a crash may have torn at the end of a log is no damage.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from history.reading.source import Gap
from raftlog.errors import Corrupt
from raftlog.frames import CRC_START, FRAME_MAGIC, HEADER, HEADER_BYTES
from raftlog.segments import HEADER_BYTES_MAX, decode_header, next_frame, proof_of_loss

Ints = npt.NDArray[np.int64]

_CRC_AT, _LENGTH_AT, _COUNT_AT, _INDEX_AT, _TERM_AT, _COMMIT_AT, _TIME_AT = 4, 8, 12, 16, 24, 32, 40
"""Where the fields of `raftlog.frames.HEADER` are."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole frames in the order of the log, one array for each field of their headers."""

    offset: Ints
    length: Ints
    count: Ints
    index: Ints
    term: Ints
    commit_index: Ints
    timestamp_ms: Ints
    crc: Ints

    @classmethod
    def at(cls, data: bytes, offset: Ints) -> Frames:
        """Those whose headers are at these offsets, all within ``data``."""

        def field(kind: str, at: int) -> Ints:
            return fixed(data, kind, offset + at)

        return cls(
            offset=offset,
            length=field("<u4", _LENGTH_AT),
            count=field("<u4", _COUNT_AT),
            index=field("<u8", _INDEX_AT),
            term=field("<u8", _TERM_AT),
            commit_index=field("<u8", _COMMIT_AT),
            timestamp_ms=field("<i8", _TIME_AT),
            crc=field("<u4", _CRC_AT),
        )

    def __len__(self) -> int:
        return len(self.offset)

    def of(self, chosen: npt.NDArray[np.bool_] | Ints | slice) -> Frames:
        """Some of them."""
        return Frames(*(getattr(self, one.name)[chosen] for one in fields(self)))


def fixed(data: bytes, kind: str, at: Ints) -> Ints:
    """Numbers of one width at any offsets, every one of them within ``data``."""
    dtype = np.dtype(kind)
    if not len(at):
        return np.zeros(0, np.int64)
    unaligned = np.ndarray((len(data) - dtype.itemsize + 1,), dtype, data, 0, (1,))
    return unaligned[at].astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a segment is expected to hold.

    ``following`` is the first index of the next segment, ``None`` of the newest; ``decided`` the last entry
    that is committed (``None``: what is whole is).
    """

    first: int
    following: int | None = None
    decided: int | None = None
    is_alone: bool = True


def scan(data: bytes, path: str, bounds: Bounds) -> tuple[Frames, list[Gap]]:
    """The whole frames of a segment, each checked, up to what is decided; and what is lost."""
    runs: list[Ints] = []
    gaps: list[Gap] = []
    at, expected = 0, bounds.first
    what = _missing(expected)
    try:
        at = decode_header(memoryview(data)[:HEADER_BYTES_MAX], path).frames_offset
    except Corrupt as damage:
        what = damage.what  # a header is never torn: the first entry is given up, the rest proves itself
    while at < len(data):
        run, at = _run(data, at, expected)
        runs.append(run)
        expected += len(run)
        if at >= len(data) or (at > 0 and _may_be_torn(data, at, expected, bounds)):
            break
        again = next_frame(data, at, expected)
        goes_on = bounds.following if again is None else again[1]
        gaps.append(gap(path, at, expected, what if at == 0 else _missing(expected), goes_on))
        if again is None:
            return _decided(data, runs, gaps, bounds)
        at, expected = again
    if bounds.following is not None and expected < bounds.following:
        lost = f"ends with entry {expected - 1}, the next file begins with {bounds.following}"
        gaps.append(gap(path, at, expected, lost, bounds.following))
    elif bounds.following is None and bounds.decided is not None and expected <= bounds.decided:
        gaps.append(gap(path, at, expected, _missing(expected), None))
    return _decided(data, runs, gaps, bounds)


def gap(path: str, offset: int, first: int, what: str, goes_on_at: int | None) -> Gap:
    """Entries from ``first`` on are lost."""
    return Gap(
        after_index=first - 1, bridged_by=None, goes_on_at=goes_on_at, file=path, offset=offset, what=what
    )


def _missing(expected: int) -> str:
    return f"no whole frame where entry {expected} should be"


def _may_be_torn(data: bytes, at: int, expected: int, bounds: Bounds) -> bool:
    """At the end of a log: what is there was never acknowledged, as far as anything tells."""
    if bounds.following is not None or (bounds.decided is not None and expected <= bounds.decided):
        return False
    return proof_of_loss(data[at:], expected, is_alone=bounds.is_alone) is None


def _decided(data: bytes, runs: list[Ints], gaps: list[Gap], bounds: Bounds) -> tuple[Frames, list[Gap]]:
    frames = Frames.at(data, np.concatenate([np.zeros(0, np.int64), *runs]))
    if bounds.decided is not None:
        frames = frames.of(frames.index <= bounds.decided)
    return frames, gaps


def _run(data: bytes, at: int, expected: int) -> tuple[Ints, int]:
    """Offsets of the whole frames from entry ``expected`` on that follow each other, and their end."""
    view = memoryview(data)
    found: list[int] = []
    unpack, size = HEADER.unpack_from, len(data)
    while at + HEADER_BYTES <= size:
        magic, crc, length, _, index, _, _, _ = unpack(data, at)
        end = at + HEADER_BYTES + length
        if magic != FRAME_MAGIC or index != expected or end > size:
            break
        if crc32c(view[at + CRC_START : end]) != crc:
            break
        found.append(at)
        at, expected = end, expected + 1
    return np.array(found, np.int64), at
