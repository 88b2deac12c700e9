"""Validation of frames from a leader: whole frames that follow the last entry, in order, or none is taken.

A follower stores the leader's frames byte for byte, so this is the last point at which damage in transit, or
in the sender's memory, can be kept out of the log.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.env.errors import Corrupt
from raftlog.storage.frames import frame_at

RECEIVED = "entries from the leader"
"""Used in place of a file name for damage in data that a peer sent."""

_HINT = "nothing was written; check the memory and the network of both nodes"


class Received(NamedTuple):
    """A checked frame: its bytes and the fields of its header."""

    frame: bytes
    entry_index: int
    term: int
    commit_index: int
    timestamp_ms: int
    records: int


def check_frames(data: bytes, last_index: int, last_term: int, last_timestamp_ms: int) -> list[Received]:
    """The frames in `data`, which must fill it and continue after the entry `last_index`.

    Raises Corrupt, naming the byte in `data`.
    """
    view = memoryview(data)
    found: list[Received] = []
    at, index, term, timestamp_ms = 0, last_index, last_term, last_timestamp_ms
    while at < len(data):
        whole = frame_at(view, at)
        if whole is None:
            raise Corrupt(RECEIVED, at, f"no complete frame where entry {index + 1} should be", _HINT)
        end, its_index, its_term, commit_index, its_ms, records = whole
        goes_back = its_term < term or its_ms < timestamp_ms
        if its_index != index + 1 or goes_back or commit_index >= its_index:
            what = (
                f"entry {its_index} of term {its_term} instead of entry {index + 1} of term {term} or later"
            )
            raise Corrupt(RECEIVED, at, what, _HINT)
        found.append(Received(data[at:end], its_index, its_term, commit_index, its_ms, records))
        at, index, term, timestamp_ms = end, its_index, its_term, its_ms
    return found
