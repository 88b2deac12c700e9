"""Exponential back-off with jitter (KIP-580, KIP-144): how long to wait after a failure in a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.core.env import Environment
from client.core.settings import ConsumerSettings

JITTER: Final = 0.2
"""Each wait is up to a fifth shorter or longer, so that clients that failed together return apart."""

STEADY_ATTEMPTS: Final = 5
"""Attempts to see the end of an election before their pace slows down: most elections are over by then."""

EXPONENT_MAX: Final = 30
"""Limit on doublings, so that years of failures do not overflow."""


def doubled(initial_ms: float, times: int, most_ms: float) -> float:
    """`initial_ms`, doubled so many times, and at most `most_ms`; any number of times is allowed."""
    return min(initial_ms * float(2 ** min(times, EXPONENT_MAX)), most_ms)


def retry_backoff(settings: ConsumerSettings, env: Environment, *, steady: int = 1) -> Backoff:
    """Return the waits of retry.backoff.ms and retry.backoff.max.ms."""
    return Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, env.uniform, steady=steady)


class Backoff:
    """The waits after consecutive failures of one thing: `initial_ms`, twice that, and so on to `most_ms`.

    The first `steady` waits are all `initial_ms`, for what is usually over soon."""

    __slots__ = ("_uniform", "failures", "initial_ms", "most_ms", "steady")

    def __init__(
        self, initial_ms: float, most_ms: float, uniform: Callable[[], float], *, steady: int = 1
    ) -> None:
        self.initial_ms = initial_ms
        self.most_ms = max(initial_ms, most_ms)
        self.steady = steady
        self.failures = 0
        self._uniform = uniform

    def reset(self) -> None:
        """Forget the failures, after a success."""
        self.failures = 0

    def next_ms(self) -> float:
        """Count a failure. Returns how long to wait before the next attempt."""
        self.failures += 1
        wait_ms = doubled(self.initial_ms, max(self.failures - self.steady, 0), self.most_ms)
        return wait_ms * (1 + JITTER * (2 * self._uniform() - 1))
