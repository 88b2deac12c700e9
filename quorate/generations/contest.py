"""The players on one schedule: what a player is, and how it is played.

A player fills `Player` with its protocol, in a world of its own in virtual time. `play` calls it with the
events of the schedule, each when its time has come, and it tells the ledger who works on what and which
messages pass. All players use the timeouts below, so that only the protocols differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from quorate.generations.ledger import Ledger, RunFigures
from quorate.generations.schedule import GrowTopic, Schedule, ScheduledEvent

GROUP: Final = "generations"
"""The group that every player plays."""
HEARTBEAT_MS: Final = 3_000
"""Kafka's default of heartbeat.interval.ms."""
SESSION_MS: Final = 10_000
POLL_INTERVAL_MS: Final = 15_000
"""max.poll.interval.ms, which is the rebalance timeout too: a program that is slow for longer is out."""
COMMIT_MS: Final = 5_000
"""Kafka's default of auto.commit.interval.ms, for all that commit in an interval."""
METADATA_MS: Final = 30_000
"""The interval at which a client asks for the topics' numbers of partitions."""
POLL_MS: Final = 500.0
"""The time that a poll of a program that is not slow takes: work on what it got, and the call itself."""


class Player(Protocol):
    """One generation of the group protocol."""

    name: str
    """A short name."""
    is_variant: bool
    """Whether it is a variant of the last player before it that is none."""
    idea: str
    """A sentence about how partitions change hands in it; empty for a variant.

    A protocol that replaced another one has `why`, too."""

    def begin(self, schedule: Schedule, ledger: Ledger) -> None:
        """Make the world with the schedule's topics and a coordinator that is ready; time 0 is after that."""

    def meet(self, event: ScheduledEvent) -> None:
        """Let an event happen now."""

    def run_until(self, at_ms: float) -> None:
        """Let virtual time pass until so many ms after `begin`; return at once if they have passed."""

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        """The cost of the run, with the figure that shows it.

        A variant says what it changes in `base`, the figures of its protocol."""


@dataclass(frozen=True, slots=True)
class PlayerResult:
    """The outcome of one player."""

    name: str
    idea: str
    sentence: str
    ledger: Ledger
    figures: RunFigures
    why: str = ""
    """The reason why it replaced the protocol before it."""
    is_variant: bool = False


def play(player: Player, schedule: Schedule, base: RunFigures | None = None) -> PlayerResult:
    """Play a schedule to its end; `base` are the figures that a variant is compared with."""
    ledger = Ledger()
    for topic, num_partitions in schedule.topics.items():
        ledger.exists(topic, num_partitions, 0.0)
    player.begin(schedule, ledger)
    for event in schedule.events:
        player.run_until(event.at_ms)
        if isinstance(event, GrowTopic):
            ledger.exists(event.topic, event.num_partitions, event.at_ms)
        player.meet(event)
    player.run_until(schedule.end_ms)
    ledger.close(schedule.end_ms)
    figures = ledger.figures(event_times(schedule))
    sentence = player.sentence(figures, base or figures)
    why = getattr(player, "why", "")
    return PlayerResult(player.name, player.idea, sentence, ledger, figures, why, player.is_variant)


def play_all(
    players: Sequence[Player], schedule: Schedule, told: Callable[[PlayerResult], None] = lambda _: None
) -> list[PlayerResult]:
    """Play a schedule to each player in turn; `told` is called after each."""
    results: list[PlayerResult] = []
    base: RunFigures | None = None
    for player in players:
        result = play(player, schedule, base if player.is_variant else None)
        base = base if player.is_variant else result.figures
        results.append(result)
        told(result)
    return results


def event_times(schedule: Schedule) -> list[float]:
    """Return the times from which settling is measured: the forming of the group, and each later event."""
    return [0.0, *(event.at_ms for event in schedule.disturbances)]
