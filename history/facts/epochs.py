"""The epochs of a group, and what happened in each until the next one began.

Moves belong to the epoch of their target: a target computed by a child process or by a member may arrive when
the group is already in a later epoch. Everything else belongs to the epoch in which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coordinator.state.changes import NO_EPOCH, GroupSummary
from coordinator.state.model import Group, Member
from history.protocols import CONSUMER, OLD
from history.reading.catalog import TopicChange, changes_between
from records import Cause, ReasonKind

from .change import Change, EntryPosition, MemberChange, Partition, Partitions, shapes
from .rows import (
    MEMBERS_LISTED_MAX,
    UNKNOWN_CAUSE,
    EpochRow,
    MemberProgress,
    Moved,
    Relapse,
    TopicPartition,
)
from .waits import OpenWait

SETTLED_STATES = ("Stable", "Empty")
LATE_TARGET_EPOCHS = 16
"""Number of recent epochs that may still receive a target. Targets are computed while later epochs begin, but
none arrives more than this many epochs late, nor after the target of a later epoch."""
Named = Callable[[Partition], TopicPartition]


@dataclass(slots=True)
class _Step:
    """A `MemberProgress` with raw partitions."""

    member_id: str
    at: EntryPosition
    released: Partitions
    told: Partitions
    took: Partitions
    reached: bool


@dataclass(slots=True)
class _Epoch:
    """An `EpochRow` under construction."""

    epoch: int
    epoch_before: int
    at: EntryPosition
    cause: Cause
    members: tuple[str, ...]
    num_members: int
    away: tuple[str, ...] = ()
    topics: tuple[TopicChange, ...] = ()
    is_begin_known: bool = True
    is_end_known: bool = True
    target_at: EntryPosition | None = None
    target_cause: Cause | None = None
    moves: dict[Partition, tuple[str | None, str | None]] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)
    waits: list[OpenWait] = field(default_factory=list)
    settled: EntryPosition | None = None
    relapses: list[tuple[EntryPosition, EntryPosition | None]] = field(default_factory=list)
    state: str = ""
    overtaken_by: int | None = None
    end: EntryPosition | None = None
    protocol: str = CONSUMER
    num_classic: int = 0
    unsettled_ms: int = -1

    def move(self, target: Iterable[tuple[Partition, tuple[str | None, str | None]]]) -> None:
        for partition, (source, to) in target:
            first, _ = self.moves.get(partition, (source, to))
            self.moves[partition] = (first, to)

    def row(self, group_id: str, shard: int, named: Named, state_now: str) -> EpochRow:
        def place(at: EntryPosition | None) -> tuple[int | None, int | None]:
            return (None, None) if at is None else (at.index, at.ms)

        target_index, target_ms = place(self.target_at)
        settled_index, settled_ms = place(self.settled)
        end_index, end_ms = place(self.end)
        moves = [
            Moved(partition=named(partition), source=source, target=to)
            for partition, (source, to) in self.moves.items()
            if source != to
        ]
        return EpochRow(
            group_id=group_id,
            shard=shard,
            epoch=self.epoch,
            epoch_before=self.epoch_before,
            index=self.at.index,
            timestamp_ms=self.at.ms,
            cause=self.cause,
            away=self.away,
            members=self.members,
            target_index=target_index,
            target_ms=target_ms,
            moves=tuple(sorted(moves, key=lambda moved: moved.partition)),
            progress=tuple(_progress(step, named) for step in self.steps),
            waits=tuple(
                sorted(
                    (wait.row(group_id, named) for wait in self.waits),
                    key=lambda wait: (wait.from_index, wait.partition),
                )
            ),
            settled_index=settled_index,
            settled_ms=settled_ms,
            state=self.state if self.end is not None else state_now,
            overtaken_by=None if self.settled is not None else self.overtaken_by,
            end_index=end_index,
            end_ms=end_ms,
            num_members=self.num_members,
            topics=self.topics,
            target_cause=self.target_cause,
            is_begin_known=self.is_begin_known,
            is_end_known=self.is_end_known,
            relapses=tuple(_relapse(start, end) for start, end in self.relapses),
            protocol=self.protocol,
            num_classic=self.num_classic,
            unsettled_ms=self.unsettled_ms,
        )

    def relapse(self, is_settled: bool, at: EntryPosition) -> None:
        """Record whether the group, settled earlier in this epoch, is settled after an entry."""
        is_open = bool(self.relapses) and self.relapses[-1][1] is None
        if is_settled and is_open:
            self.relapses[-1] = (self.relapses[-1][0], at)
        elif not is_settled and not is_open:
            self.relapses.append((at, None))


@dataclass(slots=True)
class Epochs:
    """The epochs of one group, updated with each `Change`."""

    _all: list[_Epoch] = field(default_factory=list)
    _open: _Epoch | None = None
    _members: tuple[str, ...] | None = None
    """The sorted member ids, shared by rows while no member joins or leaves."""

    def update(self, change: Change, group: Group) -> None:
        """Update the epochs with what an entry changed, except for waits (see `wait`)."""
        before, after = change.before, change.after
        if any((member.before is None) != (member.after is None) for member in change.members.values()):
            self._members = None
        if change.is_end:
            self._close(change.at, before.state)
            return
        is_other = self._open is not None and _is_another_group(self._open.protocol, change.protocol)
        if (after.epoch != before.epoch or is_other) and after.epoch >= 0:
            overtaken = self._open
            self._close(change.at, before.state, after.epoch)
            self._begin(change, group, 0 if is_other else max(before.epoch, 0), overtaken)
        if change.target and not _is_downgrade(change):
            of_target = self._of_target(change)
            if of_target is not None:
                of_target.move(change.target.items())
        if change.target_epoch is not None:
            self._targeted(change)
        if self._open is not None:
            self._step(self._open, change)

    @property
    def is_settled(self) -> bool:
        """Whether the current epoch, if there is one, has its target."""
        return self._open is None or self._open.target_at is not None

    def wait(self, waits: Iterable[OpenWait]) -> None:
        """Add waits that began in the current epoch."""
        if self._open is not None:
            self._open.waits += waits

    def begin(self, group: Group, at: EntryPosition, protocol: str) -> None:
        """Continue in an epoch that began before the first entry read."""
        self._members = None
        now = GroupSummary.of(group)
        if now.epoch < 0:
            return
        self._open = _Epoch(
            now.epoch,
            max(now.epoch - 1, 0),
            at,
            UNKNOWN_CAUSE,
            self._listed(group),
            len(group.members),
            away=tuple(sorted(m.member_id for m in group.members.values() if m.is_away)),
            is_begin_known=False,
            settled=at if now.state in SETTLED_STATES else None,
            protocol=protocol,
            num_classic=group.num_classic,
        )
        self._all.append(self._open)

    def cut(self, at: EntryPosition, state: str) -> None:
        """End the current epoch here, because the entries after ``at`` are missing."""
        if self._open is not None:
            self._open.is_end_known = False
        self._close(at, state)

    def rows(self, group_id: str, shard: int, named: Named, state_now: str) -> tuple[EpochRow, ...]:
        return tuple(epoch.row(group_id, shard, named, state_now) for epoch in self._all)

    def __len__(self) -> int:
        return len(self._all)

    def drain(self, group_id: str, shard: int, named: Named) -> tuple[EpochRow, ...]:
        """Remove and return the epochs that can no longer change; one with an open wait holds up no other."""
        drained: list[_Epoch] = []
        kept: list[_Epoch] = []
        targeted = max((at for at, epoch in enumerate(self._all) if epoch.target_at is not None), default=0)
        has_target = max(targeted, len(self._all) - LATE_TARGET_EPOCHS)  # those before get none any more
        for at, epoch in enumerate(self._all):
            has_ended = epoch.end is not None and all(wait.at is not None for wait in epoch.waits)
            (drained if at < has_target and has_ended else kept).append(epoch)
        self._all = kept
        return tuple(epoch.row(group_id, shard, named, "") for epoch in drained)

    def _begin(self, change: Change, group: Group, epoch_before: int, overtaken: _Epoch | None) -> None:
        before, after, phases = change.before, change.after, change.cause.phases
        seen = changes_between(shapes(before.topics), shapes(after.topics)) if before.topics else {}
        self._open = _Epoch(
            after.epoch,
            epoch_before,
            change.at,
            change.cause,
            self._listed(group),
            len(group.members),
            away=change.away_before,
            topics=tuple(seen.values()),
            protocol=change.protocol,
            num_classic=group.num_classic,
            unsettled_ms=change.at.ms if phases is None else min(phases.began_ms, change.at.ms),
        )
        if overtaken is not None and overtaken.settled is None:
            self._open.unsettled_ms = overtaken.unsettled_ms
        self._all.append(self._open)

    def _close(self, at: EntryPosition, state: str, next_epoch: int | None = None) -> None:
        if self._open is not None:
            self._open.end, self._open.state, self._open.overtaken_by = at, state, next_epoch
            if self._open.settled is not None:
                self._open.relapse(True, at)
            self._open = None

    def _listed(self, group: Group) -> tuple[str, ...]:
        if len(group.members) > MEMBERS_LISTED_MAX:
            return ()
        if self._members is None:
            self._members = tuple(sorted(group.members))
        return self._members

    def _of_target(self, change: Change) -> _Epoch | None:
        """The epoch of the target in force; the current epoch if that one is not known."""
        if change.target_epoch is None or self._open is None or self._open.epoch == change.target_epoch:
            return self._open
        for epoch in reversed(self._all):
            if epoch.epoch == change.target_epoch:
                return epoch
            if epoch.epoch < change.target_epoch or epoch.target_at is not None:
                break
        return self._open

    def _targeted(self, change: Change) -> None:
        epoch = self._of_target(change)
        if epoch is None or epoch.epoch != change.target_epoch or epoch.target_at is not None:
            return
        epoch.target_at, epoch.target_cause = change.at, change.cause

    def _step(self, epoch: _Epoch, change: Change) -> None:
        for member_id, member in change.members.items():
            if member.after is None:
                continue
            reached = _epoch_of(member.after) == epoch.epoch != _epoch_of(member.before)
            if member.released or member.told or member.taken or reached:
                epoch.steps.append(_step_of(member_id, member, change.at, reached))
        is_settled = change.after.state in SETTLED_STATES
        if epoch.settled is not None:
            epoch.relapse(is_settled, change.at)
        elif is_settled:
            epoch.settled = change.at


def _is_another_group(before: str, after: str) -> bool:
    """Whether a group of another kind took the id; a group of Kafka's protocols may go on as the other."""
    return before != after and not OLD.isdisjoint((before, after))


