"""The due work of a shard: sessions, rebalances, pending targets, checks, expired offsets; transactions.

Due work is decided as requests are. The shard's leader state says when the next decision is due. When the
timer fires, `go_on` lets the machine's `next_work` take one decision after the other, in the node's slices.
Each decision is an entry of its own.

Invariants: work runs only while the shard is Ready; nothing expires in the turn in which the loop
resumed after a gap, and no member expires because this node refused its heartbeats for want of room; due work
of all shards together never holds the loop for more than a slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from cluster.runtime.requests import NO_ROOM_PAUSE_MS
from cluster.runtime.shard_runtime import ShardRuntime
from cluster.runtime.slices import OWN
from coordinator.api import Job
from raftlog.env.errors import in_one_line
from raftlog.env.host import Timer

TIMER_MIN_MS: Final = 1.0
"""Least delay of a timer. Event loops round to about a millisecond, so a shorter one would fire too early."""


class DueWork:
    """The timer of one shard, and the work that it starts (`slices.Work`).

    `start_jobs` starts the jobs of a decision in child processes.
    """

    is_long = False

    def __init__(self, shard: ShardRuntime[Any, Any], start_jobs: Callable[[list[Job]], object]) -> None:
        self._shard = shard
        self._node = shard.node
        self._host = shard.host
        self._start_jobs = start_jobs
        self._timer: Timer | None = None
        self._at_ms = math.inf
        self._continues = False

    @property
    def has_timer(self) -> bool:
        """Whether the timer is set; what becomes due earlier may wait for it if it is not urgent."""
        return self._timer is not None

    def arm(self) -> None:
        """Make sure that work goes on by the next deadline; a timer that would fire later is replaced."""
        if self._continues:
            return
        deadline_ms = self._shard.machine.next_deadline_ms()
        if deadline_ms is None or deadline_ms >= self._at_ms:
            return
        delay_ms = deadline_ms - self._host.monotonic_ms()
        if delay_ms <= 0:
            self._continues = True
            self.cancel()
            self._host.call_soon(self._work)  # after the sockets have had their turn
        else:
            self._arm_in(math.ceil(delay_ms))

    def _arm_in(self, delay_ms: float) -> None:
        self.cancel()
        delay_ms = max(delay_ms, TIMER_MIN_MS)
        self._at_ms = self._host.monotonic_ms() + delay_ms
        self._timer = self._host.call_later(delay_ms, self._work)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at_ms = math.inf

    def _work(self) -> None:
        self._continues = True
        self.cancel()
        self._node.slices.submit(self, OWN)

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Decide what is due (`slices.Work`)."""
        if not self._shard.is_ready:
            self._continues = False
            return now_ms
        self._node.observe_clock(now_ms)
        pause_ms = max(0.0, self._node.quiet_ms(now_ms))
        while not pause_ms:
            deadline_ms = self._shard.machine.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            pause_ms = self._decide(now_ms)
            now_ms = self._host.monotonic_ms()
            if not pause_ms and now_ms >= end_ms:
                return None
        self._continues = False
        if pause_ms:
            self._arm_in(pause_ms)
        else:
            self.arm()
        return now_ms

    def failed(self, error: Exception) -> None:
        """Stop the node: due work raised outside of a decision (`slices.Work`)."""
        self._host.fatal(f"{self._shard.name}: timers cannot continue: {in_one_line(error)}")

    def _decide(self, now_ms: float) -> float:
        """Take one decision of due work; return the milliseconds that the rest has to wait, or 0."""
        shard = self._shard
        shard.requests.observe_room(now_ms)
        if not shard.requests.has_room:
            return NO_ROOM_PAUSE_MS
        decision = shard.requests.decide(now_ms, shard.machine.next_work)
        if decision is None:
            return TIMER_MIN_MS
        if decision.jobs:
            self._start_jobs(decision.jobs)
        return 0.0
