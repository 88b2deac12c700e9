"""The administration of groups on three real nodes.

confluent's AdminClient is used where it has the request, raw requests elsewhere. Every answer still holds
when the leader is killed right after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess, NodeProcess
from tests.clients.conftest import HEARTBEAT_INTERVAL_MS
from tests.report import count_fault
from tests.support.polled_consumers import Crowd
from tests.support.waiting import wait_for
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

pytestmark = pytest.mark.failover  # nodes of real clusters are killed

TIMEOUT_S = 15
NUM_PARTITIONS = 6
SETTINGS = {
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}


@pytest.fixture
def bootstrap(cluster: ClusterProcess) -> str:
    return cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def raw(cluster: ClusterProcess, group: str) -> Iterator[RawGroup]:
    asked = RawGroup([(node.host, node.port) for node in cluster.nodes], group)
    yield asked
    asked.close()


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def offsets(admin: AdminClient, group: str) -> dict[int, int]:
    listed = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    return {part.partition: part.offset for part in listed.topic_partitions}


def alter(admin: AdminClient, group: str, topic: str, to: dict[int, int]) -> Any:
    parts = [TopicPartition(topic, partition, offset) for partition, offset in to.items()]
    return only(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)]))


def listed(admin: AdminClient, **filters: Any) -> set[str]:
    """Retry while a restarted node is still loading, which librdkafka does not do by itself."""
    answers: list[Any] = []

    def is_complete() -> bool:
        answers.append(admin.list_consumer_groups(**filters).result(TIMEOUT_S))
        return not answers[-1].errors

    wait_for(is_complete, lambda: f"a listing without errors: {answers[-1].errors}", TIMEOUT_S)
    return {one.group_id for one in answers[-1].valid}


def delete_offsets(raw: RawGroup, topic: str, *partitions: int) -> list[int]:
    parts = [OffsetDeleteRequestPartition(partition_index=number) for number in partitions]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=parts)]
    request = OffsetDeleteRequest(group_id=raw.group_id, topics=topics)
    answer = raw.until_accepted(lambda: raw.ask(ApiKey.OFFSET_DELETE, request))
    assert answer.error_code == 0
    return [part.error_code for part in answer.topics[0].partitions]


def remove(raw: RawGroup, *members: MemberIdentity) -> list[int]:
    request = LeaveGroupRequest(group_id=raw.group_id, members=list(members))
    answer = raw.until_accepted(lambda: raw.ask(ApiKey.LEAVE_GROUP, request))
    assert answer.error_code == 0
    return [member.error_code for member in answer.members]


def kill_leader(cluster: ClusterProcess, raw: RawGroup) -> NodeProcess:
    address = raw.until_accepted(raw.find)
    leader = next(node for node in cluster.nodes if (node.host, node.port) == address)
    leader.kill()
    count_fault("clients", "kill -9 of the leader after an administrator was answered")
    return leader


def test_groups_are_listed_by_state_and_type(
    admin: AdminClient, crowd: Crowd, group: str, new_topic: Callable[[int], str]
) -> None:
    crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    simple = f"{group}-simple"
    alter(admin, simple, crowd.topic, {0: 5})
    assert {group, simple} <= listed(admin)
    stable, empty = {ConsumerGroupState.STABLE}, {ConsumerGroupState.EMPTY}
    assert {group, simple} & listed(admin, states=stable) == {group}
    assert {group, simple} & listed(admin, states=empty) == {simple}
    assert {group, simple} & listed(admin, types={ConsumerGroupType.CONSUMER}) == {group}
    assert {group, simple} & listed(admin, types={ConsumerGroupType.CLASSIC}) == {simple}
    assert not {group, simple} & listed(admin, states=empty, types={ConsumerGroupType.CONSUMER})


def test_offsets_are_reset_on_empty_groups_only(
    admin: AdminClient, cluster: ClusterProcess, crowd: Crowd, group: str, raw: RawGroup
) -> None:
    """A reset is a commit without a member: UNKNOWN_MEMBER_ID while the group has members, as in Kafka."""
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    member.commit({0: 10, 1: 11})
    refused = alter(admin, group, crowd.topic, {0: 3, 5: 3})
    assert [part.error.name() for part in refused.topic_partitions] == ["UNKNOWN_MEMBER_ID"] * 2
    assert offsets(admin, group) == {0: 10, 1: 11}
    member.close()
    altered = alter(admin, group, crowd.topic, {0: 3, 2: 0})
    assert [part.error for part in altered.topic_partitions] == [None, None]
    leader = kill_leader(cluster, raw)
    try:
        assert raw.until_accepted(raw.fetch, crowd.topic, [0, 1, 2]) == {0: 3, 1: 11, 2: 0}
    finally:
        leader.spawn()


def test_offsets_are_deleted_unless_they_are_used(
    admin: AdminClient, cluster: ClusterProcess, crowd: Crowd, group: str, raw: RawGroup
) -> None:
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    member.commit({0: 10, 1: 11})
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(raw, crowd.topic, 0, 5) == [subscribed, subscribed]
    member.close()
    assert delete_offsets(raw, crowd.topic, 0, 5) == [0, 0]
    leader = kill_leader(cluster, raw)
    try:
        assert raw.until_accepted(raw.fetch, crowd.topic, [0, 1]) == {0: -1, 1: 11}
    finally:
        leader.spawn()


def test_members_are_removed_by_an_operator(
    admin: AdminClient, crowd: Crowd, group: str, raw: RawGroup
) -> None:
    """Several members are removed in one call, each with its own answer.

    A live stock consumer learns of it with its next heartbeat and joins again; until then it goes on with
    partitions that others own by now.
    """
    one = crowd.join(**{"group.instance.id": "one"})
    crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    before = only(admin.describe_consumer_groups([group]))
    ids = {member.member_id for member in before.members}
    (dynamic,) = [member.member_id for member in before.members if member.group_instance_id != "one"]
    errors = remove(
        raw,
        MemberIdentity(group_instance_id="one"),
        MemberIdentity(member_id=dynamic),
        MemberIdentity(member_id="nobody"),
    )
    assert errors == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    crowd.wait("the first one to hear of it", lambda: bool(one.lost))
    crowd.wait_balanced(NUM_PARTITIONS)
    crowd.overlaps.clear()
    after = only(admin.describe_consumer_groups([group]))
    assert len(after.members) == 2
    assert ids != {member.member_id for member in after.members} or one.lost


def test_groups_are_deleted_each_by_its_own_coordinator(
    admin: AdminClient, cluster: ClusterProcess, crowd: Crowd, group: str, raw: RawGroup
) -> None:
    names = [f"{group}-{number}" for number in range(6)]
    for name in names:
        alter(admin, name, crowd.topic, {0: 1})
    member = crowd.join()
    crowd.wait_balanced(NUM_PARTITIONS)
    answers = admin.delete_consumer_groups([*names, group, "nowhere"], request_timeout=TIMEOUT_S)
    said = {}
    for name, future in answers.items():
        error = future.exception(TIMEOUT_S)
        said[name] = None if error is None else error.args[0].name()
    assert said == dict.fromkeys(names) | {group: "NON_EMPTY_GROUP", "nowhere": "GROUP_ID_NOT_FOUND"}
    assert not listed(admin) & set(names)
    member.close()
    only(admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S))
    leader = kill_leader(cluster, raw)
    try:
        assert raw.until_accepted(raw.fetch, crowd.topic, [0]) == {0: -1}
    finally:
        leader.spawn()


def test_a_group_with_a_great_many_offsets_is_deleted_at_once(
    admin: AdminClient, group: str, raw: RawGroup, new_topic: Callable[[int], str]
) -> None:
    """One decision removes at most 20,000 offsets; the answer follows the last, as clients do not retry."""
    topic = new_topic(30_000)
    for start in range(0, 30_000, 10_000):
        raw.until_accepted(raw.commit, topic, dict.fromkeys(range(start, start + 10_000), 1))
    only(admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S))
    assert group not in listed(admin)
    assert offsets(admin, group) == {}
