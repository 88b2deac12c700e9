"""Expiry and deletion of classic groups and their offsets, also while members join."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.limits import GroupSettings
from tests.support.classic_member import SESSION_MS, ClassicConsumer, rebalanced
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

Make = Callable[..., list[ClassicConsumer]]
HOUR_MS = 3_600_000
SUBSCRIPTION = bytes.fromhex("0000 00000001 0006") + b"orders" + bytes.fromhex("ffffffff")


@pytest.fixture
def world() -> World:
    world = World(GroupSettings(offsets_retention_ms=HOUR_MS))
    world.create_topic("orders", 6)
    return world


def delete(world: World) -> int:
    request = DeleteGroupsRequest(groups_names=["g"])
    return int(world.handle(ApiKey.DELETE_GROUPS, 2, request).results[0].error_code)


def delete_offset(world: World) -> int:
    topic = OffsetDeleteRequestTopic(
        name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    answer = world.handle(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id="g", topics=[topic]))
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


def test_a_group_without_a_first_member_is_removed(world: World) -> None:
    ClassicConsumer(world, "a").send_join()
    world.sleep(HOUR_MS)
    assert "g" not in world.shard.projection.groups


def test_a_group_that_its_last_member_left_is_removed(world: World, stable: Make) -> None:
    (a,) = stable("a")
    for _ in range(400):
        world.sleep(SESSION_MS - 1)
        assert a.heartbeat() == 0
    assert "g" in world.shard.projection.groups
    a.leave()
    world.sleep(HOUR_MS)
    assert "g" not in world.shard.projection.groups


def test_offsets_of_a_former_consumer_group_expire(world: World) -> None:
    world.join("m")
    epoch = world.group().members["m"].current.epoch
    assert world.commit({("orders", 0): 7}, member_id="m", epoch=epoch) == {("orders", 0): 0}
    world.heartbeat("m", -1)
    a = ClassicConsumer(world, "a")
    a.join()
    world.work()
    rebalanced(a)
    a.leave()
    world.sleep(3 * HOUR_MS)
    assert not world.shard.projection.offsets.has_group("g")
    assert "g" not in world.shard.projection.groups


def test_offsets_stay_while_members_join(world: World, stable: Make) -> None:
    (a,) = stable("a")
    a.commit({("orders", 0): 7})
    a.leave()
    world.sleep(HOUR_MS - 1_000)
    a.member_id = ""
    a.join()
    world.work()
    assert a.joined().error_code == 0
    for _ in range(100):  # another one joins for ever
        a.protocols = {"range": b"%d" % world.now_ms}
        a.join()
        world.sleep(SESSION_MS - 1)
        assert a.joined().error_code == 0
    assert world.shard.projection.offsets.has_group("g")


def test_offsets_of_a_group_that_forms_are_deleted_by_its_own_state(world: World) -> None:
    world.commit({("orders", 0): 7})
    a = ClassicConsumer(world, "a", protocols={"range": SUBSCRIPTION})
    a.join()
    world.work()
    a.joined()
    assert delete_offset(world) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_forming_group_of_another_type_are_not_deleted(world: World) -> None:
    world.commit({("orders", 0): 7})
    a = ClassicConsumer(world, "a")
    a.join(protocol_type="connect")
    assert delete_offset(world) == ErrorCode.NON_EMPTY_GROUP


def test_a_group_is_not_deleted_while_members_join(world: World) -> None:
    a = ClassicConsumer(world, "a")
    a.join()
    assert delete(world) == ErrorCode.NON_EMPTY_GROUP
    world.work()
    assert a.joined().error_code == 0
    assert delete(world) == ErrorCode.NON_EMPTY_GROUP


def test_an_unused_member_id_does_not_keep_a_group(world: World) -> None:
    a = ClassicConsumer(world, "a")
    a.send_join()
    assert delete(world) == 0
    assert a.send_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a.member_id = ""
    a.send_join()
    assert world.join("m").error_code == 0, "an empty classic group becomes a consumer group"
    a.protocols = {"range": SUBSCRIPTION}
    assert a.send_join().error_code == 0, "it joins the consumer group"
