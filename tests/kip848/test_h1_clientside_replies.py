"""H.1 Client-side assignors: what members hear by heartbeat, and which requests are invalid."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.state.reconcile import AssignorMetadata
from tests.kip848.computing_members import T, computing_world, settled
from tests.support.computing_client import (
    ComputingClient,
    offer,
    part,
    settle_computing,
)
from tests.support.world import World
from wire.errors import ErrorCode


@pytest.fixture
def world() -> World:
    return computing_world()


# Answers to members


def test_error_and_metadata_arrive_with_the_heartbeat(world: World) -> None:
    """Error byte and metadata delivered in the heartbeat of each member; also when partitions stay equal."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    assert (
        a.install(
            shown.group_epoch,
            [part("a", {T: [0, 2, 4, 6]}), part("b", {T: [1, 3, 5]}, version=0, metadata=b"hello b")],
        ).error_code
        == 0
    )
    b.beat()
    assert b.assignor_metadata == AssignorMetadata(0, 0, b"hello b")
    assert b.full_answer is not None
    assert b.full_answer.assignment is not None, "the partitions are the same, what it is told is not"
    a.beat()
    assert (a.assignor_metadata, a.partitions(T)) == (AssignorMetadata(), [0, 2, 4, 6])
    value = world.group().members["b"].current_value
    assert value is not None
    assert (value.error, value.metadata_version, value.metadata_bytes) == (0, 0, b"hello b")


def test_an_error_lets_the_member_keep_its_partitions(world: World) -> None:
    """Meaning of Error ≠ 0: pass on to members, keep old partitions."""
    a, b = settled(world, "a", "b")
    before = b.partitions(T)
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    assert a.install(shown.group_epoch, [part("a", {T: [0, 2, 4, 6]}), part("b", error=-7)]).error_code == 0
    settle_computing([a, b])
    assert (b.partitions(T), b.assignor_metadata.error, b.epoch) == (before, -7, shown.group_epoch)
    assert world.group().state.value == "Stable"
    world.grow_topic("orders", 8)
    world.work()
    settle_computing([a, b])
    assert b.assignor_metadata == AssignorMetadata(), "the next target says no more of it"


def test_an_error_for_a_member_that_is_new(world: World) -> None:
    a = ComputingClient(world, "a")
    a.beat()
    shown = a.prepare()
    assert a.install(shown.group_epoch, [part("a", error=1)]).error_code == 0
    a.beat()
    assert (a.assignor_metadata.error, a.owned, world.group().state.value) == (1, {}, "Stable")


def test_pending_partitions_are_shown(world: World) -> None:
    """Assigned (usable now), pending (assigned, not yet released by former owners)."""
    (a,) = settled(world, "a")
    b = ComputingClient(world, "b")
    b.beat()
    a.beat()
    shown = a.prepare()
    assert (
        a.install(shown.group_epoch, [part("a", {T: [0, 1]}), part("b", {T: [2, 3, 4, 5]})]).error_code == 0
    )
    b.beat()
    assert (b.partitions(T), b.pending) == ([], {T: [2, 3, 4, 5]})
    b.beat()
    assert b.pending == {T: [2, 3, 4, 5]}
    a.beat()
    assert (a.partitions(T), a.pending) == ([0, 1], {})
    a.beat()  # has given them up
    b.beat()
    assert (b.partitions(T), b.pending) == ([2, 3, 4, 5], {})


def test_the_steady_heartbeat_is_small_and_says_nothing(world: World) -> None:
    a, _b = settled(world, "a", "b")
    a.beat()
    answer = a.full_answer
    assert answer is not None
    assert (answer.assignment, answer.should_compute_assignment) == (None, False)
    a.beat()


def test_a_lost_reply_is_told_again(world: World) -> None:
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    parts = [part("a", {T: [0, 2, 4, 6]}), part("b", {T: [1, 3, 5]}, version=0, metadata=b"x")]
    assert a.install(shown.group_epoch, parts).error_code == 0
    b.beat(lose_reply=True)
    assert b.assignor_metadata == AssignorMetadata()
    b.beat()
    assert (b.assignor_metadata.metadata_bytes, b.partitions(T)) == (b"x", [1, 3, 5])


def test_a_leave_by_the_extended_heartbeat(world: World) -> None:
    from wire.apis import ApiKey
    from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest

    settled(world, "a", "b")
    request = ExtendedConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1)
    answer = world.handle(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request)
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.assignment) == (0, "a", -1, None)
    assert set(world.group().members) == {"b"}


def test_the_coordinator_names_a_member_without_an_id(world: World) -> None:
    a = ComputingClient(world, "")
    answer = a.beat()
    assert answer.member_id == "fresh-2"
    assert list(world.group().members) == ["fresh-2"]


# Invalid fields


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ([offer(" ")], "ClientAssignors.Name can't be empty."),
        ([offer("x" * 257)], "ClientAssignors.Name is longer than 256 bytes"),
        ([offer("warm"), offer("warm")], "Name warm occurs twice"),
        ([offer("warm", -1, 3)], "warm has MinimumVersion -1 and MaximumVersion 3"),
        ([offer("warm", 3, 2)], "warm has MinimumVersion 3 and MaximumVersion 2"),
        ([offer("warm", 1, 2, version=3)], "MetadataVersion is 3, outside 1 to 2, at warm"),
        ([offer("warm", 1, 2, version=0)], "MetadataVersion is 0, outside 1 to 2, at warm"),
        (
            [offer("warm", version=-1, metadata=b"x")],
            "MetadataVersion -1 means no metadata, but there are 1 bytes",
        ),
        (
            [offer(f"a{n}", metadata=bytes(8_000)) for n in range(3)],
            "MetadataBytes have 24000 bytes in total",
        ),
        ([offer(f"a{n}") for n in range(17)], "ClientAssignors has 17 assignors; at most 16"),
    ],
)
def test_fields_out_of_their_domain(world: World, offers: list[Any], message: str) -> None:
    settled(world, "a")
    entries = len(world.log)
    refused = ComputingClient(world, "b", offers=offers).beat()
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert message in (refused.error_message or "")
    assert len(world.log) == entries


def test_the_stock_rules_hold_for_the_extended_heartbeat(world: World) -> None:
    answer = ComputingClient(world, "a", group_id=" ").beat()
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "GroupId can't be empty." in (answer.error_message or "")
    answer = ComputingClient(world, "a", assignor="nope").beat()
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    a = ComputingClient(world, "a")
    a.beat()
    a.epoch = 7
    assert a.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
