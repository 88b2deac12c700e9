"""Finds the records in the bodies of many frames at once: the positions of each key and value, undecoded.

A record's header has a fixed width, but the next record's position depends on its lengths. The walk therefore
goes by sequence: the first records of all frames, then the second ones, and so on. It must make the checks of
`records.iter_records`: every length lies within its frame, and the last record ends where the frame ends. A
frame that fails a check is irregular.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields

import numpy as np

from raftlog.storage.frames import HEADER_BYTES

from .frames import Data, Flags, Frames, Ints, fixed, places_of, structs

_CAUSE_LENGTH_BYTES = 4
_RECORD = struct.Struct(">hhIi")
"""A record's header as in `records.entry`: type, version, key length, value length (-1: a tombstone)."""

_HEADER = np.dtype([("type", ">i2"), ("version", ">i2"), ("key", ">u4"), ("value", ">i4")])
"""The same header as a numpy type."""

FEW = 24
"""Below this many frames with records left, a loop over them is faster than numpy."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order of the log; ``frame`` is the place of a record's frame among those walked.

    The key lies between ``key`` and ``value``, the value between ``value`` and ``end``.
    """

    frame: Ints
    sequence: Ints
    type: Ints
    version: Ints
    key: Ints
    value: Ints
    end: Ints
    is_tombstone: Flags

    def __len__(self) -> int:
        return len(self.frame)

    def of(self, chosen: Flags | Ints) -> Records:
        """A selection of the records."""
        places = places_of(chosen)
        return Records(*(getattr(self, one.name)[places] for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Bodies:
    """The records and causes of frames; those of irregular frames are undefined."""

    records: Records
    cause: Ints
    cause_end: Ints
    irregular: Flags


def walk(data: Data, frames: Frames) -> Bodies:
    """The records of frames that lie within ``data`` and passed their CRC check."""
    body = frames.offset + HEADER_BYTES
    end = body + frames.length
    cause = body + _CAUSE_LENGTH_BYTES
    irregular = cause > end
    cause_end = cause + fixed(data, ">u4", np.minimum(body, len(data) - _CAUSE_LENGTH_BYTES))
    irregular |= cause_end + frames.count * _RECORD.size > end
    at = np.where(irregular, end, cause_end)
    counts = np.where(irregular, 0, frames.count)
    irregular |= (counts == 0) & (at != end)
    starts = np.zeros(int(counts.sum()), np.int64)
    base = np.cumsum(counts) - counts
    step = 0
    going = np.flatnonzero(counts > 0)
    at = at[going]
    while len(going) > FEW:
        starts[base[going] + step] = at
        following, wrong = _next(data, at, end[going])
        step += 1
        is_last = counts[going] == step
        wrong |= is_last & (following != end[going])
        irregular[going[wrong]] = True
        on = np.flatnonzero(~(wrong | is_last))
        going, at = going[on], following[on]
    for place, position in zip(going.tolist(), at.tolist(), strict=True):
        first, last = int(base[place]) + step, int(base[place] + counts[place])
        irregular[place] |= not _one_by_one(data, position, int(end[place]), starts[first:last])
    frame = np.repeat(np.arange(len(frames)), counts)
    sequence = np.arange(len(starts)) - np.repeat(base, counts)
    if irregular.any():
        whole = np.flatnonzero(np.repeat(~irregular, counts))
        starts, frame, sequence = starts[whole], frame[whole], sequence[whole]
    return Bodies(_at(data, starts, frame, sequence), cause, cause_end, irregular)


def _next(data: Data, at: Ints, end: Ints) -> tuple[Ints, Flags]:
    """The end of each of these records, and which of them are malformed."""
    wrong = at + _RECORD.size > end
    heads = structs(data, _HEADER, np.where(wrong, 0, at))
    value_length = heads["value"].astype(np.int64)
    following = at + _RECORD.size + heads["key"] + np.maximum(value_length, 0)
    return following, wrong | (value_length < -1) | (following > end)


def _one_by_one(data: Data, at: int, end: int, starts: Ints) -> bool:
    """Fill in the positions of one frame's remaining records; returns whether the frame is well-formed."""
    for place in range(len(starts)):
        if at + _RECORD.size > end:
            return False
        starts[place] = at
        _, _, key_length, value_length = _RECORD.unpack_from(data, at)
        at += _RECORD.size + key_length + max(value_length, 0)
        if value_length < -1 or at > end:
            return False
    return at == end


def _at(data: Data, at: Ints, frame: Ints, sequence: Ints) -> Records:
    heads = structs(data, _HEADER, at)
    key = at + _RECORD.size
    value = key + heads["key"]
    value_length = heads["value"].astype(np.int64)
    return Records(
        frame=frame,
        sequence=sequence,
        type=heads["type"].astype(np.int64),
        version=heads["version"].astype(np.int64),
        key=key,
        value=value,
        end=value + np.maximum(value_length, 0),
        is_tombstone=value_length < 0,
    )
