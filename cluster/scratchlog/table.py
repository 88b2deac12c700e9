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

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cluster.scratchlog.batches import RefusedBatch, checked_header
from cluster.scratchlog.partition import PartitionLog
from cluster.scratchlog.producers import Partition, Producers
from coordinator.topics import created_at
from wire.errors import ErrorCode

TERM_BITS: Final = 40
"""Offsets per term and partition: 2^40, more than four months of 100,000 records per second. They leave room
for eight million terms."""

LOGS_MAX: Final = 100_000
"""Partitions with records, or which had some in this term: a kilobyte each, beside their batches."""

STALE_MAX: Final = 1_000
"""At most this many entries of `_in_order` more than twice the number of batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchBounds:
    """How much is kept, in bytes of memory, and the size of the largest batch."""

    bytes_max: int
    partition_bytes_max: int
    batch_bytes_max: int


class RecordWaiter(Protocol):
    """A request that waits for records."""

    def arrived(self, num_bytes: int) -> None:
        """Note that a partition got a batch of this size."""

    def ended(self) -> None:
        """Note that the logs are no longer kept here."""


class ScratchLog:
    """The logs of one node, which are empty unless it leads the metadata shard."""

    def __init__(self, bounds: ScratchBounds) -> None:
        self.bounds = bounds
        self.num_bytes = 0
        """Bytes of memory that all batches take."""
        self.num_appended = 0
        """Batches appended, ever: tells whether there were any since."""
        self.term = -1
        self._term_start = 0
        self._version = 0
        self._logs: dict[Partition, PartitionLog] = {}
        self._num_batches = 0
        self._in_order: deque[tuple[PartitionLog, int]] = deque()  # log and base offset of each batch
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
        self._logs.clear()
        self._in_order.clear()
        self._producers.clear()
        self.num_bytes = self._num_batches = 0
        waiting = {waiter for waiters in self._waiters.values() for waiter in waiters}
        for waiter in waiting:
            waiter.ended()

    def keep_only(self, exists: Callable[[bytes], bool]) -> None:
        """Drop the logs of topics that no longer exist; `exists` takes a topic id."""
        topic_ids = {topic_id for topic_id, _ in self._logs}
        deleted = {topic_id for topic_id in topic_ids if not exists(topic_id)}
        if not deleted:
            return
        for partition in [key for key in self._logs if key[0] in deleted]:
            log = self._logs.pop(partition)
            self._freed(log.num_bytes, len(log))
            log.delete_before(log.end)
        self._forget_stale()

    def _first_offset(self, topic_id: bytes) -> int:
        is_new = self._term_start < created_at(topic_id) <= self._version
        return 0 if is_new else self.term << TERM_BITS

    # Partitions.

    def log(self, partition: Partition) -> PartitionLog:
        """Return the log of a partition that exists; one without records is empty, and not kept."""
        log = self._logs.get(partition)
        return PartitionLog(self._first_offset(partition[0])) if log is None else log

    def append(self, partition: Partition, records: bytes | None, api_version: int) -> tuple[int, int]:
        """Append the batch of a Produce request; return its base offset and the log's start offset.

        Raises RefusedBatch.
        """
        header = checked_header(records, api_version, self.bounds.batch_bytes_max)
        assert records is not None
        if header.is_transactional:
            raise RefusedBatch(ErrorCode.INVALID_TXN_STATE, "transactions are not supported")
        log = self._logs.get(partition)
        if log is not None:
            first = self._producers.first_offset(partition, header)
            if first is not None:
                return first, log.start
        else:
            log = self._new_log(partition)
        if log.end + header.num_records > (self.term + 1) << TERM_BITS:
            raise RefusedBatch(ErrorCode.KAFKA_STORAGE_ERROR, "the offsets of this term are used up")
        before = log.num_bytes
        base_offset = log.append(header, records)
        self._producers.appended(partition, header, base_offset)
        self.num_appended += 1
        self.num_bytes += log.num_bytes - before
        self._num_batches += 1
        self._in_order.append((log, base_offset))
        self._drop_oldest(log)
        for waiter in list(self._waiters.get(partition, ())):
            waiter.arrived(len(records))
        return base_offset, log.start

    def _new_log(self, partition: Partition) -> PartitionLog:
        if len(self._logs) >= LOGS_MAX:
            raise RefusedBatch(
                ErrorCode.POLICY_VIOLATION,
                f"the scratch log already has records of {LOGS_MAX} partitions, its maximum",
            )
        log = self._logs[partition] = self.log(partition)
        return log

    def delete_before(self, partition: Partition, offset: int) -> int:
        """Delete the records of a log before an offset that it has; return its start offset."""
        log = self._logs.get(partition)
        if log is None:
            return self._first_offset(partition[0])
        num_batches = len(log)
        self._freed(log.delete_before(offset), num_batches - len(log))
        self._forget_stale()
        return log.start

    # Memory.

    def _drop_oldest(self, log: PartitionLog) -> None:
        """Enforce the bounds after an append to `log`; its newest batch always stays."""
        while log.num_bytes > self.bounds.partition_bytes_max and len(log) > 1:
            self._freed(log.drop_oldest(), 1)
        while self.num_bytes > self.bounds.bytes_max and self._num_batches > 1:
            oldest, base_offset = self._in_order.popleft()
            if oldest.oldest is not None and oldest.oldest.base_offset == base_offset:
                self._freed(oldest.drop_oldest(), 1)
        self._forget_stale()

    def _freed(self, num_bytes: int, num_batches: int) -> None:
        self.num_bytes -= num_bytes
        self._num_batches -= num_batches

    def _forget_stale(self) -> None:
        """Forget the order of batches that were dropped otherwise, now and then."""
        if len(self._in_order) > 2 * self._num_batches + STALE_MAX:
            self._in_order = deque(
                (log, base)
                for log, base in self._in_order
                if log.oldest is not None and base >= log.oldest.base_offset
            )

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
