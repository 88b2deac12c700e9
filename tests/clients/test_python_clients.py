"""Python's stock clients on three nodes, with their defaults: the rows of docs/clients.md, first half.

The second half kills and restarts nodes: tests/failover/test_python_clients.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from quorate.groupclient import GroupInfo
from tests.support.kafka_python import FROM_KAFKA_PYTHON
from tests.support.python_clients import MEMBERS, PRODUCERS, Feed, PolledMember, running
from tests.support.python_groups import (
    OF_NODES,
    PARTITIONS,
    WITHIN_S,
    committed,
    wait_until_all_commit,
    wait_until_shared,
)
from tests.support.waiting import wait_for

SETTINGS = OF_NODES

pytestmark = [pytest.mark.filterwarnings(FROM_KAFKA_PYTHON), pytest.mark.timeout(120)]
CONSUMER = "confluent-kafka, consumer"
CLASSIC = [name for name in MEMBERS if name != CONSUMER]
every_client = pytest.mark.parametrize("kind", MEMBERS)


@pytest.fixture
def topic(cluster: ClusterProcess, group: str) -> str:
    """A topic of this test alone."""
    with Client(cluster.bootstrap) as client:
        client.create_topic(f"of-{group}", PARTITIONS)
    return f"of-{group}"


Join = Callable[..., PolledMember]


@pytest.fixture
def join(kind: str, cluster: ClusterProcess, group: str, topic: str) -> Join:
    return lambda name, **settings: MEMBERS[kind](cluster.bootstrap, group, topic, name, **settings)


def listed(cluster: ClusterProcess, group: str) -> GroupInfo:
    with Client(cluster.bootstrap) as client:
        return next(one for one in client.groups() if one.group_id == group)


@pytest.mark.parametrize("kind", PRODUCERS)
def test_it_produces(kind: str, cluster: ClusterProcess, topic: str) -> None:
    values = [b"%d" % number for number in range(100)]
    assert PRODUCERS[kind](cluster.bootstrap, topic, values) == list(range(100))


@every_client
def test_it_subscribes_and_consumes(join: Join, cluster: ClusterProcess, topic: str) -> None:
    values = [b"%d" % number for number in range(100)]
    PRODUCERS["confluent"](cluster.bootstrap, topic, values)
    member = join("c1")
    with running(member):
        wait_for(lambda: member.values == values, lambda: f"{member.values}, {member.errors}", WITHIN_S)
    assert not member.errors


@every_client
def test_a_second_member_joins_and_leaves(join: Join, cluster: ClusterProcess, topic: str) -> None:
    first = join("c1")
    with Feed(cluster.bootstrap, topic, PARTITIONS), running(first):
        wait_until_shared(first)
        second = join("c2")
        with running(second):
            wait_until_shared(first, second)
            wait_until_all_commit(first, second)
        wait_until_shared(first)
        wait_until_all_commit(first)


@every_client
def test_the_next_member_goes_on_where_the_last_one_committed(
    join: Join, cluster: ClusterProcess, group: str, topic: str
) -> None:
    PRODUCERS["confluent"](cluster.bootstrap, topic, [b"%d" % number for number in range(50)])
    first = join("c1")
    with running(first):
        wait_for(lambda: first.acknowledged == {0: 50}, lambda: f"{first.acknowledged}", WITHIN_S)
    assert committed(cluster, group)[0] == 50
    second = join("c2")
    with running(second):
        wait_until_shared(second)
        PRODUCERS["confluent"](cluster.bootstrap, topic, [b"next"])
        wait_for(lambda: second.values, "the next message", WITHIN_S)
    assert second.values == [b"next"]


@every_client
def test_a_closed_member_leaves_at_once(join: Join, cluster: ClusterProcess, group: str) -> None:
    """Sessions last 6 s, so only a member that leaves empties the group at once."""
    member = join("c1")
    with running(member):
        wait_until_shared(member)
    assert listed(cluster, group).state == "Empty"


@pytest.mark.parametrize("kind", CLASSIC)
def test_its_group_moves_to_the_consumer_protocol_and_back(
    join: Join, cluster: ClusterProcess, group: str, topic: str
) -> None:
    """A member of the consumer protocol joins, and leaves when it has been alone."""
    first = join("c1")
    with Feed(cluster.bootstrap, topic, PARTITIONS), running(first):
        wait_until_shared(first)
        new = MEMBERS[CONSUMER](cluster.bootstrap, group, topic, "new")
        with running(new):
            wait_until_shared(first, new)
            wait_until_all_commit(first, new)
            assert listed(cluster, group).group_type == "consumer"
        wait_until_shared(first)
        wait_until_all_commit(first)
        assert listed(cluster, group).group_type == "classic"


def test_clients_of_all_kinds_share_a_group(cluster: ClusterProcess, group: str, topic: str) -> None:
    """The group has members of both protocols."""
    members = [kind(cluster.bootstrap, group, topic, name) for name, kind in MEMBERS.items()]
    with Feed(cluster.bootstrap, topic, PARTITIONS), running(*members):
        wait_until_shared(*members)
        wait_until_all_commit(*members)
