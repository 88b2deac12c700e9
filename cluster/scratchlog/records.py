"""Records of a batch that is not compressed: found by time.

Only what precedes a record's key is read. Nothing of it was checked when the batch came, so the search ends
at what does not parse.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from cluster.scratchlog.batches import RecordBatch
from wire.record_batch import HEADER_BYTES

RECORDS_AT_ONCE: Final = 500
"""Records that are looked at in one step, about a millisecond."""

VARINT_BYTES_MAX: Final = 10

RECORDS_READ_MAX: Final = 1_000_000
"""Records that are looked at for one request, a second's work. Beyond it, time is known to the batch."""


class RecordSearch:
    """Finds records by time for one request."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = RECORDS_READ_MAX

    def can_read(self, batch: RecordBatch) -> bool:
        """Whether the batch is not compressed, and no bound was met."""
        return not batch.is_compressed and self._left > 0

    def first_since(
        self, batch: RecordBatch, timestamp: int, start: int
    ) -> Generator[None, None, tuple[int, int] | None]:
        """Return timestamp and offset of the first record from offset `start` on that is not earlier.

        None if there is none, or if the records cannot be read.
        """
        header, data = batch.header, batch.records
        at = HEADER_BYTES
        try:
            for number in range(header.num_records):
                if not self.can_read(batch):
                    break
                self._left -= 1
                length, begin = _varint(data, at)
                if length <= 0:
                    break
                delta, _ = _varint(data, begin + 1)  # behind the attributes
                time_ms, offset = header.base_timestamp + delta, batch.base_offset + number
                if time_ms >= timestamp and offset >= start:
                    return time_ms, offset
                at = begin + length
                if not (number + 1) % RECORDS_AT_ONCE:
                    yield
        except IndexError:
            pass
        return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag varint at this place, and where it ends."""
    value = shift = 0
    for place in range(at, at + VARINT_BYTES_MAX):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), place + 1
        shift += 7
    raise IndexError
