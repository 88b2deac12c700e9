"""C.9 Topic changes: created, grown, deleted, recreated; by topic id; caught also after a time away."""

from __future__ import annotations

import msgpack

from coordinator.limits import Limits
from coordinator.topics import CatalogView
from records import (
    METADATA_SHARD,
    RawRecord,
    ReasonKind,
    Record,
    Ref,
    TopicKey,
    TopicValue,
    Trigger,
    encode_record,
    offset_commit_key,
)
from tests.support.group_client import Client, settle
from tests.support.world import Entry, World
from wire.apis import ApiKey
from wire.messages.delete_topics import DeleteTopicsRequest


def only(entries: list[Entry]) -> Entry:
    assert len(entries) == 1, entries
    return entries[0]


def reason(entry: Entry) -> tuple[ReasonKind, str, str]:
    (one,) = entry.cause.reasons
    return ReasonKind(one.kind), one.topic, one.detail


def test_a_topic_grows(world: World) -> None:
    """+partitions → bump once, found without waiting for a heartbeat; the cause refers to the change."""
    topic = world.catalog.view.topic("orders").topic_id
    a = Client(world, "a")
    a.beat()
    world.grow_topic("orders", 14)
    entry = only(world.work())
    assert entry.cause.trigger == Trigger.TOPIC_GROWN
    assert reason(entry) == (ReasonKind.TOPIC_GROWN, "orders", "12 to 14 partitions")
    assert entry.cause.refs == (Ref(shard=METADATA_SHARD, index=2),)
    assert entry.types == [4, 3, 7, 6]
    assert world.group().catalog_version == 2
    a.beat()
    assert a.partitions(topic) == list(range(14))


def test_a_heartbeat_that_comes_first_finds_it_as_well(world: World) -> None:
    """The next heartbeat of any member bumps once; the queued check then finds nothing to do."""
    world.join("a")
    world.grow_topic("orders", 14)
    world.heartbeat("a", 1)
    assert reason(world.log[-1])[0] is ReasonKind.TOPIC_GROWN
    assert world.work() == []
    assert world.group().epoch == 2


def test_a_topic_is_created_under_a_subscription(world: World) -> None:
    """A subscribed name that did not exist."""
    a = Client(world, "a", topics=("later",))
    a.beat()
    assert a.owned == {}
    topic = world.create_topic("later", 2)
    entry = only(world.work())
    assert (entry.cause.trigger, reason(entry)[0]) == (Trigger.TOPIC_CREATED, ReasonKind.TOPIC_CREATED)
    a.beat()
    assert a.partitions(topic) == [0, 1]


def test_a_topic_is_deleted(world: World) -> None:
    """Its partitions leave the target; members give them up; its offsets vanish in all groups."""
    a = Client(world, "a")
    a.beat()
    world.commit({("orders", 0): 5}, member_id="a", epoch=1)
    world.commit({("orders", 0): 6}, group_id="simple")
    world.delete_topic("orders")
    entries = world.work()
    assert {entry.cause.trigger for entry in entries} == {Trigger.TOPIC_DELETED}
    assert sorted(entry.types for entry in entries) == [[-1], [-1, 4, 3, 7, 6]]
    assert len(world.shard.projection.offsets) == 0
    settle([a], 2)
    assert (a.owned, world.group().state.value) == ({}, "Stable")


def test_a_recreated_topic_is_another_topic(world: World) -> None:
    """Recreate → bump once; comparison is by topic id."""
    a = Client(world, "a")
    a.beat()
    world.commit({("orders", 0): 5}, member_id="a", epoch=1)
    world.delete_topic("orders")
    topic = world.create_topic("orders", 3)
    entry = only(world.work())
    assert reason(entry) == (ReasonKind.TOPIC_RECREATED, "orders", "12 to 3 partitions")
    assert world.fetch(topics={"orders": [0]}) == {("orders", 0): -1}
    settle([a], 2)
    assert a.partitions(topic) == [0, 1, 2]


def test_an_unrelated_topic_does_nothing(world: World) -> None:
    """Unrelated topic → none."""
    world.join("a")
    world.create_topic("other", 3)
    assert world.work() == []
    entries = len(world.log)
    world.heartbeat("a", 1)
    assert len(world.log) == entries


