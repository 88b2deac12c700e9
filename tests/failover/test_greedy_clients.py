"""Clients that pipeline without end do not starve the others, nor the links between nodes.

A wait is measured in the work that the nodes do meanwhile, not by the clock: they always have more of the
greedy clients' requests to serve, and whatever else the machine does adds nothing to it. For the same reason
the election timeouts are long: only a node that serves greedy clients instead of its links exceeds them.
"""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.greedy_bench import (
    DESCRIPTORS_SPARE,
    PARTITIONS,
    TOPIC,
    elections,
    greedy,
    groups_of_all_shards,
    terms,
)
from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.support.real_cluster import NUM_SHARDS

COMMITS = 80
WORK_MAX_S = 1.5
"""CPU seconds of all nodes during one commit. Before turns had one budget, the first of these commits waited
for more than 30 s in which the nodes did nothing but work; docs/performance.md has typical times."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def settings() -> dict[str, str]:
    return {"raft.min.timeout.ms": "3000", "raft.max.timeout.ms": "6000"}


def work_s(cluster: ClusterProcess) -> float:
    """CPU seconds of all nodes since their start."""
    ticks = 0
    for node in cluster.nodes:
        fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


@pytest.mark.parametrize("is_read", [False, True], ids=["not reading", "reading"])
@pytest.mark.parametrize("connections", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_no_client_waits_long_and_no_leader_is_deposed(
    cluster: ClusterProcess, connections: int, is_read: bool
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, connections + DESCRIPTORS_SPARE)), hard))
    addresses = [(node.host, node.port) for node in cluster.nodes]
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
    groups = groups_of_all_shards(addresses, NUM_SHARDS)
    for group in groups:
        group.until_accepted(group.commit, TOPIC, {0: 0})
        group.refusals.clear()
    before = terms(cluster)
    done_s = [work_s(cluster)]
    with greedy(addresses, connections, is_read=is_read):
        for number in range(COMMITS):
            group = groups[number % NUM_SHARDS]
            group.until_accepted(group.commit, TOPIC, {0: number})
            done_s.append(work_s(cluster))
    refusals = [dict(group.refusals) for group in groups]
    for group in groups:
        group.close()
    assert not any(refusals), refusals
    assert max(after - earlier for earlier, after in pairwise(done_s)) < WORK_MAX_S
    assert elections(before, terms(cluster)) == 0
