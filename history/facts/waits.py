"""The waits of members for partitions: who waited, who held them, and until when.

A wait lasts as long as the target in force gives a partition to one member while another still owns it.

Invariant: a partition has at most one wait at any index. For a member in state UNRELEASED_PARTITIONS, each
partition of its target that another member owns is in a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from .change import Change, EntryPosition, Partition
from .ownership import Ownership
from .rows import SessionEnd, TopicPartition, Wait, WaitEnd

ENDS = {
    SessionEnd.LEFT: WaitEnd.LEFT,
    SessionEnd.SESSION_EXPIRED: WaitEnd.FENCED,
    SessionEnd.REBALANCE_EXPIRED: WaitEnd.FENCED,
    SessionEnd.REMOVED: WaitEnd.FENCED,
    SessionEnd.JOIN_EXPIRED: WaitEnd.FENCED,
    SessionEnd.SYNC_EXPIRED: WaitEnd.FENCED,
    SessionEnd.FORGOTTEN: WaitEnd.FENCED,
    SessionEnd.UNKNOWN: WaitEnd.UNKNOWN,
}
"""The end of a wait, by the end of the holder's session."""


@dataclass(slots=True)
class OpenWait:
    """A `Wait` under construction, kept after its end until the row is requested."""

    epoch: int
    partition: Partition
    waiter: str
    holder: str
    start: EntryPosition
    told: EntryPosition | None
    end: WaitEnd = WaitEnd.OPEN
    at: EntryPosition | None = None

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
    """The ongoing waits of one group."""

    _open: dict[Partition, OpenWait] = field(default_factory=dict)

    def update(
        self,
        change: Change,
        touched: Collection[Partition],
        ownership: Ownership,
        target_owner: Mapping[Partition, str],
        ended_sessions: Mapping[str, SessionEnd],
    ) -> list[OpenWait]:
        """Apply a change; return the waits that began. ``touched`` are the partitions that it moved."""
        if not touched:
            return []
        replaced = change.replaced
        began: list[OpenWait] = []
        for partition in touched:
            present = self._open.get(partition)
            if present is not None:
                present.waiter = replaced.get(present.waiter, present.waiter)
                present.holder = replaced.get(present.holder, present.holder)
            waiter, holder = target_owner.get(partition), ownership.owner(partition)
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
                    change.after.epoch, partition, waiter, holder, change.at, ownership.told.get(partition)
                )
                began.append(wait)
        return began

    def begin(
        self, epoch: int, ownership: Ownership, target_owner: Mapping[Partition, str], at: EntryPosition
    ) -> list[OpenWait]:
        """Continue from an existing state at one place; return the waits in it."""
        for partition, waiter in target_owner.items():
            holder = ownership.owner(partition)
            if holder is not None and holder != waiter:
                self._open[partition] = OpenWait(epoch, partition, waiter, holder, at, None)
        return list(self._open.values())

    def cut(self, at: EntryPosition) -> None:
        """End all waits here, because the entries after ``at`` are missing."""
        for wait in self._open.values():
            wait.end, wait.at = WaitEnd.UNKNOWN, at
        self._open = {}


def _how_it_ended(wait: OpenWait, holder: str | None, ended_sessions: Mapping[str, SessionEnd]) -> WaitEnd:
    if holder == wait.holder:
        return WaitEnd.OVERTAKEN
    if wait.holder in ended_sessions:
        return ENDS.get(ended_sessions[wait.holder], WaitEnd.UNKNOWN)
    return WaitEnd.RELEASED
