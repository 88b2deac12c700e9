"""Inspection of a real cluster from outside for the tests of faults, and clients that commit meanwhile.

Everything is waited for as a condition with a deadline. A `Committer` counts one key up as fast as it is
acknowledged and repeats nothing, so that `lost` can tell what a fault has cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.raw import Address, RawGroup, Refused, coordinator_of
from cluster.launching.launcher import ClusterProcess, NodeProcess
from history.checking.commits import Key, missing_commits
from history.checking.compare import compare, comparison_text
from quorate.client import Client
from quorate.connection import ConnectionLost
from records import METADATA_SHARD, shard_of
from tests.report import count_fault
from tests.support.waiting import LOOK_AGAIN_S, WITHIN_S, wait_for

TOPIC = "orders"
NUM_SHARDS = 4
HTTP_TIMEOUT_S = 5.0


# A node's answers


def log_text(node: NodeProcess) -> str:
    return (node.data / "node.log").read_text(errors="replace")


def wait_for_line(node: NodeProcess, *words: str, within_s: float = WITHIN_S) -> str:
    """Wait for the first line of the node's log with all these words."""

    def found() -> list[str]:
        return [line for line in log_text(node).splitlines() if all(word in line for word in words)]

    wait_for(found, lambda: f"{words} in a line of\n{log_text(node)}", within_s)
    return found()[0]


def status(node: NodeProcess) -> dict[str, Any]:
    """Return the node's /v1/cluster; {} while it does not answer."""
    try:
        with urllib.request.urlopen(f"{node.url}/v1/cluster", timeout=HTTP_TIMEOUT_S) as answer:
            document: dict[str, Any] = json.loads(answer.read())
            return document
    except OSError:
        return {}


def log_status(node: NodeProcess, shard: int) -> dict[str, Any]:
    """Return the node's status of a shard's log; {} while it does not answer."""
    found = [one["log"] for one in status(node).get("shards", []) if one["shard"] == shard]
    return found[0] if found else {}


def trouble(node: NodeProcess, peer_id: int) -> str:
    """Return the reason for which the node has no contact with a peer."""
    for one in status(node).get("nodes", []):
        if one["node_id"] == peer_id and one["link"] is not None:
            return one["link"]["trouble"] or ""
    return ""


def is_joining(node: NodeProcess) -> bool:
    """Whether any shard of the node may not vote yet, or the node does not answer."""
    shards = status(node).get("shards", [])
    return not shards or any(one["log"]["is_joining"] for one in shards)


