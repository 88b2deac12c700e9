"""A schedule: what happens to a group, and when, drawn from a seed; the same for every protocol.

Times are ms from the first member's start. A schedule names no protocol and reads no clock, so that the same
seed, number of members and length give the same schedule.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

START_WITHIN_MS: Final = 2_000.0
"""The first members start one after another within this time."""
QUIET_BEFORE_MS: Final = 20_000.0
"""Nothing happens before this time, so that the group forms."""
QUIET_AFTER_MS: Final = 30_000.0
"""Nothing happens in the last part of a run, so that the last event has its full effect."""
GAP_MIN_MS: Final = 4_000.0
GAP_MEAN_MS: Final = 13_000.0
"""Mean time between two events."""
KILL_GAP_MIN_MS: Final = 20_000.0
"""Least time between two coordinators' ends: the first one is back and level by then."""
DOWN_MS: Final = 8_000.0
"""A killed coordinator is started again after this time."""
SLOW_MIN_MS, SLOW_MAX_MS = 4_000.0, 25_000.0
GROWTH: Final = 0.1
"""A topic grows by this share."""


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """Something that happens to the group at `at_ms`."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class Join(ScheduledEvent):
    """A member starts. Names are never used twice."""

    member: str


@dataclass(frozen=True, slots=True)
class Leave(ScheduledEvent):
    """A member closes, as a process does that is told to end."""

    member: str


@dataclass(frozen=True, slots=True)
class Slow(ScheduledEvent):
    """A member's program does not poll for `for_ms`; its work and its client's heartbeats go on."""

    member: str
    for_ms: float


@dataclass(frozen=True, slots=True)
class KillCoordinator(ScheduledEvent):
    """The process that coordinates the group ends without a word, and starts again `for_ms` later."""

    for_ms: float = DOWN_MS


@dataclass(frozen=True, slots=True)
class GrowTopic(ScheduledEvent):
    """A topic has `num_partitions` partitions from now on, more than before."""

    topic: str
    num_partitions: int


KINDS: Final[Mapping[type[ScheduledEvent], int]] = {
    Join: 4,
    Leave: 4,
    Slow: 4,
    KillCoordinator: 1,
    GrowTopic: 1,
}
"""The frequency of each kind of event, relative to the others."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run: `topics` and `members` to begin with; all events by time, with the first members' joins."""

    seed: int
    members: int
    minutes: float
    topics: Mapping[str, int]
    events: tuple[ScheduledEvent, ...]

    @property
    def end_ms(self) -> float:
        return self.minutes * 60_000.0

    @property
    def disturbances(self) -> list[ScheduledEvent]:
        """The events after the group has formed."""
        return [event for event in self.events if event.at_ms >= QUIET_BEFORE_MS]


def draw(seed: int, members: int, minutes: float) -> Schedule:
    """Draw a schedule."""
    rng = random.Random(f"generations/{seed}/{members}/{minutes}")
    topics = {"orders": 2 * members, "payments": members}
    names = [_name(number) for number in range(members)]
    joins = [Join(START_WITHIN_MS * number / members, name) for number, name in enumerate(names)]
    later = _Later(rng, names, dict(topics))
    end_ms = minutes * 60_000.0 - QUIET_AFTER_MS
    return Schedule(seed, members, minutes, topics, (*joins, *later.events(end_ms)))


def _name(number: int) -> str:
    return f"member-{number + 1:03}"


class _Later:
    """Draws what happens after the group has formed."""

    def __init__(self, rng: random.Random, names: list[str], topics: dict[str, int]) -> None:
        self._rng = rng
        self._present = names[:]
        self._started = len(names)
        self._topics = topics
        self._slow_until_ms: dict[str, float] = {}
        self._kill_from_ms = 0.0

    def events(self, end_ms: float) -> Iterator[ScheduledEvent]:
        due = self._kinds()
        at_ms = QUIET_BEFORE_MS
        while at_ms < end_ms:
            event = self._event(next(due), round(at_ms, 1))
            if event is not None:
                yield event
            at_ms += GAP_MIN_MS + self._rng.expovariate(1 / (GAP_MEAN_MS - GAP_MIN_MS))

    def _kinds(self) -> Iterator[type[ScheduledEvent]]:
        """Yield each kind once, in any order, and then by their weights."""
        kinds = list(KINDS)
        yield from self._rng.sample(kinds, len(kinds))
        while True:
            yield self._rng.choices(kinds, [*KINDS.values()])[0]

    def _event(self, kind: type[ScheduledEvent], at_ms: float) -> ScheduledEvent | None:
        """Return an event of a kind, None if there can be none now."""
        if kind is Join:
            self._started += 1
            self._present.append(_name(self._started - 1))
            return Join(at_ms, self._present[-1])
        if kind is KillCoordinator:
            if at_ms < self._kill_from_ms:
                return None
            self._kill_from_ms = at_ms + KILL_GAP_MIN_MS
            return KillCoordinator(at_ms)
        if kind is GrowTopic:
            topic = self._rng.choice(sorted(self._topics))
            self._topics[topic] += max(1, round(self._topics[topic] * GROWTH))
            return GrowTopic(at_ms, topic, self._topics[topic])
        return self._of_a_member(kind, at_ms)

    def _of_a_member(self, kind: type[ScheduledEvent], at_ms: float) -> ScheduledEvent | None:
        able = [name for name in self._present if self._slow_until_ms.get(name, 0.0) <= at_ms]
        if len(able) < 2:
            return None
        member = self._rng.choice(able)
        if kind is Leave:
            self._present.remove(member)
            return Leave(at_ms, member)
        for_ms = round(self._rng.uniform(SLOW_MIN_MS, SLOW_MAX_MS), 1)
        self._slow_until_ms[member] = at_ms + for_ms
        return Slow(at_ms, member, for_ms)
