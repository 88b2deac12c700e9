"""The members' numbers by arrival in their group's life, by which people call them: m1, m2 and so on.

A number is a record of its own (MEMBER_NUMBER), whatever the group's protocol. So it outlives compaction,
restarts and failovers, and a group that changes its protocol keeps the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator.state.freeing import free_incrementally
from records import MemberNumberKey, MemberNumberValue

NEWEST = ""
"""The member id under which a group has the number of its newest member, so that none is given twice."""


@dataclass(slots=True)
class GroupNumbers:
    """The numbers of one group's members, by member id."""

    newest: int = 0
    """The number of the newest member, present or not; 0 if there was none."""
    present: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    """Some that are no members any more, and get the same number if they come back."""

    def member_ids(self) -> list[str]:
        """The member ids of all records."""
        return [*self.present, *self.left, *([NEWEST] if self.newest else [])]


class MemberNumbers:
    """The numbers of the members of a shard's groups. Only `Projection.apply` changes them."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupNumbers] = {}

    def apply(self, key: MemberNumberKey, value: MemberNumberValue | None) -> None:
        """Apply a record MEMBER_NUMBER or its tombstone (None)."""
        numbers = self._groups.setdefault(key.group_id, GroupNumbers())
        if key.member_id == NEWEST:
            numbers.newest = 0 if value is None else value.number
        else:
            numbers.present.pop(key.member_id, None)
            numbers.left.pop(key.member_id, None)
            if value is not None:
                (numbers.left if value.has_left else numbers.present)[key.member_id] = value.number
        if not (numbers.newest or numbers.present or numbers.left):
            del self._groups[key.group_id]

    def get(self, key: MemberNumberKey) -> MemberNumberValue | None:
        numbers = self.of_group(key.group_id)
        if key.member_id == NEWEST:
            return MemberNumberValue(number=numbers.newest) if numbers.newest else None
        has_left = key.member_id in numbers.left
        number = (numbers.left if has_left else numbers.present).get(key.member_id)
        return None if number is None else MemberNumberValue(number=number, has_left=int(has_left))

    def of_group(self, group_id: str) -> GroupNumbers:
        """The numbers of one group's members, to be read only."""
        return self._groups.get(group_id) or GroupNumbers()

    def free_incrementally(self) -> Iterator[None]:
        """Free all numbers in steps. The object must not be used any more."""
        while self._groups:
            numbers = self._groups.popitem()[1]
            yield from free_incrementally(numbers.present)
            yield from free_incrementally(numbers.left)
