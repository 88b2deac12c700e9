"""The ledger of a run: who worked on which partition when, how many messages passed, and the figures of both.

A member works on a partition from the moment its program is given it until the program gives it up, whatever
the coordinator believes. Every partition has work all the time, ITEMS_PER_SECOND of it.

- **unowned**: partition-seconds in which a partition existed and nobody worked on it.
- **double**: partition-seconds in which it had more owners than one, each further one counted.
- **moves**: a partition's next owner is another member than the one before.
- **needless stops**: its next owner is the same member: the work stood still for nothing.
- **unsettled**: time from an event of the schedule until the last change of ownership before the next event.
  If a partition is then without an owner or has two, it goes on to the next event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

Part = tuple[str, int]
"""(topic name, partition)."""

COORDINATORS_REQUESTS: Final = ("Ping", "Stop", "Start")
"""Names of requests from a coordinator to a member; all others are a member's."""
ITEMS_PER_SECOND: Final = 10
"""Items of work that each partition has each second."""


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """One member works on one partition, from `from_ms` to `to_ms`."""

    part: Part
    member: str
    from_ms: float
    to_ms: float


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """From `at_ms` on so many partitions have no owner, and so many have more than one."""

    at_ms: float
    unowned: int
    double: int


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run cost; times are in seconds."""

    unowned_s: float
    double_s: float
    moves: int
    needless_stops: int
    needless_s: float
    """Partition-seconds without an owner between two holdings of the same member."""
    settled_s: tuple[float, ...]
    """Time to stable, by event; an event that is followed by the next one before that has none."""
    messages: Counter[str]
    """Requests and answers on the wire, each one message, by name."""

    @property
    def doubled_items(self) -> int:
        """Items of work that were done twice."""
        return round(self.double_s * ITEMS_PER_SECOND)

    @property
    def needless_items(self) -> int:
        """Items of work that waited because work stopped needlessly."""
        return round(self.needless_s * ITEMS_PER_SECOND)

    @property
    def calls(self) -> int:
        """Requests that the coordinator sent; it waits for each one's answer."""
        return sum(self.messages[name] for name in COORDINATORS_REQUESTS)

    @property
    def settled_median_s(self) -> float:
        return median(self.settled_s) if self.settled_s else 0.0

    @property
    def settled_max_s(self) -> float:
        return max(self.settled_s, default=0.0)


