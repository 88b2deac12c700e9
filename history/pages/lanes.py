"""Lanes: the history of each member and partition as segments of time, folded until they fit on a page.

A partition's lane shows its owners; partitions of one topic with the same history share a lane. A member's
lane shows how it kept up with the group's epoch and how many partitions it held. Both are derived from rows
of facts only. If there are more segments than a page can carry, neighbours closer together than some span are
drawn as one, and the lanes name that span: nothing is dropped silently.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from history.facts.rows import GroupRows, OwnershipSpan, SpanKind

SEGMENTS_MAX = 120_000
"""Maximum number of segments in all lanes of a kind: about 2.5 MB in the file, small enough for a ticket."""
RESOLUTION_MS_MIN = 25
"""Milliseconds at which folding begins; the value doubles until the lanes fit."""


class Hand(IntEnum):
    """The state of a segment of a partition's lane."""

    OWNED = 0
    REVOKING = 1
    UNOWNED = 2
    SEVERAL = 3
    """It changed owner more often than can be shown."""


class Stand(IntEnum):
    """The state of a segment of a member's lane; of several that hold at once, the highest is shown."""

    IN_STEP = 0
    """It is at the group's epoch and has what it should have, as far as it knows."""
    BEHIND = 1
    """It has not reached the group's epoch yet."""
    WAITING = 2
    """Partitions of its target are still owned by another member."""
    GIVING_UP = 3
    """It was asked to revoke partitions, which it still owns."""
    AWAY = 4
    """A static member that left temporarily."""


Segment = tuple[int, int, int, int]
"""(From, to) in epoch ms, then for a partition (`Hand`, the member's number or -1), for a member (`Stand`,
number of partitions that it holds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLane:
    """Partitions of one topic that always had the same owners."""

    topic: str
    partitions: tuple[int, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The lanes of one group; members have the numbers given by the caller."""

    members: tuple[tuple[Segment, ...], ...]
    partitions: tuple[PartitionLane, ...]
    members_ms: int
    partitions_ms: int
    """Changes closer together than this are drawn as one; 0: every change is shown."""


def lanes_of(facts: GroupRows, numbers: dict[str, int], from_ms: int, to_ms: int) -> Lanes:
    """The lanes between two times; ``numbers`` maps every member of the facts to 0, 1, … in order."""
    partitions = _partition_lanes(facts.spans, numbers, from_ms, to_ms)
    folded, partitions_ms = _fitting([lane.segments for lane in partitions], _hands_together)
    members, members_ms = _fitting(_member_lanes(facts, numbers, from_ms, to_ms), _stands_together)
    return Lanes(
        members=tuple(members),
        partitions=tuple(
            PartitionLane(topic=lane.topic, partitions=lane.partitions, segments=segments)
            for lane, segments in zip(partitions, folded, strict=True)
        ),
        members_ms=members_ms,
        partitions_ms=partitions_ms,
    )


def _partition_lanes(
    spans: Iterable[OwnershipSpan], numbers: dict[str, int], from_ms: int, to_ms: int
) -> list[PartitionLane]:
    histories: dict[tuple[str, str, int], list[Segment]] = defaultdict(list)
    for span in spans:
        begin, end = max(span.from_ms, from_ms), min(to_ms if span.to_ms is None else span.to_ms, to_ms)
        if begin >= end:
            continue
        member = -1 if span.member_id is None else numbers[span.member_id]
        # A recreated topic has another id, and partitions of both may be owned at the same moment.
        segments = histories[span.partition.topic, span.topic_id, span.partition.partition]
        segments.append((begin, end, _HANDS[span.kind], member))
    together: dict[tuple[str, str, tuple[Segment, ...]], list[int]] = defaultdict(list)
    for (topic, topic_id, partition), segments in sorted(histories.items()):
        together[topic, topic_id, tuple(_joined(sorted(segments)))].append(partition)
    return [
        PartitionLane(topic=topic, partitions=tuple(partitions), segments=segments)
        for (topic, _, segments), partitions in together.items()
    ]


_HANDS = {
    SpanKind.OWNED: int(Hand.OWNED),
    SpanKind.REVOKING: int(Hand.REVOKING),
    SpanKind.UNOWNED: int(Hand.UNOWNED),
}


