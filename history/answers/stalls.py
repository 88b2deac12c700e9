"""Commits by partition: rates, silences, and which partitions stalled.

A partition is *stalled* at the end of the window if, at that moment,

- one member owns it and was not asked to revoke it (OWNED), and
- it had no commit for `quiet_ms`, counted from its last commit or from when the member got it,
  whichever is later, and
- `quiet_ms` is at least `STALL_MS_MIN` and more than `STALL_TIMES` its usual interval.

The *usual interval* is the median of the last `INTERVALS_KEPT` intervals between its commits, if there are at
least `INTERVALS_MIN` (``measured_by`` is then `own`); otherwise the median of the usual intervals of the
group's other partitions (`others`). Without either the partition is not reported.

Limitation: the log does not hold how many messages a topic has. A partition without new messages is quiet
too, unless its client commits on a timer, as Kafka's do for what they own; and a client that commits the same
offset again and again is not quiet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from history.facts.rows import OwnershipSpan, TopicPartition

STALL_TIMES = 10
STALL_MS_MIN = 10_000
"""Two of Kafka's usual commit intervals (5 s). A shorter silence is a pause, however frequent the commits."""
INTERVALS_KEPT = 15
INTERVALS_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A stalled partition."""

    group_id: str
    shard: int
    partition: TopicPartition
    member_id: str
    name: str
    """``m2 (app-1)``; the member id if the log, of an older release, gives it no number."""
    last_commit_ms: int | None
    """``None``: there is none in the entries read."""
    owned_since_ms: int
    quiet_ms: int
    usual_ms: int
    measured_by: str
    """`own` or `others`: whose commits the usual interval was derived from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The commits of one partition in the window."""

    partition: TopicPartition
    commits: int
    last_commit_ms: int
    longest_silence_ms: int
    usual_ms: int | None


@dataclass(slots=True)
class PartitionCommits:
    """One partition's commits in the window and, for the usual interval, before it."""

    commits: int = 0
    removals: int = 0
    last_ms: int | None = None
    """``None``: no commit yet, or removed."""
    silence_ms: int = 0
    intervals: deque[int] = field(default_factory=lambda: deque(maxlen=INTERVALS_KEPT))

    def commit(self, at_ms: int, from_ms: int) -> None:
        """Count a commit; it is in the window if it is not before ``from_ms``."""
        if self.last_ms is not None:
            self.intervals.append(max(at_ms - self.last_ms, 0))
            self._silent_until(at_ms, from_ms)
        self.last_ms = at_ms
        self.commits += at_ms >= from_ms

    def remove(self, at_ms: int, from_ms: int) -> None:
        """Count the removal of the committed offset."""
        self._silent_until(at_ms, from_ms)
        self.last_ms = None
        self.removals += at_ms >= from_ms

    def end(self, at_ms: int, from_ms: int) -> None:
        """End the window."""
        self._silent_until(at_ms, from_ms)

    def _silent_until(self, at_ms: int, from_ms: int) -> None:
        if self.last_ms is not None:
            self.silence_ms = max(self.silence_ms, at_ms - max(self.last_ms, from_ms))

    @property
    def usual_ms(self) -> int | None:
        return round(median(self.intervals)) if len(self.intervals) >= INTERVALS_MIN else None


def stalls_of(
    group_id: str,
    shard: int,
    owned: Iterable[OwnershipSpan],
    commits: dict[TopicPartition, PartitionCommits],
    end_ms: int,
    names: Mapping[str, str],
) -> tuple[Stall, ...]:
    """The stalled partitions among those owned at the end of the window; ``names`` are by member id."""
    usuals = {partition: one.usual_ms for partition, one in commits.items()}
    known = sorted(usual for usual in usuals.values() if usual is not None)
    found = []
    for span in owned:
        own = usuals.get(span.partition)
        if span.member_id is None or (own is None and not known):
            continue
        usual = own if own is not None else round(median(known))
        mine = commits.get(span.partition)
        last_ms = None if mine is None else mine.last_ms
        quiet_ms = end_ms - (span.from_ms if last_ms is None else max(last_ms, span.from_ms))
        if quiet_ms >= STALL_MS_MIN and quiet_ms > STALL_TIMES * usual:
            found.append(
                Stall(
                    group_id=group_id,
                    shard=shard,
                    partition=span.partition,
                    member_id=span.member_id,
                    name=names.get(span.member_id, span.member_id),
                    last_commit_ms=last_ms,
                    owned_since_ms=span.from_ms,
                    quiet_ms=quiet_ms,
                    usual_ms=usual,
                    measured_by="others" if own is None else "own",
                )
            )
    return tuple(sorted(found, key=lambda stall: stall.partition))
