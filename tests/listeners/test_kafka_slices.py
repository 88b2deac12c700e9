"""Long answers are encoded in slices: the same bytes, from one state, while others are served."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from cluster.kafka import dispatch
from cluster.kafka.cluster_apis import metadata_answer
from cluster.kafka.exchange import Exchange
from cluster.runtime.slices import finished
from coordinator.offsets import commits as offsets
from coordinator.topics import CatalogTopic, CatalogView
from tests.support.listener_rig import CLIENT_ID, ORDERS, RawClient, Rig, heartbeat
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.delete_topics import DeleteTopicsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.protocol import decode_response, encode_request, encode_response
from wire.refusals import refuse

CHANGES_AND_LISTS: list[tuple[ApiKey, int, Any]] = [
    (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[CreatableTopic(name="t")])),
    (ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)])),
    (ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["t"])),
    (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"])),
    (ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"])),
    (ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"])),
    (ApiKey.LIST_GROUPS, 5, ListGroupsRequest()),
]

MANY = 20_000
CLOCK_STEP_MS = 0.5
"""Milliseconds that pass at each reading of the clock, so that slices end in virtual time too."""


def metadata(correlation_id: int) -> bytes:
    return encode_request(ApiKey.METADATA, 12, correlation_id, CLIENT_ID, MetadataRequest(topics=None))


@pytest.fixture
def rig() -> Rig:
    rig = Rig(clock_step_ms=CLOCK_STEP_MS)
    large = CatalogTopic(name="large", topic_id=b"large-topic-id-!", num_partitions=MANY)
    small = [CatalogTopic(f"small-{n}", n.to_bytes(16, "big"), 1) for n in range(2_500)]
    rig.node.catalog = CatalogView([ORDERS, large, *small], version=5)
    return rig


def whole(rig: Rig, request: MetadataRequest, version: int = 12, correlation_id: int = 1) -> bytes:
    body = finished(metadata_answer(rig.node, version, request))
    return encode_response(ApiKey.METADATA, version, correlation_id, body)[4:]


def ask(rig: Rig, client: RawClient, data: bytes) -> bytes:
    before = len(client.frames)
    client.send(data)
    assert rig.world.run_until(lambda: len(client.frames) > before, within_ms=10_000)
    return client.frames[-1]


@pytest.mark.parametrize("version", range(13))
def test_metadata_of_very_many_partitions(rig: Rig, version: int) -> None:
    request = MetadataRequest(topics=None if version else [])
    data = encode_request(ApiKey.METADATA, version, 1, CLIENT_ID, request)
    body = finished(metadata_answer(rig.node, version, request))
    assert [len(topic.partitions) for topic in body.topics][:2] == [MANY, ORDERS.num_partitions]
    assert [part.partition_index for part in body.topics[0].partitions] == list(range(MANY))
    assert len(body.topics) == 2_502
    assert ask(rig, rig.connect(), data) == whole(rig, request, version)


def test_metadata_of_very_many_unknown_topics(rig: Rig) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"nothing-{n}") for n in range(5_000)])
    assert sum(1 for _ in metadata_answer(rig.node, 12, request)) == 5
    data = encode_request(ApiKey.METADATA, 12, 1, CLIENT_ID, request)
    assert ask(rig, rig.connect(), data) == whole(rig, request)


def test_the_catalog_of_the_request_is_what_is_shown(rig: Rig) -> None:
    client = rig.connect()
    expected = whole(rig, MetadataRequest(topics=None))
    client.send(metadata(1))
    assert rig.world.run_until(lambda: len(rig.listener.context.slices) == 1, within_ms=1_000)
    rig.node.catalog.remove("orders", 6)
    rig.node.catalog.put(CatalogTopic("late", b"a-late-topic-id!", 2), 7)
    assert rig.world.run_until(lambda: bool(client.frames), within_ms=10_000)
    assert client.frames == [expected]
    assert ask(rig, client, metadata(2)) == whole(rig, MetadataRequest(topics=None), correlation_id=2)


def test_others_are_served_meanwhile_and_the_own_connection_in_order(rig: Rig) -> None:
    greedy, modest = rig.connect(), rig.connect()
    greedy.send(metadata(1) + heartbeat(2))
    assert rig.world.run_until(lambda: len(rig.listener.context.slices) == 1, within_ms=1_000)
    modest.send(heartbeat(3))
    assert rig.world.run_until(lambda: bool(modest.frames), within_ms=10_000)
    assert not greedy.frames
    assert rig.world.run_until(lambda: len(greedy.frames) == 2, within_ms=10_000)
    assert greedy.correlation_ids == [1, 2]


def fetch_of_one_partition(wait_ms: int) -> FetchRequest:
    asked = [FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1)] * MANY
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=asked)]
    )


def offsets_of_one_partition() -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * MANY
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=asked)])


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.FETCH, 4, fetch_of_one_partition(0)),
        (ApiKey.FETCH, 4, fetch_of_one_partition(300)),
        (ApiKey.LIST_OFFSETS, 1, offsets_of_one_partition()),
        (
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=f"none-{n}") for n in range(MANY)]),
        ),
    ],
    ids=["fetch", "fetch that waits", "list offsets", "topic pages"],
)
def test_a_frame_that_names_very_many_is_answered_in_slices(
    rig: Rig, api_key: ApiKey, version: int, body: Any
) -> None:
    greedy, modest = rig.connect(), rig.connect()
    greedy.send(encode_request(api_key, version, 1, CLIENT_ID, body))
    assert rig.world.run_until(lambda: len(rig.listener.context.slices) == 1, within_ms=1_000)
    modest.send(heartbeat(3))
    assert rig.world.run_until(lambda: bool(modest.frames), within_ms=20)
    assert not greedy.frames
    assert rig.world.run_until(lambda: bool(greedy.frames), within_ms=10_000)
    _, answer = decode_response(api_key, version, greedy.frames[0])
    named = getattr(answer, "responses", None) or answer.topics
    assert len(named) == MANY or len(named[0].partitions) == MANY


def test_a_client_that_goes_leaves_no_work_behind(rig: Rig) -> None:
    clients = [rig.connect() for _ in range(3)]
    for client in clients:
        client.send(metadata(1))
    assert rig.world.run_until(lambda: len(rig.listener.context.slices) == 3, within_ms=1_000)
    for client in clients[:2]:
        client.transport.abort()
    assert rig.world.run_until(lambda: len(rig.listener.context.slices) == 0, within_ms=10_000)
    rig.run()
    assert [len(client.frames) for client in clients] == [0, 0, 1]
    assert not rig.listener.context.counters.connections_closed["failed"]


def commit(correlation_id: int, partitions: int) -> bytes:
    asked = [OffsetCommitRequestPartition(partition_index=index) for index in range(partitions)]
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="orders", partitions=asked)]
    )
    return encode_request(ApiKey.OFFSET_COMMIT, 9, correlation_id, CLIENT_ID, request)


def test_a_commit_does_not_overtake_one_that_takes_several_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last part would overwrite newer offsets with older ones."""
    monkeypatch.setattr(offsets, "PARTITIONS_AT_ONCE", 3)
    rig = Rig()
    client, other = rig.connect(), rig.connect()
    rig.node.holding = True
    client.send(commit(1, 3) + commit(2, 4) + commit(3, 1) + heartbeat(4))
    rig.run()
    assert len(rig.node.asked) == 2, "one that is decided at once holds nobody up"
    other.send(heartbeat(5))
    client.send(heartbeat(6))
    rig.run()
    assert len(rig.node.asked) == 3, "another connection is served"
    rig.node.release(0)
    rig.run()
    assert len(rig.node.asked) == 3
    rig.node.release(0)
    rig.run()
    assert len(rig.node.asked) == 6
    while rig.node.held:
        rig.node.release()
    rig.run()
    assert client.correlation_ids == [1, 2, 3, 4, 6]


