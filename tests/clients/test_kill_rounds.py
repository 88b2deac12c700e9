"""kill -9 of the node under committing clients, again and again: nothing acknowledged may be lost.

A round follows these rules, so that it can detect a loss:

* at least 100 acknowledged commits per second up to the kill, each recorded by its client in a file;
* the clients are killed too, before the node comes back: librdkafka retries a commit in flight by itself,
  and that commit would cover up a lost one;
* every key is fetched before any client commits it again, and a third of the keys are never committed again;
* every acknowledged (key, offset) of all rounds is looked for in the log at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import NodeProcess, launch_node
from history.checking.commits import Key, missing_commits
from quorate.client import Client
from tests.report import count_fault
from tests.support import committers
from tests.support.waiting import wait_for

pytestmark = pytest.mark.failover  # a node is killed twenty times

TOPIC = "orders"
NUM_GROUPS = 6
KEYS_PER_GROUP = 3
COMMIT_S = 0.5
COMMITS_PER_S_MIN = 100
ROUNDS = 20
ROUNDS_OF_CHAOS = 150
START_TIMEOUT_S = 20


class Rounds:
    """The node, the keys, and everything that was ever acknowledged."""

    def __init__(self, node: NodeProcess, directory: Path) -> None:
        self.node = node
        self.bootstrap = f"{node.host}:{node.port}"
        self.directory = directory
        self.num_rounds = 0
        self.next_partition = 0
        self.keys: dict[str, list[int]] = {f"group-{number}": [] for number in range(NUM_GROUPS)}
        self.offsets: dict[tuple[str, int], int] = {}
        self.all_acknowledged: list[tuple[Key, int]] = []

    def run_round(self) -> None:
        self.num_rounds += 1
        files = self.directory / f"round-{self.num_rounds}"
        files.mkdir()
        self._choose_keys()
        started = {
            group: {str(partition): self.offsets.get((group, partition), 0) for partition in partitions}
            for group, partitions in self.keys.items()
        }
        command = [sys.executable, "-P", committers.__file__, self.bootstrap, TOPIC, str(files)]
        with subprocess.Popen([*command, json.dumps(started)], stderr=subprocess.DEVNULL) as process:
            try:
                self._wait_for_first_commits(files)
                time.sleep(COMMIT_S)
                killed_ms = time.time() * 1000
                self.node.kill()
                count_fault("clients", "kill -9 of the node")
            finally:
                process.kill()
        self.node.start()
        self._check(files, killed_ms)

    def _choose_keys(self) -> None:
        """Choose two thirds of the last round's keys; the first third is never committed again."""
        for partitions in self.keys.values():
            del partitions[:1]
            while len(partitions) < KEYS_PER_GROUP:
                partitions.append(self.next_partition)
                self.next_partition += 1

    def _wait_for_first_commits(self, files: Path) -> None:
        wait_for(
            lambda: all(committers.acknowledged(files / group) for group in self.keys),
            "a commit of every client",
            START_TIMEOUT_S,
        )

    def _check(self, files: Path, killed_ms: float) -> None:
        """Fetch every key before any client commits it again."""
        num_commits = 0
        with Client(self.bootstrap) as client:
            for group in self.keys:
                acknowledged = committers.acknowledged(files / group)
                found = client.offsets(group)[TOPIC]
                for partition, offset in acknowledged[-1][1].items():
                    assert found.get(partition, -1) >= offset, f"{group} {TOPIC}-{partition} lost commits"
                    self.offsets[group, partition] = found[partition]
                num_commits += sum(at_ms > killed_ms - 1000 * COMMIT_S for at_ms, _ in acknowledged)
                self.all_acknowledged += [
                    ((group, TOPIC, partition), offset)
                    for _, offsets in acknowledged
                    for partition, offset in offsets.items()
                ]
        assert num_commits / COMMIT_S >= COMMITS_PER_S_MIN, f"{num_commits / COMMIT_S:.0f} commits per second"

    def check_log(self) -> None:
        """Check that every acknowledged (key, offset) of all rounds is in the files."""
        assert self.node.stop() == 0
        assert missing_commits(str(self.node.data), self.all_acknowledged) == []


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    process = launch_node(tmp_path / "node")
    try:
        with Client(f"{process.host}:{process.port}") as client:
            client.create_topic(TOPIC, 1_000)
        yield Rounds(process, tmp_path)
    finally:
        if process.poll() is None:
            process.kill()


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("count", [ROUNDS, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
def test_no_acknowledged_commit_is_lost(rounds: Rounds, count: int) -> None:
    for _ in range(count):
        rounds.run_round()
    rounds.check_log()
