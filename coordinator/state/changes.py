"""Changes that records make to a group: its values before and after.

For readers of history: records are applied as always, and compared with what was there before. A coordinator,
which has no use for changes, pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.state.group_records import APPLY, MEMBERSHIP_TYPES
from coordinator.state.machines import GroupState
from coordinator.state.model import Group, Member
from coordinator.state.projection import Projection
from records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    RawRecord,
    TopicMetadata,
    decode_key,
)

TargetPart = ConsumerGroupTargetAssignmentMemberValue
"""One member's part of the target."""

NO_EPOCH = -1
"""The epoch of a group, target or member of which the log has none."""


@dataclass(slots=True)
class GroupSummary:
    """A group's own values at one index, without those of its members."""

    epoch: int
    assignment_epoch: int
    topics: tuple[TopicMetadata, ...]
    num_members: int
    exists: bool
    """Whether the log has an epoch of the group, a member, or a classic group of this name."""
    state: str
    """Kafka's name of the group's state."""

    @classmethod
    def of(cls, group: Group) -> GroupSummary:
        metadata, target = group.metadata, group.target_metadata
        exists = metadata is not None or bool(group.members) or group.classic is not None
        return cls(
            NO_EPOCH if metadata is None else metadata.epoch,
            NO_EPOCH if target is None else target.assignment_epoch,
            group.topics,
            group.num_members,
            exists,
            (_state(group) if exists else GroupState.DEAD).value,
        )


def _state(group: Group) -> GroupState:
    """A classic group's states between two generations are known to its coordinator alone."""
    if group.classic is None:
        return group.state
    return GroupState.STABLE if group.classic.members else GroupState.EMPTY


@dataclass(slots=True)
class GroupChange:
    """The changes that one entry made to a group. Nobody modifies these objects later."""

    before: GroupSummary
    after: GroupSummary
    members: Mapping[str, tuple[Member | None, Member | None]]
    """Member id → before and after, for every member that a record names."""
    targets: Mapping[str, tuple[TargetPart | None, TargetPart | None]]
    """Member id → its part of the target before and after, for every record 7."""


def apply_and_compare(
    group: Group, records: Sequence[tuple[Any, Any]], before: GroupSummary | None = None
) -> GroupChange:
    """Apply the records of one entry, as keys and values; return what they changed.

    All of them must belong to the group. `before` is its summary, if the caller has it."""
    known = _Before(group, before or GroupSummary.of(group))
    for key, _ in records:
        known.note(key)
    for key, value in records:
        APPLY[type(key)](group, key, value)
    return known.compared(group)


def apply_entry_and_compare(
    projection: Projection, raws: Sequence[RawRecord], index: int
) -> list[tuple[Group, GroupChange]]:
    """Apply an entry to a shard's projection; return what it changed in each group that it names."""
    known: dict[str, _Before] = {}
    for raw in raws:
        if raw.type in MEMBERSHIP_TYPES:
            key = decode_key(raw)
            before = known.get(key.group_id)
            if before is None:
                group = projection.groups.get(key.group_id) or Group(key.group_id)
                before = known[key.group_id] = _Before(group, GroupSummary.of(group))
            before.note(key)
    projection.apply_all(raws, index)
    groups = {group_id: projection.groups.get(group_id) or Group(group_id) for group_id in known}
    return [(group, known[group_id].compared(group)) for group_id, group in groups.items()]


@dataclass(slots=True)
class _Before:
    """A group before an entry: its summary, and the members and targets that the entry names."""

    group: Group
    summary: GroupSummary
    members: dict[str, Member | None] = field(default_factory=dict)
    targets: dict[str, TargetPart | None] = field(default_factory=dict)

    def note(self, key: Any) -> None:
        """Note what the projection has under the key of a record of the entry."""
        member_id = getattr(key, "member_id", None)
        if member_id is None:
            return
        if member_id not in self.members:
            self.members[member_id] = _copy_of(self.group, member_id)
        if type(key) is ConsumerGroupTargetAssignmentMemberKey:
            self.targets[member_id] = self.group.target.get(member_id)

    def compared(self, group: Group) -> GroupChange:
        """The entry's changes; `group` is as it left it."""
        return GroupChange(
            self.summary,
            GroupSummary.of(group),
            {member_id: (old, _copy_of(group, member_id)) for member_id, old in self.members.items()},
            {member_id: (old, group.target.get(member_id)) for member_id, old in self.targets.items()},
        )


def _copy_of(group: Group, member_id: str) -> Member | None:
    member = group.members.get(member_id)
    return None if member is None else member.copy()
