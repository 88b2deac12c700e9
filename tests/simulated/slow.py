"""A consumer that, as librdkafka and Kafka's Java client do, applies assignments later, one after another,
while heartbeats go on.

It looks up topics first, with full heartbeats meanwhile; then its program must poll, which sometimes takes
long. Until it has acknowledged a new assignment it reports the one that it acknowledged before. Assignments
that arrive meanwhile replace each other: the newest is next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.simulated.actors import REJOIN, Member, by_topic

LOOKUP_MS: Final = (1.0, 700.0)
"""Range of the time to look up the topics of a first assignment."""

POLL_MS: Final = ((1.0, 100.0), (1.0, 100.0), (300.0, 2_500.0))
"""Ranges of the time between two polls of the program: one in three is long."""

Parts = set[tuple[bytes, int]]


class Slow(Member):
    """`owned` has the partitions that its program uses, `acknowledged` those reported to the coordinator."""

    def _begin(self) -> None:
        super()._begin()
        self._forget()

    def _forget(self) -> None:
        self.acknowledged: Parts = set()
        self.taking_up: Parts | None = None
        self.is_taken_up = False
        self.is_looking_up = True
        self._is_waiting = self._acknowledges = False
        self.newest: Parts | None = None

    def _heartbeat(self, says_all: bool) -> Any:
        request = super()._heartbeat(says_all or self.is_looking_up)
        self._acknowledges = self.is_taken_up
        if self.is_taken_up:
            assert self.taking_up is not None
            request.topic_partitions = by_topic(self.taking_up)
        elif says_all or self.is_looking_up:
            request.topic_partitions = by_topic(self.acknowledged)
        else:
            request.topic_partitions = None
        return request

    def _take(self, given: Parts) -> None:
        self.newest = given
        if self.taking_up is None and not self._is_waiting:
            self._is_waiting = True
            self._later(LOOKUP_MS if self.is_looking_up else POLL_MS[0], self._go_on)

    def _accepted(self, answer: Any) -> None:
        if self._acknowledges and self.is_taken_up:
            assert self.taking_up is not None
            self.acknowledged, self.taking_up, self.is_taken_up = self.taking_up, None, False
            self._go_on()

    def _go_on(self) -> None:
        """Begin to apply the newest assignment, if it is a new one."""
        self._is_waiting = False
        if self.taking_up is None and self.newest is not None and self.newest != self.acknowledged:
            self.taking_up, self.is_looking_up = self.newest, False
            self._later(self.host.rng.choice(POLL_MS), self._polled)

    def _polled(self) -> None:
        """Use the new assignment, as the program has polled, and report it to the coordinator at once."""
        assert self.taking_up is not None
        self._own(self.taking_up)
        self.is_taken_up = True
        self.beat()

    def _refused(self, code: int) -> None:
        super()._refused(code)
        if code in REJOIN:
            self.lives += 1  # ignore what is still under way
            self._forget()

    def _later(self, span_ms: tuple[float, float], step: Callable[[], None]) -> None:
        life = self.lives
        self.host.call_later(self.host.rng.uniform(*span_ms), lambda: step() if life == self.lives else None)
