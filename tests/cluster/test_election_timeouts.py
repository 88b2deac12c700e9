"""The documented range of the election timeouts, end to end: a cluster serves with each, and elects anew."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.simulator import Network, SimCluster, World

RANGES = [
    pytest.param(100, 150, 10, id="the shortest"),
    pytest.param(100, 150, 33, id="heartbeats as seldom as the shortest allows"),
    pytest.param(150, 225, 50, id="a third of the timeout"),
    pytest.param(300, 600, 100, id="a third that no binary fraction is"),
    pytest.param(1_500, 4_200, 50, id="above the library's own connection timeout"),
    pytest.param(60_000, 120_000, 20_000, id="the longest"),
]


@pytest.mark.parametrize(("least_ms", "most_ms", "heartbeat_ms"), RANGES)
def test_a_cluster_serves_and_elects_anew(least_ms: int, most_ms: int, heartbeat_ms: int) -> None:
    settings: dict[str, Any] = {
        "raft_min_timeout_ms": least_ms,
        "raft_max_timeout_ms": most_ms,
        "raft_heartbeat_ms": heartbeat_ms,
    }
    world = World(1)
    cluster = SimCluster(world, Network(world), num_shards=1, settings=settings)
    cluster.boot()
    cluster.settle(within_ms=4 * most_ms + 1_000)
    leader = cluster.wait_for_leader(0)
    term = cluster.runtime(leader, 0).replica.term
    world.run_for(2 * most_ms)
    assert (cluster.leader_of(0), cluster.runtime(leader, 0).replica.term) == (leader, term)
    cluster[leader].kill()
    cluster.wait_for(lambda: cluster.leader_of(0) not in (None, leader), within_ms=4 * most_ms + 1_000)
