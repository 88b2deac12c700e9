"""Stock clients as processes of their own that tell in lines of JSON what happens to them.

The lines are those of Kafka's VerifiableConsumer and VerifiableProducer: `partitions_assigned`,
`partitions_revoked`, `partitions_lost`, `record_data`, `offsets_committed`; `producer_send_success`,
`producer_send_error`. `tests.support.stock_clients` starts such programs of several clients.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

STOPPED_S_MAX: Final = 60.0

Part = tuple[str, int]
"""A topic and the number of a partition."""


class VerifiableProcess:
    """One process; `events` are the names of its lines so far."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | (env or {}),
        )
        self.events: list[str] = []
        self.other_lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Let it finish; a consumer leaves the group, a static member temporarily."""
        self._process.terminate()
        self.wait()

    def wait(self) -> None:
        """Wait for its end, and until all of its lines are read."""
        self._process.wait(timeout=STOPPED_S_MAX)
        self._reader.join(timeout=5)

    def kill(self) -> None:
        """Send SIGKILL: a consumer does not leave the group."""
        self._process.kill()

    def forget(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def answer(self) -> None:
        """Write the line that it waits for."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it was killed, or forgotten
            print(file=self._process.stdin, flush=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event: dict[str, Any] = json.loads(line)
                name = event["name"]
            except (ValueError, TypeError, KeyError):
                self.other_lines.append(line)
                continue
            self._take(name, event)
            self.events.append(name)

    def _take(self, name: str, event: dict[str, Any]) -> None:
        """Keep what a line says; `events` has its name afterwards."""


class VerifiableConsumer(VerifiableProcess):
    """A consumer; `parts` is its assignment according to its latest lines."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.parts: set[Part] = set()
        self.revoked: list[Part] = []
        """All partitions that it gave up or lost, in order."""
        self.values: list[str] = []
        """All values that it consumed."""
        self.committed: dict[Part, int] = {}
        """The newest offset of each partition whose commit succeeded."""
        self.commit_errors: list[str] = []
        self.while_revoking: Callable[[], None] = lambda: None
        """Runs while it waits in its callback for revoked partitions, if it is a program that does."""
        super().__init__(command, env)

    @property
    def assigned(self) -> set[int]:
        """Return its partitions of the one topic that it consumes."""
        return {number for _, number in self.parts}

    def report(self) -> str:
        """Say what it did last, for the message of a failed test."""
        last = "".join(self.other_lines[-20:])
        return f"{sorted(self.assigned)} {self.events[-5:]} {self.commit_errors[-3:]} {last}"

    def _take(self, name: str, event: dict[str, Any]) -> None:
        if name == "record_data":
            self.values.append(event["value"])
        elif name == "offsets_committed":
            if event["success"]:
                for one in event["offsets"]:
                    self.committed[one["topic"], one["partition"]] = one["offset"]
            else:
                self.commit_errors.append(event["error"])
        elif name == "partitions_assigned":
            self.parts = self.parts | _parts(event)
        elif name == "partitions_revoking":
            try:
                self.while_revoking()
            finally:
                self.answer()
        elif name in ("partitions_revoked", "partitions_lost"):
            self.parts = self.parts - _parts(event)
            self.revoked += _parts(event)


class VerifiableProducer(VerifiableProcess):
    """A producer; `acknowledged` are the values that it was told are kept."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.acknowledged: list[str] = []
        self.errors: list[str] = []
        super().__init__(command, env)

    def _take(self, name: str, event: dict[str, Any]) -> None:
        if name == "producer_send_success":
            self.acknowledged.append(event["value"])
        elif name == "producer_send_error":
            self.errors.append(event["message"])


def _parts(event: dict[str, Any]) -> set[Part]:
    return {(one["topic"], one["partition"]) for one in event["partitions"]}
