"""The search for a member that computes its group's target: who is asked, how long, and who has failed.

A round is for one target in force and one choice of assignor; `coordinator.targets.clientside` begins it,
chooses, and lets others try. Volatile: a new leader begins a round of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from coordinator.assignors.spi import AssignmentSpec
from coordinator.state.dissolving import emptied


@dataclass(frozen=True, slots=True)
class Choice:
    """The assignor that a group uses, and the newest version of its metadata that all members understand."""

    name: str
    version_min: int
    version: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the chosen member was shown: the group at one epoch, which began at log index `bumped_at`, where
    that is known."""

    epoch: int
    spec: AssignmentSpec
    bumped_at: int | None = None


@dataclass(slots=True)
class Round:
    """The search for one target. `chosen` is "" before anybody was asked and after everybody failed."""

    choice: Choice
    assignment_epoch: int
    """Of the target in force when the round began; another one ends it."""
    epoch: int
    """Group epoch for which `choice` was made."""
    chosen: str = ""
    deadline_ms: float = 0.0
    prepared: Prepared | None = None
    until_ms: float | None = None
    """When it is the server assignor's turn, whoever is asked: from the first that was asked on."""
    failed: set[str] = field(default_factory=set)
    is_over: bool = False
    """Nobody is left to ask; the server assignor's target will end it."""


class ClientSide:
    """The rounds under way, and what went wrong last, by group. Volatile."""

    def __init__(self) -> None:
        self.rounds: dict[str, Round] = {}
        self.errors: dict[str, str] = {}

    def forget(self, group_id: str) -> None:
        self.rounds.pop(group_id, None)
        self.errors.pop(group_id, None)

    def clear(self) -> Iterator[None]:
        """There are no rounds from now on; the steps let go of those that there were."""
        rounds, errors = self.rounds, self.errors
        self.rounds, self.errors = {}, {}
        return chain(emptied(rounds), emptied(errors))

    def shift(self, gap_ms: float) -> None:
        for round_ in self.rounds.values():
            round_.deadline_ms += gap_ms
            if round_.until_ms is not None:
                round_.until_ms += gap_ms
