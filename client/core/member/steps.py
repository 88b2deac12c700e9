"""The member's steps that run on the application side, one at a time, each known by its round number.

Giving up partitions, taking them and losing them are steps: an event goes to the application side, which runs
the user's callbacks and acknowledges with the event's round number. Nothing can stop a callback that runs, so
to cancel a step is to stop waiting for it: its number is not the running step's any more, and the late
acknowledgement changes nothing. The application side takes events in order, so the end of a later step is
also the end of every earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from client.core.events import AckPartitionAssignedEvent, AckPartitionRevokedEvent, BackgroundEvent
from client.core.member.wants import Emit


def plural(count: int, noun: str) -> str:
    """A number of things, for people."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


Acknowledgement = AckPartitionRevokedEvent | AckPartitionAssignedEvent
Continuation = Callable[[Acknowledgement, float], None]
"""The continuation after a step; its second argument is the time in ms."""


class ApplicationStep(NamedTuple):
    round: int
    waits_for: str
    """The thing that the member waits for, in words for people."""
    then: Continuation


class ApplicationSteps:
    """The step that runs, if one does."""

    def __init__(self, emit: Emit) -> None:
        self.running: ApplicationStep | None = None
        self._emit = emit
        self._round = 0

    def begin(self, event: Callable[[int], BackgroundEvent], waits_for: str, then: Continuation) -> None:
        """Send the event that `event` makes for a round number; go on with `then` when it is acknowledged.

        A step that still runs is cancelled."""
        self._round += 1
        self.running = ApplicationStep(self._round, waits_for, then)
        self._emit(event(self._round))

    def cancel(self) -> None:
        self.running = None

    def acknowledge(self, event: Acknowledgement, now_ms: float) -> None:
        """Handle ACK_PARTITION_REVOKED and ACK_PARTITION_ASSIGNED."""
        step = self.running
        if step is not None and step.round == event.round:
            self.running = None
            step.then(event, now_ms)
