"""Kafka's own Java consumers of one group, each in its own process (kafka-verifiable-consumer)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.apache import java_command
from tests.support.verifiable import VerifiableConsumer
from tests.support.waiting import wait_for

VERIFIABLE: Final = "org.apache.kafka.tools.VerifiableConsumer"
BY_PATTERN: Final = str(Path(__file__).parent / "src" / "PatternConsumer.java")
ASSIGNED_S_MAX: Final = 60.0


class Fleet:
    """Consumers of one topic in one group."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._names = (bootstrap, topic, group)
        self.consumers: list[VerifiableConsumer] = []
        self._all: list[VerifiableConsumer] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._all:
            consumer.kill()
        for consumer in self._all:
            consumer.forget()

    def start(self, count: int, *options: str, protocol: str = "consumer") -> list[VerifiableConsumer]:
        bootstrap, topic, group = self._names
        command = java_command(
            VERIFIABLE, "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
            "--group-protocol", protocol, *options,
        )  # fmt: skip
        return self._follow([VerifiableConsumer(command) for _ in range(count)])

    def start_by_pattern(self, expression: str) -> list[VerifiableConsumer]:
        """Start a consumer whose expression the coordinator resolves."""
        bootstrap, _, group = self._names
        return self._follow([VerifiableConsumer(java_command(BY_PATTERN, bootstrap, group, expression))])

    def _follow(self, started: list[VerifiableConsumer]) -> list[VerifiableConsumer]:
        self.consumers += started
        self._all += started
        return started

    def take_out(self, position: int = 0) -> VerifiableConsumer:
        """Stop counting a consumer."""
        return self.consumers.pop(position)

    def await_assigned(self, num_partitions: int) -> None:
        """Wait until the consumers own all partitions, none twice, as evenly as possible."""

        def is_even() -> bool:
            sizes = [len(consumer.assigned) for consumer in self.consumers]
            together = set().union(*(consumer.assigned for consumer in self.consumers))
            return (
                sum(sizes) == num_partitions
                and together == set(range(num_partitions))
                and max(sizes) - min(sizes) <= 1
            )

        self.until(is_even)

    def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            if condition():
                return True
            assert all(consumer.is_running for consumer in self.consumers), self.report()
            return False

        wait_for(holds, self.report, ASSIGNED_S_MAX)

    def report(self) -> str:
        return "\n".join(consumer.report() for consumer in self.consumers)
