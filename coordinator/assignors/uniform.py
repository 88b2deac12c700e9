"""The uniform assignor, Kafka's default: balance first, then stickiness.

When all members subscribe to the same topics, their parts differ by one partition at most, and as few
partitions move as that allows. It costs O(partitions + members). When subscriptions differ, `balance` does
the work. Two rules keep the answer the same for any order of the members (KAFKA-18688 was the lack of
them): ties are broken by member id, and the members that get one partition more than the others are those
that already have it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain

from coordinator.assignors.heterogeneous import assign_by_balance
from coordinator.assignors.spi import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    Partitions,
    is_homogeneous,
    require_known_topics,
)


class UniformAssignor:
    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        require_known_topics(spec)
        if not spec.members:
            return GroupAssignment({})
        if is_homogeneous(spec):
            return _Homogeneous(spec).assign()
        return assign_by_balance(spec)


class _Homogeneous:
    """One run. A partition is a number: the topic's base plus its partition number; topics in id order.

    Only members whose part changes are looked at partition by partition: most keep what they have."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self.spec = spec
        self.member_ids = sorted(spec.members)
        self.topic_ids = sorted(spec.members[self.member_ids[0]].subscribed_topics)
        self.bases = [0]
        for topic_id in self.topic_ids:
            self.bases.append(self.bases[-1] + spec.topics[topic_id].num_partitions)
        self.total = self.bases[-1]
        self.held: set[int] = set()
        """Numbers that somebody has and may keep."""
        self.changed: set[str] = set()

    def assign(self) -> GroupAssignment:
        kept = self._still_valid()
        quotas = self._quotas({member_id: len(numbers) for member_id, numbers in kept.items()})
        changed, members = self.changed, self.spec.members
        for member_id, numbers in kept.items():
            if len(numbers) > quotas[member_id]:
                numbers.sort()
                self.held.difference_update(numbers[quotas[member_id] :])
                del numbers[quotas[member_id] :]
                changed.add(member_id)
        free, position = sorted(set(range(self.total)) - self.held), 0
        parts: dict[str, MemberAssignment] = {}
        for member_id, numbers in kept.items():
            missing = quotas[member_id] - len(numbers)
            if missing:
                numbers += free[position : position + missing]
                position += missing
            elif member_id not in changed:
                parts[member_id] = MemberAssignment(members[member_id].target_partitions)
                continue
            numbers.sort()
            parts[member_id] = MemberAssignment(self._part(numbers))
        return GroupAssignment(parts)

    def _still_valid(self) -> dict[str, list[int]]:
        """What the old targets still mean, as numbers; a partition of several members stays with one."""
        places = {topic_id: place for place, topic_id in enumerate(self.topic_ids)}
        bases, members, changed = self.bases, self.spec.members, self.changed
        kept: dict[str, list[int]] = {}
        for member_id in self.member_ids:
            kept[member_id] = numbers = []
            for topic_id, partitions in members[member_id].target_partitions.items():
                place = places.get(topic_id)
                if place is None:
                    changed.add(member_id)
                    continue
                base, end = bases[place], bases[place + 1]
                valid = [base + partition for partition in partitions]
                if valid and (valid[-1] >= end or valid[0] < base):
                    valid = [number for number in valid if base <= number < end]
                    changed.add(member_id)
                numbers += valid
        self.held.update(chain.from_iterable(kept.values()))
        if len(self.held) < sum(map(len, kept.values())):
            self._drop_doubles(kept)
        return kept

    def _drop_doubles(self, kept: dict[str, list[int]]) -> None:
        seen: set[int] = set()
        for member_id, numbers in kept.items():
            once = [number for number in dict.fromkeys(numbers) if number not in seen]
            if len(once) < len(numbers):
                kept[member_id] = once
                self.changed.add(member_id)
            seen.update(once)

    def _quotas(self, held: dict[str, int]) -> dict[str, int]:
        quota, extras = divmod(self.total, len(held))
        quotas = dict.fromkeys(held, quota)
        above = [member_id for member_id, count in held.items() if count > quota]
        others = [member_id for member_id, count in held.items() if count <= quota]
        for member_id in (above + others)[:extras]:
            quotas[member_id] = quota + 1
        return quotas

    def _part(self, numbers: list[int]) -> Partitions:
        """Ascending numbers, by topic."""
        part: dict[bytes, tuple[int, ...]] = {}
        start, count = 0, len(numbers)
        while start < count:
            place = bisect_right(self.bases, numbers[start]) - 1
            base, end = self.bases[place], self.bases[place + 1]
            stop = count if numbers[-1] < end else bisect_left(numbers, end, start)
            first = numbers[start] - base
            if numbers[stop - 1] - numbers[start] == stop - 1 - start:
                part[self.topic_ids[place]] = tuple(range(first, first + stop - start))
            else:
                part[self.topic_ids[place]] = tuple([number - base for number in numbers[start:stop]])
            start = stop
        return part
