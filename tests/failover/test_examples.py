"""Programs that were written for Apache Kafka run on three nodes as they are, also without the leader."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from tests.report import count_fault
from tests.support.real_cluster import leader_of
from tests.support.waiting import wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = 12
WITHIN_S = 40.0
QUORATE = [sys.executable, "-P", "-m", "quorate"]


@pytest.fixture(autouse=True)
def _ctrl_c_reaches_children() -> Iterator[None]:
    """Restore SIGINT: a shell's background jobs ignore it, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    """Like that of `quorate up --nodes 3 --topic orders:12`."""
    started = launch_cluster(tmp_path / "cluster", num_nodes=3, settings={"scratch.log.enable": "true"})
    try:
        with Client(started.bootstrap) as client:
            client.create_topic("orders", PARTITIONS)
        yield started
    finally:
        started.kill()


class Said:
    """The output of a program so far."""

    def __init__(self, out: Path) -> None:
        self._out = out

    @property
    def text(self) -> str:
        return self._out.read_text()

    def wait(self, pattern: str, times: int = 1) -> None:
        wait_for(lambda: len(re.findall(pattern, self.text)) >= times, lambda: self.text, WITHIN_S)

    def wait_for_more(self, *patterns: str) -> None:
        known = {pattern: len(re.findall(pattern, self.text)) for pattern in patterns}
        for pattern, times in known.items():
            self.wait(pattern, times + 1)


@contextmanager
def program(name: str, bootstrap: str, out: Path, ending: signal.Signals = signal.SIGINT) -> Iterator[Said]:
    """Run an example until the block ends, then end it, as with Ctrl-C or by `ending`."""
    with out.open("wb") as file:
        command = [sys.executable, "-P", str(EXAMPLES / name), bootstrap]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield Said(out)
        process.send_signal(ending)
        wait_for(lambda: process.poll() is not None, out.read_text, WITHIN_S)
        assert process.returncode == 0, out.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in out.read_text()


SERVICES = pytest.mark.parametrize("name", ["with_aiokafka.py", "with_kafka_python.py", "with_quorate.py"])


@SERVICES
def test_a_service_for_kafka_outlives_the_leader(name: str, cluster: ClusterProcess, tmp_path: Path) -> None:
    with program(name, cluster.bootstrap, tmp_path / "out") as said:
        said.wait_for_more(r"order \d+ is orders-", "worker 1 shipped", "worker 2 shipped")
        said.wait("worker 2 has 6 partitions")
        leader_of(cluster.nodes, "shipping").kill()
        count_fault("failover", "kill -9 of the leader under a program written for Kafka")
        said.wait_for_more(r"order \d+ is orders-", "worker 1 shipped", "worker 2 shipped")
        said.wait("worker 2 has left")
        said.wait(rf"(?s)worker 2 has left.*worker 1 has {PARTITIONS} partitions")
        said.wait_for_more("worker 1 shipped")


@SERVICES
def test_a_service_for_kafka_ends_with_its_coordinator(
    name: str, cluster: ClusterProcess, tmp_path: Path
) -> None:
    """Its consumers commit while they stop; aiokafka's would try for ever."""
    with program(name, cluster.bootstrap, tmp_path / "out") as said:
        said.wait("worker 1 shipped")
        said.wait("worker 2 has 6 partitions")
        leader_of(cluster.nodes, "shipping").kill()
        count_fault("failover", "kill -9 of the leader under a program that ends")
    assert "done\n" in said.text


def test_the_quickstart_works_as_typed(cluster: ClusterProcess, tmp_path: Path) -> None:
    """Both examples with confluent-kafka; the second consumer takes half of the partitions."""
    with program("producer.py", cluster.bootstrap, tmp_path / "produced") as produced:
        produced.wait("order 1 is at orders-")
        with (
            program("consumer.py", cluster.bootstrap, tmp_path / "first") as first,
            program("consumer.py", cluster.bootstrap, tmp_path / "second") as second,
        ):
            for one in (first, second):
                one.wait(r"mine now:( orders-\d+){6}\n")
                one.wait(r"orders-\d+ offset 0: order \d+")


def test_the_consumer_says_little_while_no_node_is_there(cluster: ClusterProcess, tmp_path: Path) -> None:
    """librdkafka has about twenty lines a second to say then."""
    for node in cluster.nodes:
        node.kill()
    with program("consumer.py", cluster.bootstrap, tmp_path / "out") as said:
        said.wait("Connection refused")
        for node in cluster.nodes:
            node.spawn()
        said.wait(rf"mine now:( orders-\d+){{{PARTITIONS}}}\n")
        stamps = [
            datetime.fromisoformat(stamp)
            for stamp in re.findall(r"^(\S+ [\d:]+),\d+ consumer: ", said.text, re.MULTILINE)
        ]
    assert stamps
    assert all((after - before).total_seconds() >= 29 for before, after in pairwise(stamps))
    own = r"(?:\S+ [\d:]+,\d+ consumer: |mine now:|given up:|leaving$|orders-\d+ offset)"
    assert [line for line in said.text.splitlines() if not re.match(own, line)] == []


def test_a_consumer_that_gets_sigterm_leaves_its_group(
    cluster: ClusterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has its partitions long before the session of 45 s would have ended."""
    with program("consumer.py", cluster.bootstrap, tmp_path / "stays") as stays:
        stays.wait(rf"mine now:( orders-\d+){{{PARTITIONS}}}\n")
        monkeypatch.setenv("CLIENT_ID", "leaver")
        with program("consumer.py", cluster.bootstrap, tmp_path / "leaves", signal.SIGTERM) as leaves:
            leaves.wait(rf"mine now:( orders-\d+){{{PARTITIONS // 2}}}\n")
            described = [*QUORATE, "groups", "describe", "billing", "-b", cluster.bootstrap]
            told = subprocess.run(described, capture_output=True, text=True, timeout=30, check=True).stdout
            assert re.search(r"\bleaver\b", told)
            assert re.search(r"\bbilling-\d+\b", told)
        assert leaves.text.count("leaving\n") == 1
        stays.wait(rf"(?s)mine now:.*mine now:.*mine now:( orders-\d+){{{PARTITIONS}}}\n")
