"""What records change in a group: its values before and after them.

`apply_and_compare` is for readers of history. It applies records by the same functions as `Projection` does,
so a coordinator, which has no use for changes, pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.state.group_records import APPLY
from coordinator.state.machines import GroupState
from coordinator.state.model import Group, Member
from records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicMetadata,
)

TargetPart = ConsumerGroupTargetAssignmentMemberValue
"""One member's part of the target."""

NO_EPOCH = -1
"""The epoch of a group, target or member of which the log has none."""

CLASSIC = "Classic"
"""State of a group of the classic protocol, in place of Kafka's name."""


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
            CLASSIC if group.classic is not None else (group.state if exists else GroupState.DEAD).value,
        )


@dataclass(slots=True)
class GroupChange:
    """What the records of one entry changed in a group. Nobody changes these objects later."""

    before: GroupSummary
    after: GroupSummary
    members: Mapping[str, tuple[Member | None, Member | None]]
    """Member id → before and after, for every member that a record names."""
    targets: Mapping[str, tuple[TargetPart | None, TargetPart | None]]
    """Member id → its part of the target before and after, for every record 7."""


def apply_and_compare(
    group: Group, records: Iterable[tuple[Any, Any]], before: GroupSummary | None = None
) -> GroupChange:
    """Apply the records of one entry, as keys and values; return what they changed.

    All of them must belong to the group. `before` is its summary, if the caller has it."""
    before = before or GroupSummary.of(group)
    members: dict[str, Member | None] = {}
    targets: dict[str, TargetPart | None] = {}
    for key, value in records:
        member_id = getattr(key, "member_id", None)
        if member_id is not None and member_id not in members:
            members[member_id] = _copy_of(group, member_id)
        if type(key) is ConsumerGroupTargetAssignmentMemberKey and key.member_id not in targets:
            targets[key.member_id] = group.target.get(key.member_id)
        APPLY[type(key)](group, key, value)
    return GroupChange(
        before,
        GroupSummary.of(group),
        {member_id: (old, _copy_of(group, member_id)) for member_id, old in members.items()},
        {member_id: (old, group.target.get(member_id)) for member_id, old in targets.items()},
    )


def _copy_of(group: Group, member_id: str) -> Member | None:
    member = group.members.get(member_id)
    return None if member is None else member.copy()
