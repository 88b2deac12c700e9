"""E.3 and E.6: DeleteGroups, ConsumerGroupDescribe, DescribeGroups, ListGroups."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import admin
from coordinator.limits import Limits
from records import Trigger, encode_record
from tests.kip848.classic_groups import classic_group
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.protocol import decode_request, decode_response, encode_request, encode_response

ORDERS = FIRST_TOPIC


def describe(world: World, group_id: str = "g") -> DescribedGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    group: DescribedGroup = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups[0]
    return group


def delete(world: World, *group_ids: str) -> list[int]:
    request = DeleteGroupsRequest(groups_names=list(group_ids))
    return [result.error_code for result in world.handle(ApiKey.DELETE_GROUPS, 2, request).results]


def test_describe_shows_epochs_assignor_and_both_assignments(world: World) -> None:
    """{GroupState, GroupEpoch, AssignmentEpoch, AssignorName, Members[… Assignment, TargetAssignment]}."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    group = describe(world)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    assert group.assignor_name == "uniform"
    first, second = sorted(group.members, key=lambda member: member.member_id)
    assert (first.member_epoch, second.member_epoch, first.member_type) == (1, 2, 1)
    assert (first.client_id, first.client_host) == ("client", "/127.0.0.1")
    assert first.subscribed_topic_names == ["orders"]
    assert first.assignment.topic_partitions[0].partitions == list(range(12))
    assert first.target_assignment.topic_partitions[0].topic_name == "orders"
    assert len(first.target_assignment.topic_partitions[0].partitions) == 6
    assert second.assignment.topic_partitions == []


def test_what_is_pending_revocation_is_described_as_assigned(world: World) -> None:
    """Kafka 4.3 shows what the member owns, until it has given it up; no expression is an empty one."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    assert len(a.owned[FIRST_TOPIC]) == 6
    first = describe(world).members[0]
    assert first.assignment.topic_partitions[0].partitions == list(range(12))
    assert first.subscribed_topic_regex == ""


def test_describe_leaves_out_topics_that_are_gone(world: World) -> None:
    """Topic ids no longer in the catalog are omitted."""
    world.join("a")
    world.delete_topic("orders")
    member = describe(world).members[0]
    assert member.assignment.topic_partitions == member.target_assignment.topic_partitions == []


@pytest.mark.parametrize(("group_id", "code"), [("", 24), ("missing", 69), ("simple", 69)])
def test_describe_of_what_is_not_there(world: World, group_id: str, code: int) -> None:
    """Missing or another type → 69 with a message; empty id → 24."""
    world.commit({("orders", 0): 1}, group_id="simple")
    group = describe(world, group_id)
    assert group.error_code == code
    assert group.error_message


def test_classic_describe(world: World) -> None:
    """Consumer group asked by DescribeGroups → Dead (v ≤ 5, no error), v6 → GROUP_ID_NOT_FOUND and Dead."""
    world.join("a")
    world.commit({("orders", 0): 1}, group_id="simple")
    request = DescribeGroupsRequest(groups=["g", "missing", "simple"])
    old = world.handle(ApiKey.DESCRIBE_GROUPS, 5, request).groups
    assert [(group.group_state, group.error_code) for group in old] == [
        ("Dead", 0),
        ("Dead", 0),
        ("Empty", 0),
    ]
    new = world.handle(ApiKey.DESCRIBE_GROUPS, 6, request).groups
    assert [group.error_code for group in new] == [69, 69, 0]
    assert "not a classic group" in (new[0].error_message or "")


def test_classic_describe_of_a_classic_group(world: World) -> None:
    """The answer shows record 2 as it is."""
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    group = world.handle(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert [member.member_id for member in group.members] == ["old"]


def listed(world: World, states: list[str] = (), types: list[str] = ()) -> dict[str, tuple[str, str, str]]:  # type: ignore[assignment]
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = world.handle(ApiKey.LIST_GROUPS, 5, request)
    return {g.group_id: (g.protocol_type, g.group_state, g.group_type) for g in answer.groups}


def test_list_filters(world: World) -> None:
    """Filters are case-insensitive, OR inside, AND between; unknown names simply match nothing."""
    world.join("a")
    world.join("a", group_id="empty")
    world.heartbeat("a", -1, group_id="empty")
    world.commit({("orders", 0): 1}, group_id="simple")
    everything = {
        "g": ("consumer", "Stable", "consumer"),
        "empty": ("consumer", "Empty", "consumer"),
        "simple": ("", "Empty", "classic"),
    }
    assert listed(world) == everything
    assert set(listed(world, ["STABLE"])) == {"g"}
    assert set(listed(world, ["stable", "Empty"])) == set(everything)
    assert set(listed(world, ["empty"], ["Consumer"])) == {"empty"}
    assert listed(world, ["no such state"]) == {}
    assert set(listed(world, [], ["classic", "streams"])) == {"simple"}


def test_delete(world: World) -> None:
    """Per group: missing 69; not Empty 68; deletes all offsets, then the group's tombstones, in one entry."""
    a = Client(world, "a")
    a.beat()
    world.commit({("orders", 0): 1, ("orders", 1): 2}, member_id="a", epoch=1)
    assert delete(world, "g", "missing") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    a.leave()
    entries = len(world.log)
    assert delete(world, "g", "g", "missing") == [0, 0, 69]
    assert len(world.log) == entries + 1
    assert world.log[-1].types == [-1, -1, -6, -4, -3]
    assert (world.log[-1].cause.trigger, world.log[-1].cause.address) == (Trigger.GROUP_DELETED, "/127.0.0.1")
    assert listed(world) == {}
    assert world.fetch() == {}
    assert delete(world, "g") == [69]


