"""Stock clients with their default, the classic protocol: joins, commits, leaves, a killed coordinator."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.clients.classic_clients import MEMBERS, PolledMember
from tests.support.real_cluster import leader_of
from tests.support.waiting import wait_for

SETTINGS = {"group.coordinator.rebalance.protocols": "consumer,classic"}
PARTITIONS = 6
ALL = frozenset(range(PARTITIONS))
WITHIN_S = 30.0

pytestmark = [
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def topic(cluster: ClusterProcess) -> str:
    with Client(cluster.bootstrap) as client:
        if client.topic("orders") is None:
            client.create_topic("orders", PARTITIONS)
    return "orders"


@contextmanager
def running(*members: PolledMember) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            member.close()
        with warnings.catch_warnings():  # kafka-python does not close all of its sockets
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def wait_until_shared(members: list[PolledMember]) -> None:
    """Wait until every partition has one owner, and every member has some."""

    def are_shared() -> bool:
        owned = [member.assigned for member in members]
        return all(owned) and sum(map(len, owned)) == PARTITIONS and frozenset().union(*owned) == ALL

    wait_for(are_shared, f"the members to share {PARTITIONS} partitions", WITHIN_S)


def wait_until_all_commit(members: list[PolledMember]) -> None:
    before = [dict(member.acknowledged) for member in members]
    wait_for(
        lambda: all(member.acknowledged != old for member, old in zip(members, before, strict=True)),
        "every member to commit",
        WITHIN_S,
    )


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_join_commit_and_leave(kind: str, cluster: ClusterProcess, group: str, topic: str) -> None:
    first, second = (MEMBERS[kind](cluster.bootstrap, group, topic, f"c{number}") for number in (1, 2))
    with running(first):
        with running(second):
            wait_until_shared([first, second])
            wait_until_all_commit([first, second])
        wait_until_shared([first])
        wait_until_all_commit([first])
    with Client(cluster.bootstrap) as client:
        (offsets,) = client.offsets(group).values()
    assert offsets.keys() == ALL
    assert {number: offsets[number] for number in first.acknowledged} == first.acknowledged


@pytest.mark.parametrize("kind", MEMBERS)
def test_no_commit_is_lost_when_the_coordinator_is_killed(
    kind: str, cluster: ClusterProcess, group: str, topic: str
) -> None:
    members = [MEMBERS[kind](cluster.bootstrap, group, topic, f"c{number}") for number in (1, 2)]
    with running(*members):
        wait_until_shared(members)
        wait_until_all_commit(members)
        killed = leader_of(cluster.nodes, group)
        killed.kill()
        try:
            wait_until_all_commit(members)
            wait_until_shared(members)
        finally:
            killed.start()
        acknowledged: dict[int, int] = {}
        for member in members:
            for number, offset in member.acknowledged.items():
                acknowledged[number] = max(offset, acknowledged.get(number, 0))
        with Client(cluster.bootstrap) as client:
            (offsets,) = client.offsets(group).values()
    assert {number for number, offset in acknowledged.items() if offsets[number] < offset} == set()


def test_clients_of_all_kinds_share_one_group(cluster: ClusterProcess, group: str, topic: str) -> None:
    members = [kind(cluster.bootstrap, group, topic, name) for name, kind in MEMBERS.items()]
    with running(*members):
        wait_until_shared(members)
        wait_until_all_commit(members)
