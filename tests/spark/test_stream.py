"""`quorate pipeline stream` beside a real cluster, killed at any moment: every entry is in the tables once.

Kafka's own C client joins, commits and leaves; a leader is killed too; segments are sealed and archived. No
batch is large enough for Spark, which is never started.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import benchmarks.consumer
from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from tests.report import count_fault
from tests.support.real_cluster import TOPIC, leader_of
from tests.support.table_rows import exported, held
from tests.support.waiting import descendants, wait_for

from .drivers import run_driver, start_driver

pytestmark = pytest.mark.spark

SETTINGS = {
    "log.segment.bytes": "40000",
    "snapshot.tail.records": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "500",
}
PARTITIONS = 6
GROUPS = ("billing", "shipping")
KILLS = 2
PAUSE_S = "0.05"
"""Seconds between two commits of a consumer."""
WAIT_S = 200.0
"""Far more than needed, for an overloaded machine."""


class Consumers:
    """Processes of `benchmarks.consumer`: they join, commit what they own again and again, and leave."""

    def __init__(self, cluster: ClusterProcess, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def join(self, group: str) -> None:
        """Start a consumer and return after its first commit."""
        diary = self._folder / f"{group}-{len(self._started)}.jsonl"
        script = str(Path(benchmarks.consumer.__file__))
        command = [sys.executable, "-P", script, self._cluster.bootstrap, group, TOPIC, str(diary), PAUSE_S]
        self._started.append((subprocess.Popen(command), diary))
        wait_for(lambda: diary.exists() and '"acked"' in diary.read_text(), f"{diary.stem} commits", WAIT_S)

    def leave(self, count: int = 1) -> None:
        """Let the oldest running consumers leave."""
        there = [one for one, _ in self._started if one.poll() is None]
        for one in there[:count]:
            one.send_signal(signal.SIGTERM)
        for one in there[:count]:
            one.wait(WAIT_S)

    def kill(self) -> None:
        for one, _ in self._started:
            one.kill()
            one.wait()


class Following:
    """The command as a process."""

    def __init__(self, log: Path, output: Path, scratch: Path) -> None:
        command = [sys.executable, "-m", "quorate", "pipeline", "stream", "--json", "--every", "300ms"]
        command += ["--input", str(log), "--output", str(output)]
        self.process = start_driver(command, scratch)
        self.batches: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._readers = [threading.Thread(target=self._listen), threading.Thread(target=self._hear)]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.batches.append(json.loads(line))

    def _hear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())

    def wait_for_batches(self, count: int) -> None:
        self._wait_for(lambda: len(self.batches) >= count, f"{count} batches")

    def wait_until_it_follows(self) -> None:
        self._wait_for(lambda: any(line.startswith("following") for line in self.said), "it follows")

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(lambda: condition() or self.process.poll() is not None, what, WAIT_S)
        assert self.process.poll() is None, "\n".join(self.said)

    def kill(self) -> None:
        count_fault("spark", "stream killed")
        assert descendants(self.process.pid) == []  # no JVM
        self.process.kill()
        self.end()

    def stop(self) -> int:
        """Stop it with SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        try:
            return self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            for reader in self._readers:
                reader.join(WAIT_S)
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()


@contextmanager
def running(folder: Path) -> Iterator[tuple[ClusterProcess, Consumers]]:
    cluster = launch_cluster(folder / "cluster", settings=SETTINGS)
    consumers = Consumers(cluster, folder)
    try:
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        yield cluster, consumers
    finally:
        consumers.kill()
        cluster.kill()


def assert_stopped(*streams: Following) -> None:
    """Stop the streams; one of them may have given up before, because another was always faster."""
    codes = [one.stop() for one in streams]
    said = "\n".join(line for one in streams for line in one.said)
    assert 0 in codes, said
    assert codes.count(0) == len(codes) or "another run" in said, said
    assert "Traceback" not in said


@pytest.mark.timeout(600)
def test_kills_at_any_moment_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    rng = random.Random(seed)
    log, output, scratch = tmp_path / "cluster", tmp_path / "tables", tmp_path / "scratch"
    scratch.mkdir()
    with running(tmp_path) as (cluster, consumers):
        for group in GROUPS:
            consumers.join(group)
        following = Following(log, output, scratch)
        for kill in range(KILLS):
            if kill == 0:
                following.wait_until_it_follows()  # it catches up, or is behind that
                count_fault("spark", "leader killed")
                leader = leader_of(cluster.nodes, GROUPS[0])
                leader.kill()
                leader.start()
            else:
                following.wait_for_batches(2)
                consumers.join(rng.choice(GROUPS))
            threading.Event().wait(rng.uniform(0, 3))  # at any point of a batch
            following.kill()
            if kill == 0:
                shutil.copytree(output, tmp_path / "copy")
            else:  # an older copy of the tables is brought up to date like any other
                shutil.rmtree(output)
                (tmp_path / "copy").rename(output)
            following = Following(log, output, scratch)
        following.wait_for_batches(2)
        other = Following(log, output, scratch)  # of two that commit at once, one goes on after the other
        wait_for(
            lambda: (
                len(other.batches) >= 2 or any(one.process.poll() is not None for one in (following, other))
            ),
            "both have written, or one has given up",
            WAIT_S,
        )
        wait_for(lambda: any((log / "node-1").glob("*/archive/*.log")), "a segment is archived", WAIT_S)
        consumers.leave()
        assert_stopped(following, other)
        consumers.leave(KILLS + len(GROUPS))
        cluster.stop()
    once: list[str | Path] = ["pipeline", "stream", "--once", "--input", log, "--output", output]
    run_driver([sys.executable, "-m", "quorate", *once], scratch)
    assert len(exported(log, "commits")["commits"]) > 200
    assert held(output) == exported(log)
