"""H.1 Client-side assignors: which assignments are installed, refused, or left to the server assignor."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.limits import Limits
from coordinator.targets.clientside import chosen_assignor
from records import Trigger
from tests.kip848.computing_members import T, chosen, computing_world, settled
from tests.support.computing_client import (
    ComputingClient,
    dealt_round,
    offer,
    part,
    settle_computing,
)
from tests.support.world import World
from wire.errors import ErrorCode


@pytest.fixture
def world() -> World:
    return computing_world()


# Installed assignments


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([part("nobody")], "nobody is not a member"),
        ([part("a"), part("a")], "a occurs twice"),
        ([part("a"), part("b"), part("a")], "3 members exceed the 2 that exist"),
        ([part("a", {bytes([n]) * 16: [] for n in range(3)})], "3 topics exceed the"),
        ([part("a", {T: [*range(7), 0]})], "8 partitions exceed the 7 that exist"),
        ([part("a", {T: [0]}), part("b", {T: [0]})], "orders-0 is assigned to both a and b"),
        ([part("a", {T: [0, 0]})], "orders-0 is assigned to a twice"),
        ([part("a", {T: [7]})], "a is assigned orders-7; the topic has partitions 0 to 6"),
        ([part("a", {T: [-1]})], "a is assigned orders--1"),
        ([part("a", {bytes(15) + b"?": [0]})], f"a is assigned topic id {(bytes(15) + b'?').hex()}"),
        ([part("b", error=3, partitions={T: [0]})], "b has error 3, so it keeps its partitions"),
        ([part("b", error=3), part("a", {T: [1]})], "orders-1 is assigned to both b and a"),
        ([part("a", version=1)], "MetadataVersion is 1, outside 0 to 0, at a"),
        ([part("a", version=-2)], "MetadataVersion is -2"),
        ([part("a", metadata=b"x")], "MetadataVersion -1 means no metadata, but there are 1 bytes, at a"),
        ([part("a", version=0, metadata=bytes(16_385))], "MetadataBytes of a are 16385 bytes; at most 16384"),
    ],
)
def test_what_is_not_valid_is_refused_and_another_is_asked(
    world: World, members: list[Any], message: str
) -> None:
    """Validate the assignment against the information used to compute it → INVALID_ASSIGNMENT."""
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    world.grow_topic("orders", 8)  # valid or not is decided by what was shown
    world.work()
    entries = len(world.log)
    answer = a.install(shown.group_epoch, members)
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert message in (answer.error_message or "")
    assert len(world.log) == entries
    assert chosen(world) == "b"
    assert message in world.shard.groups.client_side.errors["g"]
    settle_computing([a, b], rounds=5)
    assert world.group().state.value == "Stable"


def test_a_member_of_one_subscription_gets_no_other_topic(world: World) -> None:
    events = world.create_topic("events", 2)
    a = ComputingClient(world, "a", topics=("events",))
    b = ComputingClient(world, "b")
    settle_computing([a, b], rounds=5)
    world.grow_topic("orders", 7)
    world.work()
    a.beat()
    shown = a.prepare()
    answer = a.install(shown.group_epoch, [part("a", {events: [0, 1], T: [0]})])
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert "to which it is not subscribed" in (answer.error_message or "")


def test_all_invalid_ends_with_the_server_assignor_at_once(world: World) -> None:
    a, b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    for one in (a, b):
        one.beat()
        shown = one.prepare()
        assert one.install(shown.group_epoch, [part("nobody")]).error_code == ErrorCode.INVALID_ASSIGNMENT
    world.work()
    assert world.group().assignment_epoch == world.group().epoch
    assert world.log[-1].cause.trigger == Trigger.TARGET_COMPUTED


def test_another_group_epoch_is_refused_and_the_member_stays_chosen(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    answer = a.install(shown.group_epoch + 1, dealt_round(shown))
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert f"but epoch {shown.group_epoch} was prepared" in (answer.error_message or "")
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == 0


def test_install_without_prepare(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    assert a.install(world.group().epoch, []).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.compute() == 0


def test_a_target_that_is_too_large_for_the_log_is_refused() -> None:
    world = World(limits=Limits(target_bytes_max=200))
    world.create_topic("orders", 200)
    a = ComputingClient(world, "a")
    a.beat()
    assert a.compute() == ErrorCode.INVALID_ASSIGNMENT


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(prepare_bytes_max=150), "bytes of description, more than 150"),
        (Limits(client_members_max=1), "has 2 members, more than 1"),
        (Limits(client_partitions_max=6), "has 8 partitions, more than 6"),
    ],
)
def test_a_group_that_is_too_large_is_the_servers(limits: Limits, said: str) -> None:
    world = World(limits=limits)
    world.create_topic("orders", 6)
    a = ComputingClient(world, "a")
    a.beat()
    assert a.must_compute
    world.create_topic("t1", 2)
    b = ComputingClient(world, "b", topics=("orders", *(f"t{number}" for number in range(20))))
    b.beat()
    assert chosen(world) == ""
    assert said in world.shard.groups.client_side.errors["g"]
    settle_computing([a, b])
    assert world.group().state.value == "Stable"


def test_the_size_of_the_answer_is_bounded_from_above(world: World) -> None:
    from coordinator.targets.clientside import size_to_show
    from wire.protocol import encode_response

    names = [f"member-{number:03}" for number in range(12)]
    members = [ComputingClient(world, name, offers=[offer("warm", metadata=bytes(100))]) for name in names]
    for number in range(20):
        world.create_topic(f"t{number}", 5)
    for member in members:
        member.topics = ("orders", *(f"t{number}" for number in range(20)))
    settle_computing(members, rounds=8)
    world.grow_topic("orders", 7)
    world.work()
    members[0].beat()
    shown = members[0].prepare()
    choice = chosen_assignor(world.group())
    assert choice is not None
    size = len(encode_response(20_101, 0, 1, shown))
    assert size <= size_to_show(world.group(), choice) <= 2 * size


def test_an_install_whose_reply_was_lost_is_accepted_again(world: World) -> None:
    """Install answered twice with the same content is accepted idempotently, by whoever leads."""
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    parts = dealt_round(shown)
    assert a.install(shown.group_epoch, parts).error_code == 0
    entries = len(world.log)
    assert a.install(shown.group_epoch, parts).error_code == 0
    world.failover()
    assert a.install(shown.group_epoch, list(reversed(parts))).error_code == 0
    other = [part("a", {T: [0]}), part("b")]
    assert a.install(shown.group_epoch, other).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.install(shown.group_epoch, []).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log) == entries


def test_prepare_twice_shows_the_group_as_it_is_then(world: World) -> None:
    a, _b = settled(world, "a", "b")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    first = a.prepare()
    assert a.prepare() == first
    world.grow_topic("orders", 9)
    world.work()
    second = a.prepare()
    assert (second.group_epoch, second.topics[0].num_partitions) == (first.group_epoch + 1, 9)
    assert a.install(first.group_epoch, dealt_round(first)).error_code == ErrorCode.INVALID_ASSIGNMENT
    assert a.install(second.group_epoch, dealt_round(second)).error_code == 0
