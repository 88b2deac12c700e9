"""The log of one partition: batches in order, of which the oldest may be dropped.

Offsets below `first` were given by earlier leaders, if at all, and their records are gone with them. A
consumer that asks for one reads on at `first`: it gets an empty batch before it, as from a compacted topic.
So a failover is no error for it, not even without `auto.offset.reset`. Any other offset outside the log is
OFFSET_OUT_OF_RANGE, as in Kafka.

Invariants: `first <= start <= end`; the batches cover the offsets from `start` to `end` without a gap, and
perhaps a few before, because a batch is never cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from cluster.scratchlog.batches import Header, RecordBatch, empty_batch

BATCH_COST_BYTES: Final = 600
"""Bytes of memory that a batch takes beside its own: objects for it and its header, and places in lists."""

TRIM_AFTER: Final = 1_024
"""Dropped batches whose places in the lists are freed together."""


class OffsetOutOfRange(Exception):
    """The offset is not in the log."""


class PartitionLog:
    """The log of one partition in one term."""

    __slots__ = (
        "_bases",
        "_batches",
        "_latest",
        "_newest",
        "_num_dropped",
        "_num_written",
        "end",
        "first",
        "num_bytes",
        "start",
    )

    def __init__(self, first: int) -> None:
        self.first = self.start = self.end = first
        self.num_bytes = 0
        """Bytes of memory that the batches take."""
        self._num_written = 0  # bytes of all batches that were ever appended
        self._num_dropped = 0  # of the batches below, the first ones
        self._batches: list[RecordBatch | None] = []
        self._bases: list[int] = []
        self._latest: list[int] = []  # the greatest timestamp up to this batch
        self._newest: RecordBatch | None = None

    # Writing.

    def append(self, header: Header, records: bytes) -> int:
        """Append a checked batch and return the offset of its first record."""
        batch = RecordBatch(header, records, self.end, self._num_written)
        self._batches.append(batch)
        self._bases.append(batch.base_offset)
        latest = header.max_timestamp
        if self._latest and self._latest[-1] > latest:
            latest = self._latest[-1]
        self._latest.append(latest)
        self.end = batch.last_offset + 1
        self._num_written += len(records)
        self.num_bytes += len(records) + BATCH_COST_BYTES
        if self._newest is not None and header.max_timestamp > self._newest.header.max_timestamp:
            self._newest = batch
        return batch.base_offset

    def drop_oldest(self) -> int:
        """Drop the oldest batch, and return how many bytes of memory that frees."""
        batch = self._batches[self._num_dropped]
        assert batch is not None
        self._batches[self._num_dropped] = None
        self._num_dropped += 1
        self.start = max(self.start, batch.last_offset + 1)
        freed = len(batch.records) + BATCH_COST_BYTES
        self.num_bytes -= freed
        if batch is self._newest:
            self._newest = None
        is_worth_it = self._num_dropped >= TRIM_AFTER and 2 * self._num_dropped >= len(self._batches)
        if is_worth_it or self._num_dropped == len(self._batches):
            self._trim()
        return freed

    def _trim(self) -> None:
        for places in (self._batches, self._bases, self._latest):
            del places[: self._num_dropped]
        self._num_dropped = 0

    def delete_before(self, offset: int) -> int:
        """Delete the records before an offset of the log; return how many bytes of memory that frees."""
        freed = 0
        self.start = max(self.start, offset)
        while (oldest := self.oldest) is not None and oldest.last_offset < offset:
            freed += self.drop_oldest()
        return freed

    # Reading.

    @property
    def oldest(self) -> RecordBatch | None:
        return self._batches[self._num_dropped] if self._num_dropped < len(self._batches) else None

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches) - self._num_dropped

    def __iter__(self) -> Iterator[RecordBatch]:
        for number in range(self._num_dropped, len(self._batches)):
            batch = self._batches[number]
            assert batch is not None
            yield batch

    def bytes_from(self, offset: int) -> int:
        """Return the number of bytes of the batches from `offset` on.  Raises OffsetOutOfRange."""
        number = self._number_of(offset)
        if number == len(self._batches):
            return 0
        batch = self._batches[number]
        assert batch is not None
        return self._num_written - batch.begins_at

    def read(self, offset: int, bytes_max: int, *, at_least_one: bool) -> bytes:
        """Return whole batches from `offset` on, at most `bytes_max`.  Raises OffsetOutOfRange.

        With `at_least_one` the first batch is returned whatever its size. The empty batch for an offset of an
        earlier leader is not counted.
        """
        parts: list[bytes | memoryview] = []
        if offset < self.first:
            parts.append(empty_batch(self.first - 1))
        num_bytes = 0
        for number in range(self._number_of(offset), len(self._batches)):
            batch = self._batches[number]
            assert batch is not None
            num_bytes += len(batch.records)
            if num_bytes > bytes_max and not (at_least_one and num_bytes == len(batch.records)):
                break
            batch.write_to(parts)
        return b"".join(parts)

    def _number_of(self, offset: int) -> int:
        """Return the place in the list of the batch with this offset."""
        if 0 <= offset < self.first:
            offset = self.first
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange
        if offset == self.end:
            return len(self._batches)
        return bisect_right(self._bases, offset, self._num_dropped) - 1

    def since(self, timestamp: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record with this timestamp or a later one.

        Records are not read, so it may be an earlier record of the same batch.
        """
        begin = bisect_left(self._latest, timestamp, self._num_dropped)
        for number in range(begin, len(self._batches)):
            batch = self._batches[number]
            assert batch is not None
            if batch.header.max_timestamp >= timestamp:
                return batch.header.base_timestamp, max(self.start, batch.base_offset)
        return None

    def newest(self) -> tuple[int, int] | None:
        """Return the greatest timestamp, and the offset of the last record of the first batch that has it."""
        if self._newest is None:
            self._newest = max(self, key=lambda batch: batch.header.max_timestamp, default=None)
        newest = self._newest
        return None if newest is None else (newest.header.max_timestamp, newest.last_offset)
