"""The uniform assignor, Kafka's default: balance first, then stickiness.

When all members subscribe to the same topics, their parts differ by one partition at most, and as few
partitions move as that allows. It costs O(partitions + members). When subscriptions differ, `balance` does
the work. Two rules keep the answer the same for any order of the members (KAFKA-18688 was the lack of
them): ties are broken by member id, and the members that get one partition more than the others are those
that already have it.
"""

from __future__ import annotations

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
    """One run. A partition is a number: the topic's base plus its partition number; topics in id order."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self.spec = spec
        self.member_ids = sorted(spec.members)
        subscribed = spec.members[self.member_ids[0]].subscribed_topics
        self.topic_ids = sorted(subscribed)
        self.base: dict[bytes, int] = {}
        self.total = 0
        for topic_id in self.topic_ids:
            self.base[topic_id] = self.total
            self.total += spec.topics[topic_id].num_partitions
        self.taken = bytearray(self.total)

    def assign(self) -> GroupAssignment:
        kept = {member_id: self._still_valid(member_id) for member_id in self.member_ids}
        quotas = self._quotas({member_id: len(numbers) for member_id, numbers in kept.items()})
        changed: set[str] = set()
        for member_id, numbers in kept.items():
            surplus = len(numbers) - quotas[member_id]
            if surplus > 0:
                for number in numbers[-surplus:]:
                    self.taken[number] = 0
                del numbers[-surplus:]
                changed.add(member_id)
        free = iter([number for number, taken in enumerate(self.taken) if not taken])
        for member_id, numbers in kept.items():
            missing = quotas[member_id] - len(numbers)
            if missing > 0:
                numbers.extend(next(free) for _ in range(missing))
                numbers.sort()
                changed.add(member_id)
        return GroupAssignment(
            {
                member_id: MemberAssignment(self._part(member_id, kept[member_id], changed))
                for member_id in kept
            }
        )

    def _still_valid(self, member_id: str) -> list[int]:
        """What the member's old target still means, as numbers, ascending by topic id and partition."""
        numbers: list[int] = []
        taken = self.taken
        target = self.spec.members[member_id].target_partitions
        for topic_id in sorted(target) if len(target) > 1 else target:
            base = self.base.get(topic_id)
            if base is None:
                continue
            end = base + self.spec.topics[topic_id].num_partitions
            for partition in target[topic_id]:
                number = base + partition
                if base <= number < end and not taken[number]:
                    taken[number] = 1
                    numbers.append(number)
        return numbers

    def _quotas(self, held: dict[str, int]) -> dict[str, int]:
        quota, extras = divmod(self.total, len(held))
        quotas = dict.fromkeys(held, quota)
        above = [member_id for member_id, count in held.items() if count > quota]
        others = [member_id for member_id, count in held.items() if count <= quota]
        for member_id in (above + others)[:extras]:
            quotas[member_id] = quota + 1
        return quotas

    def _part(self, member_id: str, numbers: list[int], changed: set[str]) -> Partitions:
        old = self.spec.members[member_id].target_partitions
        if member_id not in changed and sum(map(len, old.values())) == len(numbers):
            return old
        part: dict[bytes, tuple[int, ...]] = {}
        position, count = 0, len(numbers)
        for topic_id in self.topic_ids if numbers else ():
            base = self.base[topic_id]
            end = base + self.spec.topics[topic_id].num_partitions
            if numbers[position] >= end:
                continue
            start = position
            while position < count and numbers[position] < end:
                position += 1
            part[topic_id] = tuple([number - base for number in numbers[start:position]])
            if position == count:
                break
        return part
