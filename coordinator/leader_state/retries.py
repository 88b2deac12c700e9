"""Due work that raised: set aside until nothing else is due, then tried again, one group at a time.

A group whose due work always raises, because of a fault of ours, must not hold up the other groups of its
shard, and must not fill the node's log.

Invariants: work that is set aside is either here or due, and lost only with the leadership; no work is
tried again within `RETRY_MS` of the newest failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from coordinator.leader_state.timers import Deadline
from coordinator.state.freeing import free_incrementally
from records import ReasonKind, Trigger

RETRY_MS = 1_000
"""Pause before work that raised is tried again."""

ExpiredMembers = dict[tuple[str, ReasonKind], Deadline]
"""Members of one group of which a timeout has expired, by member id and the reason to remove them."""


class Retries:
    """Expiries and checks of groups that raised, to be tried again."""

    def __init__(self) -> None:
        self._expired: dict[str, ExpiredMembers] = {}
        self._checks: dict[str, Trigger] = {}
        self._not_before_ms = 0.0

    def expiry_failed(self, group_id: str, members: ExpiredMembers, now_ms: float) -> None:
        """Set the expiry of these members aside, with those of the group that are aside already."""
        self._expired.setdefault(group_id, {}).update(members)
        self._not_before_ms = now_ms + RETRY_MS

    def check_failed(self, group_id: str, trigger: Trigger, now_ms: float) -> None:
        """Set the group's check aside."""
        self._checks[group_id] = trigger
        self._not_before_ms = now_ms + RETRY_MS

    def waits_for_check(self, group_id: str) -> bool:
        """Whether the group still has to be checked."""
        return group_id in self._checks

    def next_ms(self) -> float | None:
        """Monotonic time of the next retry; None if nothing is set aside."""
        return self._not_before_ms if self._expired or self._checks else None

    def resume(self, expired: dict[str, ExpiredMembers], checks: dict[str, Trigger], now_ms: float) -> bool:
        """Make the work of one group due again; False if there is none or it is too early."""
        if now_ms < self._not_before_ms:
            return False
        if self._expired:
            group_id = next(iter(self._expired))
            expired.setdefault(group_id, {}).update(self._expired.pop(group_id))
            return True
        if self._checks:
            group_id = next(iter(self._checks))
            checks.setdefault(group_id, self._checks.pop(group_id))
            return True
        return False

    def clear(self) -> Iterator[None]:
        """Discard everything. Iterating the result frees the memory in steps."""
        tables = self._expired, self._checks
        self._expired, self._checks = {}, {}
        return chain(*(free_incrementally(table) for table in tables))
