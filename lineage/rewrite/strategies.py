"""Partition assignment strategies: which consumer of a group gets which partition.

A strategy is a function of the consumers' topics and of the topics' partition counts. `range` and
`roundrobin` are always there; users add their own under other names (`partition.assignment.strategies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle

Partition = tuple[str, int]
Assignment = dict[str, list[Partition]]
Strategy = Callable[[Mapping[str, tuple[str, ...]], Mapping[str, int]], Assignment]
"""(consumer id → topics, topic → number of partitions) → consumer id → partitions."""


def assign_range(topics_of: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]) -> Assignment:
    """Share out each topic by itself: consecutive partitions to the subscribers in order of their ids."""
    owned: Assignment = {consumer: [] for consumer in sorted(topics_of)}
    for topic, count in sorted(counts.items()):
        subscribers = [consumer for consumer in owned if topic in topics_of[consumer]]
        for place, consumer in enumerate(subscribers):
            begin, end = (count * each // len(subscribers) for each in (place, place + 1))
            owned[consumer] += [(topic, number) for number in range(begin, end)]
    return owned


def assign_round_robin(topics_of: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]) -> Assignment:
    """Deal the partitions of all topics in turn; a consumer that lacks the topic is passed over."""
    owned: Assignment = {consumer: [] for consumer in sorted(topics_of)}
    subscribed = {topic for topics in topics_of.values() for topic in topics}
    turn = cycle(owned)
    for topic, count in sorted(counts.items()):
        for number in range(count if topic in subscribed else 0):
            owned[next(one for one in turn if topic in topics_of[one])].append((topic, number))
    return owned


STRATEGIES: Mapping[str, Strategy] = {"range": assign_range, "roundrobin": assign_round_robin}


def checked(
    owned: Assignment, topics_of: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> Assignment:
    """Return a strategy's result; raises ValueError unless every subscribed partition has one owner."""
    given = sorted(one for partitions in owned.values() for one in partitions)
    subscribed = {topic for topics in topics_of.values() for topic in topics}
    expected = sorted((topic, number) for topic in subscribed for number in range(counts[topic]))
    misplaced = [
        consumer
        for consumer, partitions in owned.items()
        if any(topic not in topics_of.get(consumer, ()) for topic, _ in partitions)
    ]
    if given != expected or misplaced:
        raise ValueError(f"not every subscribed partition has one owner that subscribes to it: {misplaced}")
    return {consumer: owned.get(consumer, []) for consumer in topics_of}
