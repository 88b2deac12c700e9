"""The time of day that most nodes agree on: no decision depends on one node's wall clock.

Time runs by the monotonic clock.  Every ten seconds a node compares the wall clocks, its own and those of its
peers, and takes the latest time that a majority of all nodes has reached.  That corrects two clocks:

- `wall_ms` stamps entries.  A correction of more than a second counts once it has persisted for half a
  minute.  A log that is then ahead of the clock continues at half its speed (`LogTime`).
- `past_ms` is the time for retention: one that has certainly passed.  A correction ahead counts once it has
  persisted for a day, and is a warning in the log until then.  After a start it begins with the time of the
  newest entry, so for a day it is behind by the time for which the node was down; but it is never ahead of
  the majority's time, whatever the log was stamped with.

A node that is alone is its own majority: its wall clock can only be compared with its monotonic clock.

Invariants: neither clock runs ahead of what a majority of the wall clocks showed throughout its
delay, except by a tenth of the elapsed time; without a majority both follow the monotonic clock.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from raftlog.env.host import Host, Timer

LOG = logging.getLogger("quorate.clock")

LOOK_MS: Final = 10_000.0
"""Milliseconds between two comparisons of the clocks; the links measure the peers' as often."""

STEP_MS: Final = 1_000.0
"""Milliseconds; a change that is greater is a step, which must persist, a smaller one is drift."""

STAMPS_DELAY_MS: Final = 30_000.0
"""Milliseconds that a step must persist before entries are stamped by it.

A clock that was wrong for a moment is right again by then.  After a suspension of the machine stamps are
wrong for this long, which does no harm.
"""

RETENTION_DELAY_MS: Final = 86_400_000.0
"""Milliseconds that a step ahead must persist before retention follows it.

An operator has a day to notice the warning; with a retention of a week a day more is acceptable.
"""


WARNED_MS: Final = 3_600_000.0
"""Milliseconds; a smaller step ahead does not deserve a warning."""


class Belief:
    """A clock as its offset from the monotonic clock, which follows a step only after it has persisted.

    A step ahead counts after `ahead_delay_ms`, one back after `STAMPS_DELAY_MS`.
    """

    def __init__(self, ahead_delay_ms: float) -> None:
        self.offset_ms: float | None = None
        self.step_ms = 0.0
        """The smallest size of the pending step since it began; negative: back; 0: there is none."""
        self._ahead_delay_ms = ahead_delay_ms
        self._since_ms = 0.0

    def hear(self, offset_ms: float, now_ms: float) -> None:
        """Take the clocks' offset at `now_ms`; the first one counts at once."""
        step_ms = 0.0 if self.offset_ms is None else offset_ms - self.offset_ms
        if abs(step_ms) <= STEP_MS:
            self.offset_ms, self.step_ms = offset_ms, 0.0
        elif self.step_ms * step_ms <= 0:
            self.step_ms, self._since_ms = step_ms, now_ms
        else:
            assert self.offset_ms is not None
            self.step_ms = min(self.step_ms, step_ms, key=abs)
            delay_ms = self._ahead_delay_ms if step_ms > 0 else STAMPS_DELAY_MS
            if now_ms - self._since_ms >= delay_ms:
                self.offset_ms, self.step_ms = self.offset_ms + self.step_ms, 0.0


