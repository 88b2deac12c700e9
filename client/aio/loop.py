"""Drives the background side on an event loop: one pass when woken, or when the time of the last has passed.

Several wake-ups before a pass are one. A pass that raises is a bug of this client; it ends the background
side, and the application side is told, so that no call waits for ever.
"""

from __future__ import annotations

import asyncio
import math
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from random import random
from typing import Any, Final
from uuid import uuid4

from client.core.background import Background
from client.core.env import Environment

WAIT_S_MAX: Final = 3_600.0
"""Longest timer; a pass without anything to do costs nothing."""


def now_ms() -> float:
    """The monotonic clock in ms."""
    return time.monotonic() * 1000


def answer_of(future: Future[Any]) -> asyncio.Future[Any]:
    """Return the future of a call for the event loop, which does not mind an error that nobody takes."""
    answer = asyncio.wrap_future(future)
    answer.add_done_callback(_looked_at)
    return answer


def _looked_at(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


def fresh_id() -> str:
    """A random UUID as Kafka writes it: 22 characters of base64, which do not begin with a dash."""
    while (text := urlsafe_b64encode(uuid4().bytes)[:22].decode()).startswith("-"):
        pass
    return text


def real_environment() -> Environment:
    """The clock and chance of this process."""
    return Environment(
        now_ms=now_ms, wall_ms=lambda: time.time_ns() // 1_000_000, uniform=random, fresh_id=fresh_id
    )


class BackgroundDriver:
    """Makes the passes of one background side on the running event loop.

    `on_events` is called after a pass that left events for the application side."""

    def __init__(self, on_events: Callable[[], None]) -> None:
        self.background: Background
        """The background side, set before the first pass; its parts need `wake` first."""
        self.error: Exception | None = None
        """The exception that ended the background side, if it did not end by `stop`."""
        self._loop = asyncio.get_running_loop()
        self._on_events = on_events
        self._is_woken = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Make a pass soon. Called on the event loop."""
        if not self._is_woken and not self._is_stopped:
            self._is_woken = True
            self._loop.call_soon(self._run_once)

    def wake_from_thread(self) -> None:
        """Make a pass soon. Called in any thread."""
        self._loop.call_soon_threadsafe(self.wake)

    def stop(self) -> None:
        """Make no pass any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _run_once(self) -> None:
        self._is_woken = False
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_ms = math.inf
        with self.guarding():
            wait_ms = self.background.run_once(now_ms())
        if wait_ms <= 0:
            self.wake()
        elif wait_ms < math.inf:
            self._timer = self._loop.call_later(min(wait_ms / 1000, WAIT_S_MAX), self.wake)
        if self.background.background_events:
            self._on_events()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Run code of the background side outside a pass; if it raises, the background side has ended."""
        try:
            yield
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.stop()
        self.background.fail(error)
        self._loop.call_soon(self._on_events)
