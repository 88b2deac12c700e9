"""One group id has one protocol: groups of the old protocols beside consumer and classic groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cluster.runtime.slices import finished
from coordinator import views
from coordinator.limits import Limits
from coordinator.state.machines import ClassicState
from lineage.rewrite.errors import RewriteError
from quorate.groupview import lines
from records import (
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushState,
    Record,
    RewriteGroupKey,
    RewriteGroupValue,
    RewriteTopic,
    Trigger,
    encode_record,
)
from tests.support.classic_member import ClassicConsumer
from tests.support.group_client import Client
from tests.support.leader_state_checks import nothing_is_forgotten, nothing_is_left
from tests.support.old_groups import OldGroups, check_log, one_kind
from tests.support.transactions import GROUP, Producer, Shards
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode as E
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.sync_group import SyncGroupRequest

MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
ORDERS_0, ORDERS_1 = ("orders", 0), ("orders", 1)
KEY = RewriteGroupKey(group_id="g")


def a_world(**limits: Any) -> tuple[World, OldGroups]:
    world = World(limits=Limits(**limits))
    world.create_topic("orders", 4)
    world.create_topic("more", 4)
    world.work()
    world.after_entry.append(one_kind)
    return world, OldGroups(world)


def delete(world: World, group_id: str = "g") -> int:
    answer = world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group_id]))
    return answer.results[0].error_code


def delete_offset(world: World, topic: str, partition: int, group_id: str = "g") -> Any:
    part = OffsetDeleteRequestPartition(partition_index=partition)
    asked = [OffsetDeleteRequestTopic(name=topic, partitions=[part])]
    answer = world.handle(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group_id, topics=asked))
    return answer.error_code or answer.topics[0].partitions[0].error_code


def begin_rewrite(old: OldGroups) -> None:
    assert old.join().error_code == 0


def begin_push(old: OldGroups) -> None:
    old.register("p")


both = pytest.mark.parametrize("begin", [begin_rewrite, begin_push])


@both
@pytest.mark.parametrize(
    ("api_key", "version", "request_", "code"),
    [
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, rebalance_timeout_ms=1_000,
            subscribed_topic_names=["orders"], topic_partitions=[],
        ), E.GROUP_ID_NOT_FOUND) for epoch in (0, 5, -1)
    ] + [
        (ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, ExtendedConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1_000,
            subscribed_topic_names=["orders"], topic_partitions=[],
        ), E.GROUP_ID_NOT_FOUND),
        (ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, 0,
         ConsumerGroupPrepareAssignmentRequest(group_id="g", member_id="m"), E.GROUP_ID_NOT_FOUND),
        (ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, 0,
         ConsumerGroupInstallAssignmentRequest(group_id="g", member_id="m"), E.GROUP_ID_NOT_FOUND),
        (ApiKey.SYNC_GROUP, 5, SyncGroupRequest(
            group_id="g", member_id="m", generation_id=1, protocol_type="consumer", protocol_name="range",
        ), E.UNKNOWN_MEMBER_ID),
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m", generation_id=1),
         E.UNKNOWN_MEMBER_ID),
    ],
)  # fmt: skip
def test_members_of_other_protocols_are_refused_and_told_why(
    begin: Callable[[OldGroups], None], api_key: ApiKey, version: int, request_: Any, code: E
) -> None:
    world, old = a_world()
    begin(old)
    before = len(world.log)
    decision = world.shard.handle(api_key, version, request_, world.ctx())
    reply: Any = decision.reply
    assert reply.error_code == code
    assert "with 1 consumer. Stop them, or use another id." in decision.refusal
    assert (decision.cause, len(world.log)) == (None, before)


@both
def test_a_classic_member_is_refused(begin: Callable[[OldGroups], None]) -> None:
    world, old = a_world()
    begin(old)
    assert ClassicConsumer(world, "c").join().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="c")])
    answer = world.handle(ApiKey.LEAVE_GROUP, 5, request)
    assert [one.error_code for one in answer.members] == [E.UNKNOWN_MEMBER_ID]
    assert world.shard.groups.classic.get("g") is None


@both
def test_commits_that_are_not_the_protocols_are_refused(begin: Callable[[OldGroups], None]) -> None:
    world, old = a_world()
    begin(old)
    assert world.commit({ORDERS_0: 5}) == {ORDERS_0: E.UNKNOWN_MEMBER_ID}
    assert world.commit({ORDERS_0: 5}, member_id="m", epoch=3) == {ORDERS_0: E.UNKNOWN_MEMBER_ID}
    assert world.fetch(topics={"orders": [0]}) == {ORDERS_0: -1}


@both
def test_a_group_with_consumers_is_not_deleted_and_keeps_the_offsets_of_its_topics(
    begin: Callable[[OldGroups], None],
) -> None:
    world, old = a_world()
    world.commit({ORDERS_0: 5, ("more", 0): 6})
    begin(old)
    assert delete(world) == E.NON_EMPTY_GROUP
    assert delete_offset(world, "orders", 0) == E.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset(world, "more", 0) == E.NONE
    assert world.fetch() == {ORDERS_0: 5}


def test_a_push_group_before_its_first_round_is_over_keeps_all_offsets() -> None:
    world, _ = a_world()
    world.commit({("more", 0): 6})
    stopping = PushConsumer(
        state=PushState.STOPPING,
        auto_commit=1,
        max_ping_retries=3,
        ping_interval_ms=1_000,
        consumer_id="p",
        auto_offset_reset="smallest",
    )
    value = PushGroupValue(consumers=(stopping,))
    world.shard.apply(encode_record(Record(PushGroupKey(group_id="g"), value)), world.next_index)
    assert delete_offset(world, "more", 0) == E.GROUP_SUBSCRIBED_TO_TOPIC
    assert world.sleep(2 * WEEK_MS) == []
    started = PushGroupValue(consumers=(replace(stopping, state=PushState.STARTED),))
    world.shard.apply(encode_record(Record(PushGroupKey(group_id="g"), started)), world.next_index)
    assert [entry.types for entry in world.sleep(CHECK_MS)] == [[-1]], "its topics do not exist"


@both
def test_commits_in_a_transaction_are_refused(begin: Callable[[OldGroups], None]) -> None:
    world, old = a_world()
    begin(old)
    key, value = next(iter(world.shard.projection.old_groups.items()))
    shards = Shards()
    producer = Producer(shards)
    producer.init()
    assert producer.add_group(GROUP) == E.NONE
    assert producer.commit_offsets({0: 5}) == E.NONE
    log = shards.log_of(GROUP)
    taken = encode_record(Record(replace(key, group_id=GROUP), value))
    log.machine.apply(taken, log.next_index)
    assert producer.commit_offsets({0: 6}) == E.UNKNOWN_MEMBER_ID
    assert producer.commit_offsets({0: 6}, member_id="m", generation_id=3) == E.UNKNOWN_MEMBER_ID


def test_an_empty_old_group_gives_way_to_a_consumer_group_in_the_same_entry() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    old.commit(member, {ORDERS_0: 5})
    old.stop_all()
    assert old.value().generation == 2
    Client(world, "a", topics=("orders",)).beat()
    assert world.log[-1].types[0] == -1010
    assert world.group().is_consumer
    assert world.fetch() == {ORDERS_0: 5}
    assert old.join().error_code == RewriteError.INCONSISTENT_PARTITIONING_STRATEGY
    nothing_is_forgotten(world)
    check_log(world)


def test_an_empty_old_group_gives_way_to_a_classic_group_in_the_same_entry() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    old.commit(member, {ORDERS_0: 5})
    old.stop_all()
    ClassicConsumer(world, "c").join()
    first = next(entry for entry in world.log if 2 in entry.types)
    assert first.types == [-1010, 2]
    assert old.join().error_code == RewriteError.INCONSISTENT_PARTITIONING_STRATEGY
    assert world.fetch() == {ORDERS_0: 5}
    nothing_is_forgotten(world)
    check_log(world)


def test_an_empty_old_group_takes_commits_of_an_operator_and_stays() -> None:
    world, old = a_world()
    old.join()
    old.stop_all()
    assert world.commit({ORDERS_0: 7}) == {ORDERS_0: E.NONE}
    assert world.commit({ORDERS_0: 8}, member_id="m", epoch=1) == {ORDERS_0: E.UNKNOWN_MEMBER_ID}
    assert KEY in world.shard.projection.old_groups
    assert old.join().group_generation_id == 3


@both
def test_an_empty_consumer_group_gives_way_to_an_old_group_in_the_same_entry(
    begin: Callable[[OldGroups], None],
) -> None:
    world, old = a_world()
    a = Client(world, "a", topics=("orders",))
    a.beat()
    world.commit({ORDERS_0: 5}, member_id="a", epoch=a.epoch)
    a.leave()
    begin(old)
    entry = next(entry for entry in world.log if {1010, 1011} & set(entry.types))
    assert -3 in entry.types
    assert entry.types[-1] in (1010, 1011)
    assert "g" not in world.shard.projection.groups
    assert world.fetch() == {ORDERS_0: 5}
    nothing_is_forgotten(world)
    assert world.shard.groups.checked_version == {}
    check_log(world)


@both
def test_an_empty_classic_group_gives_way_to_an_old_group(begin: Callable[[OldGroups], None]) -> None:
    world, old = a_world()
    consumer = ClassicConsumer(world, "c")
    assert consumer.send_join().error_code == E.MEMBER_ID_REQUIRED  # the group is written, without members
    begin(old)
    assert -2 in next(entry for entry in world.log if {1010, 1011} & set(entry.types)).types
    assert world.shard.groups.classic.get("g") is None
    assert consumer.send_join().error_code == E.INCONSISTENT_GROUP_PROTOCOL, "with the id it was given"
    world.sleep(MINUTE_MS)  # the wait for that id is over
    check_log(world)


def test_groups_with_members_refuse_old_ones() -> None:
    world, old = a_world()
    Client(world, "a", topics=("orders",)).beat()
    assert old.join().error_code == RewriteError.INCONSISTENT_PARTITIONING_STRATEGY
    old.register("p")
    assert old.closed == ["Group g is a consumer group with members. Stop them, or use another id."]
    classic = ClassicConsumer(world, "c", group_id="h")
    classic.join()
    old.register("p", "h")
    assert old.closed[1] == "Group h is a classic group with members. Stop them, or use another id."
    assert old.join("h").error_code == RewriteError.INCONSISTENT_PARTITIONING_STRATEGY


def test_the_two_old_protocols_refuse_each_other_and_give_way() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    old.register("p")
    (why,) = old.closed
    assert why.startswith("Group g is a group of the rewrite protocol with 1 consumer.")
    old.commit(member, {ORDERS_0: 5})
    old.stop_all()
    connection = old.register("p")
    assert next(entry for entry in world.log if 1011 in entry.types).types == [-1010, 1011]
    assert old.join().error_code == RewriteError.INCONSISTENT_PARTITIONING_STRATEGY
    old.hang_up(connection)
    assert old.join().group_generation_id == 1
    assert world.fetch() == {ORDERS_0: 5}
    check_log(world)


def test_old_groups_count_against_the_maximum() -> None:
    world, old = a_world(groups_max=2)
    old.join("r")
    old.register("p", "s")
    assert old.join("t").error_code == RewriteError.GROUP_TOO_LARGE
    old.register("p", "u")
    assert old.closed == ["This shard already has the maximum of 2 groups (groups.max)."]
    asked = _join_request("v")
    refused = world.shard.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked, world.ctx())
    assert "maximum of 2 groups" in refused.refusal
    assert ClassicConsumer(world, "c", group_id="w").join().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert old.join("r") is None, "a group that exists goes on"
    old.stop_all("r")
    assert world.join("a", group_id="r").error_code == E.NONE
    assert "r" in world.shard.projection.groups, "what takes an id over is no new group"


def test_a_classic_group_takes_the_place_of_an_empty_consumer_group_at_the_maximum() -> None:
    world, _ = a_world(groups_max=1)
    world.join("a")
    world.heartbeat("a", -1)
    assert ClassicConsumer(world, "c").join() is None
    assert ClassicConsumer(world, "c", group_id="h").join().error_code == E.COORDINATOR_NOT_AVAILABLE


def _join_request(group_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )


# Expiry.


@both
def test_offsets_of_a_live_subscription_are_kept(begin: Callable[[OldGroups], None]) -> None:
    world, old = a_world()
    world.commit({ORDERS_0: 5, ("more", 0): 6})
    begin(old)
    entries = world.sleep(2 * WEEK_MS)
    assert [Trigger(entry.cause.trigger) for entry in entries] == [Trigger.OFFSETS_EXPIRED]
    assert world.fetch() == {ORDERS_0: 5}
    world.failover()
    assert world.sleep(2 * WEEK_MS) == []


def test_without_consumers_offsets_expire_and_then_the_record_goes() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    old.commit(member, {ORDERS_0: 5})
    committed_ms = world.now_ms
    old.stop_all()
    assert world.sleep(committed_ms + WEEK_MS - world.now_ms - 1) == []
    (entry,) = world.sleep(CHECK_MS)
    assert entry.types == [-1, -1010]
    nothing_is_left(world)
    assert old.join().group_generation_id == 1
    check_log(world)


def test_a_record_without_consumers_or_offsets_goes_at_the_next_check() -> None:
    world, old = a_world()
    old.join()
    old.stop_all()
    assert world.sleep(CHECK_MS - 1) == []
    assert [entry.types for entry in world.sleep(2)] == [[-1010]]
    nothing_is_left(world)


def test_the_clients_timestamp_is_the_base_of_retention() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    wall_ms = world.ctx().wall_ms
    old.commit(member, {ORDERS_0: 5})
    old.commit(member, {ORDERS_1: 6}, timestamp_ms=wall_ms - WEEK_MS + 2 * CHECK_MS)
    old.stop_all()
    entries = world.sleep(2 * CHECK_MS + 1)
    assert [entry.types for entry in entries] == [[-1]]
    assert world.fetch() == {ORDERS_0: 5}
    assert [entry.types for entry in world.sleep(WEEK_MS)] == [[-1, -1010]]


def test_a_push_groups_offsets_expire_once_its_consumers_are_gone() -> None:
    world, old = a_world()
    connection = old.register("p")
    old.pong(connection, 5)
    assert len(world.fetch()) == 4
    old.hang_up(connection)
    assert [entry.types for entry in world.sleep(WEEK_MS + CHECK_MS)] == [[-1] * 4]
    nothing_is_left(world)


def test_a_new_leader_looks_at_old_groups_too() -> None:
    world, old = a_world()
    old.join("r")
    member = old.join("s").consumer_id
    old.commit(member, {ORDERS_0: 5}, "s")
    old.stop_all("r")
    assert not old.value("s").consumers
    world.failover()
    nothing_is_forgotten(world)
    assert [entry.types for entry in world.sleep(CHECK_MS)] == [[-1010]]
    assert [entry.types for entry in world.sleep(WEEK_MS)] == [[-1, -1010]]
    nothing_is_left(world)


def test_commits_that_go_on_do_not_put_the_look_off_for_ever() -> None:
    world, old = a_world()
    world.commit({("more", 0): 6})
    connection = old.register("p")
    for number in range(30):
        old.pong(connection, number)
        world.sleep(WEEK_MS // 20)
    assert {topic for topic, _ in world.fetch()} == {"orders"}


def test_the_last_offset_that_is_deleted_takes_an_empty_group_along() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    old.commit(member, {ORDERS_0: 5})
    old.stop_all()
    assert delete_offset(world, "orders", 0) == E.NONE
    world.sleep(CHECK_MS)
    nothing_is_left(world)


# Operators.


def test_deleting_an_empty_old_group_deletes_its_record_and_offsets() -> None:
    world, old = a_world()
    member = old.join().consumer_id
    old.commit(member, {ORDERS_0: 5})
    old.stop_all()
    assert delete(world) == E.NONE
    assert world.log[-1].types == [-1, -1010]
    nothing_is_left(world)
    assert delete(world) == E.GROUP_ID_NOT_FOUND
    check_log(world)


def test_old_groups_are_listed_as_classic_without_a_protocol_type() -> None:
    world, old = a_world()
    old.join("r")
    old.register("p", "s")
    answer = world.handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    rows = {(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups}
    assert rows == {("r", "", "Stable", "classic"), ("s", "", "Stable", "classic")}
    answer = world.handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(types_filter=["consumer"]))
    assert answer.groups == []


def test_old_groups_are_described() -> None:
    world, old = a_world()
    member = old.join("r").consumer_id
    old.register("p", "s")
    request = DescribeGroupsRequest(groups=["r", "s"])
    r, s = world.handle(ApiKey.DESCRIBE_GROUPS, 6, request).groups
    assert (r.error_code, r.group_state, r.protocol_type, r.protocol_data) == (0, "Stable", "", "range")
    assert [(one.member_id, one.client_id, one.client_host) for one in r.members] == [
        (member, "client", "/127.0.0.1")
    ]
    assert (s.error_code, s.group_state, s.members[0].member_id) == (0, "Stable", "p")
    (row,) = world.handle(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["r"])
    ).groups
    assert row.error_code == E.GROUP_ID_NOT_FOUND
    assert "rewrite protocol with 1 consumer" in row.error_message
    old.stop_all("r")
    (r,) = world.handle(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["r"])).groups
    assert (r.group_state, r.members) == ("Empty", [])


# Topics.


def test_a_shard_needs_the_catalog_that_its_old_groups_name() -> None:
    world, _ = a_world()
    topic_id = bytes(10) + (77).to_bytes(6, "big")
    value = RewriteGroupValue(
        generation=1,
        strategy="range",
        topics=(RewriteTopic(num_partitions=1, name="t", topic_id=topic_id),),
        consumers=(),
    )
    world.shard.apply(encode_record(Record(KEY, value)), 5)
    assert world.shard.newest_topic_version == 77
    world.shard.apply(encode_record(Record(KEY, None)), 6)
    assert world.shard.newest_topic_version == 77, "it never goes back"


@both
def test_a_recreated_topic_is_noticed_and_its_offsets_begin_anew(begin: Callable[[OldGroups], None]) -> None:
    world, old = a_world()
    world.commit({ORDERS_0: 5})
    begin(old)
    world.delete_topic("orders")
    world.create_topic("orders", 4)
    before = len(world.log)
    old.topics_changed()
    world.work()
    value = next(iter(world.shard.projection.old_groups.values()))
    topic = world.catalog.view.topic("orders")
    if begin is begin_push:
        assert value.topics[0].topic_id == topic.topic_id
        assert len(world.log) > before
    else:
        assert old.beat(value.consumers[0].consumer_id) == RewriteError.ILLEGAL_GENERATION
    assert world.fetch() == {}


# Views.


def view_of(world: World, group_id: str) -> Any:
    view = finished(views.group_view(world.shard, group_id, world.now_ms, world.settings))
    assert view is not None
    return json.loads(json.dumps(view))


def text_of(view: Any) -> list[str]:
    return lines(view, {}, at_ms=None)


def test_the_view_of_a_rewrite_group_shows_consumers_and_what_they_own() -> None:
    world, old = a_world()
    member = old.join("r", topics=("orders", "later")).consumer_id
    view = view_of(world, "r")
    assert (view["type"], view["state"], view["epoch"], view["num_members"]) == ("rewrite", "Stable", 1, 1)
    assert (view["assignor"], view["topics"]["orders"]["num_partitions"]) == ("range", 4)
    (one,) = view["members"]
    assert (one["member_id"], one["client_id"], one["client_host"]) == (member, "client", "127.0.0.1")
    assert (one["member_epoch"], one["assigned"]) == (1, {"orders": [0, 1, 2, 3]})
    assert one["subscribed_topics"] == ["later", "orders"]
    text = text_of(view)
    assert text[0] == "group r: Stable, of type rewrite, generation 1"
    assert [line.split() for line in text[5:7]] == [["MEMBER", "OWNS"], [member, "orders:0-3"]]
    old.stop_all("r")
    assert text_of(view_of(world, "r"))[0] == "group r: Empty, of type rewrite, generation 2"


def test_the_view_of_a_push_group_shows_the_states_of_its_consumers() -> None:
    world, old = a_world()
    old.register("p", "s")
    view = view_of(world, "s")
    assert (view["type"], view["state"], view["epoch"], view["members"][0]["state"]) == (
        "push",
        "Stable",
        0,
        "STARTED",
    )
    assert text_of(view)[0] == "group s: Stable, of type push"
    assert [one["type"] for one in map(partial(views.group_summary, world.shard), ["s"])] == ["push"]
    old.join("r")
    assert views.list_groups(world.shard) == ["r", "s"]
    page = finished(views.page_of_groups([world.shard], "", 10))
    assert [(one["group_id"], one["type"], one["members"]) for one in page] == [
        ("r", "rewrite", 1),
        ("s", "push", 1),
    ]
    counts = finished(world.shard.counting())
    assert (counts.groups["classic", ClassicState.STABLE], counts.groups.total(), counts.members) == (2, 2, 2)
