"""Schedule of regular-expression resolution: the volatile side of `coordinator.members.regexes`.

A group whose members subscribe by expression has a round of resolution when an expression is new, when topics
were created or deleted, and once per interval. Rounds of a group are spaced, so that creating a thousand
topics one by one costs a few rounds instead of a thousand: rounds take at most a tenth of the time. This
state is lost with the leadership; a new leader begins with a round for each such group and finds whatever was
missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from coordinator.api import Context
from coordinator.leader_state.timers import Deadlines
from coordinator.limits import Limits
from coordinator.regex.regexrounds import Taking
from coordinator.state.freeing import free_incrementally


@dataclass(slots=True)
class ResolutionProgress:
    """State of one group's rounds."""

    seen_version: int = 0
    """Catalog version as of which all resolved expressions are correct, except those with an error."""
    full_at_ms: float | None = None
    """Monotonic time of the last match of all expressions against all topics; None if only their records
    tell."""
    not_before_ms: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    """Errors by expression."""
    failure: str | None = None
    """Error of the last round as a whole; None if it succeeded."""
    taking: Taking | None = None
    """Results of a round that are not completely written to the log yet."""


class Resolutions:
    """The groups' rounds of resolution, and when each is due."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._due = Deadlines()
        self._groups: dict[str, ResolutionProgress] = {}

    def of(self, group_id: str) -> ResolutionProgress:
        return self._groups.setdefault(group_id, ResolutionProgress())

    def want(self, group_id: str, ctx: Context, delay_ms: float = 0.0) -> None:
        """Schedule a round after the delay, but not before the pause after the last one ends."""
        progress = self._groups.get(group_id)
        pause_ms = progress.not_before_ms - ctx.monotonic_ms if progress is not None else 0.0
        delay_ms = max(delay_ms, pause_ms, 0.0)
        key = (group_id, "")
        known = self._due.get(key)
        if known is None or known.deadline_ms > ctx.monotonic_ms + delay_ms:
            self._due.arm(key, ctx.monotonic_ms, ctx.wall_ms, round(delay_ms))

    def ended(self, group_id: str, ctx: Context, cost_ms: float) -> None:
        """Set the pause after a round that took `cost_ms`."""
        limits = self._limits
        pause_ms = min(
            max(cost_ms * limits.regex_pause_factor, limits.regex_pause_ms), limits.regex_pause_max_ms
        )
        self.of(group_id).not_before_ms = ctx.monotonic_ms + pause_ms

    def errors(self, group_id: str) -> dict[str, str]:
        """Errors of the last round by expression; the key "" is the error of the round as a whole."""
        progress = self._groups.get(group_id)
        if progress is None:
            return {}
        whole = {"": progress.failure} if progress.failure is not None else {}
        return progress.errors | whole

    def is_wanted(self, group_id: str) -> bool:
        """Whether a round is scheduled."""
        return self._due.get((group_id, "")) is not None

    def group_ids(self) -> set[str]:
        """Ids of all groups with any data here."""
        return {*self._groups, *(group_id for group_id, _ in self._due)}

    def next_ms(self) -> float | None:
        return self._due.next_ms()

    def take_due(self, ctx: Context) -> str | None:
        """Return a group whose round is due."""
        for (group_id, _), _ in self._due.take_due(ctx.monotonic_ms):
            return group_id
        return None

    def forget(self, group_id: str) -> None:
        self._due.cancel((group_id, ""))
        self._groups.pop(group_id, None)

    def shift(self, gap_ms: float) -> None:
        self._due.shift(gap_ms)

    def clear(self) -> Iterator[None]:
        groups, self._groups = self._groups, {}
        return chain(self._due.clear(), free_incrementally(groups))
