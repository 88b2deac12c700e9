"""Virtual time: a heap of events, and the one source of chance.

Every callback of every simulated host is an event here. Events run in order of their time, and events of
equal time in the order in which they were made; nothing else decides. Time moves only from one event to the
next, or when a host says that something took time (`spend`), as a blocking fdatasync does.

What must stay true: one seed gives one history. `trace_hash` is a checksum over the time, owner and name of
every event that ran; two runs of one seed that differ in it have found a hidden input.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import random
import zlib
from collections.abc import Callable
from typing import Final

START_WALL_MS: Final = 1_735_689_600_000
"""2025-01-01T00:00:00Z: where the wall clock of every world begins."""

EVENTS_PER_RUN_MAX: Final = 20_000_000
"""A world whose callbacks feed each other without time passing would never end; this ends it."""


class Stopped(BaseException):
    """Raised to leave the running callback of a host that has just died; the world goes on without it."""


class Event:
    """One callback at one time; `cancel` keeps it from running. It is also the Host's Timer."""

    __slots__ = ("args", "fn", "is_timer", "owner")

    def __init__(
        self, fn: Callable[..., object], args: tuple[object, ...], owner: str, is_timer: bool
    ) -> None:
        self.fn: Callable[..., object] | None = fn
        self.args = args
        self.owner = owner
        self.is_timer = is_timer

    def cancel(self) -> None:
        self.fn = None
        self.args = ()


class World:
    """One timeline for any number of hosts.

    `now_ms` counts from 0; a host's wall clock is `START_WALL_MS + now_ms` plus its own skew.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.trace_hash = 0
        self.events_run = 0
        self._sequence = 0
        self._heap: list[tuple[float, int, Event]] = []
        self._paused_until: dict[str, float] = {}
        self._dead: set[str] = set()

    def at(
        self,
        time_ms: float,
        fn: Callable[..., object],
        *args: object,
        owner: str = "",
        is_timer: bool = False,
    ) -> Event:
        """Runs `fn(*args)` at `time_ms`; on a paused owner at the end of its pause, on a dead one never."""
        event = Event(fn, args, owner, is_timer)
        if owner in self._dead:
            return event
        self._sequence += 1
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), self._sequence, event))
        return event

    def spend(self, duration_ms: float) -> None:
        """Time passes inside the running event: everything due meanwhile runs late, as on a busy loop."""
        self.now_ms += duration_ms

    def pause(self, owner: str, until_ms: float) -> None:
        """Stops one host (SIGSTOP): what falls due runs at the end, its timers before what its sockets got.

        Timers first is libuv's order and the worse one: a node that trusts it fences everybody.
        """
        self._paused_until[owner] = until_ms

    def forget(self, owner: str) -> None:
        """Drops every event of one host, now and for ever (kill -9); its next boot is another owner."""
        self._dead.add(owner)
        self._paused_until.pop(owner, None)
        for _, _, event in self._heap:
            if event.owner == owner:
                event.cancel()

    def step(self, end_ms: float = math.inf) -> bool:
        """Runs the next event that is due by `end_ms`; False when there is none."""
        while self._heap and self._heap[0][0] <= end_ms:
            time_ms, sequence, event = heapq.heappop(self._heap)
            if event.fn is None:
                continue
            paused_until = self._paused_until.get(event.owner, 0.0)
            if time_ms < paused_until:
                late = sequence if event.is_timer else sequence + (1 << 62)
                heapq.heappush(self._heap, (paused_until, late, event))
                continue
            self.now_ms = max(self.now_ms, time_ms)
            self._run(event)
            return True
        return False

    def run_for(self, duration_ms: float) -> None:
        """Runs everything due within `duration_ms`, then lets the clock stand at its end."""
        self.run_until(lambda: False, within_ms=duration_ms)

    def run_until(self, condition: Callable[[], bool], *, within_ms: float) -> bool:
        """Runs until `condition` holds after an event; False when `within_ms` passed without it."""
        end_ms = self.now_ms + within_ms
        if condition():
            return True
        for _ in range(EVENTS_PER_RUN_MAX):
            if not self.step(end_ms):
                self.now_ms = max(self.now_ms, end_ms)
                return False
            if condition():
                return True
        raise RuntimeError(f"{EVENTS_PER_RUN_MAX} events within {within_ms} ms of virtual time")

    def _run(self, event: Event) -> None:
        fn, args = event.fn, event.args
        if fn is None:
            return
        event.cancel()
        self.events_run += 1
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        line = f"{self.now_ms:.6f} {event.owner} {name}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        with contextlib.suppress(Stopped):
            fn(*args)
