"""Topics change in a shard with more groups than one step checks."""

from __future__ import annotations

import pytest

from coordinator.leader_state import catalog_changes
from coordinator.shard import FastEntry
from records import ReasonKind, Trigger
from tests.support.group_client import Client
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest

GROUPS = [f"g{number}" for number in range(5)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Five groups of one member each, two checked in a step; g4 subscribes to another topic."""
    monkeypatch.setattr(catalog_changes, "GROUPS_AT_ONCE", 2)
    world = World()
    world.create_topic("orders", 2)
    world.create_topic("clicks", 2)
    for group_id in GROUPS:
        topics = ["clicks"] if group_id == "g4" else ["orders", "late"]
        Client(world, "m", group_id=group_id, topics=topics).beat()
    world.work()
    for group_id in GROUPS:
        world.take_up("m", group_id)
    return world


def entry(world: World, group_id: str) -> FastEntry | None:
    return world.shard.fast_entry(group_id, "m")


def create(world: World, name: str) -> None:
    """Create a topic; no group is checked yet."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    world.admin(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
    world.shard.on_catalog_changed(world.ctx(), [name])


def test_cached_replies_end_at_once_and_only_where_the_topic_concerns(world: World) -> None:
    before = {group_id: entry(world, group_id) for group_id in GROUPS}
    assert all(one is not None and one.is_valid() for one in before.values())
    create(world, "late")
    valid = {group_id for group_id, one in before.items() if one is not None and one.is_valid()}
    assert valid == {"g4"}
    assert {group_id for group_id in GROUPS if entry(world, group_id) is not None} == {"g4"}
    world.work()
    valid = {group_id for group_id, one in before.items() if one is not None and one.is_valid()}
    assert valid == {"g4"}


def test_every_group_is_found_in_steps(world: World) -> None:
    epochs = {group_id: world.group(group_id).epoch for group_id in GROUPS}
    create(world, "late")
    found = []
    while world.shard.groups.catalog_changes:
        world.shard.groups.schedule_affected(world.ctx())
        found.append(len(world.shard.groups.checks))
    assert found[0] == 2
    assert found[-1] == 4
    assert world.shard.next_deadline_ms() == 0.0
    world.work()
    for group_id in GROUPS:
        assert world.group(group_id).epoch == epochs[group_id] + (group_id != "g4")
    assert not world.shard.groups.catalog_changes.names


def test_a_heartbeat_that_comes_first_finds_the_change(world: World) -> None:
    create(world, "late")
    answer = world.heartbeat("m", world.group("g3").members["m"].current.epoch, group_id="g3", owned={})
    assert world.group("g3").epoch == 2
    assert answer.error_code == 0
    assert [reason.kind for reason in world.log[-1].cause.reasons] == [ReasonKind.TOPIC_CREATED]


def test_what_changes_during_a_round_is_found_in_the_next(world: World) -> None:
    create(world, "late")
    world.shard.groups.schedule_affected(world.ctx())  # g0 and g1 have been checked
    _delete(world, "orders")
    Client(world, "m", group_id="g5", topics=["late"]).beat()  # decided on the newest catalog
    one = entry(world, "g4")
    assert one is not None
    _delete(world, "clicks")
    assert not one.is_valid()
    world.work()
    for group_id in GROUPS:
        names = {topic.topic_name for topic in world.group(group_id).topics}
        assert names == (set() if group_id == "g4" else {"late"})


def _delete(world: World, name: str) -> None:
    world.admin(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[name]))
    world.shard.on_catalog_changed(world.ctx(), [name])


def test_groups_that_go_meanwhile_are_passed_over(world: World) -> None:
    create(world, "late")
    world.shard.groups.schedule_affected(world.ctx())
    world.heartbeat("m", -1, group_id="g3")
    world.work()
    assert not world.shard.groups.catalog_changes


def test_offsets_of_a_topic_that_is_gone_go_in_all_groups(world: World) -> None:
    for number in range(7):
        world.commit({("clicks", 0): 1, ("orders", 0): 2}, group_id=f"simple-{number}")
    _delete(world, "clicks")
    world.work()
    offsets = world.shard.projection.offsets
    assert [offsets.count(f"simple-{number}") for number in range(7)] == [1] * 7


def test_a_new_term_begins_without_news(world: World) -> None:
    create(world, "late")
    world.failover()
    assert not world.shard.groups.catalog_changes
    world.work()
    assert {topic.topic_name for topic in world.group("g0").topics} == {"orders", "late"}


def test_other_work_has_its_turn_while_topics_change_all_the_time(world: World) -> None:
    """Catalog changes never end then; targets and checks must not wait for their end."""
    create(world, "late")
    for number in range(20):
        create(world, f"new-{number}")
        assert world.shard.groups.catalog_changes
        assert world.work_once()
    assert [world.group(group_id).epoch for group_id in GROUPS] == [2, 2, 2, 2, 1]


def test_changes_come_to_all_groups_while_other_work_is_due_all_the_time(world: World) -> None:
    create(world, "late")
    for _ in range(20):
        world.shard.groups.checks["g4"] = Trigger.READY_CHECK
        assert world.work_once()
    assert not world.shard.groups.catalog_changes
