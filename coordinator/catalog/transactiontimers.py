"""The timers of transactional ids: volatile, for the node that decides about transactions.

An ongoing transaction times out, and an id that is not used expires: each id has one timer. A decided
transaction has none; it is due when the last shard of its groups has followed the decision. A shard's log
says how far it has, and each node reads that from its own copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from coordinator.api import Context
from coordinator.leader_state.timers import Deadlines
from coordinator.limits import Limits
from coordinator.transactions import DECIDED, TransactionsView
from records import TransactionState, TransactionValue

RETRY_MS: Final = 1_000
"""Delay before work that failed is tried again."""

CLOCK_LOOK_MS: Final = 60_000
"""Delay before an id is looked at again that has expired by this node's clock, but not by that of most."""

IDS_PER_STEP: Final = 100
"""Ids whose timers are armed in one step when a term begins: well below a millisecond."""


class TransactionTimers:
    """The timers of all transactional ids, and how far each group shard has followed the decisions."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._deadlines = Deadlines()
        self._due: dict[str, None] = {}
        self._followed: dict[int, int] = {}

    def follow(self, transactional_id: str, value: TransactionValue, ctx: Context) -> None:
        """Set the id's timer after a record; the time that has certainly passed since the record counts."""
        key = (transactional_id, "")
        self._due.pop(transactional_id, None)
        if value.state in DECIDED:
            self._deadlines.cancel(key)
            self._note_followed(transactional_id, value)
            return
        since_ms, timeout_ms = value.last_update_timestamp_ms, self._limits.transactional_id_expiration_ms
        if value.state == TransactionState.ONGOING:
            since_ms, timeout_ms = value.start_timestamp_ms, value.timeout_ms
        passed_ms = max(0, ctx.past_ms - since_ms)
        self._deadlines.arm(key, ctx.monotonic_ms, ctx.wall_ms, max(0, timeout_ms - passed_ms))

    def shard_followed(self, shard: int, decided: int, view: TransactionsView) -> None:
        """Note that a group shard has followed all decisions up to this index."""
        if decided <= self._followed.get(shard, -1):
            return
        self._followed[shard] = decided
        for transactional_id in list(view.decided):
            value = view.of(transactional_id)
            assert value is not None
            self._note_followed(transactional_id, value)

    def is_followed(self, value: TransactionValue) -> bool:
        """Whether the shards of all groups of a decided transaction have followed the decision."""
        return all(self._followed.get(group.shard, -1) >= value.decided for group in value.groups)

    def _note_followed(self, transactional_id: str, value: TransactionValue) -> None:
        if self.is_followed(value):
            self._due[transactional_id] = None

    def begin(self, view: TransactionsView, now: Callable[[], Context]) -> Iterator[None]:
        """Set all timers, in steps, because a term begins."""
        yield from self.clear()
        ctx = now()
        for number, transactional_id in enumerate(view.ids()):
            if number % IDS_PER_STEP == IDS_PER_STEP - 1:
                yield
                ctx = now()
            value = view.of(transactional_id)
            if value is not None:
                self.follow(transactional_id, value, ctx)

    def clear(self) -> Iterator[None]:
        """Drop all timers. Iterating the result frees the memory in steps."""
        self._due, self._followed = {}, {}
        return chain(self._deadlines.clear())

    def next_ms(self) -> float | None:
        return 0.0 if self._due else self._deadlines.next_ms()

    def take_due(self, ctx: Context) -> str | None:
        """Remove and return an id that has something due; None if there is none."""
        for (transactional_id, _), _ in self._deadlines.take_due(ctx.monotonic_ms):
            self._due[transactional_id] = None
        due = next(iter(self._due), None)
        if due is not None:
            del self._due[due]
        return due

    def put_off(self, transactional_id: str, delay_ms: int, ctx: Context) -> None:
        """Make the id due again after a delay."""
        self._deadlines.arm((transactional_id, ""), ctx.monotonic_ms, ctx.wall_ms, delay_ms)

    def shift(self, gap_ms: float) -> None:
        self._deadlines.shift(gap_ms)
