"""The log of one partition: batches in order, of which the oldest may be dropped.

Offsets below `first` were given by earlier leaders, if at all, and their records are gone with them. A
consumer that asks for one reads on at `first`: it gets an empty batch before it, as from a compacted topic.
So a failover is no error for it, not even without `auto.offset.reset`. Any other offset outside the log is
OFFSET_OUT_OF_RANGE, as in Kafka.

Invariants: `first <= start <= stable <= end`; the batches cover the offsets from `start` to `end` without a
gap, and perhaps a few before, because a batch is never cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from cluster.scratchlog.batches import RecordBatch, empty_batch, is_commit_marker
from cluster.scratchlog.transactions import PartitionTransactions
from wire.record_batch import BatchHeader

BATCH_COST_BYTES: Final = 600
"""Bytes of memory that a batch takes beside its own: objects for it and its header, and places in lists."""

RUN: Final = 256
"""Batches whose greatest timestamp is noted together, so that a search by time looks at few of them."""

TRIM_AFTER: Final = 4 * RUN
"""Dropped batches whose places in the lists are freed together."""

READ_BATCHES_MAX: Final = 4_096
"""Batches in one answer: 4 MiB of the smallest would take 50 ms to collect."""


class OffsetOutOfRange(Exception):
    """The offset is not in the log."""


class PartitionLog:
    """The log of one partition in one term."""

    __slots__ = (
        "_bases",
        "_batches",
        "_num_dropped",
        "_num_written",
        "_peaks",
        "end",
        "first",
        "is_ordered",
        "num_bytes",
        "start",
        "transactions",
    )

    def __init__(self, first: int) -> None:
        self.first = self.start = self.end = first
        self.num_bytes = 0
        """Bytes of memory that the batches take."""
        self._num_written = 0  # bytes of all batches that were ever appended
        self._num_dropped = 0  # of the batches below, the first ones
        self._batches: list[RecordBatch | None] = []
        self._bases: list[int] = []
        self._peaks: list[int] = []  # the greatest timestamp of each RUN, perhaps of a dropped batch
        self.transactions = PartitionTransactions()
        self.is_ordered = False
        """Whether the table has it among those from which it drops the oldest batches."""

    # Writing.

    def append(self, header: BatchHeader, records: bytes, number: int = 0) -> int:
        """Append a checked batch and return the offset of its first record.

        `number` is that of the batch among those of all logs.
        """
        batch = RecordBatch(header, records, self.end, self._num_written, number)
        if len(self._batches) % RUN == 0:
            self._peaks.append(header.max_timestamp)
        elif header.max_timestamp > self._peaks[-1]:
            self._peaks[-1] = header.max_timestamp
        self._batches.append(batch)
        self._bases.append(batch.base_offset)
        if header.is_control:
            is_commit = is_commit_marker(records)
            self.transactions.ended(header.producer_id, batch.base_offset, is_commit=is_commit)
        elif header.is_transactional:
            self.transactions.written(header.producer_id, batch.base_offset, batch.begins_at)
        self.end = batch.last_offset + 1
        self._num_written += len(records)
        self.num_bytes += len(records) + BATCH_COST_BYTES
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
        is_worth_it = self._num_dropped >= TRIM_AFTER and 2 * self._num_dropped >= len(self._batches)
        if is_worth_it or self._num_dropped == len(self._batches):
            self._trim()
        return freed

    def _trim(self) -> None:
        if self._num_dropped == len(self._batches):
            self._batches, self._bases, self._peaks = [], [], []
            self._num_dropped = 0
            self.transactions.forget_before(self.start)
            return
        num_runs = self._num_dropped // RUN
        del self._batches[: num_runs * RUN], self._bases[: num_runs * RUN], self._peaks[:num_runs]
        self._num_dropped -= num_runs * RUN
        self.transactions.forget_before(self.start)

    def delete_before(self, offset: int) -> list[RecordBatch | None]:
        """Delete the records before an offset of the log; return the batches that are dropped.

        To free a hundred thousand of them takes long, so that is left to the caller.
        """
        self.start = max(self.start, offset)
        below = self._num_dropped
        above = len(self._batches) if offset == self.end else bisect_right(self._bases, offset, below) - 1
        if above <= below:
            return []
        dropped = self._batches[below:above]
        oldest = dropped[0]
        assert oldest is not None
        kept = self._batches[above] if above < len(self._batches) else None
        num_bytes = (self._num_written if kept is None else kept.begins_at) - oldest.begins_at
        self.num_bytes -= num_bytes + BATCH_COST_BYTES * len(dropped)
        self._batches[below:above] = [None] * len(dropped)
        self._num_dropped = above
        self._trim()
        return dropped

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

    @property
    def stable(self) -> int:
        """The last stable offset: what comes before it is committed or aborted."""
        oldest = self.transactions.oldest
        return self.end if oldest is None else max(self.start, oldest.first_offset)

    @property
    def num_stable_bytes(self) -> int:
        """The number of bytes that were ever appended before the last stable offset."""
        oldest = self.transactions.oldest
        return self._num_written if oldest is None else oldest.begins_at

    def bytes_from(self, offset: int, *, is_committed: bool = False) -> int:
        """Return the number of bytes of the batches from `offset` on, or up to the last stable offset.

        Raises OffsetOutOfRange.
        """
        number = self._number_of(offset)
        if number == len(self._batches):
            return 0
        batch = self._batches[number]
        assert batch is not None
        end = self.num_stable_bytes if is_committed else self._num_written
        return max(0, end - batch.begins_at)

    def read(
        self, offset: int, bytes_max: int, *, at_least_one: bool, is_committed: bool = False
    ) -> tuple[bytes, int]:
        """Return whole batches from `offset` on, at most `bytes_max` and READ_BATCHES_MAX, and where they
        end.

        Raises OffsetOutOfRange.

        With `is_committed` only those before the last stable offset are returned, with `at_least_one` the
        first of them whatever its size. The empty batch for an offset of an earlier leader is not counted.
        """
        parts: list[bytes | memoryview] = []
        if offset < self.first:
            parts.append(empty_batch(self.first - 1))
        num_bytes = 0
        end = self.stable if is_committed else self.end
        begin, read_to = self._number_of(offset), max(offset, self.first)
        for number in range(begin, min(begin + READ_BATCHES_MAX, len(self._batches))):
            batch = self._batches[number]
            assert batch is not None
            num_bytes += len(batch.records)
            if batch.last_offset >= end:
                break
            if num_bytes > bytes_max and not (at_least_one and num_bytes == len(batch.records)):
                break
            batch.write_to(parts)
            read_to = batch.last_offset + 1
        return b"".join(parts), read_to

    def _number_of(self, offset: int) -> int:
        """Return the place in the list of the batch with this offset."""
        if 0 <= offset < self.first:
            offset = self.first
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange
        if offset == self.end:
            return len(self._batches)
        return bisect_right(self._bases, offset, self._num_dropped) - 1

    def batches_since(self, timestamp: int) -> Iterator[RecordBatch]:
        """Yield the batches with a record of this timestamp or a later one, as their headers say."""
        for batch in self._in_runs(timestamp):
            if batch.header.max_timestamp >= timestamp:
                yield batch

    def newest(self) -> RecordBatch | None:
        """Return the first batch with the greatest timestamp."""
        begun = self._in_run(self._num_dropped // RUN)
        latest = max((batch.header.max_timestamp for batch in begun), default=None)
        if latest is None:
            return None
        latest = max([latest, *self._peaks[self._num_dropped // RUN + 1 :]])
        return next(self.batches_since(latest))

    def _in_runs(self, timestamp: int) -> Iterator[RecordBatch]:
        """Yield the batches of the runs that reach a timestamp, or reached it before batches were dropped."""
        for run in range(self._num_dropped // RUN, len(self._peaks)):
            if self._peaks[run] >= timestamp:
                yield from self._in_run(run)

    def _in_run(self, run: int) -> Iterator[RecordBatch]:
        begin = max(run * RUN, self._num_dropped)
        for batch in self._batches[begin : (run + 1) * RUN]:
            assert batch is not None
            yield batch
