"""How often members are told to heartbeat: the rule by which a node chooses, pure, one look a second.

A rebalance takes about one interval, so short is good; every heartbeat costs the loop some time, so with many
members it must be longer; and clients take the interval as their request timeout, so it must be far longer
than a reply takes. The rule:

    by load   members × cost of a heartbeat / SHARE: heartbeats take at most a tenth of the loop
    by pace   10 × the p99 of reply times, where that is below 1,000 ms; above it 3 × the p99, and 1,000 at
              least. So never below 1,000 ms unless p99 < interval / 10
    chosen    the first step of a ladder that is no less than both, within the broker's bounds

Load raises the interval at once, replies that take long do at the second look in a row. It is lowered after
five looks in a row that would allow it with room to spare, and only on the evidence of heartbeats that were
answered meanwhile; for the first change of all one look is enough. So one slow rebalance changes nothing, and
a load at the border of two steps does not go back and forth.

Every change makes each cached reply of the node worthless once. So it is made in steps of a third or a half
and not smoothly, and looks before each member had its next heartbeat do not count: else the cost of the
change would be taken for that of the load, and raise the interval further. For the same reason cost is
learned from looks in which nearly all replies came from the cache. While more are decided, as when a crowd
joins, what such heartbeats cost is taken for granted.

What must stay true: the interval is always a step of the ladder; it follows from what was given to `look`
alone, so that a simulation finds what a node would do.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil
from typing import Final

SHARE: Final = 0.1
"""Of the loop, for heartbeats: as much as a group may spend on targets."""

SHARE_LEFT_MIN: Final = 0.025
"""Of the loop, for members who follow, however much those take whose groups have intervals of their own."""

SPARE: Final = 0.7
"""A lower step must be no more than so much used, so that it will not be left again soon."""

PACE_LOOKS: Final = 2
LOWER_LOOKS: Final = 5

FIRST_LOOKS: Final = 1
"""Before the first change of all: a cluster that has just started is one that somebody waits for."""

LOOK_MS: Final = 1_000
"""Of time between two looks."""

CAUTIOUS_MS: Final = 1_000
"""Below it replies must be ten times as quick as the interval, above it three times."""

COST_MIN_MS: Final = 0.02
"""Of a heartbeat, all included: 50,000 a second, about what the fast path was measured at."""

COST_FIRST_MS: Final = 0.1
"""Of a heartbeat that is decided, as all are in a term's first seconds: taken for granted, not measured."""

DECIDED_FEW: Final = 0.1
"""So many of the heartbeats may be decided in a look from which their cost is learned."""

FIRST_SAMPLES: Final = 100
"""How many measured heartbeats weigh as much as the first guess."""

MEMORY: Final = 0.8
"""How much of what was measured before counts at the next look: the last five seconds decide."""

SOCKETS: Final = 2.0
"""A request costs about as much again on its way in and out of the socket, where it is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a node measured since the last look.

    `members` follow the interval; `fixed_per_s` heartbeats come from groups that have one of their own.
    `heartbeats` were answered, `decided` of them not from the cache; `requests` of any kind were served in
    `busy_ms` of the loop; `reply_p99_ms` is how long heartbeats waited for their reply, or how late the loop
    was if that is more."""

    members: int
    fixed_per_s: float = 0.0
    heartbeats: int = 0
    decided: int = 0
    requests: int = 0
    busy_ms: float = 0.0
    reply_p99_ms: float = 0.0


def ladder(low_ms: int, base_ms: int, high_ms: int) -> tuple[int, ...]:
    """From the least interval to the greatest in steps of a half and a third, the base among them."""
    steps, step, factors = {low_ms, base_ms, high_ms}, float(low_ms), (3 / 2, 4 / 3)
    for number in range(64):
        step *= factors[number % 2]
        if step >= high_ms:
            break
        steps.add(round(step))
    return tuple(sorted(steps))


class IntervalRule:
    """`interval_ms` is the choice; it begins at the base, which is what somebody configured."""

    def __init__(self, low_ms: int, base_ms: int, high_ms: int) -> None:
        self.steps = ladder(low_ms, base_ms, high_ms)
        self.interval_ms = base_ms
        self.changes = 0
        self._requests = float(FIRST_SAMPLES)
        self._busy_ms = FIRST_SAMPLES * COST_FIRST_MS / SOCKETS
        self._slow_looks = 0
        self._low_looks = 0
        self._lower_looks = FIRST_LOOKS
        self._is_steady = True
        self._settling_looks = 0
        """How many more looks see heartbeats that cost more because of the last change."""

    @property
    def cost_ms(self) -> float:
        """Of one heartbeat, as the last steady seconds showed it."""
        measured_ms = max(COST_MIN_MS, SOCKETS * self._busy_ms / self._requests)
        return measured_ms if self._is_steady else max(measured_ms, COST_FIRST_MS)

    def look(self, load: Load) -> int:
        """The interval from now on."""
        self._learn(load)
        by_load, by_pace = self._by_load(load), _by_pace(load.reply_p99_ms)
        self._slow_looks = self._slow_looks + 1 if self._step(by_pace) > self.interval_ms else 0
        if self._slow_looks >= PACE_LOOKS:
            by_load = max(by_load, by_pace)
        if self._step(by_load) > self.interval_ms:
            self._choose(self._step(by_load))
        else:
            self._consider_less(self._step(max(by_load / SPARE, by_pace)), load)
        return self.interval_ms

    def took_over(self, load: Load) -> int:
        """There may be many more members than a moment ago; what their heartbeats cost is yet to be seen."""
        by_load = self._by_load(load, max(self.cost_ms, COST_FIRST_MS))
        if self._step(by_load) > self.interval_ms:
            self._choose(self._step(by_load))
        return self.interval_ms

    def _learn(self, load: Load) -> None:
        is_settling = self._settling_looks > 0
        self._settling_looks -= is_settling
        self._is_steady = is_settling or load.decided <= load.heartbeats * DECIDED_FEW
        if load.requests and self._is_steady and not is_settling:
            self._requests = self._requests * MEMORY + load.requests
            self._busy_ms = self._busy_ms * MEMORY + load.busy_ms

    def _by_load(self, load: Load, cost_ms: float | None = None) -> float:
        cost_ms = self.cost_ms if cost_ms is None else cost_ms
        share_left = max(SHARE - load.fixed_per_s * cost_ms / 1_000, SHARE_LEFT_MIN)
        return load.members * cost_ms / share_left

    def _step(self, least_ms: float) -> int:
        return self.steps[min(bisect_left(self.steps, least_ms), len(self.steps) - 1)]

    def _consider_less(self, lower_ms: int, load: Load) -> None:
        if lower_ms >= self.interval_ms or self._settling_looks:
            self._low_looks = 0
        elif load.heartbeats:
            self._low_looks += 1
            if self._low_looks >= self._lower_looks:
                self._choose(lower_ms)

    def _choose(self, interval_ms: int) -> None:
        self._settling_looks = ceil((self.interval_ms + interval_ms) / LOOK_MS)
        self.interval_ms = interval_ms
        self.changes += 1
        self._lower_looks = LOWER_LOOKS
        self._slow_looks = self._low_looks = 0


def _by_pace(p99_ms: float) -> float:
    """The least interval for replies that take so long."""
    return 10 * p99_ms if 10 * p99_ms < CAUTIOUS_MS else max(3 * p99_ms, CAUTIOUS_MS)
