"""E.3 OffsetDelete, and members that an operator removes (LeaveGroup)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.limits import Limits
from coordinator.state import writes
from records import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ReasonKind,
    Trigger,
    encode_record,
)
from tests.kip848.classic_groups import CHECK_MS, classic, classic_group
from tests.support.admin_requests import by_instance, delete, remove
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.offset_delete import (
    OffsetDeleteResponse,
)

ORDERS_0, MORE_0 = ("orders", 0), ("more", 0)


def codes(answer: OffsetDeleteResponse) -> dict[tuple[str, int], int]:
    assert answer.error_code == 0
    return {
        (topic.name, p.partition_index): p.error_code for topic in answer.topics for p in topic.partitions
    }


def test_offsets_of_an_empty_group_are_deleted(world: World) -> None:
    """~1 for each; nothing there → no error, no record. The cause names the operator."""
    world.commit({ORDERS_0: 1, ("orders", 1): 2, ("orders", 2): 3})
    assert codes(delete(world, {"orders": [0, 1, 7]})) == {("orders", number): 0 for number in (0, 1, 7)}
    entry = world.log[-1]
    assert entry.types == [-1, -1]
    assert (entry.cause.trigger, entry.cause.principal, entry.cause.address) == (
        Trigger.OFFSETS_DELETED, "User:ops", "/127.0.0.1",
    )  # fmt: skip
    assert world.fetch() == {("orders", 2): 3}
    entries = len(world.log)
    delete(world, {"orders": [0]})
    assert len(world.log) == entries


def test_offsets_of_a_subscribed_topic_stay(world: World) -> None:
    """Subscribed topic → GROUP_SUBSCRIBED_TO_TOPIC 86 per partition; other topics of the request go."""
    world.create_topic("more", 1)
    world.join("a")
    world.commit({ORDERS_0: 1, MORE_0: 2}, member_id="a", epoch=1)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert codes(delete(world, {"orders": [0, 1], "more": [0]})) == {
        ORDERS_0: subscribed, ("orders", 1): subscribed, MORE_0: 0,
    }  # fmt: skip
    assert world.fetch() == {ORDERS_0: 1}
    world.heartbeat("a", -1)
    assert codes(delete(world, {"orders": [0]})) == {ORDERS_0: 0}
    assert world.fetch() == {}


def test_partitions_that_do_not_exist_are_told_apart(world: World) -> None:
    """Topic or partition unknown → 3, whatever the group subscribes to; but the group must exist."""
    world.join("a")
    assert codes(delete(world, {"orders": [0, 99], "nothing": [0]})) == {
        ("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("orders", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert delete(world, {"nothing": [0]}, group_id="none").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_topic_that_an_expression_resolved_to_stay(world: World) -> None:
    """Subscribed topics are names and resolved expressions."""
    world.create_topic("more", 1)
    world.join("a", topics=["nowhere"])
    metadata = world.group().members["a"].metadata
    assert metadata is not None
    key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="mo.*")
    resolved = ConsumerGroupRegularExpressionValue(version=1, timestamp_ms=1, topics=("more",))
    for raw in (
        writes.member_metadata("g", "a", replace(metadata, subscribed_topic_regex="mo.*")),
        writes.write(key, resolved),
    ):
        world.shard.apply(raw, world.shard.applied_index)
    world.commit({ORDERS_0: 1, MORE_0: 2}, member_id="a", epoch=1)
    assert codes(delete(world, {"orders": [0], "more": [0]})) == {
        ORDERS_0: 0, MORE_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }  # fmt: skip


def test_unknown_groups_and_topics(world: World) -> None:
    """Group missing 69, empty group id 24, both for the whole request; topic unknown 3 for its partitions."""
    assert delete(world, {"orders": [0]}).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(world, {"orders": [0]}, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    world.commit({ORDERS_0: 1})
    assert codes(delete(world, {"nowhere": [0], "orders": [0]})) == {
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ORDERS_0: 0,
    }  # fmt: skip


def test_odd_requests_change_nothing_that_they_should_not(world: World) -> None:
    """Partitions twice, negative ones, topics twice, no topics at all."""
    world.commit({ORDERS_0: 1})
    assert delete(world, {}).topics == []
    assert codes(delete(world, {"orders": [-1, -(2**31), 2**31 - 1]})).keys() == {
        ("orders", -1), ("orders", -(2**31)), ("orders", 2**31 - 1),
    }  # fmt: skip
    assert world.fetch() == {ORDERS_0: 1}
    answer = delete(world, {"orders": [0, 0]})
    assert [part.error_code for part in answer.topics[0].partitions] == [0, 0]
    assert world.log[-1].types == [-1]


def test_more_partitions_than_one_decision_looks_for() -> None:
    """A bound with a name; Kafka has none."""
    world = World(limits=Limits(offsets_deleted_max=3))
    world.create_topic("orders", 9)
    world.commit({ORDERS_0: 1})
    assert delete(world, {"orders": [0, 1, 2, 3]}).error_code == ErrorCode.INVALID_REQUEST
    assert delete(world, {name: [] for name in "abcd"}).error_code == ErrorCode.INVALID_REQUEST
    assert world.fetch() == {ORDERS_0: 1}


def test_classic_groups(world: World) -> None:
    """Non-consumer protocol type and not Empty → NON_EMPTY_GROUP 68; consumers: what nobody subscribes to."""
    world.create_topic("more", 1)
    world.commit({ORDERS_0: 1, MORE_0: 1})
    world.shard.apply(encode_record(classic(0, protocol_type="connect", subscription=b"x")), 1)
    assert delete(world, {"orders": [0]}).error_code == ErrorCode.NON_EMPTY_GROUP
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    world.shard.apply(encode_record(classic(0, "orders")), 1)
    assert codes(delete(world, {"orders": [0], "more": [0]})) == {ORDERS_0: subscribed, MORE_0: 0}
    world.shard.apply(encode_record(classic(0, subscription=b"?")), 1)
    assert codes(delete(world, {"orders": [0]})) == {ORDERS_0: subscribed}, "whatever it subscribes to"
    world.shard.apply(encode_record(classic(0)), 1)
    assert codes(delete(world, {"orders": [0]})) == {ORDERS_0: 0}


def test_the_last_offset_of_an_empty_group(world: World) -> None:
    """A group with neither members nor offsets ends at the next check."""
    a = Client(world, "a")
    a.beat()
    world.commit({ORDERS_0: 1}, member_id="a", epoch=1)
    a.leave()
    delete(world, {"orders": [0]})
    assert "g" in world.shard.projection.groups
    world.sleep(CHECK_MS)
    assert "g" not in world.shard.projection.groups


# Members that an operator removes.


def test_more_members_than_a_decision_looks_for() -> None:
    """A bound with a name; Kafka has none."""
    world = World(limits=Limits(members_named_max=2))
    a = Client(world, "a")
    a.beat()
    assert remove(world, "a", "b", "c").error_code == ErrorCode.INVALID_REQUEST
    assert "a" in world.group().members
    assert [answer.error_code for answer in remove(world, "a", "b").members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def three_members(world: World) -> list[Client]:
    clients = [Client(world, name) for name in "abc"]
    settle(clients)
    assert world.group().state.value == "Stable"
    return clients


def test_a_member_is_removed_and_its_partitions_go_to_others_at_once(world: World) -> None:
    """Tombstones, one bump, a new target in the same entry; the cause names the operator and each member."""
    a, b, c = three_members(world)
    epoch = world.group().epoch
    answer = remove(world, "b")
    assert [(m.member_id, m.error_code) for m in answer.members] == [("b", 0)]
    entry = world.log[-1]
    assert entry.types[:3] == [-8, -7, -5]
    assert 6 in entry.types, "freed partitions do not wait for a heartbeat"
    assert (entry.cause.trigger, entry.cause.principal, entry.cause.address) == (
        Trigger.MEMBER_REMOVED, "User:ops", "/127.0.0.1",
    )  # fmt: skip
    assert [(r.kind, r.member_id) for r in entry.cause.reasons] == [(ReasonKind.MEMBER_REMOVED, "b")]
    assert world.group().epoch == world.group().assignment_epoch == epoch + 1
    assert b.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle([a, c])
    assert sorted(a.partitions(FIRST_TOPIC) + c.partitions(FIRST_TOPIC)) == list(range(12))


def test_several_members_in_one_call_with_errors_per_member(world: World) -> None:
    """By member id or by instance id; each has its own error, and there is one bump."""
    world.join("a", instance_id="i-a")
    world.join("b", instance_id="i-b")
    world.join("c")
    epoch = world.group().epoch
    answer = remove(
        world, by_instance("i-a"), by_instance("i-b", "not-b"), by_instance("i-x"), "c", "nobody", "",
        MemberIdentity(member_id="b", reason="why not"),
    )  # fmt: skip
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.error_code for m in answer.members] == [
        0, ErrorCode.FENCED_INSTANCE_ID, unknown, 0, unknown, unknown, 0,
    ]  # fmt: skip
    assert [(m.member_id, m.group_instance_id) for m in answer.members[:2]] == [("", "i-a"), ("not-b", "i-b")]
    assert world.group().epoch == epoch + 1
    assert world.group().state.value == "Empty"
    assert len(world.log[-1].cause.reasons) == 3


def test_a_member_named_twice(world: World) -> None:
    """Both are answered alike; it is removed once."""
    world.join("a", instance_id="i")
    answer = remove(world, "a", by_instance("i"), "a")
    assert [m.error_code for m in answer.members] == [0, 0, 0]
    assert world.log[-1].types.count(-5) == 1


def test_an_away_member_is_removed(world: World) -> None:
    """A static member that left with −2 has a place until its session ends, or until it is removed."""
    world.join("a", instance_id="i")
    world.join("b")
    world.heartbeat("a", -2, instance_id="i")
    assert world.group().members["a"].is_away
    assert remove(world, by_instance("i")).members[0].error_code == 0
    assert list(world.group().members) == ["b"]


@pytest.mark.parametrize("version", [0, 2])
def test_old_versions_name_one_member(world: World, version: int) -> None:
    """Versions 0 to 2 have one member id and one error, both at the top."""
    world.join("a")
    request = LeaveGroupRequest(group_id="g", member_id="a")
    assert world.handle(ApiKey.LEAVE_GROUP, version, request).error_code == 0
    answer = world.handle(ApiKey.LEAVE_GROUP, version, request)
    assert (answer.error_code, answer.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


def test_groups_that_have_no_such_members(without_classic: World) -> None:
    """Empty group id 24; a group that is missing, only offsets, or classic: UNKNOWN_MEMBER_ID per member."""
    world = without_classic
    assert remove(world, "a", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert [m.error_code for m in remove(world, "a", "b").members] == [25, 25]
    world.commit({ORDERS_0: 1})
    assert [m.error_code for m in remove(world, "a").members] == [25]
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    assert [m.error_code for m in remove(world, "old").members] == [25]
    assert remove(world).members == []


def test_a_great_many_members_are_removed_in_several_decisions() -> None:
    """One decision removes a bounded number; the reply comes with the last."""
    world = World(limits=Limits(expiries_max=2))
    world.create_topic("orders", 12)
    clients = [Client(world, f"m{number}") for number in range(6)]
    settle(clients)
    entries = len(world.log)
    answer = remove(world, "m0", "x", "m1", "m2", "m3", "m4")
    assert [m.error_code for m in answer.members] == [0, 25, 0, 0, 0, 0]
    assert [entry.types.count(-5) for entry in world.log[entries:]] == [2, 2, 1]
    assert {entry.cause.principal for entry in world.log[entries:]} == {"User:ops"}
    settle(clients[5:])
    assert clients[5].partitions(FIRST_TOPIC) == list(range(12))
