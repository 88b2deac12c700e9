"""The group metrics of three nodes: their sums are right, whichever node leads."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.http.kafka_metrics import PREFIX
from cluster.http.metrics import NodeMetrics
from cluster.node import Node
from cluster.runtime.slices import finished
from records import METADATA_SHARD, shard_of
from tests.support.requests import commit_request, join_request
from tests.support.sim_node import GROUPS
from tests.support.three_nodes import ThreeNodes
from wire.apis import ApiKey

NUM_SHARDS = 4


def told(node: Node) -> Counter[str]:
    """Return the node's samples, those of families with shards summed over them."""
    metrics = NodeMetrics(node, node.kafka, "test")
    metrics.recent.start()
    metrics.recent.stop()
    counts = {shard.shard: finished(shard.machine.counting()) for shard in node.shards if shard.is_ready}
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics.render(counts).decode()):
        for sample in family.samples:
            labels = [value for label, value in sample.labels.items() if label != "shard"]
            found["/".join([sample.name.removeprefix(PREFIX), *labels])] += sample.value
    return found


def sums(nodes: ThreeNodes) -> Counter[str]:
    total: Counter[str] = Counter()
    for machine in nodes.cluster.machines.values():
        if machine.is_up:
            total.update(told(machine.node))
    return total


def check(found: Counter[str]) -> None:
    assert found["quorate_members"] == found["consumer_group_count/stable"] == len(GROUPS)
    assert found["group_count/consumer"] == found["quorate_groups/Stable"] == len(GROUPS)
    assert found["group_count/classic"] == found["quorate_groups/Empty"] == 1
    assert found["quorate_offsets"] == 2
    assert found["quorate_topics"] == 1
    assert found["partition_count/active"] == NUM_SHARDS
    assert found["partition_count/loading"] == found["partition_count/failed"] == 0


def test_sums_over_three_nodes_are_true_across_the_fall_of_a_leader() -> None:
    nodes = ThreeNodes()
    for group in GROUPS:
        leader = nodes.cluster.leader_of(shard_of(group, NUM_SHARDS))
        assert leader is not None
        request = join_request(group, "m", "orders")
        assert nodes.ask(leader, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == 0
    leader = nodes.cluster.leader_of(shard_of("simple", NUM_SHARDS))
    assert leader is not None
    nodes.ask(leader, ApiKey.OFFSET_COMMIT, 9, commit_request("simple", {0: 1, 1: 1}))
    found = sums(nodes)
    check(found)
    assert found["consumer_group_rebalance_count"] == len(GROUPS)
    fallen = nodes.cluster.leader_of(METADATA_SHARD)
    assert fallen is not None
    nodes.cluster[fallen].kill()
    nodes.cluster.settle()
    check(sums(nodes))


def test_a_shard_is_loading_from_the_election_until_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = ThreeNodes()
    for machine in nodes.cluster.machines.values():
        served = [shard for shard in machine.node.shards if shard.is_ready]
        assert all(shard.serving == "active" and 0 < shard.load_ms < 1_000 for shard in served)
        found = told(machine.node)
        assert found["partition_count/active"] == len(served)
        assert found["partition_load_time_max"] == max((shard.load_ms for shard in served), default=0)
    monkeypatch.setattr(Node, "is_catalog_usable", lambda node, version: False)
    served_by = nodes.leader
    num_served = told(nodes.cluster[served_by].node)["partition_count/active"]
    nodes.cluster[served_by].kill()
    shards = [shard for machine in nodes.cluster.up.values() for shard in machine.node.shards]
    nodes.cluster.wait_for(lambda: [shard.serving for shard in shards].count("loading") == num_served)
    assert sums(nodes)["partition_count/loading"] == num_served
    assert sums(nodes)["partition_count/active"] == NUM_SHARDS - num_served
    nodes.world.run_for(3_000)
    monkeypatch.undo()
    for machine in nodes.cluster.up.values():
        machine.node.catalog_moved()
    assert sums(nodes)["partition_count/active"] == NUM_SHARDS
    assert told(nodes.cluster[nodes.leader].node)["partition_load_time_max"] >= 3_000
