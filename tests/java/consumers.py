"""Kafka's own Java consumers with the consumer protocol, each in its own process.

kafka-verifiable-consumer writes a line of JSON for every assignment and revocation; `Fleet` follows them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from benchmarks.apache import java_command
from tests.support.waiting import wait_for

VERIFIABLE: Final = "org.apache.kafka.tools.VerifiableConsumer"
BY_PATTERN: Final = str(Path(__file__).parent / "src" / "PatternConsumer.java")
ASSIGNED_S_MAX: Final = 60.0


class JavaConsumer:
    """One process; `parts` is its assignment according to its latest lines."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.parts: set[tuple[str, int]] = set()
        self.events: list[str] = []
        self.other_lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError:
                self.other_lines.append(line)
                continue
            parts = {
                (part["topic"], part["partition"])
                for part in event.get("partitions", ())
                if "partition" in part
            }
            if event["name"] == "partitions_assigned":
                self.parts = self.parts | parts
            elif event["name"] in ("partitions_revoked", "partitions_lost"):
                self.parts = self.parts - parts
            self.events.append(event["name"])

    @property
    def assigned(self) -> set[int]:
        """Return its partitions of the one topic that it consumes."""
        return {number for _, number in self.parts}

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Let it leave the group and end; a static member leaves temporarily."""
        self._process.terminate()
        self._process.wait(timeout=ASSIGNED_S_MAX)

    def kill(self) -> None:
        """Send SIGKILL: it does not leave the group."""
        self._process.kill()

    def forget(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)
        with contextlib.suppress(OSError):
            assert self._process.stdout is not None
            self._process.stdout.close()


class Fleet:
    """Consumers of one topic in one group."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._names = (bootstrap, topic, group)
        self.consumers: list[JavaConsumer] = []
        self._all: list[JavaConsumer] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._all:
            consumer.kill()
        for consumer in self._all:
            consumer.forget()

    def start(self, count: int, *options: str) -> list[JavaConsumer]:
        bootstrap, topic, group = self._names
        command = java_command(
            VERIFIABLE, "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
            "--group-protocol", "consumer", *options,
        )  # fmt: skip
        return self._follow([JavaConsumer(command) for _ in range(count)])

    def start_by_pattern(self, expression: str) -> list[JavaConsumer]:
        """Start a consumer whose expression the coordinator resolves."""
        bootstrap, _, group = self._names
        return self._follow([JavaConsumer(java_command(BY_PATTERN, bootstrap, group, expression))])

    def _follow(self, started: list[JavaConsumer]) -> list[JavaConsumer]:
        self.consumers += started
        self._all += started
        return started

    def take_out(self, position: int = 0) -> JavaConsumer:
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
        return "\n".join(
            f"{sorted(one.assigned)} {one.events[-5:]} {''.join(one.other_lines[-20:])}"
            for one in self.consumers
        )
