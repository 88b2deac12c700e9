"""The complete frames of a segment as arrays, and the ranges lost between them.

Each frame is found by its magic and checked separately. The rules are those of `history.reading.source.Walk`
for a stateless walk: an entry is read if its frame is complete and it is the next index; after damage,
reading resumes at the next complete frame of a later entry; a tail that a crash may have torn is not damage.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from history.reading.source import LogGap
from raftlog.env.errors import Corrupt
from raftlog.storage.frames import CRC_START, FRAME_MAGIC, HEADER_BYTES
from raftlog.storage.segments import HEADER_BYTES_MAX, decode_header, proof_of_loss

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Data = bytes | memoryview
"""The bytes of a segment, or a part of them."""

CHECKED_AT_ONCE = 4096
"""Frames whose CRCs are computed before any is compared, the most computed in vain before damage."""

LOOKED_AT_ONCE = 1 << 18
"""Bytes searched for the magic at once, so that temporary arrays stay in the processor's cache."""

_HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("crc", "<u4"),
        ("length", "<u4"),
        ("count", "<u4"),
        ("index", "<u8"),
        ("term", "<u8"),
        ("commit_index", "<u8"),
        ("timestamp_ms", "<i8"),
    ]
)
"""`raftlog.storage.frames.HEADER` as a numpy type."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames in the order of the log, one array for each field of their headers."""

    offset: Ints
    length: Ints
    count: Ints
    index: Ints
    term: Ints
    commit_index: Ints
    timestamp_ms: Ints
    crc: Ints

    @classmethod
    def at(cls, data: Data, offset: Ints) -> Frames:
        """Frames whose headers are at these offsets, all within ``data``."""
        heads = structs(data, _HEADER, offset)
        names = [one.name for one in fields(cls)][1:]
        return cls(offset, *(heads[name].astype(np.int64) for name in names))

    @classmethod
    def none(cls) -> Frames:
        """No frames."""
        return cls(*(np.zeros(0, np.int64) for _ in fields(cls)))

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def end(self) -> Ints:
        """The end of each frame according to its header."""
        return self.offset + HEADER_BYTES + self.length

    def of(self, chosen: Flags | Ints | slice) -> Frames:
        """A selection of the frames."""
        places = places_of(chosen)
        return Frames(*(getattr(self, one.name)[places] for one in fields(self)))

    def moved(self, by: int) -> Frames:
        """The same frames in a buffer that starts ``by`` bytes later."""
        return Frames(self.offset - by, *(getattr(self, one.name) for one in fields(self)[1:]))


def places_of(chosen: Flags | Ints | slice) -> Ints | slice:
    """The places where flags are set; numpy indexes by place several times faster than by flag."""
    if isinstance(chosen, slice):
        return chosen
    return np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)


def structs(data: Data, kind: np.dtype[Any], at: Ints) -> npt.NDArray[Any]:
    """Structures of one width at arbitrary offsets, each of them within ``data``."""
    if not len(at):
        return np.zeros(0, kind)
    opaque = np.dtype((np.void, kind.itemsize))  # numpy copies these as bytes, but structures field by field
    unaligned = np.ndarray((len(data) - kind.itemsize + 1,), opaque, data, 0, (1,))
    return unaligned[at].view(kind)