def _member_lanes(
    facts: GroupRows, numbers: dict[str, int], from_ms: int, to_ms: int
) -> list[tuple[Segment, ...]]:
    """Count, for each member, the states that hold at each moment."""
    changes: list[list[tuple[int, int, int]]] = [[] for _ in numbers]  # (ms, what, +1 or -1)

    def holds(member_id: str, what: int, begin: int, end: int | None) -> None:
        begin, end = max(begin, from_ms), min(to_ms if end is None else end, to_ms)
        if begin < end and member_id in numbers:
            changes[numbers[member_id]] += ((begin, int(what), 1), (end, int(what), -1))

    for session in facts.sessions:
        holds(session.member_id, _PRESENT, session.from_ms, session.to_ms)
        for away in session.aways:
            holds(session.member_id, Stand.AWAY, away.from_ms, away.to_ms)
    for span in facts.spans:
        if span.member_id is not None:
            holds(span.member_id, _HELD, span.from_ms, span.to_ms)
            if span.kind is SpanKind.REVOKING:
                holds(span.member_id, Stand.GIVING_UP, span.from_ms, span.to_ms)
    with_behind = tells_behind(facts)
    for epoch in facts.epochs:
        for wait in epoch.waits:
            holds(wait.waiter, Stand.WAITING, wait.from_ms, wait.to_ms)
        if not with_behind:
            continue
        reached = {step.member_id: step.timestamp_ms for step in epoch.progress if step.reached}
        for member_id in epoch.members or reached:  # a very large group does not list its members
            holds(member_id, Stand.BEHIND, epoch.timestamp_ms, reached.get(member_id, epoch.end_ms))
    return [_swept(sorted(one)) for one in changes]


def tells_behind(facts: GroupRows) -> bool:
    """Whether members' lanes show when each reached an epoch; left out if there are too many."""
    return 2 * sum(epoch.num_members for epoch in facts.epochs) <= SEGMENTS_MAX


_WORST = int(max(Stand))
_PRESENT, _HELD = 5, 6  # indexes after the stands in the counters of `_swept`


def _swept(changes: Sequence[tuple[int, int, int]]) -> tuple[Segment, ...]:
    counts = [0] * 7
    segments: list[Segment] = []
    since = 0
    for at, what, step in changes:
        if at > since:
            if counts[_PRESENT]:
                stand = _WORST
                while stand and not counts[stand]:
                    stand -= 1
                segments.append((since, at, stand, counts[_HELD]))
            since = at
        counts[what] += step
    return tuple(_joined(segments))


def _joined(segments: Iterable[Segment]) -> list[Segment]:
    """Merge adjacent segments with the same state."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and joined[-1][1] == segment[0] and joined[-1][2:] == segment[2:]:
            joined[-1] = (joined[-1][0], segment[1], *segment[2:])
        else:
            joined.append(segment)
    return joined


Fold = Callable[[int, int, int, int], tuple[int, int]]
"""Combines the (state, owner) of two neighbours into one."""


def _fitting(lanes: list[tuple[Segment, ...]], together: Fold) -> tuple[list[tuple[Segment, ...]], int]:
    """The lanes with at most `SEGMENTS_MAX` segments, and the span in ms below which changes were folded."""
    resolution_ms = 0
    # A lane has at least one segment, so if there are more lanes than the bound, each keeps one.
    while sum(map(len, lanes)) > max(SEGMENTS_MAX, len(lanes)) and resolution_ms < 1 << 50:
        resolution_ms = max(resolution_ms * 2, RESOLUTION_MS_MIN)
        lanes = [tuple(_joined(_folded(lane, resolution_ms, together))) for lane in lanes]
    return lanes, resolution_ms


def _folded(lane: Sequence[Segment], resolution_ms: int, together: Fold) -> Iterator[Segment]:
    """Merge each segment shorter than the resolution with those after it, until it is long enough."""
    if not lane:
        return
    begin, end, what, who = lane[0]
    for segment in lane[1:]:
        from_ms, to_ms, next_what, next_who = segment
        if end - begin >= resolution_ms or to_ms - from_ms >= resolution_ms or from_ms != end:
            yield begin, end, what, who
            begin, end, what, who = segment
        else:
            end = to_ms
            what, who = together(what, who, next_what, next_who)
    yield begin, end, what, who


def _hands_together(what: int, who: int, next_what: int, next_who: int) -> tuple[int, int]:
    return (what, who) if (what, who) == (next_what, next_who) else (int(Hand.SEVERAL), -1)


def _stands_together(what: int, who: int, next_what: int, next_who: int) -> tuple[int, int]:
    return max(what, next_what), next_who


def highest(
    changes: Iterable[tuple[int, int]], columns: int, touched: Callable[[int, int], Iterable[int]]
) -> list[int]:
    """The highest count in each column; ``changes`` are (ms, by how much), ``touched`` a period's columns."""
    counts = [0] * columns
    held = 0
    for (at, step), (until, _) in pairwise(sorted(changes)):
        held += step
        if until > at and held:
            for column in touched(at, until):
                counts[column] = max(counts[column], held)
    return counts
