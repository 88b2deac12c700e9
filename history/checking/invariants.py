"""Invariants that must hold after every entry of a shard, checked from its records alone.

Each check is one row of `MEMBER_CHECKS` or `GROUP_CHECKS`: the rule as a sentence, and a predicate. Only the
groups and members that an entry touched are checked, so that a long log stays cheap. The checks use
`GroupView`, so that a defect of the coordinator's own projection cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from history.render import ranges
from history.state.group_view import MEMBERSHIP_TYPES, GroupView, MemberView, Partition, grouped
from records import MemberState, RawRecord, group_id_of

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


MemberRule = Callable[[GroupView, MemberView], str | None]
GroupRule = Callable[[GroupView], str | None]


def _member_epoch_bound(group: GroupView, member: MemberView) -> str | None:
    if member.epoch <= group.epoch:
        return None
    return f"epoch {member.epoch} of {member.member_id} > {group.epoch}"


def _previous_epoch_bound(_group: GroupView, member: MemberView) -> str | None:
    if member.epoch < 0 or member.previous_epoch <= member.epoch:
        return None
    return f"previous epoch {member.previous_epoch} > {member.epoch} of {member.member_id}"


def _stable_has_its_target(group: GroupView, member: MemberView) -> str | None:
    if member.state != MemberState.STABLE or member.epoch != group.assignment_epoch:
        return None
    if group.target_epochs.get(member.member_id, group.assignment_epoch) > group.assignment_epoch:
        return None  # its part of a target that is still being written, by several decisions
    target = group.target.get(member.member_id, frozenset())
    names = group.subscribed(member)
    subscribed = {topic_id for name, (topic_id, _) in group.topics.items() if name in names}
    beyond = (member.assigned - target) | member.pending
    lacking = {partition for partition in target - member.assigned if partition[0] in subscribed}
    if group.epoch > group.assignment_epoch:
        lacking = set()  # it may have changed its subscription and back; the next target will tell
    if not beyond and not lacking:
        return None
    return f"{member.member_id} has {_numbers(beyond)} beyond its target and lacks {_numbers(lacking)}"


def _unrevoked_has_pending(_group: GroupView, member: MemberView) -> str | None:
    if member.state != MemberState.UNREVOKED_PARTITIONS or member.pending or member.is_away:
        return None
    return f"{member.member_id} has nothing to give up"


def _assignment_epoch_bound(group: GroupView) -> str | None:
    if group.epoch < 0 or group.assignment_epoch <= group.epoch:
        return None
    return f"assignment epoch {group.assignment_epoch} > group epoch {group.epoch}"


MEMBER_CHECKS: tuple[tuple[str, MemberRule], ...] = (
    ("a member's epoch is at most the group's", _member_epoch_bound),
    ("a member's previous epoch is at most its epoch", _previous_epoch_bound),
    ("a STABLE member at the assignment epoch has exactly its target", _stable_has_its_target),
    ("an UNREVOKED_PARTITIONS member has partitions to give up", _unrevoked_has_pending),
)
GROUP_CHECKS: tuple[tuple[str, GroupRule], ...] = (
    ("the assignment epoch is at most the group's", _assignment_epoch_bound),
)
ONE_OWNER = "a partition has at most one owner"
NEVER_BACK = "epochs never go back"


@dataclass(slots=True)
class InvariantChecker:
    """Follows all groups of one shard; `violations` holds the first `VIOLATIONS_MAX` violations."""

    groups: dict[str, GroupView] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    _owners: dict[str, dict[Partition, str]] = field(default_factory=dict)

    def load(self, raws: Iterable[RawRecord]) -> None:
        """Start over from a snapshot's records."""
        self.groups, self._owners = {}, {}
        for raw in raws:
            if raw.type in MEMBERSHIP_TYPES:
                self._group(raw).apply(raw)
        for group_id, group in self.groups.items():
            self._owners[group_id] = group.owners()

    def entry(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Apply one entry, then check what it touched."""
        touched: dict[str, list[RawRecord]] = {}
        for raw in raws:
            if raw.type in MEMBERSHIP_TYPES:
                touched.setdefault(group_id_of(raw) or "", []).append(raw)
        for group_id, mine in touched.items():
            group = self.groups.get(group_id) or self.groups.setdefault(group_id, GroupView(group_id))
            before, epochs = dict(group.members), (group.epoch, group.assignment_epoch)
            for raw in mine:
                group.apply(raw)
            self._check(index, group, before, epochs)
            if not group.exists and not group.target and group.assignment_epoch < 0:
                del self.groups[group_id]
                self._owners.pop(group_id, None)

    def _group(self, raw: RawRecord) -> GroupView:
        group_id = group_id_of(raw) or ""
        return self.groups.get(group_id) or self.groups.setdefault(group_id, GroupView(group_id))

    def _check(
        self, index: int, group: GroupView, before: dict[str, MemberView], epochs: tuple[int, int]
    ) -> None:
        changed = [
            member for member_id, member in group.members.items() if before.get(member_id) is not member
        ]
        left = [member for member_id, member in before.items() if group.members.get(member_id) is not member]
        self._own(index, group, left, changed)
        for rule, member_rule in MEMBER_CHECKS:
            for member in changed:
                self._report(index, group, rule, member_rule(group, member))
        for rule, group_rule in GROUP_CHECKS:
            self._report(index, group, rule, group_rule(group))
        for name, old, new in (
            ("group epoch", epochs[0], group.epoch),
            ("assignment epoch", epochs[1], group.assignment_epoch),
            *((f"epoch of {m.member_id}", _epoch_of(before, m), m.epoch) for m in changed),
        ):
            if 0 <= new < old:
                self._report(index, group, NEVER_BACK, f"{name} went from {old} to {new}")

    def _own(self, index: int, group: GroupView, left: list[MemberView], changed: list[MemberView]) -> None:
        owners = self._owners.setdefault(group.group_id, {})
        for member in left:
            for partition in member.owned:
                if owners.get(partition) == member.member_id:
                    del owners[partition]
        for member in changed:
            twice = [partition for partition in member.owned if partition in owners]
            for partition in twice:
                self._report(
                    index,
                    group,
                    ONE_OWNER,
                    f"{_numbers([partition])} is owned by {owners[partition]} and by {member.member_id}",
                )
            owners.update(dict.fromkeys(member.owned, member.member_id))

    def _report(self, index: int, group: GroupView, rule: str, found: str | None) -> None:
        if found is not None and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(index=index, group_id=group.group_id, rule=rule, found=found))


def _epoch_of(members: dict[str, MemberView], member: MemberView) -> int:
    old = members.get(member.member_id)
    return -1 if old is None else old.epoch


def _numbers(partitions: Iterable[Partition]) -> str:
    parts = [f"{part.topic_id.hex()} {ranges(part.partitions)}" for part in grouped(partitions)]
    return "; ".join(parts) or "nothing"


MEMBERSHIP_RULES: tuple[str, ...] = (
    ONE_OWNER,
    NEVER_BACK,
    *(rule for rule, _ in MEMBER_CHECKS),
    *(rule for rule, _ in GROUP_CHECKS),
)
"""All rules, for the report of what was checked."""
