"""Runs beside a cluster of real processes with real consumers, whose leader is killed between two of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.launching.launcher import launch_cluster
from quorate.client import Client
from tests.report import count_fault
from tests.support.polled_consumers import Crowd
from tests.support.real_cluster import TOPIC, leader_of
from tests.support.table_rows import exported, held
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

GROUP = "billing"
SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.segment.bytes": "60000",
    "snapshot.tail.records": "1000",
}
"""Segments are sealed and archived every few hundred entries."""


def quorate(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "quorate", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def commit(crowd: Crowd, times: int) -> None:
    for offset in range(times):
        for member in crowd.members:
            member.commit(dict.fromkeys(member.owned, offset))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_while_a_cluster_fails_over_are_what_history_says(tmp_path: Path) -> None:
    folder, output = tmp_path / "cluster", tmp_path / "tables"
    words = ["pipeline", "run", "--input", str(folder), "--output", str(output)]
    cluster = launch_cluster(folder, num_nodes=3, settings=SETTINGS)
    crowd = Crowd(cluster.bootstrap, GROUP, TOPIC)
    try:
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, 6)
        for _ in range(2):
            crowd.join()
        crowd.wait_balanced(6)
        commit(crowd, 200)
        first = quorate(*words, "--json")
        assert (first.returncode, json.loads(first.stdout)["is_empty"]) == (0, False), first.stderr
        killed = leader_of(cluster.nodes, GROUP)
        killed.kill()
        count_fault("spark", "the leader is killed between two runs")
        crowd.join()
        crowd.wait_balanced(6)
        commit(crowd, 200)
        killed.start()
        wait_for(lambda: leader_of(cluster.nodes, GROUP), "it serves")
    finally:
        crowd.close()
        cluster.stop()
    again = quorate(*words, "--json")
    assert again.returncode == 0, again.stderr
    assert quorate(*words).stdout.startswith("nothing new")
    found, wanted = held(output), exported(folder)
    for table, rows in wanted.items():
        assert found[table] == rows, table
    assert any(row["is_takeover"] for row in found["failovers"])