def test_delete_of_other_kinds(world: World) -> None:
    """Simple groups are their offsets; classic groups go by ~2, if they have no members."""
    world.commit({("orders", 0): 1}, group_id="simple")
    world.shard.apply(encode_record(classic_group(members=1)), world.next_index)
    assert delete(world, "simple", "g") == [0, 68]
    world.shard.apply(encode_record(classic_group(members=0)), world.next_index)
    assert delete(world, "g") == [0]
    assert world.log[-1].types == [-2]


def test_a_deleted_group_begins_anew(world: World) -> None:
    """The group's epochs start at 1 again; nothing of the old one is left."""
    a = Client(world, "a")
    a.beat()
    a.leave()
    delete(world, "g")
    assert a.beat().member_epoch == 1
    settle([a])
    assert world.group().state.value == "Stable"


def test_a_group_with_a_great_many_offsets_is_deleted_in_several_decisions() -> None:
    """A deletion that is too large for one entry goes on in the next; the reply comes after the last."""
    world = World(limits=Limits(removal_bytes_max=1_000))
    world.create_topic("orders", 7)
    world.commit({("orders", partition): 1 for partition in range(7)})
    world.commit({("orders", 0): 1}, group_id="h")
    assert delete(world, "nowhere", "g", "h", "g") == [69, 0, 0, 0]
    assert [entry.types for entry in world.log[-3:]] == [[-1] * 3, [-1] * 3, [-1] * 2]
    assert {entry.cause.address for entry in world.log[-3:]} == {"/127.0.0.1"}
    assert delete(world, "g", "h") == [69, 69]


def test_members_are_described_in_one_order(world: World) -> None:
    """A node that was restored from a snapshot describes a group as any other node does."""
    for member_id in "cab":
        world.join(member_id)
    assert [member.member_id for member in describe(world).members] == ["a", "b", "c"]


def test_describe_says_all_of_a_member(world: World) -> None:
    """InstanceId, RackId, SubscribedTopicRegex, MemberType 1; AuthorizedOperations stay at "not asked"."""
    world.join("a", instance_id="i", rack_id="r", subscribed_topic_regex="or.*")
    group = describe(world)
    assert group.authorized_operations == -(2**31)
    (member,) = group.members
    assert (member.instance_id, member.rack_id, member.member_type) == ("i", "r", 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders"], "or.*")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")


@pytest.mark.parametrize("version", range(6))
def test_what_each_version_of_a_list_can_say(world: World, version: int) -> None:
    """v4 has states, v5 has types; what a version has no field for is left out, and filters nothing."""
    world.join("a")
    request = ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"])
    data = encode_request(ApiKey.LIST_GROUPS, version, 1, "c", request)
    answer = world.handle(ApiKey.LIST_GROUPS, version, decode_request(data[4:])[1])
    assert len(answer.groups) == (1 if version < 4 else 0)
    answer = world.handle(ApiKey.LIST_GROUPS, version, ListGroupsRequest())
    frame = encode_response(ApiKey.LIST_GROUPS, version, 1, answer)
    (group,) = decode_response(ApiKey.LIST_GROUPS, version, frame[4:])[1].groups  # type: ignore[attr-defined]
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("consumer" if version >= 5 else "")


def test_a_member_that_comes_between_two_parts_of_a_deletion(world: World) -> None:
    """Each decision checks again: the group has members now, and is not deleted."""
    world = World(limits=Limits(removal_bytes_max=1_000))
    world.create_topic("orders", 7)
    world.commit({("orders", partition): 1 for partition in range(7)})
    decision = world.shard.handle(
        ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]), world.ctx()
    )
    world._append(decision)
    assert decision.continuation is not None
    world.join("a")
    decision = decision.continuation(world.ctx())
    assert decision.continuation is None
    assert decision.records == []
    reply: Any = decision.reply
    assert reply.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert world.group().num_members == 1


def test_a_large_group_is_described_in_several_turns_as_it_was_in_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that changes meanwhile is described as it was, so that the epochs of a description agree."""
    monkeypatch.setattr(admin, "MEMBERS_AT_ONCE", 2)
    members = [Client(world, f"member-{number}") for number in range(5)]
    settle(members)
    before = describe(world)
    request = ConsumerGroupDescribeRequest(group_ids=["missing", "g"])
    decision = world.shard.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request, world.ctx())
    turns = 1
    while decision.continuation is not None:
        members[turns + 1].leave()
        world.create_topic(f"topic-{turns}", 1)
        decision = decision.continuation(world.ctx())
        turns += 1
    assert turns == 3
    missing, after = decision.reply.groups  # type: ignore[attr-defined]
    assert (missing.error_code, missing.members) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert after == before
    assert len(describe(world).members) == 3
