"""The partitions that each member last reported to own, against which its next report is compared (`Report`).

A new leader has none of this. Whatever it needs to know about a revocation in progress is in the log
(`coordinator.state.reconcile.NOT_REPORTED`).
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.leader_state.timers import MemberKey
from coordinator.state.freeing import free_incrementally
from coordinator.state.model import JOINING, Member
from coordinator.state.reconcile import Current, Owned, Report, same


class Reports:
    """The newest report of each member from which this leader received one."""

    def __init__(self) -> None:
        self.last: dict[MemberKey, Owned] = {}
        self.told: set[MemberKey] = set()
        """Members whose last assignment from this leader told them to revoke partitions."""

    def hear(
        self, key: MemberKey, member: Member | None, owned: Owned | None, epoch: int, is_full: bool
    ) -> Report:
        """Record the report of an admitted heartbeat, and combine it with the member's previous report."""
        last, is_told = self.last.get(key), key in self.told
        if owned is None:
            return Report(None, epoch, last, is_full, is_told)
        owned = _its_own(owned, member.current if member is not None else JOINING)
        if last is None or not same(owned, last):
            self.last[key] = owned
        return Report(owned, epoch, last, is_full, is_told)

    def answer(self, key: MemberKey, is_told: bool) -> None:
        """Record that a reply with an assignment was sent.

        `is_told` says whether it requires a revocation."""
        if is_told:
            self.told.add(key)
        else:
            self.told.discard(key)

    def forget(self, key: MemberKey) -> None:
        """Remove the member."""
        self.last.pop(key, None)
        self.told.discard(key)

    def clear(self) -> Iterator[None]:
        """Remove all reports. Iterating the result frees the memory in steps."""
        last, self.last = self.last, {}
        self.told = set()
        return free_incrementally(last)


def _its_own(owned: Owned, current: Current) -> Owned:
    """Remove partitions that the member was never assigned, so that no more is kept than is in the log."""
    if same(owned, current.assigned):
        return current.assigned
    found: dict[bytes, set[int]] = {}
    for topic_id, partitions in owned.items():
        has = [epochs_of.get(topic_id, {}) for epochs_of in (current.assigned, current.pending)]
        if its_own := {number for number in partitions if any(number in epochs for epochs in has)}:
            found[topic_id] = its_own
    return found
