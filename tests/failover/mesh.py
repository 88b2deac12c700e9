"""Three nodes whose links go through proxies of the test, which can cut, half-open and heal them.

The node with the greater id dials: node 2 reaches node 1 through one proxy, node 3 reaches nodes 1 and 2
through two others.
"""

from __future__ import annotations

import json
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, NodeProcess, prepare_cluster
from tests.failover.proxy import Proxy, Way


class Meshed:
    """A cluster whose links can be cut: `proxies[dialling id, listening id]`."""

    def __init__(self, cluster: ClusterProcess, proxies: dict[tuple[int, int], Proxy]) -> None:
        self.cluster = cluster
        self.proxies = proxies

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in self.cluster.nodes]

    def links_of(self, node_id: int) -> list[tuple[Proxy, Way]]:
        """Return the node's two links, each with the way that leads away from it."""
        return [
            (proxy, Way.THERE if dials == node_id else Way.BACK)
            for (dials, listens), proxy in self.proxies.items()
            if node_id in (dials, listens)
        ]

    def leader_of(self, group: RawGroup) -> NodeProcess:
        address = group.until_accepted(group.find)
        return next(node for node in self.cluster.nodes if (node.host, node.port) == address)

    def terms(self, asked: NodeProcess) -> dict[int, int]:
        """Return every shard's term as reported by one node."""
        with urllib.request.urlopen(f"{asked.url}/v1/cluster", timeout=5) as answer:
            document: dict[str, Any] = json.loads(answer.read())
        return {shard["shard"]: shard["term"] for shard in document["shards"]}


@contextmanager
def mesh(data: Path, settings: dict[str, str]) -> Iterator[Meshed]:
    """A cluster that runs until the end, on proxies."""
    cluster = prepare_cluster(data, num_nodes=3, settings=settings)
    listening = {
        int(entry.partition("@")[0]): _address(entry.partition("@")[2])
        for entry in tomllib.loads((cluster.nodes[0].data / "node.toml").read_text())["cluster.nodes"]
    }
    proxies = {(dials, to): Proxy(listening[to]) for dials, to in ((2, 1), (3, 1), (3, 2))}
    for node in cluster.nodes:
        seen = {
            to: ("127.0.0.1", proxies[node.node_id, to].port) if (node.node_id, to) in proxies else address
            for to, address in listening.items()
        }
        node.configure({"cluster.nodes": [f"{to}@{host}:{port}" for to, (host, port) in seen.items()]})
    try:
        cluster.start()
        yield Meshed(cluster, proxies)
    finally:
        cluster.kill()
        for proxy in proxies.values():
            proxy.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
