"""A three-node cluster of real processes for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster
from tests.failover.mesh import Meshed, mesh

SESSION_TIMEOUT_MS = 10_000
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": "500",
}


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("failover")


@pytest.fixture
def settings() -> dict[str, str]:
    """The settings of `cluster`; a module may have its own."""
    return SETTINGS


@pytest.fixture
def cluster(tmp_path: Path, settings: dict[str, str]) -> Iterator[ClusterProcess]:
    """Three nodes that are ready; all their processes are killed at the end."""
    started = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=settings)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
def meshed(tmp_path: Path) -> Iterator[Meshed]:
    """Like `cluster`, with links that can be cut."""
    with mesh(tmp_path / "cluster", SETTINGS) as started:
        yield started
