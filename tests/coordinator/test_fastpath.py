"""The steady-heartbeat fast path: who may use it, and everything that ends it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.shard import FastEntry
from tests.support.group_client import Client, settle
from tests.support.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topic("orders", 4)
    return world


def entry_of(world: World, member_id: str = "a") -> FastEntry:
    entry = world.shard.fast_entry("g", member_id)
    assert entry is not None
    assert entry.is_valid()
    return entry


def test_only_a_stable_member_at_all_three_epochs_has_one(world: World) -> None:
    assert world.shard.fast_entry("g", "a") is None
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    assert world.shard.fast_entry("g", "a") is None, "it has not reported what it was assigned"
    a.beat()
    entry_of(world)
    assert world.shard.fast_entry("g", "nobody") is None
    b.beat()
    assert world.shard.fast_entry("g", "a") is None, "behind the target"
    a.beat()
    assert world.shard.fast_entry("g", "a") is None, "revoking"
    assert world.shard.fast_entry("g", "b") is None, "waiting"
    settle([a, b])
    entry_of(world)
    entry_of(world, "b")
    world.turn = 1
    Client(world, "c").beat()
    Client(world, "d").beat()
    assert world.group().assignment_epoch < world.group().epoch
    assert world.shard.fast_entry("g", "a") is None, "a target is to be computed"


ENDS: dict[str, Callable[[World], object]] = {
    "another member joins": lambda world: world.join("b"),
    "the member changes": lambda world: world.heartbeat("a", 1, rack_id="r"),
    "the member leaves": lambda world: world.heartbeat("a", -1),
    "its session ends": lambda world: world.sleep(45_000),
    "a subscribed topic grows": lambda world: world.grow_topic("orders", 6),
    "a subscribed topic goes": lambda world: world.delete_topic("orders"),
    "leadership is lost": lambda world: world.shard.on_deposed(),
    "a term begins": lambda world: world.shard.on_ready(world.ctx()),
    "settings change": lambda world: world.configure(heartbeat_interval_ms=2_000),
    "the group is deleted": lambda world: [
        world.shard.apply(raw._replace(value=None), 99) for raw in world.log[0].records
    ],
}


@pytest.mark.parametrize("what", ENDS)
def test_what_ends_it(world: World, what: str) -> None:
    world.join("a")
    world.take_up("a")
    entry = entry_of(world)
    ENDS[what](world)
    assert not entry.is_valid()


def test_what_does_not_end_it(world: World) -> None:
    world.join("a")
    world.take_up("a")
    entry = entry_of(world)
    world.heartbeat("a", 1)
    world.commit({("orders", 0): 1}, member_id="a", epoch=1)
    world.join("z", group_id="other")
    world.create_topic("unrelated", 3)
    world.work()
    assert entry.is_valid()


def test_a_touch_restarts_the_session(world: World) -> None:
    world.join("a")
    world.take_up("a")
    world.sleep(40_000)
    entry_of(world).touch(world.now_ms, 123)
    assert world.sleep(44_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.expiries[0].last_heartbeat_ms == 123


def test_a_touch_between_collection_and_decision_saves_the_member(world: World) -> None:
    world.join("a")
    world.take_up("a")
    entry = entry_of(world)
    world.now_ms += 45_000
    world.shard.groups.collect_expired(world.now_ms)
    entry.touch(world.now_ms, 0)
    assert world.work() == []
    assert "a" in world.group().members
    assert len(world.sleep(45_000)) == 1


def test_no_entry_while_a_check_is_due(world: World) -> None:
    world.join("a")
    world.take_up("a")
    world.shard.on_ready(world.ctx())
    assert world.shard.fast_entry("g", "a") is None
    world.work()
    assert world.shard.fast_entry("g", "a") is None, "this leader has not told it its assignment yet"
    world.heartbeat("a", 1)
    entry_of(world)
