"""The change of a group by one entry: the difference between the states before and after it.

`Follower` applies the records of an entry to a `GroupView` and reports what changed, including each affected
member and target partition. Everything that derives rows from entries takes a `Change`, so its cost is that
of the change and not of the group: an entry about one of 10,000 members touches one member.

A half-written target is not in force (docs/records.md): the members' parts take effect when record 6 closes
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from history.reading.catalog import TopicShape
from history.state.group_view import AWAY_EPOCH, NO_PARTITIONS, GroupView, MemberView, Partition, Partitions
from records import Cause, Entry, MemberState, RecordType, Trigger, decode_key, decode_value


@dataclass(frozen=True, slots=True)
class EntryPosition:
    """An entry: its index and its time in epoch milliseconds."""

    index: int
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The effect of one entry on one group."""

    at: EntryPosition
    cause: Cause
    members: Mapping[str, tuple[MemberView | None, MemberView | None]]
    """Member id -> (before, after), for every member that a record of the entry names."""
    target: Mapping[Partition, tuple[str | None, str | None]]
    """Partition -> (previous, new) owner in the target, where they differ."""
    topics_before: Mapping[str, TopicShape]
    topics: Mapping[str, TopicShape]
    epoch_before: int
    epoch: int
    existed: bool
    exists: bool
    state_before: str
    state: str
    away_before: tuple[str, ...]
    """Static members that were away before; filled only if the entry has a record of the group's epoch."""
    had_members: bool
    has_members: bool
    target_epoch: int | None
    """The epoch of the target that the entry closed; ``None``: it closed none."""

    @property
    def replaced(self) -> tuple[str, str] | None:
        """The static member that was replaced and the one that replaced it."""
        if self.cause.trigger != Trigger.MEMBER_REPLACED:
            return None
        return self.cause.detail, self.cause.member_id


@dataclass(slots=True)
class Follower:
    """A group's state, and what each entry does to it."""

    view: GroupView
    target_owner: dict[Partition, str] = field(default_factory=dict)
    """Partition -> its owner in the target that is in force."""
    _target: dict[str, Partitions] = field(default_factory=dict)
    _unclosed: set[str] = field(default_factory=set)
    """Members whose part of the target awaits record 6."""
    _away: set[str] = field(default_factory=set)
    _num_joined: int = 0
    _stable_at: Counter[int] = field(default_factory=Counter)
    """Epoch -> number of STABLE members in it."""

    @classmethod
    def of(cls, view: GroupView) -> Follower:
        """Continue from an existing state."""
        follower = cls(view)
        for member in view.members.values():
            follower._count(None, member)
        follower._retarget(set(view.target))
        return follower

    def take(self, at: EntryPosition, entry: Entry) -> Change:
        """Apply the records of an entry, all of which must belong to this group.

        Raises `RecordsError` if one of them cannot be decoded; nothing is changed in that case.
        """
        decoded = [
            (raw.type, decode_key(raw), None if raw.value is None else decode_value(raw))
            for raw in entry.records
        ]
        names_epoch = any(type_ == RecordType.CONSUMER_GROUP_METADATA for type_, _, _ in decoded)
        view = self.view
        before = _Before(
            topics=view.topics,
            epoch=view.epoch,
            target_epoch=view.assignment_epoch,
            exists=view.exists,
            state=self.state,
            away=tuple(sorted(self._away)) if names_epoch else (),
            has_members=self._num_joined > 0,
        )
        members: dict[str, MemberView | None] = {}
        for type_, key, value in decoded:
            member_id: Any = getattr(key, "member_id", None)
            if member_id is not None and member_id not in members:
                members[member_id] = view.members.get(member_id)
            view.take(type_, key, value)
        for member_id, old in members.items():
            self._count(old, view.members.get(member_id))
        retargeted = set(members)
        if view.assignment_epoch != before.target_epoch:
            retargeted |= self._unclosed
        return Change(
            at=at,
            cause=entry.cause,
            members={member_id: (old, view.members.get(member_id)) for member_id, old in members.items()},
            target=self._retarget(retargeted),
            topics_before=before.topics,
            topics=view.topics,
            epoch_before=before.epoch,
            epoch=view.epoch,
            existed=before.exists,
            exists=view.exists,
            state_before=before.state,
            state=self.state,
            away_before=before.away,
            had_members=before.has_members,
            has_members=self._num_joined > 0,
            target_epoch=view.assignment_epoch if view.assignment_epoch > before.target_epoch else None,
        )

    @property
    def state(self) -> str:
        """The same as `GroupView.state`, without visiting every member."""
        view = self.view
        if view.classic is not None:
            return "Classic"
        if view.epoch < 0 and not view.members:
            return "Dead"
        if not self._num_joined:
            return "Empty"
        if view.epoch > view.assignment_epoch:
            return "Assigning"
        is_stable = self._stable_at[view.assignment_epoch] == self._num_joined
        return "Stable" if is_stable else "Reconciling"

    def _count(self, old: MemberView | None, new: MemberView | None) -> None:
        for member, step in ((old, -1), (new, 1)):
            if member is not None and member.described:
                self._num_joined += step
                if member.state == MemberState.STABLE:
                    self._stable_at[member.epoch] += step
                    if not self._stable_at[member.epoch]:
                        del self._stable_at[member.epoch]
        if new is not None and new.epoch == AWAY_EPOCH:
            self._away.add(new.member_id)
        elif (gone := new or old) is not None:
            self._away.discard(gone.member_id)

    def _retarget(self, member_ids: set[str]) -> dict[Partition, tuple[str | None, str | None]]:
        """Update the target in force for these members; return the partitions that changed owner in it."""
        view = self.view
        was: dict[Partition, str | None] = {}
        added: list[tuple[Partition, str]] = []
        for member_id in member_ids:
            if view.target_epochs.get(member_id, -1) > view.assignment_epoch >= 0:
                self._unclosed.add(member_id)
                continue
            self._unclosed.discard(member_id)
            old, new = self._target.get(member_id, NO_PARTITIONS), view.target.get(member_id, NO_PARTITIONS)
            for partition in old - new:
                was.setdefault(partition, self.target_owner.get(partition))
                if self.target_owner.get(partition) == member_id:
                    del self.target_owner[partition]
            added += [(partition, member_id) for partition in new - old]
            if new:
                self._target[member_id] = new
            else:
                self._target.pop(member_id, None)
        for partition, member_id in added:
            was.setdefault(partition, self.target_owner.get(partition))
            self.target_owner[partition] = member_id
        now = self.target_owner
        return {p: (old_id, now.get(p)) for p, old_id in was.items() if old_id != now.get(p)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    topics: Mapping[str, TopicShape]
    epoch: int
    target_epoch: int
    exists: bool
    state: str
    away: tuple[str, ...]
    has_members: bool
