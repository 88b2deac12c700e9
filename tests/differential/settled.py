"""Judges settled groups by the properties of assignors (F.5), as Kafka breaks ties by hash order.

P1: each partition of each topic belongs to one member that subscribes to it. P2: members with the same
subscription differ by at most one partition. P3: where subscriptions differ, no partition could move to a
subscriber that has at least two fewer. P5: no more partitions change owners than necessary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.differential.side import Side

Place = tuple[str, int]
"""Topic and partition."""

Placed = dict[Place, str]
"""The owner of each partition."""

Subscriptions = Mapping[str, frozenset[Place]]
"""The partitions that each member may own."""


def placed(side: Side, answer: Any) -> Placed:
    """Return the owner of each partition according to ConsumerGroupDescribe."""
    return {
        (side.label_of(topic.topic_id), partition): str(side.who_is(member.member_id))
        for group in answer.groups
        for member in group.members
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    }


def subscriptions(side: Side, answer: Any) -> Subscriptions:
    """Return the partitions that each member may own; a topic's name contains its number of partitions."""
    return {
        str(side.who_is(member.member_id)): frozenset(
            (name, number) for name in member.subscribed_topic_names for number in range(int(name[1:]))
        )
        for group in answer.groups
        for member in group.members
    }


def complaints(
    before: Placed, after: Placed, subscriptions: Subscriptions, *, is_ours: bool
) -> Iterator[str]:
    """Yield the faults of one side's settled group. For Kafka, only those that mean it has not settled."""
    if not subscriptions:
        return
    yield from _unplaced(after, subscriptions)
    sizes = {who: list(after.values()).count(who) for who in subscriptions}
    if len(set(subscriptions.values())) == 1:
        if max(sizes.values()) - min(sizes.values()) > 1:
            yield f"uneven: {sorted(sizes.values())}"
        needed = _moves_needed(before, after, subscriptions)
        if is_ours and moves(before, after) > needed:
            yield f"moved {moves(before, after)} partitions, {needed} had to move"
        return
    for place, owner in after.items() if is_ours else ():
        for who, allowed in subscriptions.items():
            if place in allowed and sizes[owner] - sizes[who] >= 2:
                yield f"{place} of {owner} ({sizes[owner]}) could go to {who} ({sizes[who]})"


def moves(before: Placed, after: Placed) -> int:
    """Count the partitions that went from one member to another."""
    return sum(1 for place, who in before.items() if after.get(place, who) != who)


def _unplaced(after: Placed, subscriptions: Subscriptions) -> Iterator[str]:
    wanted = frozenset().union(*subscriptions.values())
    if after.keys() != wanted:
        yield f"placed {len(after)} of {len(wanted)} partitions"
    for place, owner in after.items():
        if place not in subscriptions.get(owner, frozenset()):
            yield f"{place} belongs to {owner}, which does not subscribe to it"


def _moves_needed(before: Placed, after: Placed, subscriptions: Subscriptions) -> int:
    """Count the partitions that had to move: those above a fair share, and those of members that left."""
    had = Counter(who for place, who in before.items() if who in subscriptions and place in after)
    orphans = sum(1 for place, who in before.items() if who not in subscriptions and place in after)
    share, extra = divmod(len(after), len(subscriptions))
    kept = sum(min(had[who], share) for who in subscriptions)
    kept += min(extra, sum(1 for who in subscriptions if had[who] > share))
    return had.total() - kept + orphans
