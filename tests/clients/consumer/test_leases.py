"""A lease on a server that gives no tokens: a sentence, and no lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import launch_node
from quorate import FatalError, TimedOut, lease
from quorate.client import Client
from raftlog.env.files import OsFiles
from raftlog.storage.directory import NodeIdentity, format_node


@pytest.fixture
def old_server(tmp_path: Path) -> Iterator[str]:
    """A node on a directory of an older release: it keeps the first format level."""
    identity = NodeIdentity(cluster_id="old", node_id=1, incarnation="old", num_shards=4)
    format_node(OsFiles(), str(tmp_path / "node"), identity)
    node = launch_node(tmp_path / "node")
    yield node.bootstrap
    assert node.stop() == 0


async def test_a_lease_needs_a_format_level_with_tokens(old_server: str, group: str) -> None:
    with Client(old_server) as client:
        client.create_topic("orders", 2)
    with pytest.raises(TimedOut, match="run `quorate cluster upgrade`"):
        async with lease(group, "orders", bootstrap_servers=old_server, default_api_timeout_ms=1_000):
            pass


@pytest.mark.parametrize("server", [pytest.param("kafka", marks=pytest.mark.java)], indirect=True)
async def test_a_lease_needs_a_server_with_tokens(server: str, topic: str, group: str) -> None:
    with pytest.raises(FatalError, match="gives no fencing tokens"):
        async with lease(group, topic, bootstrap_servers=server, default_api_timeout_ms=1_000):
            pass