@dataclass(slots=True)
class Ledger:
    """Takes note of one run. All times are ms from the schedule's beginning; they never go back."""

    holdings: list[WorkSpan] = field(default_factory=list)
    """Holdings that have ended; after `close`, all of them."""
    messages: Counter[str] = field(default_factory=Counter)
    end_ms: float = 0.0
    _exists_from_ms: dict[Part, float] = field(default_factory=dict)
    _held_from_ms: defaultdict[str, dict[Part, float]] = field(default_factory=lambda: defaultdict(dict))

    def exists(self, topic: str, num_partitions: int, at_ms: float) -> None:
        """Note that a topic has so many partitions from now on."""
        for number in range(num_partitions):
            self._exists_from_ms.setdefault((topic, number), at_ms)

    def works_on(self, member: str, parts: Set[Part], at_ms: float) -> None:
        """Note that a member works on exactly these partitions from now on."""
        held = self._held_from_ms[member]
        for part in sorted(held.keys() - parts):
            self.holdings.append(WorkSpan(part, member, held.pop(part), at_ms))
        for part in sorted(parts - held.keys()):
            held[part] = at_ms

    def message(self, name: str) -> None:
        """Count one message."""
        self.messages[name] += 1

    def close(self, end_ms: float) -> None:
        """End the run: who works on, works until now."""
        self.end_ms = end_ms
        for member in [*self._held_from_ms]:
            self.works_on(member, set(), end_ms)

    def figures(self, event_times_ms: Sequence[float]) -> RunFigures:
        """Return the figures of a run that is closed; `event_times_ms` are the schedule's, ascending."""
        steps = self.steps()
        unowned = double = 0.0
        for step, until_ms in zip(steps, [*(one.at_ms for one in steps[1:]), self.end_ms], strict=True):
            unowned += step.unowned * (until_ms - step.at_ms)
        moves = stops = 0
        waited_ms = 0.0
        for holdings in self._by_part().values():
            double += _doubled_ms(holdings)
            for one, other in pairwise(holdings):
                if one.member != other.member:
                    moves += 1
                else:
                    stops += 1
                    waited_ms += other.from_ms - one.to_ms
        return RunFigures(
            unowned_s=unowned / 1000,
            double_s=double / 1000,
            moves=moves,
            needless_stops=stops,
            needless_s=waited_ms / 1000,
            settled_s=tuple(ms / 1000 for ms in self._settled_ms(event_times_ms, steps)),
            messages=self.messages,
        )

    def steps(self) -> list[LedgerStep]:
        """Return how many partitions had no owner, or several, over the run; at most one step a moment."""
        changes: defaultdict[float, list[tuple[Part, int]]] = defaultdict(list)
        for part, at_ms in self._exists_from_ms.items():
            changes[at_ms].append((part, 0))
        for one in self.holdings:
            changes[one.from_ms].append((one.part, 1))
            if one.to_ms < self.end_ms:
                changes[one.to_ms].append((one.part, -1))
        owners: dict[Part, int] = {}
        found: list[LedgerStep] = []
        unowned = double = 0
        for at_ms in sorted(changes):
            for part, by in changes[at_ms]:
                before = owners.get(part)
                owners[part] = now = (before or 0) + by
                unowned += (now == 0) - (before == 0)
                double += (now > 1) - (before is not None and before > 1)
            if not found or (found[-1].unowned, found[-1].double) != (unowned, double):
                found.append(LedgerStep(at_ms, unowned, double))
        return found

    def unsettled(self, event_times_ms: Sequence[float]) -> list[tuple[float, float]]:
        """Return the periods, (from ms, to ms), in which the group was not stable; see the module."""
        return [(begin, end) for begin, end, _ in self._periods(event_times_ms, self.steps()) if end > begin]

    def _settled_ms(self, event_times_ms: Sequence[float], steps: Sequence[LedgerStep]) -> Iterable[float]:
        return (end - begin for begin, end, settles in self._periods(event_times_ms, steps) if settles)

    def _periods(
        self, event_times_ms: Sequence[float], steps: Sequence[LedgerStep]
    ) -> list[tuple[float, float, bool]]:
        """Return (from ms, to ms, whether it ends stable) by event."""
        changes = sorted(
            {one.from_ms for one in self.holdings}
            | {one.to_ms for one in self.holdings if one.to_ms < self.end_ms}
        )
        step_times = [step.at_ms for step in steps]
        found = []
        for place, begin_ms in enumerate(event_times_ms):
            is_last = place + 1 == len(event_times_ms)
            until_ms = self.end_ms if is_last else event_times_ms[place + 1]
            there = bisect_right(step_times, until_ms if is_last else _just_before(until_ms)) - 1
            is_whole = there >= 0 and steps[there].unowned == steps[there].double == 0
            last = bisect_right(changes, _just_before(until_ms)) - 1
            last_ms = max(changes[last], begin_ms) if last >= 0 else begin_ms
            found.append((begin_ms, last_ms if is_whole else until_ms, is_whole))
        return found

    def _by_part(self) -> dict[Part, list[WorkSpan]]:
        found: defaultdict[Part, list[WorkSpan]] = defaultdict(list)
        for one in sorted(self.holdings, key=lambda one: (one.part, one.from_ms, one.to_ms, one.member)):
            if one.to_ms > one.from_ms:
                found[one.part].append(one)
        return found


def _just_before(at_ms: float) -> float:
    return at_ms - 1e-6


def _doubled_ms(holdings: Sequence[WorkSpan]) -> float:
    """Return the ms in which a partition had owners beside the first, each counted; by beginning."""
    total = 0.0
    ends: list[float] = []
    for one in holdings:
        ends = [end for end in ends if end > one.from_ms]
        covered = max(ends, default=one.from_ms)
        total += min(one.to_ms, covered) - one.from_ms
        ends.append(one.to_ms)
    return total
