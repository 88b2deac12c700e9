"""`quorate topics mirror` as its own process, between two real clusters, with a group at work on the copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from tests.support.polled_consumers import Crowd

LINE_S = 30.0
ROUND_S = "0.2"


class MirrorProcess:
    """The command and its output, line by line."""

    def __init__(self, source: str, target: str, state: Path, *options: str) -> None:
        command = [sys.executable, "-P", "-m", "quorate", "topics", "mirror", "--from", source]
        command += ["--bootstrap", target, "--state", str(state), "--timeout", "2", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def wait_for(self, text: str) -> str:
        """Return the next line that contains `text`; earlier ones are skipped."""
        while True:
            line = self._lines.get(timeout=LINE_S)
            if text in line:
                return line

    def stop(self) -> int:
        """Send Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(LINE_S)
        self._reader.join(LINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def source(tmp_path: Path) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path / "source", num_nodes=1)
    yield started
    started.kill()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path / "target", num_nodes=1)
    yield started
    started.kill()


def test_a_group_works_on_the_topics_of_another_cluster(
    source: ClusterProcess, target: ClusterProcess, tmp_path: Path
) -> None:
    state = tmp_path / "mirror.json"
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        there.create_topic("orders", 3)
        there.create_topic("payments", 2)
        mirror = MirrorProcess(
            source.bootstrap, target.bootstrap, state, "--interval", ROUND_S, "--topics", "orders.*"
        )
        crowd = Crowd(target.bootstrap, "billing", "orders")
        try:
            mirror.wait_for("created orders with 3 partitions")
            crowd.join()
            crowd.join()
            crowd.wait_balanced(3)
            there.grow_topic("orders", 8)
            mirror.wait_for("grew orders to 8 partitions")
            crowd.wait_balanced(8)
            there.delete_topic("orders")
            there.create_topic("orders", 4)
            mirror.wait_for("again with 4 partitions")
            crowd.wait_balanced(4)
            crowd.overlaps.clear()  # by name only, one member's old partition may be another's new one
            there.create_topic("orders-2", 1)
            mirror.wait_for("created orders-2")
            assert [(topic.name, topic.num_partitions) for topic in here.topics()] == [
                ("orders", 4),
                ("orders-2", 1),
            ]
            there.delete_topic("orders-2")
            mirror.wait_for("deleted orders-2")
            assert [topic.name for topic in here.topics()] == ["orders"]
        finally:
            assert mirror.stop() == 130
            crowd.close()


@pytest.mark.thorough
def test_either_side_may_be_away(source: ClusterProcess, target: ClusterProcess, tmp_path: Path) -> None:
    with Client(source.bootstrap) as there:
        there.create_topic("orders", 3)
    mirror = MirrorProcess(
        source.bootstrap, target.bootstrap, tmp_path / "mirror.json", "--interval", ROUND_S
    )
    try:
        mirror.wait_for("created orders")
        source.node(1).kill()
        mirror.wait_for("the source does not respond")
        source.node(1).start()
        mirror.wait_for("the source responds again")
        target.node(1).kill()
        mirror.wait_for("cannot reach the cluster")
        target.node(1).start()
        mirror.wait_for("the cluster responds again")
        with Client(source.bootstrap) as there:
            there.create_topic("late", 1)
        mirror.wait_for("created late")
    finally:
        assert mirror.stop() == 130


def test_once_ends_when_both_agree(source: ClusterProcess, target: ClusterProcess, tmp_path: Path) -> None:
    state = tmp_path / "mirror.json"
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        there.create_topic("orders", 3)
        for expected in (["orders"], []):
            mirror = MirrorProcess(source.bootstrap, target.bootstrap, state, "--once", "--interval", ROUND_S)
            assert mirror.ended() == 0
            assert [topic.name for topic in here.topics()] == expected
            if expected:
                there.delete_topic("orders")
