"""The demo's consumers: each a process with a file of evidence of its own.

The invariant: whatever happens, `stop_all` ends every process that was started, and no other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from quorate.demo.evidence import ConsumerEvidence, EvidenceFile

CONSUMER_SCRIPT = Path(__file__).with_name("consumer.py")
LEAVE_TIMEOUT_S = 5.0  # librdkafka's close sends one heartbeat; a consumer that takes longer is stuck


class ConsumerProcess:
    """One consumer; started on construction."""

    def __init__(self, name: str, directory: Path, bootstrap: str, group: str, topic: str) -> None:
        self.name = name
        self.journal = directory / f"{name}.jsonl"
        self._evidence = EvidenceFile(name, self.journal)
        self.errors = directory / f"{name}.stderr"
        command = [sys.executable, "-P", str(CONSUMER_SCRIPT), "--bootstrap", bootstrap]
        command += ["--group", group, "--topic", topic, "--name", name, "--journal", str(self.journal)]
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, process_group=0
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def evidence(self) -> ConsumerEvidence:
        return self._evidence.read()

    def ask_to_leave(self) -> None:
        """SIGTERM: the consumer closes, which leaves the group."""
        if self.is_running:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL: the consumer is gone without leaving the group."""
        if self.is_running:
            self._process.kill()
        self._process.wait()

    def wait_gone(self) -> bool:
        """Wait for a consumer that was asked to leave; returns False if it had to be killed."""
        try:
            self._process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return self._process.returncode == 0


class Fleet:
    """All consumers of one group, by name; those that ended keep their evidence."""

    def __init__(self, directory: Path, bootstrap: str, group: str, topic: str) -> None:
        self._directory = directory
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self.consumers: dict[str, ConsumerProcess] = {}

    def start(self, name: str) -> ConsumerProcess:
        started = ConsumerProcess(name, self._directory, self._bootstrap, self._group, self._topic)
        self.consumers[name] = started
        return started

    @property
    def running(self) -> list[ConsumerProcess]:
        return [one for one in self.consumers.values() if one.is_running]

    def evidence(self) -> dict[str, ConsumerEvidence]:
        return {name: one.evidence() for name, one in self.consumers.items()}

    def leave_all(self) -> list[str]:
        """Ask all to leave and wait; returns the names of those that did not end cleanly."""
        running = self.running
        for one in running:
            one.ask_to_leave()
        return [one.name for one in running if not one.wait_gone()]

    def stop_all(self) -> None:
        """Kill all consumers, at the end of the demo or when it is aborted."""
        for one in self.consumers.values():
            one.kill()
