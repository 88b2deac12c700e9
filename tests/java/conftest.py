"""Three real nodes and Kafka's own Java tools as their clients; each test has its own topics and groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache import java_is_missing
from cluster.launching.launcher import ClusterProcess, launch_cluster
from tests.java.consumers import Fleet
from tests.java.toolbox import TOPICS, Tools

HERE = Path(__file__).parent
SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "scratch.log.enable": "true",
    "leader.balance.delay.ms": "600000",  # a leader that moves leaves the scratch log empty
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    reason = java_is_missing() if ours else None
    for item in ours:
        item.add_marker("java")
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path_factory.mktemp("java") / "cluster", num_nodes=3, settings=SETTINGS)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture(scope="session")
def tools(cluster: ClusterProcess) -> Iterator[Tools]:
    with Tools(cluster.bootstrap) as started:
        yield started


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic() -> str:
    """A topic name; the test creates the topic."""
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def made(request: pytest.FixtureRequest, tools: Tools, topic: str) -> str:
    """A topic that exists, with the PARTITIONS of the requesting module."""
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", str(request.module.PARTITIONS))
    return topic


@pytest.fixture
def fleet(tools: Tools, made: str, group: str) -> Iterator[Fleet]:
    """Consumers of the topic `made`, none of them started yet."""
    with Fleet(tools.bootstrap, made, group) as started:
        yield started
