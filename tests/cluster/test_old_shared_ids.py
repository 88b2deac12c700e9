"""One group id, one protocol, on three nodes in virtual time: old protocols and Kafka's requests."""

from __future__ import annotations

import pytest

from tests.cluster.old_protocols import SESSION_MS, OldNodes
from tests.support.requests import join_request
from tests.support.three_nodes import GROUP
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.list_groups import ListGroupsRequest


@pytest.fixture
def nodes() -> OldNodes:
    return OldNodes()


def delete(nodes: OldNodes) -> int:
    request = DeleteGroupsRequest(groups_names=[GROUP])
    return int(nodes.ask(nodes.leader, ApiKey.DELETE_GROUPS, 2, request).results[0].error_code)


def test_an_id_passes_from_one_protocol_to_the_next_once_its_consumers_are_gone(nodes: OldNodes) -> None:
    nodes.rewrite("a", positions=lambda: {("orders", 0): 5})
    nodes.wait(lambda: nodes.is_shared({"a"}))
    leader = nodes.leader
    assert nodes.commit(leader, 9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert delete(nodes) == ErrorCode.NON_EMPTY_GROUP
    (listed,) = nodes.ask(leader, ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == (GROUP, "classic", "Stable")
    nodes.push("p")
    nodes.world.run_for(2 * SESSION_MS)
    assert nodes.push_record is None
    assert not nodes.pushed["p"].positions, "its connection is closed"
    assert nodes.is_shared({"a"})
    nodes.kill_client("a")
    nodes.wait(lambda: nodes.is_shared({"p"}))
    assert nodes.rewrite_record is None, "the record without consumers gave way"
    asked = join_request(GROUP, "k", "orders")
    refused = nodes.ask(nodes.leader, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "push protocol (seed 004) with 1 consumer" in refused.error_message
    nodes.rewrite("b")
    nodes.world.run_for(2 * SESSION_MS)
    assert nodes.is_shared({"p"})
    nodes.kill_client("b")
    nodes.kill_client("p")
    nodes.wait(lambda: nodes.push_record is None and nodes.rewrite_record is None)


def test_an_empty_old_group_is_deleted_with_its_offsets(nodes: OldNodes) -> None:
    nodes.rewrite("a", positions=lambda: {("orders", 0): 5}, settings={"commit_interval_ms": SESSION_MS})
    nodes.wait(lambda: nodes.committed(0) == 5)
    nodes.kill_client("a")
    nodes.wait(lambda: nodes.rewrite_record is not None and not nodes.rewrite_record.consumers)
    assert delete(nodes) == ErrorCode.NONE
    assert nodes.rewrite_record is None
    assert nodes.committed(0) is None


def test_a_topic_that_is_deleted_and_created_again_is_another_one(nodes: OldNodes) -> None:
    nodes.rewrite("a")
    nodes.wait(lambda: nodes.is_shared({"a"}))
    record = nodes.rewrite_record
    assert record is not None
    assert nodes.delete("orders") == ErrorCode.NONE
    assert nodes.create("orders", 12) == ErrorCode.NONE
    nodes.wait(lambda: nodes.rewrite_record.topics[0].topic_id not in (bytes(16), record.topics[0].topic_id))
    nodes.wait(lambda: nodes.is_shared({"a"}))
