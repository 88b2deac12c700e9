"""Views for people: complete, JSON-ready, and honest about what is not known."""

from __future__ import annotations

import json

from coordinator import views
from records import topic_id_text
from tests.coordinator.world import FIRST_TOPIC, WALL_START_MS, Client, World


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
    view = views.group_view(world.shard, "g")
    assert view is not None
    json.dumps(view)
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
    assert b["blocked_by"] == [
        {"topic": "orders", "partition": 2, "owner": "a"},
        {"topic": "orders", "partition": 3, "owner": "a"},
    ]
    world.failover()
    after = views.group_view(world.shard, "g")
    assert after is not None
    assert after["members"][0]["last_heartbeat_ms"] is None


def test_other_groups() -> None:
    world = populated()
    simple = views.group_view(world.shard, "simple")
    assert simple is not None
    assert (simple["type"], simple["state"], simple["members"], simple["offsets"]) == (
        "classic",
        "Empty",
        [],
        1,
    )
    assert views.group_view(world.shard, "nowhere") is None
    assert views.list_groups(world.shard) == ["g", "simple"]
    counts = world.shard.counts()
    assert (counts.groups_by_state, counts.members, counts.offsets) == ({"Reconciling": 1, "Empty": 1}, 2, 2)


def test_pages_go_over_all_shards_in_order() -> None:
    one, other = World(), World()
    for world in (one, other):
        world.create_topic("orders", 2)
    for number in range(6):
        (one if number % 2 else other).join("a", group_id=f"g{number}")
    shards = [one.shard, other.shard]
    first = views.page_of_groups(shards, "", 4)
    assert [group["group_id"] for group in first] == ["g0", "g1", "g2", "g3"]
    assert first[0]["members"] == 1
    assert [group["group_id"] for group in views.page_of_groups(shards, "g3", 4)] == ["g4", "g5"]


def test_offsets_are_decoded() -> None:
    world = populated()
    (offset,) = world.shard.projection.offsets.of_group("g")
    assert (offset.topic, offset.partition, offset.value.offset) == ("orders", 1, 7)


def test_topics_that_are_gone_are_named_by_id() -> None:
    world = populated()
    world.delete_topic("orders")
    world.work()
    view = views.group_view(world.shard, "g")
    assert view is not None
    assert list(view["members"][0]["assigned"]) == [topic_id_text(FIRST_TOPIC)]
