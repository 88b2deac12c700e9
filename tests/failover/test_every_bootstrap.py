"""Stock clients against a cluster, with each of its nodes as the only bootstrap server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, launch_cluster
from tests.support.polled_consumers import Crowd

TIMEOUT_S = 20
SETTINGS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path_factory.mktemp("every") / "cluster", num_nodes=3, settings=SETTINGS)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture(params=[1, 2, 3])
def bootstrap(shared: ClusterProcess, request: pytest.FixtureRequest) -> str:
    """The address of each node in turn, as the only bootstrap server."""
    node = shared.node(request.param)
    return f"{node.host}:{node.port}"


def _name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def test_the_admin_client_sees_the_whole_cluster_and_changes_topics(
    shared: ClusterProcess, bootstrap: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_cluster(request_timeout=TIMEOUT_S).result()
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    topic = _name("topic")
    admin.create_topics([NewTopic(topic, 3)], request_timeout=TIMEOUT_S)[topic].result()
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 3
    admin.create_partitions([NewPartitions(topic, 5)], request_timeout=TIMEOUT_S)[topic].result()
    for node in shared.nodes:  # the reply waited until every node knew
        there = AdminClient({"bootstrap.servers": f"{node.host}:{node.port}"})
        assert len(there.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 5
    admin.delete_topics([topic], request_timeout=TIMEOUT_S)[topic].result()
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_consumers_share_commit_and_are_described(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic, group = _name("topic"), _name("group")
    admin.create_topics([NewTopic(topic, 6)], request_timeout=TIMEOUT_S)[topic].result()
    crowd = Crowd(bootstrap, group, topic)
    try:
        first, second = crowd.join(), crowd.join()
        crowd.wait_balanced(6)
        for member in (first, second):
            offsets = {partition: 10 + partition for partition in member.owned}
            member.commit(offsets)
            found = member.committed(offsets)
            assert {partition: offset for partition, (offset, _) in found.items()} == offsets
        described = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()
        assert described.state is ConsumerGroupState.STABLE
        assert len(described.members) == 2
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
        assert group in [one.group_id for one in listed.valid]
        assert listed.errors == []
    finally:
        crowd.close()
    admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()


def test_groups_of_every_shard_are_listed_once(shared: ClusterProcess, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = _name("topic")
    admin.create_topics([NewTopic(topic, 1)], request_timeout=TIMEOUT_S)[topic].result()
    prefix = _name("listed")
    groups = [f"{prefix}-{number}" for number in range(12)]
    for group_id in groups:
        group = RawGroup([(node.host, node.port) for node in shared.nodes], group_id)
        group.until_accepted(group.commit, topic, {0: 5})
        group.close()
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
    assert sorted(one.group_id for one in listed.valid if one.group_id.startswith(prefix)) == sorted(groups)
