"""Invariants that must hold after every entry of a shard.

Each check is one row of `MEMBER_CHECKS` or `GROUP_CHECKS`: the rule as a sentence, and a predicate. Only the
groups and members that an entry touched are checked, so that a long log stays cheap. `secondopinion` verifies
that the checked state is what the records say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.state.changes import NO_EPOCH, GroupChange, apply_entry_and_compare
from coordinator.state.group_records import OLD_GROUP_TYPES
from coordinator.state.model import Group, Member
from coordinator.state.projection import Projection
from history.render import ranges
from records import MemberState, RawRecord, decode_key

from .old_groups import NEVER_BACK, ONE_OWNER, old_group_violations

Partition = tuple[bytes, int]
"""Topic id and partition number."""
VIOLATIONS_MAX = 100
"""Maximum number of violations per shard. A defect tends to repeat in every later entry, and the first
ones suffice to identify it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An entry after which a rule does not hold."""

    index: int
    group_id: str
    rule: str
    found: str


MemberRule = Callable[[Group, Member], str | None]
GroupRule = Callable[[Group], str | None]


def _member_epoch_bound(group: Group, member: Member) -> str | None:
    epoch = member.current.epoch
    return None if epoch <= group.epoch else f"epoch {epoch} of {member.member_id} > {group.epoch}"


def _previous_epoch_bound(_group: Group, member: Member) -> str | None:
    epoch, previous = member.current.epoch, member.current.previous_epoch
    if epoch < 0 or previous <= epoch:
        return None
    return f"previous epoch {previous} > {epoch} of {member.member_id}"


def _stable_has_its_target(group: Group, member: Member) -> str | None:
    current, part = member.current, group.target.get(member.member_id)
    if current.state is not MemberState.STABLE or current.epoch != group.assignment_epoch:
        return None
    if part is not None and part.assignment_epoch > group.assignment_epoch:
        return None  # its part of a target that is still being written, by several decisions
    target = _flat(group.target_of(member.member_id))
    assigned = _flat(current.assigned)
    beyond = (assigned - target) | _flat(current.pending)
    lacking: set[Partition] = set()
    # After another epoch began, it may have changed its subscription and back; the next target will tell.
    if group.epoch <= group.assignment_epoch and member.metadata is not None:
        names = {
            *member.metadata.subscribed_topic_names,
            *group.resolved(member.metadata.subscribed_topic_regex),
        }
        subscribed = {topic.topic_id for topic in group.topics if topic.topic_name in names}
        lacking = {partition for partition in target - assigned if partition[0] in subscribed}
    if not beyond and not lacking:
        return None
    return f"{member.member_id} has {_numbers(beyond)} beyond its target and lacks {_numbers(lacking)}"


def _unrevoked_has_pending(_group: Group, member: Member) -> str | None:
    current = member.current
    if current.state is not MemberState.UNREVOKED_PARTITIONS or current.pending or member.is_away:
        return None
    return f"{member.member_id} has no partitions to revoke"


def _assignment_epoch_bound(group: Group) -> str | None:
    if group.metadata is None or group.assignment_epoch <= group.epoch:
        return None
    return f"assignment epoch {group.assignment_epoch} > group epoch {group.epoch}"


MEMBER_CHECKS: tuple[tuple[str, MemberRule], ...] = (
    ("a member's epoch is at most the group's", _member_epoch_bound),
    ("a member's previous epoch is at most its epoch", _previous_epoch_bound),
    ("a STABLE member at the assignment epoch has exactly its target", _stable_has_its_target),
    ("an UNREVOKED_PARTITIONS member has partitions to revoke", _unrevoked_has_pending),
)
GROUP_CHECKS: tuple[tuple[str, GroupRule], ...] = (
    ("the assignment epoch is at most the group's", _assignment_epoch_bound),
)


@dataclass(slots=True)
class InvariantChecker:
    """Follows all groups of one shard; `violations` holds the first `VIOLATIONS_MAX` violations."""

    projection: Projection = field(default_factory=Projection)
    violations: list[Violation] = field(default_factory=list)
    _owners: dict[str, dict[Partition, str]] = field(default_factory=dict)

    def load(self, projection: Projection) -> None:
        """Start over from the state of a snapshot."""
        self.projection = projection
        self._owners = {
            group_id: {
                partition: member.member_id
                for member in group.members.values()
                for partition in _owned(member)
            }
            for group_id, group in projection.groups.items()
        }

    def entry(self, index: int, raws: Sequence[RawRecord]) -> None:
        """Apply one entry, then check what it touched."""
        keys = [decode_key(raw) for raw in raws if raw.type in OLD_GROUP_TYPES]
        olds = [(key, self.projection.old_groups.get(key)) for key in keys]
        for group, change in apply_entry_and_compare(self.projection, raws, index):
            self._check(index, group, change)
            if group.is_gone:
                self._owners.pop(group.group_id, None)
        for key, before in olds:
            after = self.projection.old_groups.get(key)
            if after is not None:
                for rule, found in old_group_violations(before, after):
                    self._report(index, key.group_id, rule, found)

    def _check(self, index: int, group: Group, change: GroupChange) -> None:
        self._own(index, group, change)
        changed = [(before, after) for before, after in change.members.values() if after is not None]
        for rule, member_rule in MEMBER_CHECKS:
            for _, member in changed:
                self._report(index, group.group_id, rule, member_rule(group, member))
        for rule, group_rule in GROUP_CHECKS:
            self._report(index, group.group_id, rule, group_rule(group))
        for name, old, new in (
            ("group epoch", change.before.epoch, change.after.epoch),
            ("assignment epoch", change.before.assignment_epoch, change.after.assignment_epoch),
            *((f"epoch of {new.member_id}", _epoch_of(old), _epoch_of(new)) for old, new in changed),
        ):
            if 0 <= new < old:
                self._report(index, group.group_id, NEVER_BACK, f"{name} went from {old} to {new}")

    def _own(self, index: int, group: Group, change: GroupChange) -> None:
        owners = self._owners.setdefault(group.group_id, {})
        moved = {
            member_id: (before, after)
            for member_id, (before, after) in change.members.items()
            if before is None or after is None or before.current is not after.current
        }
        for member_id, (before, _) in moved.items():
            for partition in _owned(before):
                if owners.get(partition) == member_id:
                    del owners[partition]
        for member_id, (_, after) in moved.items():
            owned = _owned(after)
            for partition in owned & owners.keys():
                found = f"{_numbers([partition])} is owned by {owners[partition]} and by {member_id}"
                self._report(index, group.group_id, ONE_OWNER, found)
            owners.update(dict.fromkeys(owned, member_id))

    def _report(self, index: int, group_id: str, rule: str, found: str | None) -> None:
        if found is not None and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(index=index, group_id=group_id, rule=rule, found=found))


def _epoch_of(member: Member | None) -> int:
    return NO_EPOCH if member is None or member.current_value is None else member.current.epoch


def _flat(parts: Mapping[bytes, Iterable[int]]) -> frozenset[Partition]:
    return frozenset((topic_id, number) for topic_id, numbers in parts.items() for number in numbers)


def _owned(member: Member | None) -> frozenset[Partition]:
    if member is None:
        return frozenset()
    return _flat(member.current.assigned) | _flat(member.current.pending)


def _numbers(partitions: Iterable[Partition]) -> str:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return "; ".join(f"{topic_id.hex()} {ranges(of)}" for topic_id, of in by_topic.items()) or "nothing"


MEMBERSHIP_RULES: tuple[str, ...] = (
    ONE_OWNER,
    NEVER_BACK,
    *(rule for rule, _ in MEMBER_CHECKS),
    *(rule for rule, _ in GROUP_CHECKS),
)
"""All rules of consumer groups."""
