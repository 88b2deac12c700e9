"""Sealed segments with their index: finds the wanted records before reading, checks all with one CRC.

An index is checked as a whole, and then trusted about a segment that matches its CRC. The invariant: if index
and segment do not match, only the segment counts.
"""

from __future__ import annotations

import contextlib
from zlib import crc32

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from raftlog.env.errors import Damaged
from raftlog.env.files import Files
from raftlog.offline.group_filter import sealed_index
from raftlog.storage.archive import places_of
from raftlog.storage.frames import HEADER_BYTES
from raftlog.storage.sealed_index import Sealed, read_header, rows_start
from raftlog.storage.segments import decode_header, index_name

from .frames import Bounds, Data, Frames
from .options import Selection

_ROW = np.dtype(
    [
        ("index", "<u8"),
        ("timestamp_ms", "<i8"),
        ("offset", "<u4"),
        ("sequence", "<u4"),
        ("group", "<u4"),
        ("type", "<i4"),
    ]
)
"""`raftlog.storage.sealed_index.ROW` as a numpy type."""


def sealed_header(files: Files, home: str, bounds: Bounds) -> Sealed | None:
    """The header of a segment's index; ``None`` if there is none that fits its place in the log.

    Its own CRC is not checked: it is only good for a comparison with the whole segment.
    """
    for path in places_of(home, index_name(bounds.first)):
        with contextlib.suppress(FileNotFoundError, Damaged):
            file = files.open(path, "r")
            try:
                sealed = read_header(file, path)
            finally:
                file.close()
            last = None if bounds.following is None else bounds.following - 1
            fits = sealed.first_index == bounds.first and last in (None, sealed.last_index)
            is_within = bounds.decided is None or sealed.last_index <= bounds.decided
            return sealed if fits and is_within else None
    return None


class SealedIndex:
    """The index of one segment, and the wanted part of it."""

    def __init__(self, sealed: Sealed, data: bytes, decided: int | None, selection: Selection) -> None:
        self.sealed = sealed
        self._rows: npt.NDArray[np.void] = np.frombuffer(data, _ROW, offset=rows_start(data))
        self._chosen = self._choose(sealed.last_index if decided is None else decided, selection)

    @classmethod
    def of(cls, files: Files, home: str, bounds: Bounds, selection: Selection) -> SealedIndex | None:
        """The sound index of a segment; ``None`` if there is none that fits its place in the log."""
        found = sealed_index(files, home, bounds.first)
        if found is None:
            return None
        sealed, data = found
        last = None if bounds.following is None else bounds.following - 1
        fits = sealed.first_index == bounds.first and last in (None, sealed.last_index)
        return cls(sealed, data, bounds.decided, selection) if fits else None

    @property
    def is_wanted(self) -> bool:
        """Whether the segment may hold wanted records."""
        return bool(self._chosen.any())

    def frames(self, data: Data, path: str) -> Frames | None:
        """The frames with wanted records in a segment's ``data``; ``None`` if it is not what was indexed."""
        sealed, rows = self.sealed, self._rows
        if len(data) != sealed.log_bytes or not len(rows) or crc32c(data) != sealed.log_crc:
            return None
        is_first = np.append(True, rows["offset"][1:] != rows["offset"][:-1])
        offset = rows["offset"][is_first].astype(np.int64)
        if int(offset.max()) + HEADER_BYTES > len(data):
            return None
        frames = Frames.at(data, offset)
        counts = np.diff(np.append(np.flatnonzero(is_first), len(rows)))
        fits = (
            offset[0] == decode_header(data, path).frames_offset
            and np.array_equal(frames.end, np.append(offset[1:], len(data)))
            and np.array_equal(frames.index, np.arange(len(frames)) + sealed.first_index)
            and np.array_equal(frames.count, counts)
        )
        if not fits or self._chosen.all():
            return frames if fits else None
        has_chosen = np.zeros(len(frames), np.bool_)
        has_chosen[rows["index"][self._chosen].astype(np.int64) - sealed.first_index] = True
        return frames.of(has_chosen)

    def _choose(self, decided: int, selection: Selection) -> npt.NDArray[np.bool_]:
        """The records that may be wanted: exact by index, time and type, by CRC for groups.

        All of a sealed segment is decided; ``decided`` is the index known when the read was planned.
        """
        rows, span = self._rows, selection.span
        chosen = rows["index"].astype(np.int64) <= decided
        for low, high, name in (
            (span.from_index, span.to_index, "index"),
            (span.from_ms, span.to_ms, "timestamp_ms"),
        ):
            if low is not None:
                chosen &= rows[name].astype(np.int64) >= low
            if high is not None:
                chosen &= rows[name].astype(np.int64) <= high
        if selection.types is not None:
            chosen &= np.isin(rows["type"], list(selection.types))
        if selection.groups is not None:
            crcs = [crc32(group.encode()) for group in selection.groups]
            chosen &= np.isin(rows["group"], np.array(crcs, np.uint32))
        return chosen
