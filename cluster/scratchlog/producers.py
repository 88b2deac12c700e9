"""The sequence numbers of idempotent producers, per partition (KIP-98), as Kafka's `ProducerStateManager`.

A producer numbers its records. A batch that was appended already, and is sent again because its answer was
lost, gets the same answer. A batch that skips records is refused, so that the producer repeats those before.

A producer that is not known here may begin with any number, as in Kafka, where its state expires: after a
failover nobody is known, and producers in mid-stream go on. The end of a transaction tells the epoch of its
producer, which a coordinator has raised if it ended the transaction itself.

Invariant: as many producers are remembered as the bound allows; the one longest silent is forgotten first.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from cluster.scratchlog.batches import RefusedBatch
from wire.errors import ErrorCode
from wire.record_batch import NO_PRODUCER, BatchHeader

Partition = tuple[bytes, int]
"""The id of a topic, and a partition of it."""

SEQUENCE_MAX: Final = 2**31 - 1
"""After this number comes 0."""

BATCHES_REMEMBERED: Final = 5
"""Kafka's: a producer has at most five requests in flight to a node (`max.in.flight.requests`)."""

PRODUCERS_MAX: Final = 20_000
"""Producers remembered, counted for each partition: about 10 MiB. One that is forgotten may go on."""


ANY_SEQUENCE: Final = -1
"""Expected of a producer of which only the end of a transaction is known."""


def _after(sequence: int, count: int) -> int:
    """Return the number that comes `count` records after `sequence`."""
    return (sequence + count) % (SEQUENCE_MAX + 1)


class _Producer:
    """The last batches of one producer in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "next_sequence")

    def __init__(self, epoch: int, next_sequence: int) -> None:
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.coordinator_epoch = -1
        """The epoch of the coordinator that last ended a transaction."""
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=BATCHES_REMEMBERED)
        """First sequence number, number of records and base offset of each."""

    def begin_epoch(self, epoch: int) -> None:
        """A new epoch begins with sequence number 0."""
        self.epoch = epoch
        self.next_sequence = 0
        self.batches.clear()


class Producers:
    """All producers of one leader's logs."""

    def __init__(self, most: int = PRODUCERS_MAX) -> None:
        self._most = most
        self._known: dict[tuple[Partition, int], _Producer] = {}  # the one longest silent comes first

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        self._known.clear()

    def first_offset(self, partition: Partition, header: BatchHeader) -> int | None:
        """Return the base offset that a repeated batch got the first time; None for a new one.

        Raises RefusedBatch if the batch may not be appended.
        """
        if header.producer_id == NO_PRODUCER:
            return None
        known = self._known.get((partition, header.producer_id))
        if known is None:
            return None
        _check_epoch(known, header.producer_id, header.producer_epoch)
        if header.producer_epoch > known.epoch:
            expected = 0
        else:
            for sequence, count, base_offset in known.batches:
                if sequence == header.base_sequence and count == header.num_records:
                    return base_offset
            expected = known.next_sequence
        if header.base_sequence != expected != ANY_SEQUENCE:
            raise RefusedBatch(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: sequence {header.base_sequence} does not follow; expected "
                f"{expected}",
            )
        return None

    def appended(self, partition: Partition, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that `first_offset` has let pass."""
        if header.producer_id == NO_PRODUCER:
            return
        known = self._known_as(partition, header.producer_id, header.producer_epoch)
        known.next_sequence = _after(header.base_sequence, header.num_records)
        known.batches.append((header.base_sequence, header.num_records, base_offset))

    def _known_as(self, partition: Partition, producer_id: int, epoch: int) -> _Producer:
        """Return the producer with this epoch as the one heard of last; forget one if there are too many."""
        key = partition, producer_id
        known = self._known.pop(key, None)
        if known is None:
            known = _Producer(epoch, ANY_SEQUENCE)
        elif known.epoch != epoch:
            known.begin_epoch(epoch)
        self._known[key] = known
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return known

    # Ends of transactions.

    def check_end(self, partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Raise RefusedBatch if a newer epoch of the producer, or of its coordinator, is known."""
        known = self._known.get((partition, producer_id))
        if known is None:
            return
        _check_epoch(known, producer_id, epoch)
        if coordinator_epoch < known.coordinator_epoch:
            raise RefusedBatch(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator of epoch {known.coordinator_epoch} has ended a transaction of producer "
                f"{producer_id}, and this one has epoch {coordinator_epoch}",
            )

    def ended(self, partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Remember the end of a transaction, which `check_end` has let pass."""
        self._known_as(partition, producer_id, epoch).coordinator_epoch = coordinator_epoch


def _check_epoch(known: _Producer, producer_id: int, epoch: int) -> None:
    if epoch < known.epoch:
        raise RefusedBatch(
            ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {known.epoch}, not {epoch}"
        )
