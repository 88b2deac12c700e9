"""C.16 Racks: how they are set, which groups learn of them, and which epochs they bump."""

from __future__ import annotations

import json

import pytest

from coordinator.assignors import BUILT_IN, AssignmentSpec, GroupAssignment, UniformAssignor
from coordinator.assignors.assigning import question, spec_of
from coordinator.catalog import topicracks
from coordinator.limits import GroupSettings, Limits
from records import (
    FormatLevelKey,
    FormatLevelValue,
    PartitionRacks,
    ReasonKind,
    Record,
    TopicKey,
    TopicRacksKey,
    TopicRacksValue,
    TopicValue,
    encode_record,
)
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SET, DELETE, APPEND = 0, 1, 2
IN_A = (PartitionRacks(partition=0, racks=("a",)),)
TOPIC = 2


class NearBy:
    """An assignor that answers as `uniform` does and keeps the request."""

    name = "near"

    def __init__(self) -> None:
        self.asked: list[AssignmentSpec] = []

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        self.asked.append(spec)
        return UniformAssignor().assign(spec)


@pytest.fixture
def near() -> NearBy:
    return NearBy()


@pytest.fixture
def racked(near: NearBy) -> World:
    """A cluster at format level 2 whose groups have an assignor that asks, beside one that does not."""
    settings = GroupSettings(assignors=("near", "uniform"), rack_assignors=frozenset(["near"]))
    return at_level_2(World(settings, assignors=(*BUILT_IN, near)))


def at_level_2(world: World) -> World:
    world.create_topic("orders", 12)
    world.catalog.apply(encode_record(Record(FormatLevelKey(), FormatLevelValue(level=2))), 1)
    return world


def say(world: World, racks: str | None, *, topic: str = "orders", operation: int = SET) -> tuple[int, str]:
    """Set the racks of a topic's replicas; return the error code and message."""
    config = AlterableConfig(name=topicracks.NAME, config_operation=operation, value=racks)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = world.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    if answer.error_code == 0:
        world.learn(topic)
        world.work()
    return answer.error_code, answer.error_message or ""


def racks_of(world: World) -> dict[int, tuple[str, ...]]:
    """The entry of record 4 for the one topic."""
    (topic,) = world.group().topics
    return {known.partition: known.racks for known in topic.partition_racks}


def reasons(world: World) -> list[ReasonKind]:
    return [ReasonKind(reason.kind) for reason in world.log[-1].cause.reasons]


def test_the_racks_of_partitions_are_in_record_4_and_in_the_input(racked: World, near: NearBy) -> None:
    assert say(racked, '[["b","a"],[],["c"]]') == (0, "")
    racked.join("a", rack_id="a")
    assert racks_of(racked) == {0: ("a", "b"), 2: ("c",)}
    spec = near.asked[-1]
    assert spec.topics[FIRST_TOPIC].partition_racks == {0: ("a", "b"), 2: ("c",)}
    assert spec.members["a"].rack_id == "a"
    assert spec_of(question(spec, "near")) == spec, "a child process is told the same"


def test_racks_that_change_open_an_epoch(racked: World, near: NearBy) -> None:
    """Bumps (≤ 4.0): racks of replicas changed."""
    racked.join("a")
    assert say(racked, '[["a"]]') == (0, "")
    assert (racked.group().epoch, reasons(racked)) == (2, [ReasonKind.TOPIC_RACKS_CHANGED])
    assert say(racked, '[["b"]]') == (0, "")
    assert racks_of(racked) == {0: ("b",)}
    assert near.asked[-1].topics[FIRST_TOPIC].partition_racks == {0: ("b",)}
    entries = len(racked.log)
    assert say(racked, '[["b"]]') == (0, "")
    assert len(racked.log) == entries, "nothing changed"
    assert say(racked, None, operation=DELETE) == (0, "")
    assert (racked.group().epoch, racks_of(racked)) == (4, {})


def test_a_member_in_another_rack_opens_an_epoch_where_the_assignor_asked(racked: World) -> None:
    say(racked, '[["a"],["b"]]')
    racked.join("a", rack_id="a", instance_id="i")
    racked.heartbeat("a", 1, rack_id="b", instance_id="i")
    assert (racked.group().epoch, reasons(racked)) == (2, [ReasonKind.RACK_CHANGED])
    racked.heartbeat("a", 2, rack_id="b", instance_id="i")
    assert racked.group().epoch == 2
    racked.heartbeat("a", -2, instance_id="i")
    racked.join("a2", rack_id="c", instance_id="i")
    assert (racked.group().epoch, reasons(racked)) == (3, [ReasonKind.RACK_CHANGED]), "it came back"


