"""Metrics scraped as Prometheus does it: the sums over three real nodes with real consumers are right."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from contextlib import ExitStack, closing

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.raw import RawGroup
from cluster.http.kafka_metrics import PREFIX
from cluster.launching.launcher import ClusterProcess, NodeProcess
from quorate.client import Client
from tests.report import count_fault
from tests.support.polled_consumers import Crowd
from tests.support.real_cluster import HTTP_TIMEOUT_S, NUM_SHARDS, TOPIC, addresses, group_in, leader_of
from tests.support.waiting import wait_for

MEMBERS = 2
PARTITIONS = 6


def scraped(nodes: list[NodeProcess]) -> Counter[str]:
    """Return sums over these nodes and over shards, by a sample's name and its other labels; empty until each
    node answers."""
    found: Counter[str] = Counter()
    for node in nodes:
        try:
            with urllib.request.urlopen(f"{node.url}/metrics", timeout=HTTP_TIMEOUT_S) as answer:
                text = answer.read().decode()
        except OSError:
            return Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = [value for label, value in sample.labels.items() if label != "shard"]
                found["/".join([sample.name.removeprefix(PREFIX), *labels])] += sample.value
    return found


def is_true(found: Counter[str]) -> bool:
    """Return whether the sums show a stable group of two in each shard, and one group with offsets only."""
    expected = {
        "quorate_groups/Stable": NUM_SHARDS,
        "quorate_groups/Empty": 1,
        "quorate_members": NUM_SHARDS * MEMBERS,
        "quorate_offsets": 1,
        "quorate_topics": 1,
        "group_count/consumer": NUM_SHARDS,
        "group_count/classic": 1,
        "consumer_group_count/stable": NUM_SHARDS,
        "partition_count/active": NUM_SHARDS,
    }
    nothing = ("Assigning", "Reconciling", "Dead")
    rebalancing = ("PreparingRebalance", "CompletingRebalance")
    expected |= {f"quorate_groups/{state}": 0 for state in (*nothing, *rebalancing)}
    expected |= {f"consumer_group_count/{state.lower()}": 0 for state in (*nothing, "Empty")}
    expected |= {"partition_count/loading": 0, "partition_count/failed": 0}
    return {name: found[name] for name in expected} == expected


def epochs(node: NodeProcess, group_ids: list[str]) -> int:
    total = 0
    for group_id in group_ids:
        with urllib.request.urlopen(f"{node.url}/v1/groups/{group_id}", timeout=HTTP_TIMEOUT_S) as answer:
            total += json.loads(answer.read())["group"]["epoch"]
    return total


@pytest.mark.timeout(120)
def test_sums_over_the_nodes_are_true_before_and_after_a_kill(cluster: ClusterProcess) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
    with ExitStack() as ending:
        simple = ending.enter_context(closing(RawGroup(addresses(cluster.nodes), "simple")))
        simple.until_accepted(simple.commit, TOPIC, {0: 1})
        group_ids = [group_in(shard, "counted") for shard in range(NUM_SHARDS)]
        for group_id in group_ids:
            crowd = ending.enter_context(closing(Crowd(cluster.bootstrap, group_id, TOPIC)))
            for _ in range(MEMBERS):
                crowd.join()
        wait_for(lambda: is_true(scraped(cluster.nodes)), "the sums are true")
        found = scraped(cluster.nodes)
        assert found["consumer_group_rebalance_count"] == epochs(cluster.nodes[0], group_ids)
        assert all(scraped([node])["thread_idle_ratio_avg"] > 0 for node in cluster.nodes)
        fallen = leader_of(cluster.nodes, group_ids[0])
        count_fault("failover", "kill -9")
        fallen.kill()
        others = [node for node in cluster.nodes if node is not fallen]
        wait_for(lambda: is_true(scraped(others)), "the sums of the two that are left are true")
        assert scraped(others)["partition_load_time_max"] > 0
        fallen.spawn()
        wait_for(lambda: is_true(scraped(cluster.nodes)), "they are true with the third again")
