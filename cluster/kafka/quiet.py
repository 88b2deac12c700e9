"""Log lines about clients, bounded: a client that misbehaves a thousand times a second costs ten lines.

Suppressed lines are counted, and the next line that is written says how many there were.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

LOG = logging.getLogger("quorate.kafka")

BURST_LINES = 10
"""Lines in a burst: enough to see a few clients go wrong together."""

REFILL_MS = 1_000.0
"""Milliseconds per further line: the trouble stays visible, at no more than 86,400 lines a day."""


class QuietLog:
    """A token bucket in front of a logger."""

    def __init__(self, monotonic_ms: Callable[[], float], log: logging.Logger = LOG) -> None:
        self._monotonic_ms = monotonic_ms
        self._log = log
        self._tokens = float(BURST_LINES)
        self._refilled_ms = monotonic_ms()
        self.suppressed = 0

    def warning(self, message: str, *args: object) -> None:
        now = self._monotonic_ms()
        self._tokens = min(BURST_LINES, self._tokens + (now - self._refilled_ms) / REFILL_MS)
        self._refilled_ms = now
        if self._tokens < 1:
            self.suppressed += 1
            return
        self._tokens -= 1
        if self.suppressed:
            message += f" (and {self.suppressed} lines like this were not written)"
            self.suppressed = 0
        self._log.warning(message, *args)
