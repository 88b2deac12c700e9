"""The logs of all partitions, as the leader of one term keeps them, within bounds for all together.

How a new leader knows where the offsets of earlier leaders end: they are divided among the terms of the
metadata shard. In term T, offsets begin at T · 2^40, and at most 2^40 records are written to a partition. A
term has one leader, and each leader a higher term than those before, so no offset is given twice, and nothing
needs to be written down. A topic that was created in the term itself cannot have older records: its offsets
begin at 0, as in Kafka.

Invariants: the memory for batches stays within `ScratchBounds`, by dropping the oldest; logs of an earlier
term are gone when the first request of a new one is served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Protocol

from cluster.scratchlog.batches import (
    RefusedBatch,
    checked_header,
    marker_batch,
)
from cluster.scratchlog.partition import PartitionLog
from cluster.scratchlog.producers import Partition, Producers
from coordinator.topics import created_at
from records import SCRATCH_TERM_BITS
from wire.errors import ErrorCode
from wire.record_batch import BatchHeader, header_of

LOGS_MAX: Final = 100_000
"""Partitions with records, or which had some in this term: a kilobyte each, beside their batches."""

OPEN_TRANSACTIONS_MAX: Final = 10_000
"""Open transactions, counted for each partition. An answer names at most these and those that have ended in
its range."""

AHEAD_MS_MAX: Final = 3_600_000
"""The time by which a timestamp may be in the future: Kafka's default of `message.timestamp.after.max.ms`."""

FREED_AT_ONCE: Final = 1_000
"""Dropped batches that are freed in one step: less than a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchBounds:
    """The bytes of memory that may be kept, and the size of the largest batch."""

    bytes_max: int
    partition_bytes_max: int
    batch_bytes_max: int


class RecordWaiter(Protocol):
    """A request that waits for records."""

    is_committed: bool
    """Whether it only reads what comes before the last stable offset."""

    def arrived(self, num_bytes: int) -> None:
        """Note that there are this many bytes more to read in a partition."""

    def ended(self) -> None:
        """Note that the logs are no longer kept here."""


def _at_once(work: Iterator[None]) -> None:
    for _ in work:
        pass


def _no_transactions(_: int, __: int) -> ErrorCode:
    return ErrorCode.INVALID_TXN_STATE


def _check_transaction(header: BatchHeader, transaction_error: Callable[[int, int], ErrorCode]) -> None:
    """Raise RefusedBatch unless the coordinator has the producer's transaction open with this partition."""
    code = transaction_error(header.producer_id, header.producer_epoch)
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:  # it is ending; as Kafka, so that clients send it again
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    if code:
        raise RefusedBatch(
            code, f"producer {header.producer_id} has no open transaction with this partition: {code.name}"
        )


