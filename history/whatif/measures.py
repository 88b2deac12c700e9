"""The measures of both courses of a group, from the rows that every other answer is made of.

A *partition-second* is one partition for one second: three partitions without an owner for two seconds are
six. Whatever is still open at the last entry read counts up to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields

from history.facts.rows import EpochRow, GroupRows, SessionEnd, SpanKind, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The measures of one course of a group."""

    epochs: int
    moved: int
    """Partitions that a new target moved from one member to another."""
    unowned_ms: int
    """Partition-milliseconds without an owner though the group had members and subscribed to the topic."""
    revoking_ms: int
    """Partition-milliseconds between the request to revoke a partition and its release."""
    unstable_ms: int
    """Milliseconds from the start of each epoch until the group was first Stable or Empty, or the next
    began."""
    sessions_expired: int
    fenced_revoking: int
    """Members removed because they did not revoke partitions in time."""
    spread: int
    """The largest difference between two members' numbers of partitions in any target."""
    spread_at_end: int
    """The same in the last target."""

    def minus(self, other: Measures) -> dict[str, int]:
        """This course's figures minus the other's, by field."""
        return {field.name: getattr(self, field.name) - getattr(other, field.name) for field in fields(self)}


def measures_of(facts: GroupRows) -> Measures:
    """The measures of one course; epochs already in a snapshot count for their time only."""
    recorded = [row for row in facts.epochs if row.is_begin_known]
    spreads = list(_spreads(facts.epochs))
    ends = Counter(session.end for session in facts.sessions)
    spans = dict.fromkeys(SpanKind, 0)
    for span in facts.spans:
        spans[span.kind] += max(0, (facts.last_ms if span.to_ms is None else span.to_ms) - span.from_ms)
    return Measures(
        epochs=len(recorded),
        moved=sum(
            move.source is not None and move.target is not None for row in recorded for move in row.moves
        ),
        unowned_ms=spans[SpanKind.UNOWNED],
        revoking_ms=spans[SpanKind.REVOKING],
        unstable_ms=sum(_unstable_ms(row, facts.last_ms) for row in facts.epochs),
        sessions_expired=ends[SessionEnd.SESSION_EXPIRED],
        fenced_revoking=ends[SessionEnd.REBALANCE_EXPIRED],
        spread=max(spreads, default=0),
        spread_at_end=spreads[-1] if spreads else 0,
    )


def _unstable_ms(row: EpochRow, last_ms: int) -> int:
    settled_ms = row.settled_ms if row.settled_ms is not None else row.end_ms
    return max(0, (last_ms if settled_ms is None else settled_ms) - row.timestamp_ms)


def _spreads(epochs: tuple[EpochRow, ...]) -> Iterator[int]:
    """After each target: the largest number of partitions of a member minus the smallest."""
    owner_of: dict[TopicPartition, str] = {}
    sizes: Counter[str] = Counter()
    for row in epochs:
        for move in row.moves:
            before = owner_of.pop(move.partition, None)
            if before is not None:
                sizes[before] -= 1
            if move.target is not None:
                owner_of[move.partition] = move.target
                sizes[move.target] += 1
        sizes = +sizes
        if row.target_index is not None and row.num_members > 1 and sizes:
            fewest = 0 if len(sizes) < row.num_members else min(sizes.values())
            yield max(sizes.values()) - fewest
