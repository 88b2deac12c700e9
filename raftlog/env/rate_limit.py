"""Log lines that a peer or a client can cause at the speed of the network, bounded.

Suppressed lines are counted, and the next line of their kind says how many there were.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

REPEAT_MS = 10_000.0
"""Milliseconds between two lines of a kind: often enough to be noticed, too seldom to fill a disk."""
KINDS_MAX = 64
"""At most this many kinds: a few per peer; beyond it new kinds are not logged."""


class _Bucket:
    """The tokens left for one kind of line, and how many lines were not written for lack of them."""

    __slots__ = ("refilled_ms", "suppressed", "tokens")

    def __init__(self, tokens: float, now_ms: float) -> None:
        self.tokens = tokens
        self.refilled_ms = now_ms
        self.suppressed = 0


class RateLimitedLogger:
    """A token bucket for each kind of line, in front of a logger.

    A kind may have `burst` lines at once, and one more every `repeat_ms`."""

    def __init__(
        self,
        log: logging.Logger,
        monotonic_ms: Callable[[], float],
        *,
        burst: int = 1,
        repeat_ms: float = REPEAT_MS,
    ) -> None:
        self._log = log
        self._monotonic_ms = monotonic_ms
        self._burst = float(burst)
        self._repeat_ms = repeat_ms
        self._buckets: dict[object, _Bucket] = {}

    def warning(self, kind: object, message: str, *args: object) -> None:
        self._write(logging.WARNING, kind, message, args)

    def error(self, kind: object, message: str, *args: object) -> None:
        self._write(logging.ERROR, kind, message, args)

    def _write(self, level: int, kind: object, message: str, args: tuple[object, ...]) -> None:
        now_ms = self._monotonic_ms()
        bucket = self._buckets.get(kind)
        if bucket is None:
            if len(self._buckets) >= KINDS_MAX:
                return
            bucket = self._buckets[kind] = _Bucket(self._burst, now_ms)
        refill = (now_ms - bucket.refilled_ms) / self._repeat_ms
        bucket.tokens = min(self._burst, bucket.tokens + refill)
        bucket.refilled_ms = now_ms
        if bucket.tokens < 1:
            bucket.suppressed += 1
            return
        bucket.tokens -= 1
        if bucket.suppressed:
            message += f" ({bucket.suppressed} similar lines were suppressed)"
            bucket.suppressed = 0
        self._log.log(level, message, *args)