def quorate(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as an operator does."""
    command = [str(Path(sys.executable).parent / "quorate"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def addresses(nodes: Iterable[NodeProcess]) -> list[Address]:
    return [(node.host, node.port) for node in nodes]


def group_in(shard: int, name: str) -> str:
    names = (f"{name}-{number}" for number in range(1_000))
    return next(one for one in names if shard_of(one, NUM_SHARDS) == shard)


def create_topic(cluster: ClusterProcess, partitions: int = 1) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, partitions)


def leader_of(nodes: list[NodeProcess], group_id: str) -> NodeProcess:
    address = coordinator_of(nodes, group_id)
    return next(node for node in nodes if (node.host, node.port) == address)


def metadata_leader(nodes: list[NodeProcess]) -> NodeProcess:
    """Return the node that leads the metadata shard, as the first node that answers knows it."""
    documents = filter(None, (status(node) for node in nodes))
    shard = next(row for row in next(documents)["shards"] if row["shard"] == -1)
    return next(node for node in nodes if node.node_id == shard["leader_id"])


def wait_until_equal(nodes: list[NodeProcess], within_s: float = WITHIN_S) -> None:
    """Wait until all nodes have applied their whole logs, with equal states; no client may write."""

    def are_equal() -> bool:
        found = [
            {
                one["shard"]: (one["applied_index"], one["log"]["last_index"], one["state_hash"])
                for one in status(node).get("shards", [])
            }
            for node in nodes
        ]
        is_whole = all(applied == last for one in found for applied, last, _ in one.values())
        return bool(found[0]) and is_whole and all(one == found[0] for one in found)

    wait_for(are_equal, "all nodes have applied the same", within_s)


# Clients that commit meanwhile


class Committer:
    """Commits one key in a thread of its own, one offset higher each time, and never retries an offset.

    With more `partitions` each commit names the next ones too, so that the log grows faster.
    """

    def __init__(self, nodes: list[Address], group_id: str, partitions: int = 1) -> None:
        self.group_id = group_id
        self._partitions = range(partitions)
        self.offset = 0
        self.acknowledged: list[tuple[Key, int]] = []
        self.longest_gap_s = 0.0
        self._group = RawGroup(nodes, group_id)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_more(self, count: int = 20, within_s: float = WITHIN_S) -> None:
        """Wait until that many more commits are acknowledged."""
        target = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= target, f"{self.group_id} commits", within_s)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._group.close()

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._stop.is_set():
            self.offset += 1
            try:
                self._group.commit(TOPIC, dict.fromkeys(self._partitions, self.offset))
            except (Refused, ConnectionLost):
                self._group.coordinator = None
                self._stop.wait(LOOK_AGAIN_S)
                continue
            now_s = time.monotonic()
            self.longest_gap_s, last_s = max(self.longest_gap_s, now_s - last_s), now_s
            self.acknowledged.append(((self.group_id, TOPIC, 0), self.offset))


def committers(cluster: ClusterProcess, name: str, partitions: int = 1) -> list[Committer]:
    """Return a `Committer` for each shard."""
    nodes = addresses(cluster.nodes)
    return [Committer(nodes, group_in(shard, name), partitions) for shard in range(NUM_SHARDS)]


def check_fetched(nodes: list[NodeProcess], group_id: str, offset: int) -> None:
    """Check that the offset read is no older than `offset`; no client may commit meanwhile."""
    group = RawGroup(addresses(nodes), group_id)
    found = group.until_accepted(group.fetch, TOPIC, [0])
    group.close()
    assert found[0] >= offset, f"{group_id}: acknowledged {offset}, read {found[0]}"


def check_nothing_lost(
    cluster: ClusterProcess, working: list[Committer], begins_with_snapshot: Iterable[int] = ()
) -> None:
    """Stop everything, then check that acknowledged commits are read and in the logs, and that all nodes
    agree.

    `begins_with_snapshot`: nodes whose history does not go back to the beginning.
    """
    for one in working:
        one.stop()
        check_fetched(cluster.nodes, one.group_id, one.acknowledged[-1][1])
    wait_until_equal(cluster.nodes)  # each node is read alone: it has to know what is committed
    cluster.stop()
    acknowledged = [commit for one in working for commit in one.acknowledged]
    whole = [node for node in cluster.nodes if node.node_id not in set(begins_with_snapshot)]
    for node in whole:
        assert missing_commits(str(node.data), acknowledged) == [], f"node {node.node_id}"
    check_equal(cluster)


def check_equal(cluster: ClusterProcess) -> None:
    compared = compare([str(node.data) for node in cluster.nodes])
    assert compared.ok, "\n".join(comparison_text(compared))


def agreed_leader_of(cluster: ClusterProcess, shard: int) -> NodeProcess:
    """The node that leads a shard, by the word of all nodes."""

    def leaders() -> set[int]:
        told = [one for node in cluster.nodes for one in status(node).get("shards", [])]
        return {one["leader_id"] for one in told if one["shard"] == shard}

    wait_for(lambda: len(leaders()) == 1 and None not in leaders(), "one leader")
    (leader_id,) = leaders()
    return next(node for node in cluster.nodes if node.node_id == leader_id)


def group_apart(cluster: ClusterProcess, name: str) -> str:
    """A group whose shard another node leads than the metadata shard."""
    controller = agreed_leader_of(cluster, METADATA_SHARD)
    if agreed_leader_of(cluster, 0) is controller:
        done = quorate("cluster", "transfer", "0", "--url", controller.url)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: agreed_leader_of(cluster, 0) is not controller, "another leader")
    return group_in(0, name)


def kill_leader(cluster: ClusterProcess, shard: int) -> None:
    """Kill the leader and wait for another one.

    By then librdkafka has asked for Metadata. While the dead node was not in it, the next
    `send_offsets_to_transaction` of a loop with the classic protocol never ended."""
    leader = agreed_leader_of(cluster, shard)
    leader.kill()
    count_fault("clients", "kill -9 of a coordinator in an open transaction")
    wait_for(lambda: agreed_leader_of(cluster, shard) is not leader, "another leader")


def start_killed(cluster: ClusterProcess) -> None:
    """Start the nodes again that do not run, and wait until they follow."""
    for node in cluster.nodes:
        if not node.is_running:
            node.start()
            wait_for(lambda node=node: not is_joining(node), "the node to follow")