def _is_downgrade(change: Change) -> bool:
    """Whether the group became a classic one, whose next generation will assign what is free now."""
    return any(reason.kind == ReasonKind.GROUP_DOWNGRADED for reason in change.cause.reasons) and (
        change.after.epoch == change.before.epoch
    )


def _relapse(start: EntryPosition, end: EntryPosition | None) -> Relapse:
    to_index, to_ms = (None, None) if end is None else (end.index, end.ms)
    return Relapse(from_index=start.index, from_ms=start.ms, to_index=to_index, to_ms=to_ms)


def _epoch_of(member: Member | None) -> int:
    """The member's epoch by its record 8."""
    return NO_EPOCH if member is None or member.current_value is None else member.current.epoch


def _step_of(member_id: str, member: MemberChange, at: EntryPosition, reached: bool) -> _Step:
    return _Step(
        member_id,
        at,
        released=frozenset(member.released),
        told=frozenset(member.told),
        took=frozenset(member.taken),
        reached=reached,
    )


def _progress(step: _Step, named: Named) -> MemberProgress:
    def sorted_names(partitions: Partitions) -> tuple[TopicPartition, ...]:
        return tuple(sorted(named(partition) for partition in partitions)) if partitions else ()

    return MemberProgress(
        member_id=step.member_id,
        index=step.at.index,
        timestamp_ms=step.at.ms,
        released=sorted_names(step.released),
        told=sorted_names(step.told),
        took=sorted_names(step.took),
        reached=step.reached,
    )
