"""Replies in which a comparison with Apache Kafka found a difference (tests/differential)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.limits import Limits
from tests.support.classic_member import ClassicConsumer
from tests.support.world import World
from wire.apis import ApiKey
from wire.embedded import ConsumerProtocolSubscription, encode
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

Make = Callable[..., list[ClassicConsumer]]


def described(world: World) -> Any:
    return world.handle(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups[0]


def forget(world: World, topic: str) -> int:
    part = OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=[part])]
    )
    answer = world.handle(ApiKey.OFFSET_DELETE, 0, request)
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize(("version", "protocol"), [(4, ""), (6, ""), (7, None), (9, None)])
def test_a_refused_join_names_no_protocol(world: World, version: int, protocol: str | None) -> None:
    required = ClassicConsumer(world, "a", version=version).send_join()
    assert (required.error_code, required.protocol_name) == (ErrorCode.MEMBER_ID_REQUIRED, protocol)


@pytest.mark.parametrize(("version", "protocol"), [(3, ""), (9, None)])
def test_a_join_that_waited_and_was_given_up_names_no_protocol(
    world: World, stable: Make, version: int, protocol: str | None
) -> None:
    stable("a")
    b = ClassicConsumer(world, "b", version=version, instance_id="i-b" if version == 9 else None)
    assert b.join() is None
    (member_id,) = (one.member_id for one in described(world).members if one.client_id == "b")
    b.member_id = member_id
    b.leave()
    answer = b.joined()
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, protocol)
    assert answer.member_id == "", "who was removed has no member id"


def test_sync_group_names_the_protocol_from_version_5_on(world: World, stable: Make) -> None:
    (a,) = stable("a")
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_name=None).error_code == refused
    assert a.sync(protocol_type=None).error_code == refused
    assert a.sync().error_code == 0


def test_a_join_without_protocols_leaves_an_empty_group(world: World) -> None:
    a = ClassicConsumer(world, "a")
    assert a.send_join(protocols=[]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert described(world).group_state == "Empty"
    assert world.log[-1].types == [2]


def test_a_group_has_a_protocol_type_once_it_has_had_a_member(world: World) -> None:
    a = ClassicConsumer(world, "a")
    a.send_join()
    assert described(world).protocol_type == ""
    a.send_join()
    assert described(world).protocol_type == "consumer"
    listed = world.handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
    assert [one.protocol_type for one in listed] == ["consumer"], (
        "also before the first generation is written"
    )


def test_assignments_are_described_while_the_group_rebalances(world: World, stable: Make) -> None:
    stable("a")
    ClassicConsumer(world, "b").join()
    group = described(world)
    assert group.group_state == "PreparingRebalance"
    assert {one.member_assignment for one in group.members} == {b"for a", b""}
    assert {one.member_metadata for one in group.members} == {b""}


def test_a_full_group_answers_no_member_id() -> None:
    world = World(limits=Limits(classic_group_size_max=1))
    a = ClassicConsumer(world, "a", version=3)
    a.join()
    world.work()
    a.joined()
    b = ClassicConsumer(world, "b", version=3)
    assert b.send_join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    b.member_id = "b-was-here"
    refused = b.send_join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_a_member_id_that_was_given_out_does_not_keep_a_group(world: World) -> None:
    a = ClassicConsumer(world, "a")
    a.send_join()
    answer = world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert answer.results[0].error_code == 0
    assert a.send_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_a_group_that_rebalances_are_kept(world: World) -> None:
    """Its record still says that it is empty."""
    a = ClassicConsumer(
        world, "a", protocols={"range": encode(ConsumerProtocolSubscription(topics=["orders"]), 1)}
    )
    world.create_topic("others", 1)
    for topic in ("orders", "others"):
        world.commit({(topic, 0): 5}, group_id="g")
    a.join()
    assert forget(world, "others") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "nothing is known yet"
    world.work()
    a.joined()
    assert forget(world, "orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert forget(world, "others") == 0


def test_offsets_do_not_expire_during_a_rebalance(world: World) -> None:
    world.configure(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    world.commit({("orders", 0): 5}, group_id="g")
    a, b = (ClassicConsumer(world, name, version=3) for name in "ab")
    a.join(session_timeout_ms=600_000)
    world.work()
    a.joined()
    b.join(rebalance_timeout_ms=600_000, session_timeout_ms=600_000)
    world.sleep(120_000)
    assert described(world).group_state == "PreparingRebalance"
    assert world.fetch() == {("orders", 0): 5}


def test_a_member_id_that_was_given_out_is_no_static_members(world: World) -> None:
    a = ClassicConsumer(world, "a")
    assert a.send_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer = a.send_join(group_instance_id="i-a")
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert a.send_join() is None, "it can still join as a dynamic member"
