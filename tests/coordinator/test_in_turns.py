"""Large requests take several decisions, long views several steps; other requests run in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.runtime.slices import finished
from coordinator import admin, steps, views
from coordinator.catalog import topicadmin
from coordinator.catalog.shard import CatalogShard
from coordinator.offsets import commits as offsets
from coordinator.shard import GroupShard
from coordinator.targets import checks, targeting
from records import Trigger
from tests.support.group_client import Client, settle
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

SOME = {("orders", partition): partition for partition in range(5)} | {("clicks", 0): 7, ("nowhere", 0): 1}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose decisions take two items of every kind at most."""
    for module, name in (
        (offsets, "PARTITIONS_AT_ONCE"),
        (topicadmin, "TOPICS_AT_ONCE"),
        (admin, "GROUPS_AT_ONCE"),
        (admin, "MEMBERS_AT_ONCE"),
        (views, "MEMBERS_AT_ONCE"),
        (views, "GROUPS_AT_ONCE"),
        (checks, "OFFSETS_AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, 2)
    world = World()
    world.create_topic("orders", 5)
    world.create_topic("clicks", 1)
    return world


def between(world: World, what: Callable[[], object]) -> None:
    """Call `what` once, between the first two decisions of the next request."""

    def once() -> None:
        world.between_decisions = lambda: None
        what()

    world.between_decisions = once


# Commits


@pytest.mark.parametrize("version", range(9, 11))
def test_a_commit_in_parts_is_the_same_commit(world: World, version: int) -> None:
    codes = world.commit(SOME, version=version)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {key: (unknown if key[0] == "nowhere" else 0) for key in SOME}
    entries = [entry for entry in world.log if entry.cause.trigger == Trigger.OFFSETS_COMMITTED]
    assert [len(entry.records) for entry in entries] == [2, 2, 2]
    assert {entry.cause.address for entry in entries} == {"/127.0.0.1"}
    assert world.fetch("g") == {key: offset for key, offset in SOME.items() if key[0] != "nowhere"}


def test_a_commit_that_just_fits_is_one_decision(world: World) -> None:
    decision = []
    run = world.shard.handle
    world.shard.handle = lambda *args: decision.append(run(*args)) or decision[-1]  # type: ignore[method-assign]
    world.commit({("orders", 0): 1, ("orders", 1): 1})
    assert decision[0].continuation is None


def test_a_member_that_is_fenced_between_the_parts_commits_no_more(world: World) -> None:
    """The member may have been told to revoke partitions, and a new owner may commit to them already."""
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    between(world, lambda: world.heartbeat("a", -1))
    codes = world.commit({("orders", partition): 9 for partition in range(5)}, member_id="a", epoch=a.epoch)
    assert list(codes.values()) == [0, 0] + [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert world.fetch("g") == {("orders", 0): 9, ("orders", 1): 9}


def test_a_topic_that_goes_between_the_parts_takes_no_more(world: World) -> None:
    between(world, lambda: world.delete_topic("orders"))
    codes = world.commit({("orders", partition): 9 for partition in range(5)})
    assert list(codes.values()) == [0, 0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    world.work()
    assert world.shard.projection.offsets.count("g") == 0


def test_what_refuses_a_whole_commit_does_so_before_the_first_part(world: World) -> None:
    a = Client(world, "a")
    a.beat()
    codes = world.commit(dict.fromkeys([("orders", n) for n in range(5)], 1), member_id="a", epoch=99)
    assert set(codes.values()) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert world.shard.projection.offsets.count("g") == 0


def test_a_commit_whose_later_part_would_not_fit_an_entry_is_refused_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is made before the first part is written, not after it, if long metadata is allowed."""
    monkeypatch.setattr(offsets, "DECISION_BYTES_MAX", 4_000)
    monkeypatch.setattr(steps, "DECISION_BYTES_MAX", 4_000)
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=n, committed_metadata="x" * size)
                    for n, size in enumerate((1, 1, 1, 2_500, 2_500))
                ],
            )
        ],
    )
    answer = world.handle(ApiKey.OFFSET_COMMIT, 9, request)
    codes = {part.error_code for topic in answer.topics for part in topic.partitions}
    assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert world.shard.projection.offsets.count("g") == 0


def test_a_later_part_that_does_not_fit_after_all_gets_that_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The written part stays and is told; the rest is refused with the reason, as is a whole commit."""

    def shrink() -> None:
        monkeypatch.setattr(offsets, "DECISION_BYTES_MAX", 10)

    between(world, shrink)
    codes = world.commit({("orders", partition): 9 for partition in range(5)})
    assert list(codes.items()) == [
        (("orders", partition), 0 if partition < 2 else ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        for partition in range(5)
    ]
    assert world.fetch("g") == {("orders", 0): 9, ("orders", 1): 9}


# Topics


def parts_of(world: World, api: ApiKey, version: int, request: object) -> tuple[Any, list[int]]:
    """Return the answer and the number of records that each decision wrote."""
    raws = []
    sizes = []
    decision = world.catalog.handle(api, version, request, world.ctx(next_index=world.catalog_index + 1))
    while True:
        world.catalog_index += 1
        raws += [(world.catalog_index, raw) for raw in decision.records]
        sizes.append(len(decision.records))
        assert not decision.records or (decision.cause is not None and decision.cause.address == "/127.0.0.1")
        if decision.continuation is None:
            break
        decision = decision.continuation(world.ctx(next_index=world.catalog_index + 1))
    before = CatalogShard()
    for index, raw in raws:
        before.apply(raw, index)
    return decision.reply, sizes


def test_topics_in_parts(world: World) -> None:
    """Duplicate names are found over the whole request: t3 is named twice, far apart."""
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("t1", "t3", "t2", "bad name", "t4", "t3", "t5")
    ]
    answer, sizes = parts_of(world, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    assert sizes == [1, 1, 1, 1]
    assert [one.error_code for one in answer.topics] == [0, 42, 0, 17, 0, 42, 0]
    ids = [topic.topic_id for topic in answer.topics if not topic.error_code]
    assert [world.catalog.view.topic_by_id(topic_id).name for topic_id in ids] == ["t1", "t2", "t4", "t5"]  # type: ignore[union-attr]
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=f"t{n}", count=2, assignments=None) for n in (1, 2, 3, 4, 5)]
    )
    answer, sizes = parts_of(world, ApiKey.CREATE_PARTITIONS, 3, grown)
    assert sizes == [2, 1, 1]
    assert [one.error_code for one in answer.results] == [0, 0, 3, 0, 0]
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{n}") for n in (1, 2, 3, 4, 5)])
    answer, sizes = parts_of(world, ApiKey.DELETE_TOPICS, 6, gone)
    assert sizes == [2, 1, 1]
    assert [one.error_code for one in answer.responses] == [0, 0, 3, 0, 0]
    assert [topic.name for topic in world.catalog.view.topics()] == ["clicks", "orders"]


def test_as_many_topics_as_one_decision_takes_need_one(world: World) -> None:
    topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in ("t1", "t2")]
    _, sizes = parts_of(world, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    assert sizes == [2]


# Lists and views


def listed(world: World) -> set[str]:
    answer = world.handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    names = [group.group_id for group in answer.groups]
    assert len(names) == len(set(names))
    return set(names)


def test_groups_that_come_and_go_while_they_are_listed(world: World) -> None:
    """Each group that exists from beginning to end is listed once."""
    for number in range(5):
        Client(world, "m", group_id=f"member-{number}").beat()
        world.commit({("orders", 0): 1}, group_id=f"offsets-{number}")

    def meanwhile() -> None:
        Client(world, "m", group_id="offsets-4").beat()  # which moves it among the groups with members
        Client(world, "m", group_id="new").beat()
        world.commit({("orders", 0): 1}, group_id="member-4", member_id="m", epoch=1)

    everything = {f"{kind}-{number}" for kind in ("member", "offsets") for number in range(5)}
    between(world, meanwhile)
    assert listed(world) == everything
    assert listed(world) == everything | {"new"}


def test_a_group_that_is_over_is_not_listed(world: World) -> None:
    for number in range(5):
        world.commit({("orders", 0): 1}, group_id=f"offsets-{number}")
    between(world, lambda: world.delete_topic("orders") or world.work())
    assert listed(world) == {"offsets-0", "offsets-1"}, "it was there when it was looked at"


def view_of(shard: GroupShard, world: World) -> Any:
    return views.group_view(shard, "g", world.now_ms, world.settings)


def test_a_view_is_of_its_first_moment(world: World) -> None:
    """Members move on, revoke and leave between the steps; the view shows the group before them."""
    clients = [Client(world, f"m{number}") for number in range(5)]
    for client in clients:
        client.beat()
    clients[0].beat()
    expected = finished(view_of(world.shard, world))
    assert any(member["waits_for"] for member in expected["members"])
    steps = view_of(world.shard, world)
    next(steps)
    settle(clients)
    clients[4].leave()
    found = finished(steps)
    assert found == expected
    assert finished(view_of(world.shard, world)) != expected


def test_offsets_of_a_deleted_topic_are_looked_for_in_parts(world: World) -> None:
    world.commit(SOME)
    world.delete_topic("orders")
    before, decisions = len(world.log), 0
    while world.work_once():
        decisions += 1
    assert decisions == 4, "six offsets, two looked at in each, and one that finds no more"
    assert [len(entry.records) for entry in world.log[before:]] == [2, 2, 1]
    assert list(world.fetch("g")) == [("clicks", 0)]
    assert not world.shard.groups.offset_scans


def test_another_topic_goes_while_the_first_is_looked_for(world: World) -> None:
    world.commit({("clicks", 0): 7} | {("orders", partition): partition for partition in range(5)})
    world.delete_topic("orders")
    assert world.shard.next_work(world.ctx()) is not None
    assert "g" in world.shard.groups.offset_scans
    world.delete_topic("clicks")  # the search is past its only offset already
    world.work()
    assert world.shard.projection.offsets.count("g") == 0


def test_a_group_of_many_topics_gets_its_target_in_turns_of_their_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targeting, "TOPICS_INLINE", 1)
    a = Client(world, "a", topics=["orders", "clicks"])
    a.beat()
    assert world.group().assignment_epoch < world.group().epoch
    world.work()
    settle([a])
    assert world.group().state.value == "Stable"
    assert sorted(a.owned) == sorted(topic.topic_id for topic in world.group().topics)
