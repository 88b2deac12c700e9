"""Pacing: when a group may compute its next target.

Targets are the only decisions whose cost grows with the group. So a group computes at most one per turn of
the event loop, and after one that took c ms it waits for 10·c (1 s at most). A storm of joins in a large
group thus costs a tenth of the loop and ends in one target. Small groups never wait.

An assignment interval (KIP-1263), if configured, applies in addition. It counts from the time in record 6, so
it also holds across a failover. Once read, that time is converted to the monotonic clock, so that a jump of
the wall clock delays no target for longer than the interval; a time in the future counts as long past. A
deferred target is due work, computed without waiting for a heartbeat. Volatile: a new leader starts with
nothing deferred and nothing failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from coordinator.api import Context
from coordinator.leader_state.timers import Deadline, Deadlines, MemberKey
from coordinator.limits import Limits


@dataclass(slots=True)
class _Pace:
    not_before_ms: float = 0.0
    turn: int = 0
    failures: int = 0


class TargetPacing:
    """The groups that have to wait for their next target, and the last error of each one's assignor."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._paces: dict[str, _Pace] = {}
        self._deferred = Deadlines()
        self._installed: dict[str, tuple[int, float]] = {}
        """For groups with an interval: the time in record 6, and the same time on the monotonic clock."""
        self.bumped_at: dict[str, int] = {}
        """Log index of a group's newest epoch bump while there is no target for it yet, if known."""
        self.errors: dict[str, str] = {}

    def may_compute(self, group_id: str, ctx: Context) -> bool:
        pace = self._paces.get(group_id)
        if pace is None:
            return True
        same_turn = ctx.turn != 0 and ctx.turn == pace.turn
        return not same_turn and ctx.monotonic_ms >= pace.not_before_ms

    def interval_left_ms(self, group_id: str, timestamp_ms: int, interval_ms: int, ctx: Context) -> float:
        """Remaining time of the assignment interval; 0 if the next target may be computed.

        The interval began when a target was installed at wall-clock time `timestamp_ms`; 0 means that there
        is no real target."""
        age_ms = ctx.wall_ms - timestamp_ms
        if not interval_ms or not timestamp_ms or age_ms < 0:
            return 0.0
        known = self._installed.get(group_id)
        if known is None or known[0] != timestamp_ms:
            known = self._installed[group_id] = (timestamp_ms, ctx.monotonic_ms - age_ms)
        return max(0.0, known[1] + interval_ms - ctx.monotonic_ms)

    def hurry(self, group_id: str, ctx: Context) -> None:
        """Reconsider a deferred target because the group's settings changed. It may be deferred again."""
        if self.is_deferred(group_id):
            self._defer(group_id, 0.0, ctx)

    def defer(self, group_id: str, ctx: Context, pause_ms: float = 0.0) -> None:
        """Schedule the target as due work: when the group's pace allows it, but not within `pause_ms`."""
        pace = self._paces.get(group_id)
        not_before_ms = pace.not_before_ms if pace is not None else 0.0
        self._defer(group_id, max(pause_ms, not_before_ms - ctx.monotonic_ms), ctx)

    def _defer(self, group_id: str, pause_ms: float, ctx: Context) -> None:
        self._deferred.arm((group_id, ""), ctx.monotonic_ms, ctx.wall_ms, ceil(pause_ms))

    def is_deferred(self, group_id: str) -> bool:
        return self._deferred.get((group_id, "")) is not None

    def computed(self, group_id: str, ctx: Context, cost_ms: float) -> None:
        self._settle(group_id)
        self._paces[group_id] = self._pace(ctx, cost_ms)

    def _pace(self, ctx: Context, cost_ms: float, failures: int = 0) -> _Pace:
        limits = self._limits
        pause_ms = 0.0
        if cost_ms >= limits.target_pause_free_ms:
            pause_ms = min(cost_ms * limits.target_pause_factor, limits.target_pause_max_ms)
        return _Pace(ctx.monotonic_ms + pause_ms, ctx.turn, failures)

    def failed(self, group_id: str, ctx: Context, message: str) -> None:
        """Keep the error for describe, and schedule a retry after a pause that doubles with each failure."""
        limits, pace = self._limits, self._paces.get(group_id)
        failures = pace.failures if pace is not None else 0
        pause_ms = min(limits.target_retry_ms << min(failures, 16), limits.target_retry_max_ms)
        self._paces[group_id] = _Pace(ctx.monotonic_ms + pause_ms, ctx.turn, failures + 1)
        self.errors[group_id] = message
        self.defer(group_id, ctx)

    def has_failed(self, group_id: str) -> bool:
        """Whether the last attempt of the group's present assignor failed."""
        pace = self._paces.get(group_id)
        return pace is not None and pace.failures > 0

    def begun(self, group_id: str, ctx: Context, cost_ms: float) -> None:
        """Note that a child process now works on the target, and wait for its result.

        If the job is abandoned in favour of another assignor, that one waits according to the cost of the
        first request."""
        self._deferred.cancel((group_id, ""))
        known = self._paces.get(group_id)
        self._paces[group_id] = self._pace(ctx, cost_ms, known.failures if known is not None else 0)

    def forgive(self, group_id: str) -> None:
        """Clear the failures, because another assignor is asked from now on and must not wait for them."""
        pace = self._paces.get(group_id)
        if pace is not None and pace.failures:
            del self._paces[group_id]

    def forget(self, group_id: str) -> None:
        """Remove the group, because it needs no target any more."""
        self._settle(group_id)
        self._paces.pop(group_id, None)
        self._installed.pop(group_id, None)

    def _settle(self, group_id: str) -> None:
        self._deferred.cancel((group_id, ""))
        self.bumped_at.pop(group_id, None)
        self.errors.pop(group_id, None)

    def next_ms(self) -> float | None:
        return self._deferred.next_ms()

    def take_due(self, ctx: Context) -> str | None:
        """Return a group whose deferred target may be computed now."""
        not_yet: list[tuple[MemberKey, Deadline]] = []
        found: str | None = None
        for key, deadline in self._deferred.take_due(ctx.monotonic_ms):
            if self.may_compute(key[0], ctx):
                found = key[0]
                break
            not_yet.append((key, deadline))
        for key, deadline in not_yet:
            self._deferred.put_back(key, deadline)
        return found

    def group_ids(self) -> set[str]:
        """Ids of all groups with any data here."""
        kept = {*self._paces, *self._installed, *self.bumped_at, *self.errors}
        return kept.union(group_id for group_id, _ in self._deferred)

    def shift(self, gap_ms: float) -> None:
        self._deferred.shift(gap_ms)

    def clear(self) -> Iterator[None]:
        """Remove all data. Iterating the result frees the memory in steps."""
        self._paces.clear()
        self._installed.clear()
        self.bumped_at.clear()
        self.errors.clear()
        return self._deferred.clear()
