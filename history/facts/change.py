"""The change of a group by one entry: the difference between the states before and after it.

`Follower` applies the records of an entry as the coordinator does and reports what changed, including each
affected member and target partition. Everything that derives rows from entries takes a `Change`, so its cost
is that of the change and not of the group: an entry about one of 10,000 members touches one member.

A half-written target is not in force (docs/records.md): the members' parts take effect when record 6 closes
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from coordinator.state.changes import GroupChange, GroupSummary, TargetPart, apply_and_compare
from coordinator.state.group_records import OLD_GROUP_TYPES
from coordinator.state.membernumbers import NEWEST
from coordinator.state.model import JOINING, Group, Member
from history.protocols import CLASSIC, CONSUMER, MIXED
from history.reading.catalog import TopicNames, TopicShape
from history.state.old_groups import OldGroup, newest_old, protocol_of
from records import (
    Cause,
    Entry,
    MemberNumberKey,
    PushGroupValue,
    RecordType,
    TopicMetadata,
    decode_key_and_value,
)

from .generations import with_epochs

_WHOLE_GROUP_TYPES = OLD_GROUP_TYPES | {RecordType.GROUP_METADATA}

Partition = tuple[bytes, int]
"""Topic id and partition number."""
Partitions = frozenset[Partition]


@dataclass(frozen=True, slots=True)
class EntryPosition:
    """An entry: its index and its time in epoch milliseconds."""

    index: int
    ms: int


@dataclass(slots=True)
class MemberChange:
    """A member before and after an entry, and what became of its partitions.

    A member owns the partitions that are assigned to it and those that it has yet to revoke."""

    before: Member | None
    after: Member | None
    released: set[Partition]
    """Owned before, not any more; in a push group also those that it stopped and is to start again."""
    taken: set[Partition]
    """Assigned now, not owned before; in a push group also those that it stopped before it starts them."""
    gained: set[Partition]
    """Owned now, not before."""
    told: set[Partition]
    """Pending revocation now, not before."""
    kept: set[Partition]
    """Pending revocation before, still owned, and not pending any more."""


@dataclass(slots=True)
class Change:
    """The effect of one entry on one group."""

    at: EntryPosition
    cause: Cause
    before: GroupSummary
    after: GroupSummary
    members: Mapping[str, MemberChange]
    """Every member that a record of the entry names, by id."""
    target: Mapping[Partition, tuple[str | None, str | None]]
    """Partition -> (previous, new) owner in the target, where they differ."""
    away_before: tuple[str, ...]
    """Static members that were away before; filled only if the entry has a record of the group's epoch."""
    numbered: Mapping[str, int]
    """Member id -> number, for members to which the entry gave one."""
    protocol: str
    """The protocol that the group speaks after the entry (`history.protocols`)."""

    @property
    def is_end(self) -> bool:
        """Whether the entry ended the group."""
        return self.before.exists and not self.after.exists

    @property
    def target_epoch(self) -> int | None:
        """The epoch of the target that the entry closed; ``None``: it closed none."""
        epoch = self.after.assignment_epoch
        return epoch if epoch > self.before.assignment_epoch else None

    @property
    def replaced(self) -> Mapping[str, str]:
        """Static member that is gone -> the new member that has its instance id now."""
        gone = _instances(self.members, lambda member: member.before, lambda member: member.after)
        if not gone:
            return gone
        came = _instances(self.members, lambda member: member.after, lambda member: member.before)
        return {gone[instance_id]: came[instance_id] for instance_id in gone.keys() & came.keys()}


Side = Callable[[MemberChange], Member | None]


def _instances(members: Mapping[str, MemberChange], here: Side, absent: Side) -> dict[str, str]:
    """Instance id -> id of the static member that is on one side of a change and not on the other."""
    found: dict[str, str] = {}
    for member_id, change in members.items():
        member = here(change)
        if member is None or absent(change) is not None or member.metadata is None:
            continue
        if member.metadata.instance_id is not None:
            found[member.metadata.instance_id] = member_id
    return found


