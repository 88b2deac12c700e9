"""The procedures and checks of docs/operations.md, carried out with real nodes."""

from __future__ import annotations

import re
import socket
import tomllib
import urllib.request
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client
from tests.support.real_cluster import TOPIC, check_nothing_lost, committers, status, wait_until_equal
from tests.support.waiting import wait_for

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.timeout(120)
def test_node_1_moves_to_another_address_by_rolling_restart(cluster: ClusterProcess) -> None:
    """In the document's order: node 1 dials no node, so node 2 is configured before it moves, others after.

    No step waits until a node serves: without a link to a leader it does not follow that leader's shards.
    """
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    working = committers(cluster, "moving")
    moves, second, third = cluster.nodes
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    _tell(second, 1, port)
    _restart(second)
    _wait_for_contact(cluster, {(1, 3), (2, 3)})
    moves.stop()
    _tell(moves, 1, port)
    moves.configure({"peer.port": port})
    moves.spawn()
    _wait_for_contact(cluster, {(1, 2), (2, 3)})
    _tell(third, 1, port)
    _restart(third)
    _wait_for_contact(cluster, {(1, 2), (1, 3), (2, 3)})
    for one in working:
        one.wait_for_more()
        one.stop()
    wait_until_equal(cluster.nodes)
    check_nothing_lost(cluster, working)


def test_a_cluster_with_timeouts_for_slow_links_serves_and_elects_anew(tmp_path: Path) -> None:
    slow = {"raft.min.timeout.ms": "1500", "raft.max.timeout.ms": "4200"}
    started = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=slow)
    try:
        with Client(started.bootstrap) as client:
            client.create_topic(TOPIC, 1)
        started.nodes[0].kill()
        wait_for(lambda: _leaders(started.nodes[1]) <= {2, 3}, "another leader of each shard")
    finally:
        started.kill()


def _leaders(node: NodeProcess) -> set[int | None]:
    return {shard["leader_id"] for shard in status(node)["shards"]}


def _tell(node: NodeProcess, moved_id: int, port: int) -> None:
    """Set the node's `cluster.nodes`, with another port for one of them."""
    known = tomllib.loads((node.data / "node.toml").read_text())["cluster.nodes"]
    moved = f"{moved_id}@127.0.0.1:{port}"
    node.configure({"cluster.nodes": [moved if one.startswith(f"{moved_id}@") else one for one in known]})


def _restart(node: NodeProcess) -> None:
    node.stop()
    node.spawn()


def _wait_for_contact(cluster: ClusterProcess, wanted: set[tuple[int, int]]) -> None:
    """Wait until at least these pairs are in contact, and no follower lags."""

    def pairs() -> set[tuple[int, int]]:
        return {
            (node.node_id, peer["node_id"])
            for node in cluster.nodes
            for peer in status(node).get("nodes", [])
            if peer["in_contact"]
        }

    def is_level() -> bool:
        """Return whether no follower in contact is far behind; commits go on meanwhile."""
        return all(
            follower["mode"] == "replicating"
            for node in cluster.nodes
            for shard in status(node).get("shards", [])
            for follower in shard["log"]["followers"]
            if follower["in_contact"]
        )

    both_ways = wanted | {(b, a) for a, b in wanted}
    wait_for(lambda: both_ways <= pairs() and is_level(), f"{wanted} are in contact")


@pytest.mark.timeout(60)
def test_the_metrics_that_are_explained_are_those_that_are_there(cluster: ClusterProcess) -> None:
    """Every metric is explained, too (for Kafka's names see `tests/listeners/test_metrics.py`)."""
    there: set[str] = set()
    for node in cluster.nodes:
        with urllib.request.urlopen(f"{node.url}/metrics", timeout=5) as answer:
            there |= set(re.findall(r"^# TYPE (quorate_\S+)", answer.read().decode(), re.MULTILINE))
    explained = set()
    for cell in re.findall(r"^\| (`quorate_[^|]*) \|", OPERATIONS.read_text(), re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", cell)
        prefix = "_".join(first.split("_")[:2])  # `_commit_index` stands for quorate_shard_commit_index
        explained |= {first, *(prefix + name if name.startswith("_") else name for name in others)}
    assert len(explained) > 20
    assert explained == there
