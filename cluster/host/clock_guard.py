"""Detects that the loop stood still, so that no member expires because the node itself slept.

A process that was stopped (SIGSTOP, a suspended machine, a long stall) wakes up with every timer due and
every heartbeat of its clients unread in a socket. Expiring members then would punish those that were alive
all the time. So a gap in the monotonic clock moves every deadline by its length, and for a moment afterwards
no timer fires, so that the sockets are read first.

Invariants: the gap is noticed before any deadline is checked, because every check calls `observe`
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.env.host import Host, Timer

CLOCK_GAP_MS: Final = 500.0
"""A longer silence of the loop is a gap: ten times the longest stall that the loop is allowed."""

CLOCK_TICK_MS: Final = 100.0
"""Milliseconds between two checks of the clock if nothing else checks it; well below the gap."""

DRAIN_MS: Final = 100.0
"""After a gap, how long timers wait for the data in the sockets: several turns of the loop."""


class ClockGuard:
    """Watches the monotonic clock of one node; `on_gap(gap_ms)` moves the deadlines."""

    def __init__(self, host: Host, on_gap: Callable[[float], None]) -> None:
        self._host = host
        self._on_gap = on_gap
        self._last_ms = host.monotonic_ms()
        self._quiet_until_ms = self._last_ms
        self._tick: Timer | None = None

    def start(self) -> None:
        self._last_ms = self._host.monotonic_ms()
        self._tick = self._host.call_later(CLOCK_TICK_MS, self._on_tick)

    def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def observe(self, now_ms: float) -> None:
        """Take a fresh reading; to be called before any deadline is compared with it."""
        gap_ms = now_ms - self._last_ms
        self._last_ms = now_ms
        if gap_ms > CLOCK_GAP_MS:
            self._quiet_until_ms = now_ms + DRAIN_MS
            self._on_gap(gap_ms)

    def quiet_ms(self, now_ms: float) -> float:
        """Return for how many more milliseconds timers must not fire; 0 or less if they may."""
        return self._quiet_until_ms - now_ms

    def _on_tick(self) -> None:
        self.observe(self._host.monotonic_ms())
        self._tick = self._host.call_later(CLOCK_TICK_MS, self._on_tick)