class AgreedClock:
    """The clock of one node; `others` returns the peers' wall clocks minus our monotonic one, in ms."""

    def __init__(
        self,
        host: Host,
        *,
        num_nodes: int = 1,
        num_logs: int = 1,
        others: Callable[[], Sequence[float]] = tuple,
    ) -> None:
        self._host = host
        self._majority = num_nodes // 2 + 1
        self._others = others
        self._logs_missing = num_logs
        self._newest_ms = 0
        self._loaded_ms = 0.0
        self._stamps = Belief(STAMPS_DELAY_MS)
        self._retention = Belief(RETENTION_DELAY_MS)
        self._advanced_ms = 0
        self._said_ms = math.inf
        """The majority's time at the last comparison, minus this node's monotonic clock."""
        self._has_warned = False
        self._timer: Timer | None = None

    def start(self) -> None:
        self._look_again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def advance(self, ms: int) -> None:
        """Run ahead of all wall clocks by so much more, at once. For tests of applications only: the caller
        advances the other nodes too."""
        self._advanced_ms += ms
        self._said_ms += ms
        for belief in (self._stamps, self._retention):
            if belief.offset_ms is not None:
                belief.offset_ms += ms

    def loaded(self, newest_ms: int) -> None:
        """Note that a log is loaded, and the time of its newest entry (0 if it has none)."""
        self._logs_missing -= 1
        if newest_ms > self._newest_ms:
            self._newest_ms, self._loaded_ms = newest_ms, self._host.monotonic_ms()
        if not self._logs_missing:
            if self._newest_ms:
                self._retention.offset_ms = self._newest_ms - self._loaded_ms
            self.look()

    def compared(self) -> None:
        """Note that a peer's clock was measured: the first majority counts at once."""
        if self._stamps.offset_ms is None:
            self.look()

    def look(self) -> None:
        """Take the latest time that a majority has reached."""
        now_ms = self._host.monotonic_ms()
        said = sorted([self._host.wall_ms() - now_ms, *self._others()], reverse=True)
        if len(said) < self._majority:
            return
        self._said_ms = offset_ms = said[self._majority - 1] + self._advanced_ms
        if self._stamps.offset_ms is None and self._newest_ms:  # a step back from there must persist too
            self._stamps.offset_ms = max(offset_ms, self._newest_ms - self._loaded_ms)
        self._stamps.hear(offset_ms, now_ms)
        if self._logs_missing <= 0:
            self._retention.hear(offset_ms, now_ms)
            self._warn()

    def wall_ms(self) -> int:
        """The time to stamp on an entry now.

        Before a majority is known, time continues from the newest entry: an unconfirmed clock moves nothing
        ahead.
        """
        return self.wall_at(self._host.monotonic_ms())

    def wall_at(self, now_ms: float) -> int:
        """Like `wall_ms`, for callers that have read the monotonic clock already."""
        offset_ms = self._stamps.offset_ms
        if offset_ms is not None:
            return round(offset_ms + now_ms)
        own_ms = self._host.wall_ms() + self._advanced_ms
        if not self._newest_ms:
            return own_ms
        return min(own_ms, round(self._newest_ms + now_ms - self._loaded_ms))

    def past_ms(self) -> int:
        """A time that has certainly passed; 0 as long as nothing is known."""
        offset_ms = self._retention.offset_ms
        if offset_ms is None:
            if not self._newest_ms:
                return 0
            offset_ms = self._newest_ms - self._loaded_ms
        now_ms = self._host.monotonic_ms()
        return min(round(min(offset_ms, self._said_ms) + now_ms), self.wall_at(now_ms))

    def status(self) -> dict[str, Any]:
        """A JSON-ready view: whether a majority is known, and how far apart the clocks are."""
        wall_ms, past_ms = self.wall_ms(), self.past_ms()
        return {
            "is_agreed": self._stamps.offset_ms is not None,
            "wall_ms": wall_ms,
            "own_ahead_ms": self._host.wall_ms() - wall_ms,
            "past_ms": past_ms,
            "past_behind_ms": wall_ms - past_ms,
            "not_believed_ms": round(self._retention.step_ms),
        }

    def _look_again(self) -> None:
        self.look()
        self._timer = self._host.call_later(LOOK_MS, self._look_again)

    def _warn(self) -> None:
        ahead_ms = self._retention.step_ms
        if ahead_ms > WARNED_MS and not self._has_warned:
            self._has_warned = True
            LOG.warning(
                "most wall clocks are %.0f s ahead of the time that this node saw pass (it was down, or "
                "they were set): nothing expires by the difference until it has lasted for %.0f h; if the "
                "clocks are wrong, correct them before then",
                ahead_ms / 1000,
                RETENTION_DELAY_MS / 3_600_000,
            )
        elif self._has_warned and ahead_ms <= 0:
            self._has_warned = False
            LOG.info("the wall clocks agree again with the time that passed")


class LogTime:
    """The timestamps of one log, which never go back.

    While the newest entry is ahead of the clock, new ones advance at half the clock's speed: the clock
    catches up, and durations stay measurable.
    """

    def __init__(self, clock: AgreedClock, home: str) -> None:
        self.clock = clock
        self._home = home
        self._slow_from: tuple[float, int] | None = None

    def at(self, monotonic_ms: float, last_ms: int) -> int:
        """The timestamp of an entry that arrives now, after one of `last_ms`."""
        wall_ms = self.clock.wall_at(monotonic_ms)
        if wall_ms >= last_ms:
            self._slow_from = None
            return wall_ms
        slow_ms = self._slow_ms(monotonic_ms)
        if slow_ms is None or slow_ms < last_ms:
            if slow_ms is None and last_ms - wall_ms > STEP_MS:
                what = (
                    "%s: the newest entry is %.0f s ahead of most clocks: the log's time advances at half "
                    "speed"
                )
                LOG.warning(what, self._home, (last_ms - wall_ms) / 1000)
            self._slow_from = monotonic_ms, last_ms
            return last_ms
        return slow_ms

    def _slow_ms(self, monotonic_ms: float) -> int | None:
        if self._slow_from is None:
            return None
        from_ms, stamped_ms = self._slow_from
        return stamped_ms + int((monotonic_ms - from_ms) / 2)
