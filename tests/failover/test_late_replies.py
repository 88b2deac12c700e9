"""Stock consumers whose join is answered late, and whose program is slow to apply the assignment.

librdkafka's next heartbeat is overdue when the late reply comes. It is sent at once and reports nothing, as
the assignment is not applied yet. Another member has joined meanwhile, and must not get a partition that
the first one is about to use.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from tests.failover.conftest import SETTINGS
from tests.report import count_fault
from tests.support.polled_consumers import Crowd
from tests.support.real_cluster import TOPIC, group_in, leader_of

PATIENT: Final = {"raft.min.timeout.ms": "1500", "raft.max.timeout.ms": "2500"}
"""Timeouts so long that no node campaigns while the followers are stopped."""

PARTITIONS: Final = 12
GROUPS_AT_ONCE: Final = 8
ROUNDS_OF_CHAOS: Final = 27
APART_S: Final = 0.3
STILL_S: Final = 1.1
WORKS_S: Final = 1.0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [1, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
def test_a_late_join_and_another_one_are_never_two_owners(tmp_path: Path, rounds: int) -> None:
    cluster = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=SETTINGS | PATIENT)
    try:
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        overlaps = [overlap for number in range(rounds) for overlap in _overlaps(cluster, number)]
    finally:
        cluster.kill()
    print(f"{rounds * GROUPS_AT_ONCE} groups, {len(overlaps)} overlaps")
    assert overlaps == []


def _overlaps(cluster: ClusterProcess, number: int) -> list[str]:
    """Let a member join each group, stop the followers, let another join; return overlapping ownership."""
    group_ids = [group_in(0, f"late-{number}-{place}") for place in range(GROUPS_AT_ONCE)]
    leader = leader_of(cluster.nodes, group_ids[0])
    followers = [node for node in cluster.nodes if node is not leader]
    crowds = [Crowd(f"{leader.host}:{leader.port}", group_id, TOPIC) for group_id in group_ids]
    for node in followers:
        node.pause()
    count_fault("failover", "SIGSTOP of both followers")
    try:
        for crowd in crowds:
            crowd.join(WORKS_S)
        time.sleep(APART_S)
        for crowd in crowds:
            crowd.join()
        time.sleep(STILL_S - APART_S)
    finally:
        for node in followers:
            node.resume()
    for crowd in crowds:
        crowd.wait_balanced(PARTITIONS)
    for crowd in crowds:
        with suppress(AssertionError):
            crowd.close()
    return [overlap for crowd in crowds for overlap in crowd.overlaps]
