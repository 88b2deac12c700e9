"""Walks the frames of one segment file to locate each entry and the end of the intact ones.

This is the hot loop of a start: only headers are decoded, nothing is copied, and the file is read in chunks.
The walk ends at the end of the file or at the first place that does not hold the next whole frame; the caller
decides what that means.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import File
from raftlog.storage.frames import CRC_START, FRAME_MAGIC, HEADER, HEADER_BYTES

CHUNK_BYTES = 1 << 18
"""Bytes read at once: about a thousand small frames, one or two milliseconds of checking per turn."""


class Scan:
    """A walk over the frames of `file`; its fields hold the result once `steps` is exhausted.

    `offsets` and `terms` get one item per entry.  `end` is the end of the last whole frame.
    """

    def __init__(self, file: File, path: str, *, index: int, term: int, timestamp_ms: int) -> None:
        self._file = file
        self._path = path
        self.index = index
        self.term = term
        self.timestamp_ms = timestamp_ms
        self.end = 0
        self.records = 0
        self.commit_index = 0

    def steps(self, start: int, size: int, offsets: array[int], terms: array[int]) -> Iterator[None]:
        """Walk from `start` to `size`; yields between chunks.

        Raises Corrupt for a whole frame that is not the next entry: no crash writes that.
        """
        self.end = start
        want = CHUNK_BYTES
        while self.end < size:
            chunk = self._file.pread(min(want, size - self.end), self.end)
            used = self._walk(chunk, offsets, terms)
            self.end += used
            if used:
                want = CHUNK_BYTES
                yield
            elif self.end + len(chunk) >= size or not chunk.startswith(FRAME_MAGIC):
                return
            else:
                length = HEADER.unpack_from(chunk)[2]
                if HEADER_BYTES + length <= len(chunk):
                    return
                want = HEADER_BYTES + length  # a large frame, or a damaged length, which the CRC detects

    def _walk(self, chunk: bytes, offsets: array[int], terms: array[int]) -> int:
        """Take the whole frames at the start of `chunk`; returns their size in bytes."""
        view = memoryview(chunk)
        unpack, crc_of, header_bytes, magic_wanted = HEADER.unpack_from, crc32c, HEADER_BYTES, FRAME_MAGIC
        add_offset, add_term = offsets.append, terms.append
        at, size, base = 0, len(chunk), self.end
        expected, last_term, last_ms, records = self.index + 1, self.term, self.timestamp_ms, self.records
        commit = self.commit_index
        last_start = size - header_bytes
        while at <= last_start:
            magic, crc, length, count, index, term, commit_index, timestamp = unpack(view, at)
            end = at + header_bytes + length
            if magic != magic_wanted or end > size or crc_of(view[at + CRC_START : end]) != crc:
                break
            if index != expected or term < last_term or timestamp < last_ms or commit_index >= index:
                what = (
                    f"entry {index} of term {term} instead of entry {expected} of term {last_term} or later"
                )
                raise Corrupt(self._path, base + at, what, RESTORE_HINT)
            add_offset(base + at)
            add_term(term)
            expected += 1
            last_term, last_ms, commit = term, timestamp, commit_index
            records += count
            at = end
        self.index, self.term, self.timestamp_ms = expected - 1, last_term, last_ms
        self.records, self.commit_index = records, commit
        return at
