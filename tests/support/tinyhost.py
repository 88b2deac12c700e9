"""The smallest `Host` that a replica runs on: a queue, a clock moved by hand, the real file system.

`advance` runs everything that is due; nothing else ever runs, so a test decides what happens when.
"""

from __future__ import annotations

import heapq
import importlib
import itertools
import random
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from typing import Any

from raftlog.env.files import OsFiles
from raftlog.env.host import Done
from tests.support.memory_log import NOON_MS

TIMER_LATE_MS = 0.001
"""Timers never fire early or to the point: who asks "is it past the deadline?" gets on."""


class _Timer:
    def __init__(self, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        self.call: tuple[Callable[..., object], tuple[object, ...]] | None = (fn, args)

    def cancel(self) -> None:
        self.call = None


class TinyHost:
    """One machine."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.files = OsFiles()
        self.now_ms = 0.0
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return NOON_MS + int(self.now_ms)

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        self._soon.append((fn, args))

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> _Timer:
        timer = _Timer(fn, args)
        heapq.heappush(self._timers, (self.now_ms + delay_ms, next(self._numbers), timer))
        return timer

    def fresh_id(self) -> str:
        return urlsafe_b64encode(self.fresh_uuid()).rstrip(b"=").decode()

    def fresh_uuid(self) -> bytes:
        return self.rng.randbytes(16)

    def run_on_disk(self, fn: Callable[[], object], done: Done) -> None:
        self.call_soon(self._work, fn, done)

    def spawn_job(self, argv_module: str, request: object, done: Done, **_how: Any) -> _Timer:
        module = importlib.import_module(argv_module)
        return self.call_later(0.0, self._work, lambda: module.run(request, self.files), done)

    def _work(self, fn: Callable[[], object], done: Done) -> None:
        try:
            result = fn()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)

    def listen(self, *_args: object) -> None:
        raise NotImplementedError("this host has no network")

    connect = listen

    def fatal(self, message: str) -> None:
        raise AssertionError(f"the node stopped: {message}")

    def settle(self) -> None:
        """Runs what is queued and what that queues."""
        while self._soon:
            fn, args = self._soon.popleft()
            fn(*args)

    def advance(self, span_ms: float) -> None:
        """Lets time pass, running timers at their moments."""
        until_ms = self.now_ms + span_ms
        self.settle()
        while self._timers and self._timers[0][0] <= until_ms:
            at_ms, _, timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, at_ms) + TIMER_LATE_MS
            if timer.call is not None:
                fn, args = timer.call
                timer.call = None
                fn(*args)
            self.settle()
        self.now_ms = until_ms
