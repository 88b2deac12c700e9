"""Rounds in which members are asked to compute their group's target (client-side assignors).

A round is for one target in force and one choice of assignor; it records which member is asked, until when,
and which have failed. `coordinator.targets.clientside` begins it and chooses the members. Volatile: a new
leader begins a round of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from coordinator.assignors.spi import AssignmentSpec
from coordinator.state.freeing import free_incrementally


@dataclass(frozen=True, slots=True)
class Choice:
    """The assignor that a group uses, and the newest version of its metadata that all members support."""

    name: str
    version_min: int
    version: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The input given to the chosen member: the group at one epoch.

    `bumped_at` is the log index at which the epoch began, if known."""

    epoch: int
    spec: AssignmentSpec
    bumped_at: int | None = None


@dataclass(slots=True)
class ClientRound:
    """The search for one target. `chosen` is "" before any member was asked and after all have failed."""

    choice: Choice
    assignment_epoch: int
    """Epoch of the target in force when the round began. The round ends when this changes."""
    epoch: int
    """Group epoch for which `choice` was made."""
    chosen: str = ""
    deadline_ms: float = 0.0
    prepared: Prepared | None = None
    until_ms: float | None = None
    """Monotonic time at which the server assignor takes over. Set when the first member is asked."""
    failed: set[str] = field(default_factory=set)
    is_over: bool = False
    """Whether no member is left to ask. The server assignor's target then ends the round."""


class ClientSide:
    """The rounds in progress and the last error of each group. Volatile."""

    def __init__(self) -> None:
        self.rounds: dict[str, ClientRound] = {}
        self.errors: dict[str, str] = {}

    def forget(self, group_id: str) -> None:
        self.rounds.pop(group_id, None)
        self.errors.pop(group_id, None)

    def clear(self) -> Iterator[None]:
        """Remove all rounds. Iterating the result frees the memory in steps."""
        rounds, errors = self.rounds, self.errors
        self.rounds, self.errors = {}, {}
        return chain(free_incrementally(rounds), free_incrementally(errors))

    def shift(self, gap_ms: float) -> None:
        for round_ in self.rounds.values():
            round_.deadline_ms += gap_ms
            if round_.until_ms is not None:
                round_.until_ms += gap_ms
