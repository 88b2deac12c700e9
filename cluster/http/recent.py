"""The last half minute, second by second: how idle the loop was, and how many group epochs began.

Kafka's own windows are as long. Invariants: a sample costs microseconds, and a scrape takes none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from raftlog.env.host import Host, Timer

WINDOW_S: Final = 30
LOOK_MS: Final = 1_000.0


class _Look(NamedTuple):
    at_ms: float
    busy_ms: float
    rebalances: int


class Recent:
    """Takes a sample every second from `start` to `stop`; `rebalances` returns the number begun so far."""

    def __init__(self, host: Host, rebalances: Callable[[], int]) -> None:
        self._host = host
        self._rebalances = rebalances
        self._looks: deque[_Look] = deque(maxlen=WINDOW_S + 1)
        self._timer: Timer | None = None

    def start(self) -> None:
        self._looks.append(self._now())
        self._timer = self._host.call_later(LOOK_MS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle_ratios(self) -> tuple[float, float]:
        """Return the least idle ratio of any second, and that of the whole window; 0 is a saturated loop."""
        looks = self._window()
        return min(_idle(*two) for two in pairwise(looks)), _idle(looks[0], looks[-1])

    def rebalances_per_s(self) -> float:
        first, *_, last = self._window()
        return (last.rebalances - first.rebalances) * 1_000 / max(1.0, last.at_ms - first.at_ms)

    def _window(self) -> list[_Look]:
        """Return at least two samples: within the first second, the second one is taken now."""
        return [*self._looks, self._now()][: max(2, len(self._looks))]

    def _now(self) -> _Look:
        return _Look(self._host.monotonic_ms(), self._host.busy_ms(), self._rebalances())


def _idle(first: _Look, last: _Look) -> float:
    took_ms = max(1.0, last.at_ms - first.at_ms)
    return min(1.0, max(0.0, 1 - (last.busy_ms - first.busy_ms) / took_ms))
