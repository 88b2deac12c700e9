"""The transactional ids of a cluster: their producers, and the newest transaction of each.

The view belongs to the metadata shard, which alone decides about transactions (`coordinator.catalog`). Group
shards read it as they read the catalog: committed, from their own node's copy of the metadata shard's log.
A decision to commit or to abort reaches them in this way, and no message between nodes is needed.

A transaction has a number, which is never used again: the index of the entry that began it. A pending offset
names it, so that a late request, or the decision about an earlier transaction of the same producer, cannot be
mistaken for one about the present transaction.
"""

from __future__ import annotations

from records import TransactionState, TransactionValue
from wire.errors import ErrorCode

DECIDED = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""States of a transaction whose outcome is known to the metadata shard, and not yet to all group shards."""

COMMITS = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT))


class TransactionsView:
    """The newest record of each transactional id."""

    def __init__(self) -> None:
        self._by_id: dict[str, TransactionValue] = {}
        self._id_of: dict[int, str] = {}
        self.decided: dict[str, None] = {}
        """The transactional ids in one of the states `DECIDED`, in the order of the decisions."""

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, transactional_id: str) -> TransactionValue | None:
        return self._by_id.get(transactional_id)

    def ids(self) -> list[str]:
        """All transactional ids."""
        return list(self._by_id)

    def id_of(self, producer_id: int) -> str | None:
        """The transactional id whose present producer has this id."""
        return self._id_of.get(producer_id)

    def put(self, transactional_id: str, value: TransactionValue | None) -> None:
        """Apply a record; a tombstone has the value None."""
        old = self._by_id.pop(transactional_id, None)
        self.decided.pop(transactional_id, None)
        if old is not None and self._id_of.get(old.producer_id) == transactional_id:
            del self._id_of[old.producer_id]
        if value is None:
            return
        self._by_id[transactional_id] = value
        self._id_of[value.producer_id] = transactional_id
        if value.state in DECIDED:
            self.decided[transactional_id] = None

    def producer_error(self, transactional_id: str, producer_id: int, producer_epoch: int) -> ErrorCode:
        """The error if this producer may not act in its transaction; NONE if it may.

        PRODUCER_FENCED has an older name, which depends on the API and its version."""
        value = self._by_id.get(transactional_id)
        if value is None or value.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if value.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if value.state in DECIDED else ErrorCode.NONE

    def error_for_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> ErrorCode:
        """The error if the producer may not commit offsets of this group in its transaction; NONE if it may.

        The codes are those of Kafka's verification of a write with the transaction's coordinator."""
        error = self.producer_error(transactional_id, producer_id, producer_epoch)
        if error is ErrorCode.NONE and all(
            one.group_id != group_id for one in self._by_id[transactional_id].groups
        ):
            return ErrorCode.INVALID_TXN_STATE
        return _as_for_writes(error)

    def error_for_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        """The error if the producer may not write to this partition in its transaction; NONE if it may."""
        error = self.producer_error(transactional_id, producer_id, producer_epoch)
        if error is ErrorCode.NONE and not any(
            one.name == topic and partition in one.partitions for one in self._by_id[transactional_id].topics
        ):
            return ErrorCode.INVALID_TXN_STATE
        return _as_for_writes(error)


def _as_for_writes(error: ErrorCode) -> ErrorCode:
    """The code for a write of a producer: a fenced one is told so by the name that its log uses."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
