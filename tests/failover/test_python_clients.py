"""Python's stock clients while nodes die and restart: the rows of docs/clients.md, second half."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from tests.report import count_fault
from tests.support.kafka_python import FROM_KAFKA_PYTHON
from tests.support.python_clients import MEMBERS, Feed, PolledMember, running
from tests.support.python_groups import (
    OF_NODES,
    PARTITIONS,
    committed,
    wait_until_all_commit,
    wait_until_shared,
)
from tests.support.real_cluster import is_joining, leader_of
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.filterwarnings(FROM_KAFKA_PYTHON), pytest.mark.timeout(120)]
every_client = pytest.mark.parametrize("kind", MEMBERS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path_factory.mktemp("clients") / "cluster", 3, settings=OF_NODES)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
def group(kind: str) -> str:
    return f"group-{kind.replace(', ', '-')}"


@pytest.fixture
def members(kind: str, cluster: ClusterProcess, group: str) -> Iterator[list[PolledMember]]:
    """Two members that share a topic, consume and commit."""
    topic = f"of-{group}"
    with Client(cluster.bootstrap) as client:
        if client.topic(topic) is None:
            client.create_topic(topic, PARTITIONS)
    joined = [MEMBERS[kind](cluster.bootstrap, group, topic, name) for name in ("c1", "c2")]
    with Feed(cluster.bootstrap, topic, PARTITIONS), running(*joined):
        wait_until_shared(*joined)
        wait_until_all_commit(*joined)
        yield joined


def check_nothing_lost(cluster: ClusterProcess, group: str, members: list[PolledMember]) -> None:
    """The newest commit of each partition that was acknowledged is there, or a newer one."""
    acknowledged: dict[int, int] = {}
    for member in members:
        for number, offset in dict(member.acknowledged).items():
            acknowledged[number] = max(offset, acknowledged.get(number, 0))
    offsets = committed(cluster, group)
    assert {
        number: offsets[number] for number, offset in acknowledged.items() if offsets[number] < offset
    } == {}


@every_client
def test_the_coordinator_is_killed(cluster: ClusterProcess, group: str, members: list[PolledMember]) -> None:
    killed = leader_of(cluster.nodes, group)
    killed.kill()
    count_fault("failover", "kill -9 of the coordinator of a stock client")
    try:
        wait_until_all_commit(*members)
        wait_until_shared(*members)
        check_nothing_lost(cluster, group, members)
    finally:
        killed.start()


@every_client
def test_every_node_restarts_in_turn(
    cluster: ClusterProcess, group: str, members: list[PolledMember]
) -> None:
    for node in cluster.nodes:
        assert node.stop() == 0
        node.start()
        wait_for(lambda node=node: not is_joining(node), "the node to follow")
        wait_until_all_commit(*members)
    wait_until_shared(*members)
    check_nothing_lost(cluster, group, members)
