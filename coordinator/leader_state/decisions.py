"""Decisions about transactions that a group shard has to follow: volatile, read from the committed catalog.

The metadata shard decides, and its log is on every node. So a group shard learns of a decision as it learns
of a topic, and an elected node finds in its copy what the former leader had still to do. Decisions are
followed in the order in which they were made, and the shard's log says up to which one it has (record
TRANSACTIONS_RESOLVED). The metadata shard reads that on its own node, and completes the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.state.projection import Projection
from coordinator.topics import CatalogView
from coordinator.transactions import COMMITS, DECIDED
from records import TransactionState, TransactionValue


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A decided transaction. `decided` is the index of the decision, or −1 for a transaction that nobody
    knows any more: its offsets are dropped."""

    transactional_id: str
    producer_id: int
    transaction: int
    decided: int
    is_commit: bool
    group_ids: tuple[str, ...]


class Decisions:
    """The decisions that one shard has not followed yet, oldest first."""

    def __init__(self, shard_id: int) -> None:
        self._shard_id = shard_id
        self._todo: dict[tuple[int, int, str], TransactionEnd] = {}
        self._not_before_ms = 0.0

    def next_ms(self) -> float | None:
        """Monotonic time at which the next decision is due; None if there is none."""
        return self._not_before_ms if self._todo else None

    def learn(self, changes: Iterable[tuple[str, TransactionValue]], projection: Projection) -> None:
        """Note the decisions among these committed records of transactional ids."""
        for transactional_id, value in sorted(changes, key=lambda change: change[1].decided):
            if value.state not in DECIDED or value.decided <= projection.resolved_decision:
                continue
            group_ids = tuple(one.group_id for one in value.groups if one.shard == self._shard_id)
            if group_ids:
                self._add(
                    TransactionEnd(
                        transactional_id,
                        value.producer_id,
                        value.began,
                        value.decided,
                        value.state in COMMITS,
                        group_ids,
                    )
                )

    def begin(self, projection: Projection, catalog: CatalogView) -> None:
        """Find everything that is left to do, because a term begins."""
        self._todo.clear()
        transactions = catalog.transactions
        known = [(one, transactions.of(one)) for one in transactions.decided]
        changes = [(transactional_id, value) for transactional_id, value in known if value is not None]
        self.learn(changes, projection)
        for group_id in projection.pending.group_ids():
            for producer_id in projection.pending.producers(group_id):
                self._add_unknown(group_id, producer_id, projection, catalog)

    def _add_unknown(
        self, group_id: str, producer_id: int, projection: Projection, catalog: CatalogView
    ) -> None:
        """Note a transaction of which the catalog, though new enough, will not make a decision for the group.

        It may not have the transaction, or have it without the group, or take it for one that was followed
        here. The metadata shard forgets a transaction only after this shard has followed its end. So this
        takes a metadata shard that was restored from an older copy."""
        transaction = projection.pending.transaction_of(group_id, producer_id)
        transactional_id = catalog.transactions.id_of(producer_id) or ""
        value = catalog.transactions.of(transactional_id)
        is_known = (
            value is not None
            and value.began == transaction
            and any(one.group_id == group_id for one in value.groups)
            and (
                value.state == TransactionState.ONGOING
                or (value.state in DECIDED and value.decided > projection.resolved_decision)
            )
        )
        if not is_known and transaction <= catalog.version:
            is_commit = value is not None and value.began == transaction and value.state in COMMITS
            self._add(TransactionEnd(transactional_id, producer_id, transaction, -1, is_commit, (group_id,)))

    def _add(self, decision: TransactionEnd) -> None:
        self._todo[decision.decided, decision.transaction, decision.group_ids[0]] = decision

    def next(self) -> TransactionEnd:
        """The decision to follow next; there must be one."""
        return next(iter(self._todo.values()))

    def done(self) -> None:
        """Remove the next decision."""
        del self._todo[next(iter(self._todo))]

    def put_off(self, until_ms: float) -> None:
        """Wait until that time, because the next decision could not be followed."""
        self._not_before_ms = until_ms

    def shift(self, gap_ms: float) -> None:
        self._not_before_ms += gap_ms

    def clear(self) -> None:
        self._todo.clear()
        self._not_before_ms = 0.0
