"""The uniform assignor, Kafka's default: balance first, then stickiness.

If all members subscribe to the same topics, their parts differ by at most one partition, and as few
partitions move as that allows. The cost is O(partitions + members). If subscriptions differ,
`assign_by_balance` does the work. Two rules make the answer independent of the order of members (KAFKA-18688
was caused by their absence): ties are broken by member id, and the members that get one partition more than
others are those that already have it.
"""

from __future__ import annotations

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
    """One run of the assignor.

    Only members whose part changes are processed partition by partition. Most keep their part, and its
    validity is checked topic by topic."""

    def __init__(self, spec: AssignmentSpec) -> None:
        members = spec.members
        self.member_ids = sorted(members)
        topic_ids = sorted(members[self.member_ids[0]].subscribed_topics)
        self.sizes = {topic_id: spec.topics[topic_id].num_partitions for topic_id in topic_ids}
        self.parts = {member_id: members[member_id].target_partitions for member_id in self.member_ids}
        self.free: dict[bytes, set[int]] = {}
        """Partitions without an owner, by topic."""

    def assign(self) -> GroupAssignment:
        self._keep_what_is_valid()
        parts = self.parts
        counts = [sum(map(len, part.values())) if part else 0 for part in parts.values()]
        missing: list[tuple[str, int]] = []
        for member_id, count, quota in zip(self.member_ids, counts, self._quotas(counts), strict=True):
            if count > quota:
                parts[member_id] = self._without_last(parts[member_id], count - quota)
            elif count < quota:
                missing.append((member_id, quota - count))
        self._give(missing)
        return GroupAssignment({member_id: MemberAssignment(part) for member_id, part in parts.items()})

    def _keep_what_is_valid(self) -> None:
        """Drop partitions from old targets that no longer exist or have several owners."""
        held: dict[bytes, list[tuple[int, ...]]] = {topic_id: [] for topic_id in self.sizes}
        for part in self.parts.values():
            for topic_id, numbers in part.items():
                held.setdefault(topic_id, []).append(numbers)
        is_valid = len(held) == len(self.sizes)
        for topic_id, size in self.sizes.items():
            self.free[topic_id] = free = set(range(size)).difference(chain.from_iterable(held[topic_id]))
            is_valid = is_valid and len(free) + sum(map(len, held[topic_id])) == size
        if not is_valid:
            self._drop_what_is_not_valid()

    def _drop_what_is_not_valid(self) -> None:
        """Leave a partition with several owners to the first one, and drop those that no longer exist."""
        self.free = {topic_id: set(range(size)) for topic_id, size in self.sizes.items()}
        for member_id, part in self.parts.items():
            kept: dict[bytes, tuple[int, ...]] = {}
            for topic_id, numbers in part.items():
                free = self.free.get(topic_id, set())
                valid = free.intersection(numbers)
                free -= valid
                if valid:
                    kept[topic_id] = numbers if len(valid) == len(numbers) else tuple(sorted(valid))
            if kept != part:
                self.parts[member_id] = kept

    def _quotas(self, counts: list[int]) -> list[int]:
        """The number of partitions for each member.

        Extra partitions go first to members that already have more."""
        quota, extras = divmod(sum(self.sizes.values()), len(counts))
        quotas = [quota] * len(counts)
        first = [place for place, count in enumerate(counts) if count > quota]
        if len(first) < extras:
            first += [place for place, count in enumerate(counts) if count <= quota]
        for place in first[:extras]:
            quotas[place] += 1
        return quotas

    def _without_last(self, part: Partitions, surplus: int) -> Partitions:
        """The part without `surplus` partitions, which become free: the last ones of the last topics."""
        kept = dict(part)
        for topic_id in sorted(part, reverse=True):
            numbers = kept.pop(topic_id)
            self.free[topic_id].update(numbers[-surplus:])
            if surplus < len(numbers):
                kept[topic_id] = numbers[:-surplus]
            surplus -= len(numbers)
            if surplus <= 0:
                break
        return kept

    def _give(self, missing: list[tuple[str, int]]) -> None:
        """Give the free partitions, by topic and number, to the members in `missing`."""
        free = iter(
            [(topic_id, tuple(sorted(numbers))) for topic_id, numbers in self.free.items() if numbers]
        )
        topic_id, position = b"", 0
        numbers: tuple[int, ...] = ()
        for member_id, count in missing:
            part = dict(self.parts[member_id])
            while count:
                if position == len(numbers):
                    (topic_id, numbers), position = next(free), 0
                given = numbers[position : position + count]
                part[topic_id] = tuple(sorted(part[topic_id] + given)) if topic_id in part else given
                position += len(given)
                count -= len(given)
            self.parts[member_id] = part
