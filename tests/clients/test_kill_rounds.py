"""kill -9 of the node under committing clients, again and again: nothing acknowledged may be lost.

A round follows these rules, so that it can find a loss at all: at least 100 acknowledged commits per second
up to the kill; each committer writes every acknowledgement down, by itself; a third of the keys are never
committed again after the kill, and every key is fetched before anyone commits it again, so that no later
commit covers up a lost one; and every acknowledged (key, offset) of all rounds is looked for in the log at
the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cluster.launcher import NodeProcess, launch_node
from history.commits import missing_commits
from quorate.client import Client
from tests.report import count_fault

TOPIC = "orders"
NUM_COMMITTERS = 6
KEYS_PER_COMMITTER = 3
COMMIT_S = 0.5
COMMITS_PER_S_MIN = 100
ROUNDS = 20


@dataclass(slots=True)
class Committer:
    """One client, one group of its own, some partitions; commits as fast as it is acknowledged."""

    bootstrap: str
    group: str
    partitions: list[int]
    acknowledged: dict[int, list[int]] = field(default_factory=dict)
    num_commits: int = 0

    def run(self, stopped: threading.Event, start_offsets: dict[int, int]) -> None:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False}
        consumer = Consumer({**config, "log_level": 0, "socket.timeout.ms": 2_000})
        offsets = {partition: start_offsets[partition] for partition in self.partitions}
        try:
            while not stopped.is_set():
                for partition in offsets:
                    offsets[partition] += 1
                try:
                    consumer.commit(
                        offsets=[TopicPartition(TOPIC, p, offset) for p, offset in offsets.items()],
                        asynchronous=False,
                    )
                except KafkaException:
                    continue
                self.num_commits += 1
                for partition, offset in offsets.items():
                    self.acknowledged.setdefault(partition, []).append(offset)
        finally:
            consumer.close()


class Rounds:
    """The node, the keys, and all that was ever acknowledged."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.bootstrap = f"{node.host}:{node.port}"
        self.next_partition = 0
        self.all_acknowledged: list[tuple[tuple[str, str, int], int]] = []
        self.offsets: dict[str, dict[int, int]] = {f"group-{n}": {} for n in range(NUM_COMMITTERS)}

    def run_round(self) -> None:
        committers = [self._committer(group) for group in self.offsets]
        stopped = threading.Event()
        threads = [
            threading.Thread(target=one.run, args=(stopped, self.offsets[one.group]), daemon=True)
            for one in committers
        ]
        for thread in threads:
            thread.start()
        while not all(one.num_commits for one in committers):
            time.sleep(0.01)
        before, started_s = sum(one.num_commits for one in committers), time.monotonic()
        time.sleep(COMMIT_S)
        rate = (sum(one.num_commits for one in committers) - before) / (time.monotonic() - started_s)
        self.node.kill()
        count_fault("clients", "kill -9 of the node")
        stopped.set()
        self.node.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert rate >= COMMITS_PER_S_MIN, f"only {rate:.0f} commits per second"
        self._check(committers)

    def _committer(self, group: str) -> Committer:
        """Two thirds of the keys of the round before, and new ones for those that have stopped."""
        known = self.offsets[group]
        kept = sorted(known)[-KEYS_PER_COMMITTER:][1:]
        while len(kept) < KEYS_PER_COMMITTER:
            kept.append(self.next_partition)
            known[self.next_partition] = 0
            self.next_partition += 1
        return Committer(self.bootstrap, group, kept)

    def _check(self, committers: list[Committer]) -> None:
        """Every key is fetched before anyone commits it again."""
        with Client(self.bootstrap) as client:
            for one in committers:
                found = client.offsets(one.group).get(TOPIC, {})
                for partition, acknowledged in one.acknowledged.items():
                    assert found.get(partition, -1) >= acknowledged[-1], f"{one.group} {TOPIC}-{partition}"
                    self.all_acknowledged += [
                        ((one.group, TOPIC, partition), offset) for offset in acknowledged
                    ]
                self.offsets[one.group] |= found

    def check_log(self) -> None:
        """Every acknowledged (key, offset) of all rounds is in the files."""
        assert self.node.stop() == 0
        assert len(self.all_acknowledged) > 0
        assert missing_commits(str(self.node.data), self.all_acknowledged) == []


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    process = launch_node(tmp_path / "node")
    try:
        with Client(f"{process.host}:{process.port}") as client:
            client.create_topic(TOPIC, 1_000)
        yield Rounds(process)
    finally:
        if process.poll() is None:
            process.kill()


@pytest.mark.timeout(300)
def test_no_acknowledged_commit_is_lost(rounds: Rounds) -> None:
    for _ in range(ROUNDS):
        rounds.run_round()
    rounds.check_log()
