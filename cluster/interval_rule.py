"""The rule by which a node chooses the heartbeat interval of its members; pure, evaluated once a second.

A rebalance takes about one interval, so a short one is good. But every heartbeat costs the loop some time, so
it must be longer with many members; and clients use the interval as their request timeout, so it must be far
longer than a reply takes. The rule:

    by load   members × cost of a heartbeat / SHARE: heartbeats take at most a tenth of the loop
    by pace   10 × the p99 of reply times if that is below 1,000 ms; otherwise 3 × the p99, but at least
              1,000. So the interval is never below 1,000 ms unless p99 < interval / 10
    chosen    the first step of a ladder that is no less than both, within the broker's bounds

Load raises the interval at once; slow replies raise it at the second check in a row. The interval is lowered
after five checks in a row that would allow it with room to spare, and only if heartbeats were answered
meanwhile. Before the first change one such check is enough. So one slow rebalance changes nothing, and a load
at the border of two steps does not make the interval oscillate.

Every change invalidates every cached reply of the node once. So the interval moves in steps of a third or a
half, and checks do not count until each member has had its next heartbeat: otherwise the cost of the change
would be mistaken for the cost of the load and raise the interval further. For the same reason the cost is
learned only from checks in which nearly all replies came from the cache. While more heartbeats are decided,
as when many members join, their cost is assumed rather than measured.

Invariants: the interval is always a step of the ladder; it depends only on what was passed to `look`
and `took_over`, so that a simulation shows what a node would do.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil
from typing import Final

SHARE: Final = 0.1
"""Share of the loop's time for heartbeats: as much as a group may spend on targets."""

SHARE_LEFT_MIN: Final = 0.025
"""At least this share of the loop remains for members that follow the interval, however much is taken by
groups that have an interval of their own."""

SPARE: Final = 0.7
"""A lower step is taken only if at most this part of it would be used, so that it is not left again soon."""

PACE_LOOKS: Final = 2
LOWER_LOOKS: Final = 5

FIRST_LOOKS: Final = 1
"""Checks needed before the first reduction of the interval; few, to speed up a cluster that just started."""

LOOK_MS: Final = 1_000
"""Milliseconds between two checks."""

CAUTIOUS_MS: Final = 1_000
"""Replies must be ten times as fast as an interval below this, and three times as fast as one above it."""

COST_MIN_MS: Final = 0.02
"""Least assumed cost of a heartbeat, all included: 50,000 a second, about what the fast path can do."""

COST_FIRST_MS: Final = 0.1
"""Assumed cost of a heartbeat that has to be decided, as all have in the first seconds of a term."""

DECIDED_FEW: Final = 0.1
"""The cost is learned from checks in which at most this part of the heartbeats had to be decided."""

FIRST_SAMPLES: Final = 100
"""Number of measured requests that weigh as much as the first guess."""

MEMORY: Final = 0.8
"""Weight of earlier measurements at the next check: the last five seconds dominate."""

SOCKETS: Final = 2.0
"""Factor for the time in the socket, which is not measured: about as much again as serving the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Figures that a node measured since the last check.

    `members` follow the interval; `fixed_per_s` heartbeats a second come from groups that set one themselves.
    `heartbeats` were answered, `decided` of them not from the cache. `requests` of any kind were served in
    `busy_ms` of the loop. `reply_p99_ms` is how long heartbeats waited for their reply, or how late the loop
    was if that is more.
    """

    members: int
    fixed_per_s: float = 0.0
    heartbeats: int = 0
    decided: int = 0
    requests: int = 0
    busy_ms: float = 0.0
    reply_p99_ms: float = 0.0


def ladder(low_ms: int, base_ms: int, high_ms: int) -> tuple[int, ...]:
    """Return the steps between the two bounds, alternately a half and a third up; the base is one of them."""
    steps, step, factors = {low_ms, base_ms, high_ms}, float(low_ms), (3 / 2, 4 / 3)
    for number in range(64):
        step *= factors[number % 2]
        if step >= high_ms:
            break
        steps.add(round(step))
    return tuple(sorted(steps))


class IntervalRule:
    """The choice is `interval_ms`. It begins at the base, which is the configured interval."""

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
        """The number of further checks whose heartbeats cost more because of the last change."""

    @property
    def cost_ms(self) -> float:
        """Milliseconds of the loop per heartbeat, as the last steady seconds showed it."""
        measured_ms = max(COST_MIN_MS, SOCKETS * self._busy_ms / self._requests)
        return measured_ms if self._is_steady else max(measured_ms, COST_FIRST_MS)

    def look(self, load: Load) -> int:
        """Take the measured load into account and return the interval from now on."""
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
        """Raise the interval for a node with many new members, before their cost is known."""
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
    """Return the least interval that suits this p99 of reply times."""
    return 10 * p99_ms if 10 * p99_ms < CAUTIOUS_MS else max(3 * p99_ms, CAUTIOUS_MS)
