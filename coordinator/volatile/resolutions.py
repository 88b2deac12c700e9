"""When the expressions of a group are resolved: the volatile side of `coordinator.members.regexes`.

A group whose members subscribe by expression has a round of resolution when an expression is new, when topics
were created or deleted, and once in an interval. Rounds of a group are spaced, so that a thousand topics that
are created in a row cost some rounds and not a thousand: a tenth of the time at most goes into them. What is
here is lost with the lead; a new leader begins with a round for each such group, and finds what was missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from coordinator.api import Context
from coordinator.limits import Limits
from coordinator.regex.regexrounds import Taking
from coordinator.state.dissolving import emptied
from coordinator.volatile.timers import Deadlines


@dataclass(slots=True)
class Progress:
    """What is known of one group's rounds."""

    seen_version: int = 0
    """Its resolved expressions are right as of this catalog, but for those with an error."""
    full_at_ms: float | None = None
    """When all were last matched against all topics; None: see their records."""
    not_before_ms: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    """By expression."""
    failure: str | None = None
    """Why the last round as a whole came to nothing."""
    taking: Taking | None = None
    """What a round found and is not all in the log yet."""


class Resolutions:
    """Which group has its round when."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._due = Deadlines()
        self._groups: dict[str, Progress] = {}

    def of(self, group_id: str) -> Progress:
        return self._groups.setdefault(group_id, Progress())

    def want(self, group_id: str, ctx: Context, delay_ms: float = 0.0) -> None:
        """A round is due after the delay, but not before the pause since the last one is over."""
        progress = self._groups.get(group_id)
        pause_ms = progress.not_before_ms - ctx.monotonic_ms if progress is not None else 0.0
        delay_ms = max(delay_ms, pause_ms, 0.0)
        key = (group_id, "")
        known = self._due.get(key)
        if known is None or known.deadline_ms > ctx.monotonic_ms + delay_ms:
            self._due.arm(key, ctx.monotonic_ms, ctx.wall_ms, round(delay_ms))

    def ended(self, group_id: str, ctx: Context, cost_ms: float) -> None:
        """A round took so long: the next one waits."""
        limits = self._limits
        pause_ms = min(
            max(cost_ms * limits.regex_pause_factor, limits.regex_pause_ms), limits.regex_pause_max_ms
        )
        self.of(group_id).not_before_ms = ctx.monotonic_ms + pause_ms

    def errors(self, group_id: str) -> dict[str, str]:
        """What went wrong in the last round, by expression; "" for the round as a whole."""
        progress = self._groups.get(group_id)
        if progress is None:
            return {}
        whole = {"": progress.failure} if progress.failure is not None else {}
        return progress.errors | whole

    def is_wanted(self, group_id: str) -> bool:
        """Whether a round is to come."""
        return self._due.get((group_id, "")) is not None

    def group_ids(self) -> set[str]:
        """The groups of which anything is kept."""
        return {*self._groups, *(group_id for group_id, _ in self._due)}

    def next_ms(self) -> float | None:
        return self._due.next_ms()

    def take_due(self, ctx: Context) -> str | None:
        """A group whose round is due."""
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
        return chain(self._due.clear(), emptied(groups))