def test_an_assignor_that_does_not_ask_is_told_nothing(racked: World) -> None:
    """Record 4 holds no racks for it, and racks bump no epoch."""
    say(racked, '[["a"],["b"]]')
    racked.join("a", server_assignor="uniform", rack_id="a")
    assert racks_of(racked) == {}
    epoch = racked.group().epoch
    racked.heartbeat("a", epoch, rack_id="b")
    say(racked, '[["c"]]')
    assert (racked.group().epoch, racks_of(racked)) == (epoch, {})


def test_racks_come_and_go_with_the_assignor(racked: World) -> None:
    say(racked, '[["a"]]')
    racked.join("a", server_assignor="uniform")
    racked.heartbeat("a", 1, server_assignor="near")
    assert racks_of(racked) == {0: ("a",)}
    assert set(reasons(racked)) >= {ReasonKind.ASSIGNOR_CHANGED}
    racked.heartbeat("a", 2, server_assignor="uniform")
    assert (racked.group().epoch, racks_of(racked)) == (3, {})


def test_racks_stay_when_a_topic_grows_and_go_with_it(racked: World) -> None:
    say(racked, '[["a"]]')
    racked.join("a")
    racked.grow_topic("orders", 14)
    racked.work()
    assert racks_of(racked) == {0: ("a",)}
    racked.delete_topic("orders")
    racked.create_topic("orders", 3)
    racked.work()
    assert racks_of(racked) == {}, "another topic of the name has replicas elsewhere"


def test_a_group_with_too_many_racks_for_its_record_goes_without(near: NearBy) -> None:
    settings = GroupSettings(assignors=("near",), rack_assignors=frozenset(["near"]))
    world = at_level_2(World(settings, Limits(group_racks_bytes_max=100), assignors=(near,)))
    say(world, json.dumps([["a"]] * 8))
    world.join("a")
    assert len(racks_of(world)) == 8
    say(world, json.dumps([["a"]] * 12))
    assert racks_of(world) == {}


def test_replayed_in_any_order_of_a_compacted_log_it_is_the_same(racked: World) -> None:
    """In a snapshot, the record of a topic that grew after its racks were set comes after them."""
    say(racked, '[["a"]]')
    racked.grow_topic("orders", 14)
    topic = racked.catalog.view.topic("orders")
    assert topic is not None
    grown = TopicValue(topic_id=topic.topic_id, num_partitions=topic.num_partitions)
    written = [
        encode_record(Record(TopicRacksKey(name="orders"), TopicRacksValue(partition_racks=IN_A))),
        encode_record(Record(TopicKey(name="orders"), grown)),
    ]
    again, turned = type(racked.catalog)(), type(racked.catalog)()
    again.apply_all(written, 9)
    turned.apply_all(written[::-1], 9)
    assert again.view.racks("orders") == turned.view.racks("orders") == racked.catalog.view.racks("orders")
    assert again.state_hash == turned.state_hash


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"0": ["a"]}', "must be an array with at most 12"),
        (str([[]] * 13), "must be an array with at most 12"),
        ('["a"]', "must have an array of at most 16 racks for partition 0"),
        (
            '[["a"], [' + ", ".join(['"r"'] * 17) + "]]",
            "must have an array of at most 16 racks for partition 1",
        ),
        ('[[""]]', "has an invalid rack for partition 0"),
        ("[[7]]", "has an invalid rack for partition 0"),
        ('[["\\ud800"]]', "has an invalid rack for partition 0"),
        (f'[["{"r" * 257}"]]', "has an invalid rack for partition 0"),
    ],
)
def test_what_is_no_list_of_racks_is_refused(racked: World, text: str, words: str) -> None:
    code, message = say(racked, text)
    assert (code, words in message) == (ErrorCode.INVALID_CONFIG, True), message
    assert racked.catalog.view.racks("orders") == ()


def test_who_may_say_it_and_of_what(racked: World) -> None:
    assert say(racked, "[]", topic="nowhere")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert say(racked, "[]", operation=APPEND)[0] == ErrorCode.INVALID_CONFIG
    assert say(racked, "") == (0, "")


def test_the_text_of_what_was_said(world: World) -> None:
    topic = world.catalog.view.topic("orders")
    assert topic is not None
    for text in ("", '[["a","b"],[],["ü"]]'):
        assert topicracks.text_of(topicracks.racks_of(text, topic, Limits())) == text


def test_older_releases_in_the_cluster_keep_racks_out_of_the_log(world: World) -> None:
    """A record of a newer format level would be no part of their state."""
    code, message = say(world, '[["a"]]')
    assert (code, "quorate cluster upgrade" in message) == (ErrorCode.UNSUPPORTED_VERSION, True)
    world.catalog.apply(encode_record(Record(FormatLevelKey(), FormatLevelValue(level=2))), 1)
    assert say(world, '[["a"]]') == (0, "")
    assert world.catalog.view.racks("orders") == IN_A
