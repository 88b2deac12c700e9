"""Who waited for which partition, held by whom, until when.

A wait is there as long as the target in force gives a partition to one member and another one still owns it.
What must stay true: a partition has one wait at most at any index, and of every member that the log calls
UNRELEASED each partition that it lacks and somebody else owns is in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from history.state.track import Partition

from .change import Change, Place
from .ownership import Ownership
from .rows import SessionEnd, TopicPartition, Wait, WaitEnd

ENDS = {
    SessionEnd.LEFT: WaitEnd.LEFT,
    SessionEnd.SESSION_EXPIRED: WaitEnd.FENCED,
    SessionEnd.REBALANCE_EXPIRED: WaitEnd.FENCED,
    SessionEnd.REMOVED: WaitEnd.FENCED,
    SessionEnd.UNKNOWN: WaitEnd.UNKNOWN,
}
"""How the end of the holder's session ends a wait for it."""


@dataclass(slots=True)
class OpenWait:
    """A `Wait` while it goes on, and afterwards until it is asked for."""

    epoch: int
    partition: Partition
    waiter: str
    holder: str
    start: Place
    told: Place | None
    end: WaitEnd = WaitEnd.OPEN
    at: Place | None = None

    def row(self, group_id: str, named: Callable[[Partition], TopicPartition]) -> Wait:
        return Wait(
            group_id=group_id,
            epoch=self.epoch,
            partition=named(self.partition),
            waiter=self.waiter,
            holder=self.holder,
            from_index=self.start.index,
            from_ms=self.start.ms,
            told_index=None if self.told is None else self.told.index,
            told_ms=None if self.told is None else self.told.ms,
            to_index=None if self.at is None else self.at.index,
            to_ms=None if self.at is None else self.at.ms,
            end=self.end,
        )


@dataclass(slots=True)
class Waits:
    """The waits of one group that go on."""

    _open: dict[Partition, OpenWait] = field(default_factory=dict)

    def update(
        self,
        change: Change,
        touched: Iterable[Partition],
        ownership: Ownership,
        target_owner: Mapping[Partition, str],
        ended_sessions: Mapping[str, SessionEnd],
    ) -> list[OpenWait]:
        """The waits that began with a change; ``touched`` are the partitions that it moved."""
        old_id, new_id = change.replaced or ("", "")
        began: list[OpenWait] = []
        for partition in touched:
            present = self._open.get(partition)
            if present is not None and old_id:
                present.waiter = new_id if present.waiter == old_id else present.waiter
                present.holder = new_id if present.holder == old_id else present.holder
            waiter, holder = target_owner.get(partition), ownership.owner.get(partition)
            goes_on = waiter is not None and holder is not None and waiter != holder
            if present is not None and goes_on and (waiter, holder) == (present.waiter, present.holder):
                present.told = present.told or ownership.told.get(partition)
                continue
            if present is not None:
                present.end = _how_it_ended(present, holder, ended_sessions)
                present.at = change.at
                del self._open[partition]
            if goes_on and waiter is not None and holder is not None:
                self._open[partition] = wait = OpenWait(
                    change.epoch, partition, waiter, holder, change.at, ownership.told.get(partition)
                )
                began.append(wait)
        return began

    def begin(
        self, epoch: int, ownership: Ownership, target_owner: Mapping[Partition, str], at: Place
    ) -> list[OpenWait]:
        """Goes on from a state as it is at one place; the waits that there are."""
        for partition, waiter in target_owner.items():
            holder = ownership.owner.get(partition)
            if holder is not None and holder != waiter:
                self._open[partition] = OpenWait(epoch, partition, waiter, holder, at, None)
        return list(self._open.values())

    def cut(self, at: Place) -> None:
        """Behind this entry nothing is known."""
        for wait in self._open.values():
            wait.end, wait.at = WaitEnd.UNKNOWN, at
        self._open = {}


def _how_it_ended(wait: OpenWait, holder: str | None, ended_sessions: Mapping[str, SessionEnd]) -> WaitEnd:
    if holder == wait.holder:
        return WaitEnd.OVERTAKEN
    if wait.holder in ended_sessions:
        return ENDS.get(ended_sessions[wait.holder], WaitEnd.UNKNOWN)
    return WaitEnd.RELEASED
