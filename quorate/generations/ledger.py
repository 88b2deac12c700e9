"""The ledger of a run: who worked on which partition when, how many messages passed, and the figures of both.

A member works on a partition from the moment its program is given it until the program gives it up, whatever
the coordinator believes. Every partition has work all the time: items, numbered from 0, that come one after
another. A member begins at an item, does what waits there faster than it comes, and then each item at once.

- **unowned**: partition-seconds in which a partition existed and nobody worked on it.
- **double**: partition-seconds in which it had more owners than one, each further one counted.
- **repeated items**: items that had been done when the member that does them again began.
- **doubled items**: other items that are done again: by two owners at once. So each time that an item is done
  is its first, or doubled, or repeated.
- **moves**: a partition's next owner is another member than the one before.
- **needless stops**: its next owner is the same member: the work stood still for nothing.
- **unsettled**: time from an event of the schedule until the last change of ownership before the next event.
  If a partition is then without an owner or has two, it goes on to the next event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

Part = tuple[str, int]
"""(topic name, partition)."""

COORDINATORS_REQUESTS: Final = ("Ping", "Stop", "Start")
"""Names of requests from a coordinator to a member; all others are a member's."""
ITEMS_PER_SECOND: Final = 10
"""Items of work that each partition has each second, the first one after a tenth of a second."""
ITEM_MS: Final = 1000 / ITEMS_PER_SECOND
SPEED: Final = 10
"""A member does the items that wait so many times as fast as they come."""


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """One member works on one partition, from `from_ms` to `to_ms`, beginning at an item."""

    part: Part
    member: str
    from_ms: float
    to_ms: float
    first_item: int = 0


class _Held(NamedTuple):
    """A partition that a member works on: since when, and from which item on."""

    from_ms: float
    first_item: int


class _Redone(NamedTuple):
    """Items of a partition that were done again."""

    doubled: int
    repeated: int


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """From `at_ms` on so many partitions have no owner, and so many have more than one."""

    at_ms: float
    unowned: int
    double: int


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The cost of a run; times are in seconds."""

    unowned_s: float
    double_s: float
    doubled_items: int
    repeated_items: int
    moves: int
    needless_stops: int
    needless_s: float
    """Partition-seconds without an owner between two holdings of the same member."""
    settled_s: tuple[float, ...]
    """Time to stable, by event; an event that is followed by the next one before that has none."""
    messages: Counter[str]
    """Requests and answers on the wire, each one message, by name."""

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
    _held: defaultdict[str, dict[Part, _Held]] = field(default_factory=lambda: defaultdict(dict))
    _stopped_before: dict[tuple[str, Part], int] = field(default_factory=dict)
    """By member and partition: the item that came next when it stopped."""

    def exists(self, topic: str, num_partitions: int, at_ms: float) -> None:
        """Note that a topic has so many partitions from now on."""
        for number in range(num_partitions):
            self._exists_from_ms.setdefault((topic, number), at_ms)

    def works_on(self, member: str, first_items: Mapping[Part, int], at_ms: float) -> None:
        """Note that a member works on exactly these partitions from now on.

        It begins at the given items; on partitions that it works on already, it goes on."""
        held = self._held[member]
        for part in sorted(held.keys() - first_items.keys()):
            was = held.pop(part)
            self.holdings.append(WorkSpan(part, member, was.from_ms, at_ms, was.first_item))
            self._stopped_before[member, part] = self._next_item(part, was, at_ms)
        for part in sorted(first_items.keys() - held.keys()):
            held[part] = _Held(at_ms, first_items[part])

    def next_item(self, member: str, part: Part, at_ms: float) -> int:
        """Return a member's position: the item that comes next, or came next when it stopped."""
        held = self._held[member].get(part)
        return self._stopped_before[member, part] if held is None else self._next_item(part, held, at_ms)

    def message(self, name: str) -> None:
        """Count one message."""
        self.messages[name] += 1

    def close(self, end_ms: float) -> None:
        """End the run: who works on, works until now."""
        self.end_ms = end_ms
        for member in [*self._held]:
            self.works_on(member, {}, end_ms)

    def figures(self, event_times_ms: Sequence[float]) -> RunFigures:
        """Return the figures of a run that is closed; `event_times_ms` are the schedule's, ascending.

        Raises ValueError if a member left items out that nobody had done: no protocol may lose work."""
        steps = self.steps()
        unowned = double = 0.0
        for step, until_ms in zip(steps, [*(one.at_ms for one in steps[1:]), self.end_ms], strict=True):
            unowned += step.unowned * (until_ms - step.at_ms)
        moves = stops = doubled = repeated = 0
        waited_ms = 0.0
        for part, holdings in self._by_part().items():
            double += _doubled_ms(holdings)
            redone = self._redone(part, holdings)
            doubled += redone.doubled
            repeated += redone.repeated
            for one, other in pairwise(holdings):
                if one.member != other.member:
                    moves += 1
                else:
                    stops += 1
                    waited_ms += other.from_ms - one.to_ms
        return RunFigures(
            unowned_s=unowned / 1000,
            double_s=double / 1000,
            doubled_items=doubled,
            repeated_items=repeated,
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

    def _next_item(self, part: Part, held: _Held, at_ms: float) -> int:
        """Return the item that comes next for a member that works on a partition."""
        num_items = (at_ms - self._exists_from_ms[part]) // ITEM_MS
        return int(min(num_items, held.first_item + (at_ms - held.from_ms) // (ITEM_MS / SPEED)))

    def _redone(self, part: Part, holdings: Sequence[WorkSpan]) -> _Redone:
        """Return how many items of a partition were done again; `holdings` by beginning.

        What is done are always the first so many items, because nobody begins after them."""
        num_done = total = repeated = 0
        working: list[WorkSpan] = []
        for one in holdings:
            num_done = max([num_done, *(self._reached(other, one.from_ms) for other in working)])
            if one.first_item > num_done:
                raise ValueError(f"{one.member} began at item {one.first_item} of {part}, after {num_done}")
            reached = self._reached(one, one.to_ms)
            total += reached - one.first_item
            repeated += min(num_done, reached) - one.first_item
            working = [*(other for other in working if other.to_ms > one.from_ms), one]
        num_done = max([num_done, *(self._reached(one, one.to_ms) for one in working)])
        return _Redone(doubled=total - repeated - num_done, repeated=repeated)

    def _reached(self, one: WorkSpan, at_ms: float) -> int:
        """Return the item that comes next in a holding, or came next when it ended."""
        return self._next_item(one.part, _Held(one.from_ms, one.first_item), min(at_ms, one.to_ms))

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
    total = covered_ms = 0.0
    for one in holdings:
        total += max(min(one.to_ms, covered_ms) - one.from_ms, 0.0)
        covered_ms = max(covered_ms, one.to_ms)
    return total