class ScratchLog:
    """The logs of one node, which are empty unless it leads the metadata shard.

    `in_slices` runs long work between that of others: freeing many batches that were dropped together.
    """

    def __init__(
        self, bounds: ScratchBounds, in_slices: Callable[[Iterator[None]], object] = _at_once
    ) -> None:
        self._in_slices = in_slices
        self.bounds = bounds
        self.num_bytes = 0
        """Bytes of memory that all batches take."""
        self.num_appended = 0
        """Batches appended, ever: tells whether there were any since."""
        self.num_told = 0
        """The number of times that a waiter was told of a batch, ever."""
        self.term = -1
        self._term_start = 0
        self._version = 0
        self._logs: dict[Partition, PartitionLog] = {}
        self._num_batches = 0
        self._num_open = 0  # transactions
        self._oldest_first: list[tuple[int, PartitionLog]] = []  # a heap by the number of its oldest batch
        self._dropped: list[list[Any]] = []  # to be freed
        self._producers = Producers()
        self._waiters: dict[Partition, dict[RecordWaiter, None]] = {}

    def __len__(self) -> int:
        """The number of partitions that have, or had, records."""
        return len(self._logs)

    # Terms and topics.

    def lead(self, term: int, term_start: int, version: int) -> None:
        """Serve as the leader of this term.

        `term_start` is the index of the term's first entry in the log of the metadata shard, and `version`
        that of the newest entry that the catalog knows.
        """
        self._version = version
        if term != self.term:
            self.resign()
            self.term, self._term_start = term, term_start

    def resign(self) -> None:
        """Drop everything: another node leads, or may lead."""
        if self.term < 0:
            return
        self.term = -1
        for log in self._logs.values():
            self._dropped.append(log.delete_before(log.end))
        self._dropped.append(list(self._logs.values()))
        self._logs.clear()
        self._oldest_first = []
        self._producers.clear()
        self.num_bytes = self._num_batches = self._num_open = 0
        waiting = {waiter for waiters in self._waiters.values() for waiter in waiters}
        for waiter in waiting:
            waiter.ended()
        self._free_dropped()

    def keep_only(self, exists: Callable[[bytes], bool]) -> None:
        """Drop the logs of topics that no longer exist; `exists` takes a topic id."""
        topic_ids = {topic_id for topic_id, _ in self._logs}
        deleted = {topic_id for topic_id in topic_ids if not exists(topic_id)}
        if not deleted:
            return
        for partition in [key for key in self._logs if key[0] in deleted]:
            log = self._logs.pop(partition)
            self._delete_before(log, log.end)
            self._num_open -= len(log.transactions)
            log.is_ordered = False
        self._oldest_first = [entry for entry in self._oldest_first if entry[1].is_ordered]
        heapify(self._oldest_first)
        self._free_dropped()

    def _first_offset(self, topic_id: bytes) -> int:
        is_new = self._term_start < created_at(topic_id) <= self._version
        return 0 if is_new else self.term << SCRATCH_TERM_BITS

    # Partitions.

    def log(self, partition: Partition) -> PartitionLog:
        """Return the log of a partition that exists; one without records is empty, and not kept."""
        log = self._logs.get(partition)
        return PartitionLog(self._first_offset(partition[0])) if log is None else log

    def append(
        self,
        partition: Partition,
        records: bytes | None,
        api_version: int,
        now_ms: float = math.inf,
        transaction_error: Callable[[int, int], ErrorCode] = _no_transactions,
    ) -> tuple[int, int]:
        """Append the batch of a Produce request; return its base offset and the log's start offset.

        `now_ms` is the wall time. `transaction_error` takes the id and epoch of the producer of a
        transactional batch, and returns NONE if its transaction is open and has this partition.  Raises
        RefusedBatch.
        """
        header = checked_header(records, api_version, self.bounds.batch_bytes_max, now_ms + AHEAD_MS_MAX)
        assert records is not None
        if header.is_transactional:
            _check_transaction(header, transaction_error)
        first = self._producers.first_offset(partition, header)
        log = self.log(partition)
        if first is not None:
            return first, log.start
        self._check_open(log, header)
        if partition not in self._logs:
            log = self._new_log(partition)
        base_offset = self._append(partition, log, header, records)
        self._producers.appended(partition, header, base_offset)
        return base_offset, log.start

    def _append(self, partition: Partition, log: PartitionLog, header: BatchHeader, records: bytes) -> int:
        """Append a batch, drop the oldest ones, and tell the waiters; return its base offset."""
        if log.end + header.num_records > (self.term + 1) << SCRATCH_TERM_BITS:
            raise RefusedBatch(ErrorCode.KAFKA_STORAGE_ERROR, "the offsets of this term are used up")
        before, open_before, stable_before = log.num_bytes, len(log.transactions), log.num_stable_bytes
        self.num_appended += 1
        base_offset = log.append(header, records, self.num_appended)
        self.num_bytes += log.num_bytes - before
        self._num_open += len(log.transactions) - open_before
        self._num_batches += 1
        if not log.is_ordered:
            log.is_ordered = True
            heappush(self._oldest_first, (self.num_appended, log))
        self._drop_oldest(log)
        self._tell(partition, len(records), log.num_stable_bytes - stable_before)
        return base_offset

    def _tell(self, partition: Partition, num_bytes: int, num_stable_bytes: int) -> None:
        waiters = list(self._waiters.get(partition, ()))
        self.num_told += len(waiters)
        for waiter in waiters:
            if more := num_stable_bytes if waiter.is_committed else num_bytes:
                waiter.arrived(more)

    def _new_log(self, partition: Partition) -> PartitionLog:
        if len(self._logs) >= LOGS_MAX:
            raise RefusedBatch(
                ErrorCode.POLICY_VIOLATION,
                f"the scratch log already has records of {LOGS_MAX} partitions, its maximum",
            )
        log = self._logs[partition] = self.log(partition)
        return log

    # Transactions.

    def _check_open(self, log: PartitionLog, header: BatchHeader) -> None:
        """Raise RefusedBatch if a batch is outside of its producer's transaction, or one too many begins."""
        is_open = header.producer_id in log.transactions
        if is_open and not header.is_transactional:
            raise RefusedBatch(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, and the batch is not part of it",
            )
        if header.is_transactional and not is_open and self._num_open >= OPEN_TRANSACTIONS_MAX:
            raise RefusedBatch(
                ErrorCode.POLICY_VIOLATION,
                f"the scratch log already has {OPEN_TRANSACTIONS_MAX} open transactions, its maximum",
            )

    def end_transaction(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        now_ms: int,
    ) -> None:
        """End a producer's transaction in a partition: append a control batch.

        As in Kafka it is appended also if the log has no records of the transaction; here, they may have been
        lost with an earlier leader. Where there is no room for another log, there are none for certain, and
        only the epochs are remembered.  Raises RefusedBatch.
        """
        self._producers.check_end(partition, producer_id, producer_epoch, coordinator_epoch)
        records = marker_batch(producer_id, producer_epoch, coordinator_epoch, now_ms, is_commit=committed)
        log = self._logs.get(partition)
        if log is not None or len(self._logs) < LOGS_MAX:
            self._append(partition, log or self._new_log(partition), header_of(records), records)
        self._producers.ended(partition, producer_id, producer_epoch, coordinator_epoch)

    def delete_before(self, partition: Partition, offset: int) -> int:
        """Delete the records of a log before an offset that it has; return its start offset."""
        log = self._logs.get(partition)
        if log is None:
            return self._first_offset(partition[0])
        self._delete_before(log, offset)
        self._free_dropped()
        return log.start

    # Memory.

    def _drop_oldest(self, log: PartitionLog) -> None:
        """Enforce the bounds after an append to `log`; its newest batch always stays."""
        while log.num_bytes > self.bounds.partition_bytes_max and len(log) > 1:
            self._freed(log.drop_oldest(), 1)
        while self.num_bytes > self.bounds.bytes_max and self._num_batches > 1:
            number, oldest_log = self._oldest_first[0]
            oldest = oldest_log.oldest
            if oldest is None:
                heappop(self._oldest_first)
                oldest_log.is_ordered = False
            elif oldest.number != number:
                heapreplace(self._oldest_first, (oldest.number, oldest_log))
            else:
                self._freed(oldest_log.drop_oldest(), 1)

    def _freed(self, num_bytes: int, num_batches: int) -> None:
        self.num_bytes -= num_bytes
        self._num_batches -= num_batches

    def _delete_before(self, log: PartitionLog, offset: int) -> None:
        before = log.num_bytes
        dropped = log.delete_before(offset)
        self._freed(before - log.num_bytes, len(dropped))
        self._dropped.append(dropped)

    def _free_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        if any(dropped):
            self._in_slices(_free(dropped))

    # Waiting.

    def wait(self, waiter: RecordWaiter, partitions: list[Partition]) -> None:
        """Tell `waiter` of every batch that is appended to these partitions."""
        for partition in partitions:
            self._waiters.setdefault(partition, {})[waiter] = None

    def stop_waiting(self, waiter: RecordWaiter, partitions: list[Partition]) -> None:
        for partition in partitions:
            waiters = self._waiters.get(partition)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[partition]


def _free(dropped: list[list[Any]]) -> Iterator[None]:
    """Free the batches in these lists, some at a time."""
    num_freed = 0
    while dropped:
        some = dropped[-1]
        num_freed += min(FREED_AT_ONCE, len(some)) + 1
        del some[-FREED_AT_ONCE:]
        if not some:
            dropped.pop()
        if num_freed >= FREED_AT_ONCE:
            num_freed = 0
            yield