def fixed(data: Data, kind: str, at: Ints) -> Ints:
    """Numbers of one width at arbitrary offsets, each of them within ``data``."""
    if kind == "u1":
        return np.frombuffer(data, np.uint8)[at].astype(np.int64)
    return structs(data, np.dtype(kind), at).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The expected contents of a segment.

    ``following`` is the first index of the next segment, ``None`` for the newest one. ``decided`` is the last
    committed entry; ``None`` counts every complete entry as committed.
    """

    first: int
    following: int | None = None
    decided: int | None = None
    is_alone: bool = True


def scan(
    data: Data, path: str, bounds: Bounds, *, start: tuple[int, int] | None = None, unchecked_before: int = 0
) -> tuple[Frames, list[LogGap]]:
    """The checked, complete frames of a segment up to the last decided one, and the gaps.

    ``start`` is the offset and the index of an entry to begin with; nothing before it is looked at.

    The bodies of entries before ``unchecked_before`` are not checked, except for the last of them: nobody
    wants them, and few entries at the end of a large segment would otherwise cost a checksum of all of it.
    """
    gaps: list[LogGap] = []
    at, expected = 0, bounds.first
    what = _missing(expected)
    if start is not None:
        at, expected = start
    else:
        try:
            at = decode_header(memoryview(data)[:HEADER_BYTES_MAX], path).frames_offset
        except Corrupt as damage:
            what = damage.what  # headers are never torn: the first entry is lost, later ones are checked
    found = _Found(data, at, unchecked_before)
    while at < len(data):
        at, expected = found.run(at, expected)
        if at >= len(data) or (at > 0 and _may_be_torn(data, at, expected, bounds)):
            break
        again = found.next_after(at, expected)
        goes_on = bounds.following if again is None else again[1]
        gaps.append(gap(path, at, expected, what if at == 0 else _missing(expected), goes_on))
        if again is None:
            return _decided(found.frames(), gaps, bounds)
        at, expected = again
    if bounds.following is not None and expected < bounds.following:
        lost = f"ends with entry {expected - 1}, the next file begins with {bounds.following}"
        gaps.append(gap(path, at, expected, lost, bounds.following))
    elif bounds.following is None and bounds.decided is not None and expected <= bounds.decided:
        gaps.append(gap(path, at, expected, _missing(expected), None))
    return _decided(found.frames(), gaps, bounds)


class _Found:
    """Candidate frames in a file, found by their magic, and those of them that were accepted."""

    def __init__(self, data: Data, start: int, unchecked_before: int) -> None:
        self._view = memoryview(data)
        self._unchecked_before = unchecked_before
        self._size = len(data)
        self._all = Frames.at(data, _magics(data, start))
        self._end = self._all.end
        place = np.arange(1, len(self._all) + 1)
        self._following = np.searchsorted(self._all.offset, self._end)
        is_next = (self._following == place) & (self._end == np.append(self._all.offset[1:], -1))
        self._breaks = np.flatnonzero(~is_next)
        """Candidates not directly followed by another: the last, and those with a magic in their body."""
        self._taken: list[slice] = []

    def frames(self) -> Frames:
        if len(self._taken) == 1:
            return self._all.of(self._taken[0])
        return self._all.of(np.r_[tuple(self._taken)] if self._taken else slice(0))

    def run(self, at: int, expected: int) -> tuple[int, int]:
        """Accept complete frames from ``at``, where ``expected`` is due; returns the end and next index."""
        place = int(np.searchsorted(self._all.offset, at))
        while place < len(self._all) and self._all.offset[place] == at:
            last = int(self._breaks[np.searchsorted(self._breaks, place)]) + 1
            due = np.arange(expected, expected + last - place)
            is_due = (self._all.index[place:last] == due) & (self._end[place:last] <= self._size)
            count = last - place if is_due.all() else int(is_due.argmin())
            # The last of these frames is checked in any case: its length leads to the next one.
            unchecked = min(max(self._unchecked_before - expected, 0), max(count - 1, 0))
            count = unchecked + self._whole(place + unchecked, place + count)
            if not count:
                break
            self._taken.append(slice(place, place + count))
            at, expected = int(self._end[place + count - 1]), expected + count
            if place + count < last:
                break
            place = int(self._following[last - 1])
        return at, expected

    def next_after(self, at: int, index: int) -> tuple[int, int] | None:
        """(offset, index) of the next complete frame at or after ``at`` with an index above ``index``."""
        place = int(np.searchsorted(self._all.offset, at))
        later = place + np.flatnonzero((self._all.index[place:] > index) & (self._end[place:] <= self._size))
        for one in later.tolist():
            if self._whole(one, one + 1):
                return int(self._all.offset[one]), int(self._all.index[one])
        return None

    def _whole(self, first: int, last: int) -> int:
        """The number of complete frames among these, all within the file, before the first that is not."""
        view = self._view
        for start in range(first, last, CHECKED_AT_ONCE):
            upto = min(start + CHECKED_AT_ONCE, last)
            begins, ends = self._all.offset[start:upto] + CRC_START, self._end[start:upto]
            made = [
                crc32c(view[begin:end]) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
            ]
            is_right = np.array(made, np.int64) == self._all.crc[start:upto]
            if not is_right.all():
                return start - first + int(is_right.argmin())
        return last - first


def _magics(data: Data, start: int) -> Ints:
    """Offsets of the frame magic that leave room for a header."""
    octets = np.frombuffer(data, np.uint8)
    stop = len(data) - HEADER_BYTES + 1
    parts = [
        np.flatnonzero(octets[at : min(at + LOOKED_AT_ONCE, stop)] == FRAME_MAGIC[0]) + at
        for at in range(start, stop, LOOKED_AT_ONCE)
    ]
    found: Ints = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    for place in range(1, len(FRAME_MAGIC)):
        found = found[np.flatnonzero(octets[found + place] == FRAME_MAGIC[place])]
    return found


def gap(path: str, offset: int, first: int, what: str, goes_on_at: int | None) -> LogGap:
    """A gap that starts with entry ``first``."""
    return LogGap(
        after_index=first - 1, bridged_by=None, goes_on_at=goes_on_at, file=path, offset=offset, what=what
    )


def _missing(expected: int) -> str:
    return f"no complete frame where entry {expected} should be"


def _may_be_torn(data: Data, at: int, expected: int, bounds: Bounds) -> bool:
    """Whether this is the end of a log whose remaining bytes were, as far as known, never acknowledged."""
    if bounds.following is not None or (bounds.decided is not None and expected <= bounds.decided):
        return False
    return proof_of_loss(bytes(data[at:]), expected, is_alone=bounds.is_alone) is None


def _decided(frames: Frames, gaps: list[LogGap], bounds: Bounds) -> tuple[Frames, list[LogGap]]:
    if bounds.decided is not None:
        frames = frames.of(slice(int(np.searchsorted(frames.index, bounds.decided, "right"))))
    return frames, gaps
