"""The partitions that each member last reported to own, by which its next report is judged (`Report`).

A new leader knows none of it. What it must know of a revocation under way stands in the log
(`coordinator.state.reconcile.NOT_REPORTED`).
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.state.dissolving import emptied
from coordinator.state.model import JOINING, Member
from coordinator.state.reconcile import Current, Owned, Report, same
from coordinator.volatile.timers import MemberKey


class Reports:
    """The newest report of every member that this leader has heard one of."""

    def __init__(self) -> None:
        self.last: dict[MemberKey, Owned] = {}
        self.told: set[MemberKey] = set()
        """Members whose last assignment from this leader told them to give something up."""

    def hear(
        self, key: MemberKey, member: Member | None, owned: Owned | None, epoch: int, is_full: bool
    ) -> Report:
        """Takes note of a heartbeat that was let in, and puts it beside the member's report before."""
        last, is_told = self.last.get(key), key in self.told
        if owned is None:
            return Report(None, epoch, last, is_full, is_told)
        owned = _its_own(owned, member.current if member is not None else JOINING)
        if last is None or not same(owned, last):
            self.last[key] = owned
        return Report(owned, epoch, last, is_full, is_told)

    def answer(self, key: MemberKey, is_told: bool) -> None:
        """Takes note of a reply with an assignment."""
        if is_told:
            self.told.add(key)
        else:
            self.told.discard(key)

    def forget(self, key: MemberKey) -> None:
        """The member is gone."""
        self.last.pop(key, None)
        self.told.discard(key)

    def clear(self) -> Iterator[None]:
        """Nothing was heard; the steps let go of what was."""
        last, self.last = self.last, {}
        self.told = set()
        return emptied(last)


def _its_own(owned: Owned, current: Current) -> Owned:
    """The report without what the member was never given, so that no more is kept than the log has anyway."""
    if same(owned, current.assigned):
        return current.assigned
    found: dict[bytes, set[int]] = {}
    for topic_id, partitions in owned.items():
        has = [epochs_of.get(topic_id, {}) for epochs_of in (current.assigned, current.pending)]
        if its_own := {number for number in partitions if any(number in epochs for epochs in has)}:
            found[topic_id] = its_own
    return found
