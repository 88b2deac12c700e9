"""Partition assignment strategies: which consumer of a group gets which partition.

`range` and `roundrobin` are functions of the consumers' topics and of the topics' partition counts, computed
at once. Any other name in `partition.assignment.strategies` is a user's strategy. The coordinator never calls
it: it returns a `StrategyJob`, its caller has it computed elsewhere, and the round ends with the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

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


class StrategyConsumer(NamedTuple):
    """A consumer as a user's strategy sees it.

    `topics` are those of its topics that have partitions. `owned` is what the last generation gave it, as
    ascending numbers by topic; topics and partitions in it may not exist any more."""

    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StrategyJob:
    """A round of a group whose generation a user's strategy computes, elsewhere.

    Whoever runs it calls `RewriteCoordinator.strategy_ended` with `group_id`, `number`, and an assignment or
    an error. `counts` are the partitions of every topic that has any. `deadline_ms` is the shortest session
    timeout of the consumers: one that waits longer for the answer to its JoinGroup may give it up."""

    group_id: str
    number: int
    strategy: str
    counts: Mapping[str, int]
    consumers: Mapping[str, StrategyConsumer]
    deadline_ms: int


def checked(
    owned: Assignment, topics_of: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> Assignment:
    """Return the result of a user's strategy.

    Raises ValueError unless every subscribed partition has one owner, which asked for its topic."""
    owners = Counter(one for partitions in owned.values() for one in partitions)
    subscribed = {topic for topics in topics_of.values() for topic in topics}
    expected = [(topic, number) for topic in subscribed for number in range(counts[topic])]
    misplaced = [
        consumer
        for consumer, partitions in owned.items()
        if any(topic not in topics_of.get(consumer, ()) for topic, _ in partitions)
    ]
    if misplaced:
        raise ValueError(f"it gave partitions to {misplaced[0]}, which did not ask for their topic")
    if unknown := owners.keys() - set(expected):
        raise ValueError("there is no partition {1} of {0}".format(*min(unknown)))
    if wrong := [one for one in expected if owners[one] != 1]:
        raise ValueError("partition {1} of {0} has {2} owners".format(*wrong[0], owners[wrong[0]]))
    return {consumer: owned.get(consumer, []) for consumer in topics_of}
