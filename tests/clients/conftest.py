"""A real node in a process of its own, for stock clients; every test has its own topics and groups."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster, launch_node
from quorate.client import Client
from tests.support.polled_consumers import Crowd

SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "faults.enable": "true",
}


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_reaches_children() -> None:
    """Restore SIGINT: a shell's background jobs ignore it, children inherit that, and tests send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = launch_node(tmp_path_factory.mktemp("clients") / "node", settings=SETTINGS)
    yield process
    exit_code = process.stop()
    log = (Path(process.data) / "node.log").read_text(encoding="utf-8")
    assert exit_code == 0, log
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    """Three nodes with the SETTINGS of the requesting module."""
    started = launch_cluster(
        tmp_path_factory.mktemp("cluster") / "cluster", num_nodes=3, settings=request.module.SETTINGS
    )
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
def bootstrap(node: NodeProcess) -> str:
    return f"{node.host}:{node.port}"


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as connected:
        yield connected


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(client: Client) -> Callable[[int], str]:
    def create(num_partitions: int) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        client.create_topic(name, num_partitions)
        return name

    return create


@pytest.fixture
def topic(request: pytest.FixtureRequest, new_topic: Callable[[int], str]) -> str:
    """A topic with the NUM_PARTITIONS of the requesting module."""
    return new_topic(request.module.NUM_PARTITIONS)


@pytest.fixture
def crowd(bootstrap: str, group: str, topic: str) -> Iterator[Crowd]:
    crowd = Crowd(bootstrap, group, topic)
    yield crowd
    crowd.close()
