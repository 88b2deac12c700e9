"""The small client against a scripted node: what it retries, and when it gives up."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from quorate.client import Client
from quorate.errors import CommandError, ExitCode
from quorate.retrying_client import ClusterRefused, NotInTime
from tests.quorate.standins import HANG_UP, SILENCE, ScriptedNode, metadata
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersionsResponse
from wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from wire.messages.find_coordinator import FindCoordinatorResponse
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
)
from wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def created(code: ErrorCode, message: str | None = None) -> CreateTopicsResponse:
    result = CreatableTopicResult(name="orders", error_code=code, error_message=message)
    return CreateTopicsResponse(topics=[result])


def deleted_group(code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])


def test_retriable_answers_and_lost_connections_are_tried_again(node: ScriptedNode) -> None:
    node.answer(
        ApiKey.DELETE_GROUPS,
        deleted_group(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        HANG_UP,
        deleted_group(ErrorCode.NOT_COORDINATOR),
        deleted_group(ErrorCode.NONE),
    )
    with Client(node.address) as client:
        client.delete_group("g")
    assert node.count(ApiKey.DELETE_GROUPS) == 4


def test_who_answers_that_it_cannot_now_is_not_called_unreachable(node: ScriptedNode) -> None:
    full = deleted_group(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    node.answer(ApiKey.DELETE_GROUPS, *[full] * 100)
    with Client(node.address, timeout_s=0.3) as client, pytest.raises(NotInTime) as error:
        client.delete_group("g")
    assert "COORDINATOR_NOT_AVAILABLE" in str(error.value)
    assert "cannot reach" not in str(error.value)
    assert error.value.code == ExitCode.UNREACHABLE


def test_a_node_without_the_others_is_not_called_unreachable(start_node: Callable[[], ScriptedNode]) -> None:
    there, gone = start_node(), start_node()
    gone.close()
    there.answer(
        ApiKey.FIND_COORDINATOR, FindCoordinatorResponse(node_id=2, host="127.0.0.1", port=gone.port)
    )
    with Client(there.address, timeout_s=0.3) as client, pytest.raises(NotInTime) as error:
        client.delete_group("g")
    assert "without a majority of its nodes it serves nothing: `quorate cluster status`" in str(error.value)


def test_a_node_that_answers_over_a_connection_of_before_is_not_called_unreachable(
    node: ScriptedNode,
) -> None:
    with Client(node.address, timeout_s=1.0) as client:
        client.cluster_id()
        waits = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        node.answer(ApiKey.FIND_COORDINATOR, waits, SILENCE)
        with pytest.raises(NotInTime, match="no response in time"):
            client.describe_group("g")


def test_an_http_port_given_as_kafkas_is_called_one(node: ScriptedNode) -> None:
    node.answer(ApiKey.API_VERSIONS, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    said = f"{node.address} is an HTTP port, not one for Kafka clients; give the Kafka address"
    with Client(node.address) as client, pytest.raises(CommandError, match=said) as error:
        client.topics()
    assert error.value.code == ExitCode.USAGE


def test_a_refusal_is_final_and_carries_name_code_and_message(node: ScriptedNode) -> None:
    node.answer(ApiKey.CREATE_TOPICS, created(ErrorCode.INVALID_TOPIC_EXCEPTION, "no spaces"))
    with Client(node.address) as client, pytest.raises(ClusterRefused) as refused:
        client.create_topic("orders", 3)
    assert refused.value.code == ExitCode.REFUSED
    assert "INVALID_TOPIC_EXCEPTION (17): no spaces" in str(refused.value)
    assert node.count(ApiKey.CREATE_TOPICS) == 1


def test_an_unknown_topic_is_an_answer_and_not_waited_for(node: ScriptedNode) -> None:
    unknown = DeletableTopicResult(name="orders", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    node.answer(ApiKey.DELETE_TOPICS, DeleteTopicsResponse(responses=[unknown]))
    with Client(node.address) as client, pytest.raises(ClusterRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.delete_topic("orders")


@pytest.mark.parametrize(("found", "is_done"), [(3, True), (5, False)])
def test_a_creation_whose_answer_was_lost_counts_if_the_topic_is_what_was_asked_for(
    node: ScriptedNode, found: int, is_done: bool
) -> None:
    node.answer(ApiKey.CREATE_TOPICS, HANG_UP, created(ErrorCode.TOPIC_ALREADY_EXISTS))
    node.answer(ApiKey.METADATA, metadata(node, orders=found))
    with Client(node.address) as client:
        if is_done:
            client.create_topic("orders", 3)
        else:
            with pytest.raises(ClusterRefused, match="TOPIC_ALREADY_EXISTS"):
                client.create_topic("orders", 3)


def test_a_first_answer_that_the_topic_exists_is_a_refusal(node: ScriptedNode) -> None:
    node.answer(ApiKey.CREATE_TOPICS, created(ErrorCode.TOPIC_ALREADY_EXISTS))
    node.answer(ApiKey.METADATA, metadata(node, orders=3))
    with Client(node.address) as client, pytest.raises(ClusterRefused, match="TOPIC_ALREADY_EXISTS"):
        client.create_topic("orders", 3)


def test_group_requests_follow_the_coordinator(start_node: Callable[[], ScriptedNode]) -> None:
    bootstrap, coordinator = start_node(), start_node()
    elsewhere = FindCoordinatorResponse(node_id=2, host="127.0.0.1", port=coordinator.port)
    bootstrap.answer(ApiKey.FIND_COORDINATOR, elsewhere)
    group = DescribedGroup(group_id="g", group_state="Stable", group_epoch=7, assignment_epoch=7)
    coordinator.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=[group]))
    row = OffsetFetchResponsePartitions(partition_index=2, committed_offset=41)
    topic = OffsetFetchResponseTopics(name="orders", partitions=[row])
    fetched = OffsetFetchResponseGroup(group_id="g", topics=[topic])
    coordinator.answer(ApiKey.OFFSET_FETCH, OffsetFetchResponse(groups=[fetched]))
    with Client(bootstrap.address) as client:
        described = client.describe_group("g")
    assert (described.state, described.group_epoch) == ("Stable", 7)
    assert described.offsets == {"orders": {2: 41}}


@pytest.mark.parametrize("answer", [SILENCE, HANG_UP, b"\x00\x00\x00\x02no", b"\x7f\xff\xff\xffgarbage"])
def test_a_node_that_answers_nothing_sensible_is_given_up_in_time(node: ScriptedNode, answer: object) -> None:
    node.answer(ApiKey.METADATA, answer)
    started_s = time.monotonic()
    with Client(node.address, timeout_s=0.5) as client, pytest.raises(NotInTime) as error:
        client.topics()
    assert time.monotonic() - started_s < 1.5
    assert error.value.code == ExitCode.UNREACHABLE
    assert node.address in str(error.value)


def test_the_next_bootstrap_node_is_asked_when_the_first_is_gone(
    start_node: Callable[[], ScriptedNode],
) -> None:
    gone, there = start_node(), start_node()
    gone.close()
    there.answer(ApiKey.METADATA, metadata(there, orders=3))
    with Client(f"{gone.address},{there.address}") as client:
        assert [(topic.name, topic.num_partitions) for topic in client.topics()] == [("orders", 3)]


def brokers(*nodes: ScriptedNode, controller: int) -> MetadataResponse:
    return MetadataResponse(
        controller_id=controller,
        brokers=[
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=node.port)
            for number, node in enumerate(nodes, 1)
        ],
    )


def test_changes_of_topics_go_to_the_controller_and_follow_it(
    start_node: Callable[[], ScriptedNode],
) -> None:
    first, second = start_node(), start_node()
    for node in (first, second):
        node.answer(
            ApiKey.METADATA,
            brokers(first, second, controller=2),
            brokers(first, second, controller=1),
        )
    second.answer(ApiKey.CREATE_TOPICS, created(ErrorCode.NOT_CONTROLLER))
    first.answer(ApiKey.CREATE_TOPICS, created(ErrorCode.NONE))
    with Client(first.address) as client:
        client.create_topic("orders", 3)
    assert (first.count(ApiKey.CREATE_TOPICS), second.count(ApiKey.CREATE_TOPICS)) == (1, 1)


def test_a_silent_node_costs_one_lookup_and_is_asked_last_from_then_on(
    start_node: Callable[[], ScriptedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.retrying_client.LOOKUP_S_MAX", 0.2)
    silent, there = start_node(), start_node()
    silent.answer(ApiKey.METADATA, SILENCE)
    with Client(f"{silent.address},{there.address}") as client:
        for _ in range(3):
            assert client.topics() == []
    assert silent.count(ApiKey.METADATA) == 1


def test_nodes_that_were_learnt_are_asked_when_the_only_named_one_is_gone(
    start_node: Callable[[], ScriptedNode],
) -> None:
    gone, there = start_node(), start_node()
    gone.answer(ApiKey.METADATA, brokers(gone, there, controller=2))
    there.answer(ApiKey.CREATE_TOPICS, created(ErrorCode.NONE))
    there.answer(ApiKey.METADATA, metadata(there, orders=3))
    with Client(gone.address) as client:
        client.create_topic("orders", 3)
        gone.close()
        assert [topic.name for topic in client.topics()] == ["orders"]


def test_a_node_without_the_api_is_named_at_once(node: ScriptedNode) -> None:
    node.answer(ApiKey.API_VERSIONS, ApiVersionsResponse(api_keys=[]))
    with (
        Client(node.address) as client,
        pytest.raises(CommandError, match="does not serve METADATA") as error,
    ):
        client.topics()
    assert error.value.code == ExitCode.REFUSED


@pytest.mark.parametrize("text", ["localhost", "localhost:", ":9092", "host:99999", "a:1,b"])
def test_an_address_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError) as error:
        Client(text)
    assert error.value.code == ExitCode.USAGE