def test_nothing_overtakes_a_change_that_may_take_several_decisions() -> None:
    rig = Rig()
    rig.node.holding = True
    client = rig.connect()
    for correlation_id, (api_key, version, body) in enumerate(CHANGES_AND_LISTS):
        client.send(encode_request(api_key, version, correlation_id, CLIENT_ID, body))
    rig.run()
    for number, (api_key, version, body) in enumerate(CHANGES_AND_LISTS):
        assert [asked[0] for asked in rig.node.asked][number:] == [api_key]
        reply, _ = rig.node.held.pop()
        reply(refuse(api_key, version, body, ErrorCode.NOT_COORDINATOR, ""))
        rig.run()
    assert client.correlation_ids == list(range(len(CHANGES_AND_LISTS)))


def describe(correlation_id: int) -> bytes:
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    return encode_request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, correlation_id, CLIENT_ID, request)


def test_long_answers_in_the_making_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection has one at a time, however many it requests; and all of them together have a limit."""
    monkeypatch.setattr(dispatch, "LONG_READS_MAX", 2)
    rig = Rig()
    rig.node.holding = True
    clients = [rig.connect() for _ in range(2)]
    for client in clients:
        client.send(b"".join(map(describe, range(100))))
    rig.run()
    assert len(rig.node.asked) == 2
    late = rig.connect()
    late.send(describe(7) + heartbeat(8))
    rig.run()
    _, answer = decode_response(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, late.frames[0])
    assert answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "try again" in answer.groups[0].error_message
    assert len(rig.node.asked) == 3, "a heartbeat is none of them"
    clients[0].transport.abort()
    rig.run()
    late.send(describe(9))
    rig.run()
    assert len(rig.node.asked) == 4
    assert len(rig.listener.context.long_reads) == 2
    for client in (clients[1], late):
        client.transport.abort()
    rig.run()
    assert not rig.listener.context.long_reads


def test_a_connection_does_not_keep_what_it_answered() -> None:
    """An idle connection would hold a description of ten megabytes until its next request."""
    of_other_tests = _exchanges()
    rig = Rig()
    client = rig.connect()
    answer = refuse(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(), ErrorCode.NOT_COORDINATOR, "")
    rig.node.holding = True
    client.send(encode_request(ApiKey.LIST_GROUPS, 5, 1, CLIENT_ID, ListGroupsRequest()))
    rig.run()
    reply, _ = rig.node.held.pop()
    reply(answer)
    del reply
    rig.run()
    assert client.correlation_ids == [1]
    gc.collect()
    assert _exchanges() <= of_other_tests


def _exchanges() -> set[Exchange]:
    return {one for one in gc.get_objects() if isinstance(one, Exchange)}
