"""Clients that pipeline without end do not starve the others, nor the links between nodes."""

from __future__ import annotations

import resource

import pytest

from benchmarks.greedy_bench import (
    DESCRIPTORS_SPARE,
    PARTITIONS,
    TOPIC,
    commit_times_ms,
    elections,
    greedy,
    groups_of_all_shards,
    terms,
)
from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.support.real_cluster import NUM_SHARDS

SECONDS = 4.0
WAIT_MAX_MS = 1_500.0
"""Before turns had one budget, the first of these commits waited for more than 30 s. The bound allows for
other tests on the machine; docs/performance.md has typical times."""


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
    with greedy(addresses, connections, is_read=is_read):
        times = commit_times_ms(groups, SECONDS)
    refusals = [dict(group.refusals) for group in groups]
    for group in groups:
        group.close()
    assert not any(refusals), refusals
    assert len(times) > 10
    assert times[-1] < WAIT_MAX_MS
    assert elections(before, terms(cluster)) == 0