@dataclass(slots=True)
class Follower:
    """A group's state, and what each entry does to it."""

    group: Group
    old: OldGroup | None = None
    """The newest record of the group if it speaks an older protocol; `group` is how that is told."""
    target_owner: dict[Partition, str] = field(default_factory=dict)
    """Partition -> its owner in the target that is in force."""
    unclosed: dict[str, TargetPart | None] = field(default_factory=dict)
    """Members whose part of the target awaits record 6 -> their part that is in force until then."""
    _away: set[str] = field(default_factory=set)
    _now: GroupSummary | None = None

    @classmethod
    def of(
        cls,
        group: Group,
        old: OldGroup | None = None,
        unclosed: Mapping[str, TargetPart | None] | None = None,
    ) -> Follower:
        """Continue from an existing state; without ``unclosed``, parts that await record 6 replace none."""
        follower = cls(group, old)
        follower._away = {member_id for member_id, member in group.members.items() if member.is_away}
        for member_id, part in group.target.items():
            in_force: TargetPart | None = part
            if _is_unclosed(group, part):
                in_force = follower.unclosed[member_id] = (unclosed or {}).get(member_id)
            follower.target_owner.update(dict.fromkeys(_beyond(in_force, None), member_id))
        return follower

    def take(self, at: EntryPosition, entry: Entry, names: TopicNames) -> Change:
        """Apply the records of an entry, all of which must belong to this group.

        Raises `RecordsError` if one of them cannot be decoded; nothing is changed in that case.
        """
        decoded, numbered = apart([decode_key_and_value(raw) for raw in entry.records])
        old = newest_old(self.old, decoded)
        types = {raw.type for raw in entry.records}
        if not types.isdisjoint(_WHOLE_GROUP_TYPES):
            decoded = with_epochs(
                self.group,
                self.old,
                decoded,
                lambda name: names.shape(name, at.ms),
                begins=bool(entry.cause.reasons),
            )
        away = tuple(sorted(self._away)) if RecordType.CONSUMER_GROUP_METADATA in types else ()
        change = apply_and_compare(self.group, decoded, self._now)
        self.old, self._now = old, change.after
        members: dict[str, MemberChange] = {}
        for member_id, (before, after) in change.members.items():
            members[member_id] = compared = _compared(before, after)
            if isinstance(self.old, PushGroupValue):  # it stopped all, and some of that it may start again
                compared.released |= compared.kept
                compared.taken |= compared.kept
            if after is not None and after.is_away:
                self._away.add(member_id)
            else:
                self._away.discard(member_id)
        return Change(
            at,
            entry.cause,
            change.before,
            change.after,
            members,
            self._retarget(change),
            away,
            numbered,
            self.protocol,
        )

    @property
    def protocol(self) -> str:
        """The protocol that the group speaks now."""
        if self.old is not None:
            return protocol_of(self.old)
        if self.group.classic is not None:
            return CLASSIC
        return MIXED if self.group.num_classic else CONSUMER

    @property
    def now(self) -> GroupSummary:
        self._now = self._now or GroupSummary.of(self.group)
        return self._now

    def _retarget(self, change: GroupChange) -> dict[Partition, tuple[str | None, str | None]]:
        """Update the target in force; return the partitions that changed owner in it."""
        is_closed = change.after.assignment_epoch != change.before.assignment_epoch
        in_force = {member_id: before for member_id, (before, _) in change.targets.items()}
        in_force |= {one: part for one, part in self.unclosed.items() if is_closed or one in in_force}
        if not in_force:
            return {}
        now = self.target_owner
        was: dict[Partition, str | None] = {}
        added: list[tuple[Partition, str]] = []
        for member_id, old in in_force.items():
            new = self.group.target.get(member_id)
            if new is not None and _is_unclosed(self.group, new):
                self.unclosed[member_id] = old
                continue
            self.unclosed.pop(member_id, None)
            for partition in _beyond(old, new):
                was.setdefault(partition, now.get(partition))
                if now.get(partition) == member_id:
                    del now[partition]
            added += [(partition, member_id) for partition in _beyond(new, old)]
        for partition, member_id in added:
            was.setdefault(partition, now.get(partition))
            now[partition] = member_id
        return {p: (old_id, now.get(p)) for p, old_id in was.items() if old_id != now.get(p)}


def apart(decoded: Iterable[tuple[Any, Any]]) -> tuple[list[tuple[Any, Any]], dict[str, int]]:
    """Records of `TOLD_TYPES` that change a group, and the numbers that others give to its members."""
    others: list[tuple[Any, Any]] = []
    numbered: dict[str, int] = {}
    for key, value in decoded:
        if not isinstance(key, MemberNumberKey):
            others.append((key, value))
        elif value is not None and key.member_id != NEWEST:
            numbered[key.member_id] = value.number
    return others, numbered


def shapes(topics: Iterable[TopicMetadata]) -> dict[str, TopicShape]:
    """Topics by name, as the catalog's history has them."""
    return {topic.topic_name: (topic.topic_id, topic.num_partitions) for topic in topics}


def partitions_of(parts: Mapping[bytes, Iterable[int]]) -> Iterator[Partition]:
    return ((topic_id, partition) for topic_id, numbers in parts.items() for partition in numbers)


def _is_unclosed(group: Group, part: TargetPart) -> bool:
    """Whether the part belongs to a target whose record 6 has yet to come."""
    closed = group.target_metadata
    return closed is not None and part.assignment_epoch > closed.assignment_epoch >= 0


def _beyond(part: TargetPart | None, other: TargetPart | None) -> Iterator[Partition]:
    """The partitions of one part of the target that another part lacks."""
    known = {} if other is None else {one.topic_id: one.partitions for one in other.topic_partitions}
    for one in () if part is None else part.topic_partitions:
        lacking = known.get(one.topic_id, ())
        if lacking != one.partitions:
            topic_id = one.topic_id
            yield from ((topic_id, number) for number in set(one.partitions).difference(lacking))


_NOWHERE: Mapping[int, int] = {}


def _compared(before: Member | None, after: Member | None) -> MemberChange:
    change = MemberChange(before, after, set(), set(), set(), set(), set())
    old = JOINING if before is None else before.current
    new = JOINING if after is None else after.current
    if old is new:
        return change
    for topic_id in {*old.assigned, *old.pending, *new.assigned, *new.pending}:
        assigned_before = old.assigned.get(topic_id, _NOWHERE).keys()
        assigned = new.assigned.get(topic_id, _NOWHERE).keys()
        pending_before = old.pending.get(topic_id, _NOWHERE).keys()
        pending = new.pending.get(topic_id, _NOWHERE).keys()
        if assigned == assigned_before and not pending and not pending_before:
            continue  # the member has reached another epoch, and nothing else, as in most entries
        owned_before = assigned_before | pending_before
        owned = assigned | pending
        for found, numbers in (
            (change.released, owned_before - owned),
            (change.taken, assigned - owned_before),
            (change.gained, owned - owned_before),
            (change.told, pending - pending_before),
            (change.kept, (pending_before - pending) & owned),
        ):
            if numbers:
                found.update(zip(repeat(topic_id), numbers))
    return change
