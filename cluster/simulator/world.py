"""Virtual time: a heap of events, and the only source of randomness.

Every callback of every simulated host is an event here. Events run in the order of their time, and events of
equal time in the order of their creation; nothing else decides. Time moves only from one event to the next. A
host may declare that something took time (`spend`), as a blocking fdatasync does: the rest of that event sees
the later time and the host's next events wait for it, while all other hosts continue.

Invariants: one seed gives one history. `trace_hash` is a checksum over the time, owner and name of
every event that ran; if it differs between two runs of one seed, there is a hidden input.
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
"""2025-01-01T00:00:00Z: the wall clock at the beginning of every world."""

EVENTS_PER_RUN_MAX: Final = 20_000_000
"""Bound on the events of one run: callbacks that call each other without time passing would never end."""


class Stopped(BaseException):
    """Raised to leave the running callback of a host that has just died; the world continues without it."""


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
        self._heap: list[tuple[float, float, int, Event]] = []  # (runs at, was due at, number, event)
        self._running: str | None = None
        self._spent_ms = 0.0
        self._busy_until_ms: dict[str, float] = {}
        self._paused: dict[str, list[tuple[int, Event]]] = {}
        self._paused_until_ms: dict[str, float] = {}
        self._dead: set[str] = set()
        self._stops: dict[str, Callable[[Exception], None]] = {}

    def at(
        self,
        time_ms: float,
        fn: Callable[..., object],
        *args: object,
        owner: str = "",
        is_timer: bool = False,
    ) -> Event:
        """Run `fn(*args)` at `time_ms`; on a paused owner at the end of its pause, on a dead one never."""
        event = Event(fn, args, owner, is_timer)
        if owner not in self._dead:
            self._push(max(time_ms, self.now_ms), event)
        return event

    def _push(self, time_ms: float, event: Event) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time_ms, time_ms, self._sequence, event))

    def spend(self, duration_ms: float) -> None:
        """Let time pass inside the running event.

        Events due on its host meanwhile run late, as on a busy loop. Outside of events time passes for every
        host.
        """
        self.now_ms += duration_ms
        if self._running is not None:
            self._spent_ms += duration_ms

    def pause(self, owner: str, until_ms: float = math.inf) -> None:
        """Stop one host (SIGSTOP), until a given time or `resume`; events due meanwhile wait."""
        if owner in self._dead:
            return
        self._paused.setdefault(owner, [])
        self._paused_until_ms[owner] = until_ms
        if until_ms < math.inf:
            self.at(until_ms, self._pause_over, owner, until_ms)

    def resume(self, owner: str) -> None:
        """Let a paused host continue (SIGCONT): its timers run before the data in its sockets is read.

        This is libuv's order, and the worse one: a node that relied on the order would fence every member.
        """
        self._paused_until_ms.pop(owner, None)
        waiting = self._paused.pop(owner, [])
        for _, event in sorted(waiting, key=lambda one: (not one[1].is_timer, one[0])):
            self._push(self.now_ms, event)

    def is_paused(self, owner: str) -> bool:
        return owner in self._paused

    def _pause_over(self, owner: str, until_ms: float) -> None:
        if self._paused_until_ms.get(owner) == until_ms:
            self.resume(owner)

    def on_failure(self, owner: str, stop: Callable[[Exception], None]) -> None:
        """Call `stop(error)` whenever a callback of this host raises."""
        self._stops[owner] = stop

    def forget(self, owner: str) -> None:
        """Drop every event of one host, now and for ever (kill -9); its next boot is another owner."""
        self._dead.add(owner)
        self._paused_until_ms.pop(owner, None)
        self._busy_until_ms.pop(owner, None)
        for _, event in self._paused.pop(owner, []):
            event.cancel()
        for *_, event in self._heap:
            if event.owner == owner:
                event.cancel()

    def step(self, end_ms: float = math.inf) -> bool:
        """Run the next event that is due by `end_ms`; return False if there is none."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            time_ms, due_ms, sequence, event = heapq.heappop(heap)
            if event.fn is None:
                continue
            if event.owner in self._paused:
                self._paused[event.owner].append((sequence, event))
                continue
            busy_until_ms = self._busy_until_ms.get(event.owner, 0.0)
            if time_ms < busy_until_ms:
                heapq.heappush(heap, (busy_until_ms, due_ms, sequence, event))
                continue
            if time_ms > self.now_ms:
                self.now_ms = time_ms
            self._run(event)
            return True
        return False

    def run_for(self, duration_ms: float) -> None:
        """Run everything due within `duration_ms`, and leave the clock at its end."""
        self.run_until(lambda: False, within_ms=duration_ms)

    def run_until(self, condition: Callable[[], bool], *, within_ms: float) -> bool:
        """Run until `condition` holds after an event; return False if `within_ms` passed without it."""
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
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        line = f"{self.now_ms:.6f} {event.owner} {name}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        self._running = event.owner
        try:
            fn(*args)
        except Stopped:
            pass
        except Exception as error:
            stop = self._stops.get(event.owner)
            if stop is None:
                raise
            with contextlib.suppress(Stopped):
                stop(error)
        finally:
            self._running = None
            if self._spent_ms:
                self._busy_until_ms[event.owner] = self.now_ms
                self.now_ms -= self._spent_ms
                self._spent_ms = 0.0
