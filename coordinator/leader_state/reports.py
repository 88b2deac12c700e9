"""The partitions that each member last reported to own, against which its next report is compared (`Report`).

Also here: the assignments that members were sent and have not acknowledged. A client lists its partitions
once it has taken up, or given up, what a reply says. If it does not, its reply may be lost.

A new leader has none of this. Whatever it needs to know about a revocation in progress is in the log
(`coordinator.state.reconcile.NOT_REPORTED`). It answers the first heartbeat of each member with its
assignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from coordinator.leader_state.timers import MemberKey
from coordinator.state.freeing import free_incrementally
from coordinator.state.model import JOINING, Member
from coordinator.state.reconcile import Current, Owned, Report, same

REPEATS = 10
"""Times that the same new partitions are sent again: some clients never list what they have. A revocation is
repeated until the rebalance timeout, as others wait for it."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """An assignment that was sent, and that the member's reports do not show so far."""

    partitions: Owned
    sent_ms: float
    repeats_left: int


class Reports:
    """The newest report of each member from which this leader received one."""

    def __init__(self) -> None:
        self.last: dict[MemberKey, Owned] = {}
        self.told: dict[MemberKey, bool] = {}
        """Whether the last assignment that this leader sent to a member told it to revoke partitions."""
        self.unacknowledged: dict[MemberKey, Unacknowledged] = {}

    def hear(
        self, key: MemberKey, member: Member | None, owned: Owned | None, epoch: int, is_full: bool
    ) -> Report:
        """Record the report of an admitted heartbeat, and combine it with the member's previous report."""
        last, is_told = self.last.get(key), self.told.get(key, False)
        if owned is None:
            return Report(None, epoch, last, is_full, is_told)
        owned = _its_own(owned, member.current if member is not None else JOINING)
        sent = self.unacknowledged.get(key)
        if sent is not None and same(owned, sent.partitions):
            del self.unacknowledged[key]
        if last is None or not same(owned, last):
            self.last[key] = owned
        return Report(owned, epoch, last, is_full, is_told)

    def answer(self, key: MemberKey, is_told: bool) -> None:
        """Record that a reply with an assignment was sent.

        `is_told` says whether it requires a revocation."""
        self.told[key] = is_told

    def expect(
        self, key: MemberKey, partitions: Owned, now_ms: float, *, is_new: bool, is_revoking: bool
    ) -> bool:
        """Return whether the member has partitions to report from this reply on, and had none before.

        `is_new` says whether the assignment changed with this reply, `is_revoking` whether the member still
        has partitions to give up."""
        before, last = self.unacknowledged.pop(key, None), self.last.get(key)
        is_known = same(last, partitions) if last is not None else not is_new and before is None
        if is_known and not is_revoking:
            return False
        is_repeat = before is not None and same(before.partitions, partitions)
        repeats_left = max(0, before.repeats_left - 1) if before is not None and is_repeat else REPEATS
        if not repeats_left and not is_revoking:
            return False
        self.unacknowledged[key] = Unacknowledged(partitions, now_ms, repeats_left)
        return before is None

    def is_overdue(self, key: MemberKey, now_ms: float, interval_ms: int) -> bool:
        """Whether the reply with the member's assignment may be lost, because a heartbeat interval went by.

        Half of it counts already: a client that waits no longer for a reply heartbeats early. A former
        leader's reply may be lost too."""
        if key not in self.told:
            return True
        sent = self.unacknowledged.get(key)
        return sent is not None and now_ms - sent.sent_ms >= interval_ms / 2

    def is_settled(self, key: MemberKey) -> bool:
        """Whether this leader sent the member its assignment, and the member reported it."""
        return key in self.told and key not in self.unacknowledged

    def forget(self, key: MemberKey) -> None:
        """Remove the member."""
        self.last.pop(key, None)
        self.told.pop(key, None)
        self.unacknowledged.pop(key, None)

    def clear(self) -> Iterator[None]:
        """Remove all reports. Iterating the result frees the memory in steps."""
        tables = self.last, self.told, self.unacknowledged
        self.last, self.told, self.unacknowledged = {}, {}, {}
        return chain.from_iterable(free_incrementally(table) for table in tables)


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
