"""Uniform assignment for members with different subscriptions.

There are three phases: keep valid assignments; give partitions without an owner to the least loaded
subscribers, the most contested topics first; then move single partitions from the most to the least loaded
subscriber of a topic while their loads differ by two or more. Each move lowers the sum of the squared loads,
so the last phase terminates. Afterwards no single move improves the balance, and running it again changes
nothing.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush, heapreplace

from coordinator.assignors.spi import AssignmentSpec, GroupAssignment, MemberAssignment

ROUNDS_MAX = 64
"""Maximum passes over all topics in the last phase. Kafka stops after 16. A pass without moves ends the phase
anyway."""


def assign_by_balance(spec: AssignmentSpec) -> GroupAssignment:
    """The target for any mix of subscriptions. Ties are broken by member id and topic id."""
    return _Balance(spec).assign()


class _Balance:
    def __init__(self, spec: AssignmentSpec) -> None:
        self.spec = spec
        self.member_ids = sorted(spec.members)
        self.load = [0] * len(self.member_ids)
        self.classes: dict[frozenset[bytes], list[int]] = {}
        self.subscribers: dict[bytes, list[int]] = {}
        for index, member_id in enumerate(self.member_ids):
            subscribed = spec.members[member_id].subscribed_topics
            self.classes.setdefault(subscribed, []).append(index)
            for topic_id in subscribed:
                self.subscribers.setdefault(topic_id, []).append(index)
        self.parts: list[dict[bytes, list[int]]] = [{} for _ in self.member_ids]

    def assign(self) -> GroupAssignment:
        free = self._keep_what_is_valid()
        topic_ids = sorted(self.subscribers, key=self._contested)
        self._give_all(free, topic_ids)
        for _ in range(ROUNDS_MAX):
            if not sum([self._level(topic_id) for topic_id in topic_ids]):
                break
        return GroupAssignment(
            {
                member_id: MemberAssignment(
                    {topic_id: tuple(numbers) for topic_id, numbers in sorted(part.items())}
                )
                for member_id, part in zip(self.member_ids, self.parts, strict=True)
            }
        )

    def _contested(self, topic_id: bytes) -> tuple[float, int, bytes]:
        count = len(self.subscribers[topic_id])
        return -self.spec.topics[topic_id].num_partitions / count, count, topic_id

    def _keep_what_is_valid(self) -> dict[bytes, list[int]]:
        """Take over the valid part of the old targets; return the remaining partitions of each topic."""
        left = {
            topic_id: dict.fromkeys(range(self.spec.topics[topic_id].num_partitions))
            for topic_id in self.subscribers
        }
        for index, member_id in enumerate(self.member_ids):
            member = self.spec.members[member_id]
            for topic_id, partitions in member.target_partitions.items():
                if topic_id not in member.subscribed_topics:
                    continue
                numbers = left[topic_id]
                kept = [partition for partition in partitions if partition in numbers]
                if kept:
                    self.parts[index][topic_id] = kept
                    self.load[index] += len(kept)
                    for partition in kept:
                        del numbers[partition]
        return {topic_id: list(numbers) for topic_id, numbers in left.items()}

    def _give_all(self, free: dict[bytes, list[int]], topic_ids: list[bytes]) -> None:
        """Give all free partitions.

        Members with equal subscriptions share one heap, so a topic uses as many heaps as there are different
        subscriptions that contain it."""
        heaps: list[list[tuple[int, int]]] = []
        heaps_of: dict[bytes, list[int]] = {topic_id: [] for topic_id in topic_ids}
        for number, (subscribed, indexes) in enumerate(self.classes.items()):
            heaps.append([(self.load[index], index) for index in indexes])
            heapify(heaps[-1])
            for topic_id in subscribed:
                heaps_of[topic_id].append(number)
        for topic_id in topic_ids:
            if free[topic_id]:
                self._give(topic_id, free[topic_id], heaps, heaps_of[topic_id])

    def _give(
        self, topic_id: bytes, partitions: list[int], heaps: list[list[tuple[int, int]]], mine: list[int]
    ) -> None:
        """Give each partition to the subscriber with the lowest load."""
        tops = [(*heaps[number][0], number) for number in mine]
        heapify(tops)
        for partition in partitions:
            load, index, number = tops[0]
            insort(self.parts[index].setdefault(topic_id, []), partition)
            self.load[index] = load + 1
            heapreplace(heaps[number], (load + 1, index))
            heapreplace(tops, (*heaps[number][0], number))

    def _level(self, topic_id: bytes) -> int:
        """Balance one topic among its subscribers; return the number of partitions moved."""
        subscribers, load, parts = self.subscribers[topic_id], self.load, self.parts
        loads = [load[index] for index in subscribers]
        if max(loads) - min(loads) < 2:
            return 0
        most_first = [(-load[index], index) for index in subscribers if topic_id in parts[index]]
        least_first = [(load[index], index) for index in subscribers]
        if not most_first or -min(most_first)[0] - min(least_first)[0] < 2:
            return 0
        heapify(most_first)
        heapify(least_first)
        moved = 0
        while True:  # entries with an outdated load are skipped; a newer entry is in the heap
            while most_first and (
                -most_first[0][0] != load[most_first[0][1]] or topic_id not in parts[most_first[0][1]]
            ):
                heappop(most_first)
            while least_first[0][0] != load[least_first[0][1]]:
                heappop(least_first)
            if not most_first or -most_first[0][0] - least_first[0][0] < 2:
                return moved
            most, least = most_first[0][1], least_first[0][1]
            insort(parts[least].setdefault(topic_id, []), parts[most][topic_id].pop())
            if not parts[most][topic_id]:
                del parts[most][topic_id]
            load[most] -= 1
            load[least] += 1
            moved += 1
            for index in (most, least):
                heappush(most_first, (-load[index], index))
                heappush(least_first, (load[index], index))
