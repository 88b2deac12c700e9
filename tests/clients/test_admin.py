"""confluent-kafka's AdminClient on a real node."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.polled_consumers import Crowd

TIMEOUT_S = 10
NUM_PARTITIONS = 4


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def test_topics_are_created_grown_and_deleted(admin: AdminClient, group: str) -> None:
    name = f"{group}.topic"
    only(admin.create_topics([NewTopic(name, 3)], operation_timeout=TIMEOUT_S))
    assert len(admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions) == 3
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        only(admin.create_topics([NewTopic(name, 3)]))
    only(admin.create_partitions([NewPartitions(name, 5)], operation_timeout=TIMEOUT_S))
    described = only(admin.describe_topics(TopicCollection([name])))
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3, 4]
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        only(admin.create_partitions([NewPartitions(name, 4)]))
    only(admin.delete_topics([name], operation_timeout=TIMEOUT_S))
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        only(admin.delete_topics([name]))


def test_a_bad_topic_name_is_refused(admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        only(admin.create_topics([NewTopic("no spaces, please", 1)]))


def test_the_cluster_names_its_node(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.cluster_id
    assert cluster.controller.id == cluster.nodes[0].id


def test_a_group_is_listed_and_described(admin: AdminClient, crowd: Crowd, group: str) -> None:
    crowd.join(**{"client.id": "first"})
    crowd.join(**{"client.id": "second"})
    crowd.wait_balanced(4)

    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert not listed.errors
    (found,) = [one for one in listed.valid if one.group_id == group]
    assert found.type == ConsumerGroupType.CONSUMER
    filtered = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(TIMEOUT_S)
    assert group not in [one.group_id for one in filtered.valid]

    described = only(admin.describe_consumer_groups([group]))
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "uniform"
    owned = {
        member.client_id: {(part.topic, part.partition) for part in member.assignment.topic_partitions}
        for member in described.members
    }
    topic = crowd.topic
    assert set(owned) == {"first", "second"}
    assert set.union(*owned.values()) == {(topic, number) for number in range(4)}
    assert {member.host for member in described.members} == {"/127.0.0.1"}


def test_an_unknown_group_is_said_to_be_none(admin: AdminClient, group: str) -> None:
    # ConsumerGroupDescribe answers GROUP_ID_NOT_FOUND; librdkafka then sends the older DescribeGroups,
    # which answers a dead group.
    assert only(admin.describe_consumer_groups([group])).state == ConsumerGroupState.DEAD


def test_offsets_are_listed_and_altered_and_groups_deleted(
    admin: AdminClient, crowd: Crowd, group: str
) -> None:
    topic = crowd.topic
    member = crowd.join()
    crowd.wait_balanced(4)
    member.commit({1: 11})

    def offsets() -> dict[int, int]:
        listed = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {part.partition: part.offset for part in listed.topic_partitions}

    assert offsets() == {1: 11}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        only(admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S))
    member.close()
    only(
        admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 2, 22)])]
        )
    )
    assert offsets() == {1: 11, 2: 22}
    only(admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S))
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group not in [one.group_id for one in listed.valid]
