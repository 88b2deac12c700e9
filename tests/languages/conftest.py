"""Real nodes with a scratch log, for stock clients in other languages than Python."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster

HERE = Path(__file__).parent
SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "scratch.log.enable": "true",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("languages")


@pytest.fixture(scope="session")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """For tests that count messages: no election can empty the scratch log, however busy the machine is."""
    started = launch_cluster(tmp_path_factory.mktemp("languages") / "node", num_nodes=1, settings=SETTINGS)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path_factory.mktemp("languages") / "cluster", num_nodes=3, settings=SETTINGS)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Ends the processes that the test enters in it."""
    with ExitStack() as processes:
        yield processes
