"""The transactions of one partition: which are open, and which were aborted (KIP-98).

A consumer with isolation `read_committed` reads up to the last stable offset, where the oldest open
transaction begins, and leaves out what was aborted: each answer names the aborted transactions in its range.
Committed or not, records stay in the log in the order in which they came, and a control batch ends each
transaction.

Invariants: open transactions are in the order of their first offsets, because each begins at what was then
the end of the log; aborted ones are in the order of their ends.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple


class OpenTransaction(NamedTuple):
    """A transaction that has records in the log, and no end."""

    first_offset: int
    begins_at: int
    """The number of bytes that had been appended to the log before it."""


class AbortedTxn(NamedTuple):
    """A transaction whose records consumers of committed records leave out, named as in Kafka's index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the control batch that ended it."""
    stable: int
    """The last stable offset when it ended: no later one began before this."""


class PartitionTransactions:
    """The transactions of one partition in one term."""

    __slots__ = ("_aborted", "_open")

    def __init__(self) -> None:
        self._open: dict[int, OpenTransaction] = {}  # by producer id
        self._aborted: list[AbortedTxn] = []

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self._open)

    def __contains__(self, producer_id: int) -> bool:
        """Whether this producer has an open transaction."""
        return producer_id in self._open

    @property
    def oldest(self) -> OpenTransaction | None:
        """The open transaction that began first."""
        return next(iter(self._open.values())) if self._open else None

    def written(self, producer_id: int, offset: int, begins_at: int) -> None:
        """Note a transactional batch: a transaction begins unless its producer has an open one."""
        if producer_id not in self._open:
            self._open[producer_id] = OpenTransaction(offset, begins_at)

    def ended(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """Note the end of a transaction, which may have no records here."""
        transaction = self._open.pop(producer_id, None)
        if transaction is None or is_commit:
            return
        oldest = self.oldest
        stable = marker_offset + 1 if oldest is None else oldest.first_offset
        self._aborted.append(AbortedTxn(producer_id, transaction.first_offset, marker_offset, stable))

    def aborted_in(self, begin: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records from offset `begin` to before `end`."""
        first = bisect_left(self._aborted, begin, key=attrgetter("last_offset"))
        found = []
        for transaction in self._aborted[first:]:
            if transaction.first_offset < end:
                found.append(transaction)
            if transaction.stable >= end:
                break
        return found

    def forget_before(self, offset: int) -> None:
        """Forget the aborted transactions that ended before an offset."""
        del self._aborted[: bisect_left(self._aborted, offset, key=attrgetter("last_offset"))]