def test_changes_without_a_leader_are_found_by_the_next(world: World) -> None:
    """At Ready groups and offsets are compared with the catalog by topic id: missed changes are caught."""
    world.join("a")
    world.commit({("orders", 3): 5}, member_id="a", epoch=1)
    world.shard.on_deposed()
    index = world.catalog_index
    world.catalog.view.remove("orders", index + 1)
    world.failover()
    entry = only(world.work())
    assert entry.cause.trigger == Trigger.READY_CHECK
    assert reason(entry)[0] is ReasonKind.TOPIC_DELETED
    assert entry.types[0] == -1


def test_a_target_that_was_not_computed_is_computed_at_ready(world: World) -> None:
    """At Ready: epoch ≠ assignment epoch → compute."""
    world.turn = 1
    world.join("a")
    world.join("b")
    assert world.group().assignment_epoch == 1
    world.turn = 2
    world.failover()
    entry = only(world.work())
    assert (entry.cause.trigger, entry.types) == (Trigger.READY_CHECK, [7, 7, 6])
    assert world.group().assignment_epoch == 2


def test_a_failover_alone_changes_nothing(world: World) -> None:
    """Not done at load: no rebalance is triggered, no epoch bump, no target recompute."""
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b], 4)
    world.failover()
    assert world.work() == []
    epochs = (a.epoch, b.epoch)
    settle([a, b])
    assert (a.epoch, b.epoch) == epochs


def test_offsets_of_a_deleted_topic_refer_to_its_deletion(world: World) -> None:
    """… also where the catalog has moved on since: the cause names the entry that deleted the topic."""
    world.commit({("orders", 0): 6}, group_id="simple")
    world.delete_topic("orders")
    world.create_topic("other", 1)
    entry = only(world.work())
    assert entry.cause.refs == (Ref(shard=METADATA_SHARD, index=2),)


def test_a_great_many_offsets_of_a_deleted_topic_go_in_several_decisions() -> None:
    """Neither the loop nor an entry can take a million removals at once; none is forgotten."""
    world = World(limits=Limits(removal_bytes_max=1_000))
    world.create_topic("orders", 8)
    world.commit({("orders", partition): 1 for partition in range(8)})
    world.delete_topic("orders")
    assert [entry.types for entry in world.work()] == [[-1] * 3, [-1] * 3, [-1] * 2]
    assert len(world.shard.projection.offsets) == 0


def test_offsets_whose_last_fields_are_missing_stay(world: World) -> None:
    """A value may leave out its last fields, the topic's id among them: then no topic is known to be gone."""
    value = msgpack.packb([7, -1, 1])
    raw = RawRecord(1, 0, offset_commit_key("g", "orders", 0), value)
    world.shard.apply(raw, 1)
    world.shard.on_ready(world.ctx())
    assert world.work() == []
    assert world.fetch() == {("orders", 0): 7}


def test_offsets_of_a_topic_that_this_node_does_not_know_yet_stay(world: World) -> None:
    """Another node, which knew the topic already, had accepted them; they go when the topic is known gone."""
    old = CatalogView([world.catalog.view.topic("orders")], version=1)  # type: ignore[list-item]
    world.create_topic("new", 1)
    world.commit({("new", 0): 6}, group_id="simple")
    world.shard.on_ready(world.ctx(catalog=old))
    assert world.shard.next_work(world.ctx(catalog=old)).records == []  # type: ignore[union-attr]
    world.admin(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["new"]))
    world.shard.on_catalog_changed(world.ctx(), ["new"])  # created and deleted, learned at once
    assert only(world.work()).cause.trigger == Trigger.TOPIC_DELETED


def test_offsets_of_a_topic_that_was_made_before_ids_told_when_go_with_it_too(world: World) -> None:
    """Its id is all random, and its last bytes name an index that no log reaches."""
    random_id = bytes.fromhex("5c0e0d6a1d0f4e6b9a3fc7d2e8b41a90")
    value = TopicValue(topic_id=random_id, num_partitions=1)
    world.catalog_index += 1
    world.catalog.apply(encode_record(Record(TopicKey(name="old"), value)), world.catalog_index)
    world.shard.on_catalog_changed(world.ctx(), ["old"])
    world.work()
    world.commit({("old", 0): 6}, group_id="simple")
    world.admin(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["old"]))
    world.shard.on_catalog_changed(world.ctx(), ["old"])
    assert only(world.work()).cause.trigger == Trigger.TOPIC_DELETED
    assert "simple" not in world.shard.projection.offsets.group_ids()
