"""Views for people: complete, JSON-ready, and honest about what is not known."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from cluster.runtime.slices import finished
from coordinator import shard, views
from coordinator.limits import Limits
from coordinator.state.machines import ClassicState, GroupState
from records import topic_id_text
from tests.support.classic_member import ClassicConsumer
from tests.support.embedded_member import EmbeddedConsumer, settled
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, WALL_START_MS, World
from wire.apis import ApiKey
from wire.messages.delete_groups import DeleteGroupsRequest


def view_of(world: World, group_id: str = "g") -> dict[str, Any]:
    view = finished(views.group_view(world.shard, group_id, world.now_ms, world.settings))
    assert view is not None
    json.dumps(view)
    return view


def populated() -> World:
    world = World()
    world.create_topic("orders", 4)
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.commit({("orders", 1): 7}, member_id="a", epoch=1)
    world.commit({("orders", 0): 1}, group_id="simple")
    return world


def test_a_group_in_the_middle_of_a_rebalance() -> None:
    world = populated()
    view = view_of(world)
    assert (view["state"], view["type"], view["epoch"], view["assignment_epoch"]) == (
        "Reconciling", "consumer", 2, 2,
    )  # fmt: skip
    assert (view["num_members"], view["offsets"], view["created_ms"]) == (2, 1, WALL_START_MS + 1_000)
    assert view["topics"]["orders"]["num_partitions"] == 4
    a, b = view["members"]
    assert (a["state"], a["assigned"], a["pending_revocation"]) == (
        "UNREVOKED_PARTITIONS", {"orders": [0, 1]}, {"orders": [2, 3]},
    )  # fmt: skip
    assert a["last_heartbeat_ms"] == WALL_START_MS + 1_000
    assert (b["state"], b["assigned"], b["target"]) == ("UNRELEASED_PARTITIONS", {}, {"orders": [2, 3]})
    assert [(wait["topic"], wait["partition"], wait["owner"]) for wait in b["waits_for"]] == [
        ("orders", 2, "a"), ("orders", 3, "a"),
    ]  # fmt: skip
    assert (view["heartbeat_interval_ms"], view["session_timeout_ms"]) == (1_000, 45_000)
    world.failover()
    assert view_of(world)["members"][0]["last_heartbeat_ms"] is None


def test_other_groups() -> None:
    world = populated()
    simple = view_of(world, "simple")
    assert (simple["type"], simple["state"], simple["members"], simple["offsets"]) == (
        "classic",
        "Empty",
        [],
        1,
    )
    assert finished(views.group_view(world.shard, "nowhere", 0.0, world.settings)) is None
    assert views.list_groups(world.shard) == ["g", "simple"]
    counts = finished(world.shard.counting())
    kinds = {("consumer", GroupState.RECONCILING): 1, ("classic", ClassicState.EMPTY): 1}
    assert (counts.groups, counts.members, counts.offsets) == (kinds, 2, 2)


def test_members_of_a_classic_group() -> None:
    """They are shown by any node: from what its coordinator knows, or else from the log."""
    world = World(limits=Limits(serves_classic=True))
    world.create_topic("orders", 4)
    a, b = EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b")
    settled(world, a, b)
    view = view_of(world)
    assert (view["type"], view["state"], view["num_members"]) == ("classic", "Stable", 2)
    assert {view["epoch"], view["assignment_epoch"]} == {one["member_epoch"] for one in view["members"]}
    by_id = {member["member_id"]: member for member in view["members"]}
    assert set(by_id) == {a.member_id, b.member_id}
    for one in (a, b):
        shown = by_id[one.member_id]
        assert shown["assigned"] == {"orders": sorted(number for _, number in one.owned)}
        assert (shown["subscribed_topics"], shown["client_assignors"]) == (["orders"], ["range"])
        assert (shown["client_id"], shown["member_epoch"]) == (one.client_id, one.generation)
    served = view["members"]
    world.shard.groups.classic.forget("g")
    assert view_of(world)["members"] == served


def test_members_that_are_no_consumers_are_listed_too() -> None:
    world = World(limits=Limits(serves_classic=True))
    member = ClassicConsumer(world, "worker")
    member.join(protocol_type="connect")
    (shown,) = view_of(world)["members"]
    assert (shown["member_id"], shown["assigned"], shown["subscribed_topics"]) == (member.member_id, {}, [])


def test_a_group_that_goes_while_others_are_counted_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "COUNTED_PER_STEP", 1)
    world = populated()
    counting = world.shard.counting()
    next(counting)
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["simple"]))
    assert finished(counting).groups == Counter({("consumer", GroupState.RECONCILING): 1})


def test_pages_go_over_all_shards_in_order() -> None:
    one, other = World(), World()
    for world in (one, other):
        world.create_topic("orders", 2)
    for number in range(6):
        (one if number % 2 else other).join("a", group_id=f"g{number}")
    shards = [one.shard, other.shard]
    first = finished(views.page_of_groups(shards, "", 4))
    assert [group["group_id"] for group in first] == ["g0", "g1", "g2", "g3"]
    assert first[0]["members"] == 1
    assert [group["group_id"] for group in finished(views.page_of_groups(shards, "g3", 4))] == ["g4", "g5"]


def test_offsets_are_decoded() -> None:
    world = populated()
    (offset,) = world.shard.projection.offsets.of_group("g")
    assert (offset.topic, offset.partition, offset.value.offset) == ("orders", 1, 7)


def test_topics_that_are_gone_are_named_by_id() -> None:
    world = populated()
    world.delete_topic("orders")
    world.work()
    view = view_of(world)
    assert list(view["members"][0]["assigned"]) == [topic_id_text(FIRST_TOPIC)]


def test_who_waits_for_whom_and_for_how_long() -> None:
    """b waits for two partitions of a, which is told late and then has its own rebalance timeout left."""
    world = World()
    world.create_topic("orders", 4)
    world.sleep(10)
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    assert [(wait["told_ms_ago"], wait["left_ms"]) for wait in waits(world, "b")] == [(None, None)] * 2
    world.sleep(300)
    a.beat()
    world.sleep(1_200)
    expected = {"topic": "orders", "owner": "a", "told_ms_ago": 1_200.0, "left_ms": 58_800.0}
    assert waits(world, "b") == [expected | {"partition": 2}, expected | {"partition": 3}]
    assert waits(world, "a") == []
    world.failover()
    world.sleep(500)
    told = [(wait["told_ms_ago"], wait["left_ms"]) for wait in waits(world, "b")]
    assert told == [(None, 59_500.0)] * 2, "who told it, and when, only the former leader knew"


def waits(world: World, member_id: str) -> list[dict[str, Any]]:
    (member,) = [member for member in view_of(world)["members"] if member["member_id"] == member_id]
    found: list[dict[str, Any]] = member["waits_for"]
    return found


def test_since_when_a_group_is_in_its_state() -> None:
    world = World()
    world.create_topic("orders", 2)
    a, b = Client(world, "a"), Client(world, "b")
    world.sleep(1_000)
    a.beat()
    assert (view_of(world)["state"], view_of(world)["state_since_ms"]) == ("Stable", wall(world))
    world.sleep(1_000)
    b.beat()
    begun = wall(world)
    world.sleep(1_000)
    a.beat()
    assert (view_of(world)["state"], view_of(world)["state_since_ms"]) == ("Reconciling", begun)
    a.beat()
    world.sleep(1_000)
    b.beat()
    settled = wall(world)
    assert (view_of(world)["state"], view_of(world)["state_since_ms"]) == ("Stable", settled)
    assert view_of(world)["members"][1]["since_ms"] == settled
    world.failover()
    assert view_of(world)["state_since_ms"] is None, "times are the leader's that was there"
    a.leave()
    b.leave()
    assert (view_of(world)["state"], view_of(world)["state_since_ms"]) == ("Empty", wall(world))


def test_a_group_that_relapses_is_unsettled_since_the_relapse_and_not_since_its_epoch() -> None:
    world = World()
    world.create_topic("orders", 4)
    a, b = Client(world, "a", instance_id="i"), Client(world, "b")
    settle([a, b])
    world.sleep(12_000)
    relapsed = WALL_START_MS + int(world.now_ms)
    a.leave(for_good=False)
    world.sleep(3_000)
    assert (view_of(world)["state"], view_of(world)["state_since_ms"]) == ("Reconciling", relapsed)
    world.failover()
    assert view_of(world)["state_since_ms"] < relapsed, "the new leader knows the target's time alone"


def wall(world: World) -> int:
    return WALL_START_MS + int(world.now_ms)
