"""C.11 Target assignment: when, by whom, at what pace, and what happens when the assignor fails."""

from __future__ import annotations

import pytest

from coordinator.assignors import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignorError,
    RangeAssignor,
    UniformAssignor,
)
from coordinator.limits import GroupSettings, Limits
from records import Ref, Trigger
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup


class Moody:
    """An assignor that answers as `uniform` does, unless it is given another answer."""

    name = "moody"

    def __init__(self) -> None:
        self.instead: object = None

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        if isinstance(self.instead, Exception):
            raise self.instead
        if self.instead is not None:
            parts = self.instead.items()  # type: ignore[attr-defined]
            return GroupAssignment({member_id: MemberAssignment(part) for member_id, part in parts})
        return UniformAssignor().assign(spec)


@pytest.fixture
def moody() -> tuple[World, Moody]:
    assignor = Moody()
    world = World(GroupSettings(assignors=("moody", "range")), assignors=[assignor, RangeAssignor()])
    world.create_topic("orders", 4)
    return world, assignor


def describe(world: World) -> DescribedGroup:
    group: DescribedGroup = world.handle(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"])
    ).groups[0]
    return group


def test_a_failing_assignor_does_not_take_the_join_with_it(moody: tuple[World, Moody]) -> None:
    """The member is admitted, the old target stays, the error shows in describe; it is asked again later."""
    world, assignor = moody
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    assignor.instead = RuntimeError("no idea")
    answer = b.beat()
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert set(world.group().members) == {"a", "b"}
    assert (world.group().epoch, world.group().assignment_epoch) == (2, 1)
    described = describe(world)
    assert (described.error_code, described.group_state) == (0, "Assigning")
    assert "no idea" in (described.error_message or "")
    assert world.sleep(500) == []
    assignor.instead = None
    assert [entry.cause.trigger for entry in world.sleep(600)] == [Trigger.TARGET_COMPUTED]
    assert describe(world).error_message is None
    settle([a, b])
    assert world.group().state.value == "Stable"


def test_a_first_target_that_fails_is_empty(moody: tuple[World, Moody]) -> None:
    """A group without any target gets an empty one, so that its member has an epoch to heartbeat with."""
    world, assignor = moody
    assignor.instead = PartitionAssignorError("not today")
    a = Client(world, "a")
    answer = a.beat()
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert world.group().state.value == "Assigning"
    assert a.beat().error_code == 0
    assignor.instead = None
    world.sleep(1_000)
    settle([a])
    assert (a.epoch, world.group().state.value) == (2, "Stable")


ORDERS = FIRST_TOPIC


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"nobody": {ORDERS: (0,)}}, "which is not a member"),
        ({"a": {b"?" * 16: (0,)}}, "not subscribed"),
        ({"a": {ORDERS: (0, 1)}, "b": {ORDERS: (1,)}}, "to two members"),
        ({"a": {ORDERS: (4,)}}, "does not have"),
        ({"a": {ORDERS: (-1,)}}, "does not have"),
    ],
)
def test_an_answer_is_validated_before_a_record_is_written(
    moody: tuple[World, Moody], answer: object, complaint: str
) -> None:
    """Whatever the assignor answers, no partition of the target has two owners, and each one exists."""
    world, assignor = moody
    world.join("a")
    assignor.instead = answer
    world.join("b")
    assert complaint in (describe(world).error_message or "")
    assert 7 not in world.log[-1].types


def test_a_member_absent_from_the_answer_gets_an_empty_target(moody: tuple[World, Moody]) -> None:
    """A member absent from the assignor's answer gets an empty target."""
    world, assignor = moody
    a = Client(world, "a")
    a.beat()
    assignor.instead = {"b": {ORDERS: (0, 1, 2, 3)}}
    b = Client(world, "b")
    b.beat()
    settle([a, b])
    assert (a.owned, sorted(b.owned[ORDERS])) == ({}, [0, 1, 2, 3])


def test_one_target_per_turn(world: World) -> None:
    """A group computes at most one target per turn; the deferred one is due work."""
    world.turn = 7
    for member_id in "abcd":
        world.join(member_id)
    assert [entry.types.count(6) for entry in world.log] == [1, 0, 0, 0]
    assert world.work() == [], "not in this turn"
    world.turn = 8
    (entry,) = world.work()
    assert (entry.cause.trigger, entry.types) == (Trigger.TARGET_COMPUTED, [7, 7, 7, 7, 6])
    assert entry.cause.refs == (Ref(shard=0, index=4),), "the entry whose epoch it is the target of"


def test_after_a_slow_target_the_group_waits_ten_times_as_long(world: World) -> None:
    """After one that took c ms it waits 10·c, at most 1 s; small groups never wait."""
    elapsed = [0.0]

    def stopwatch() -> float:
        elapsed[0] += cost_ms
        return elapsed[0]

    world.stopwatch = stopwatch
    for cost_ms, pause_ms in ((0.9, 0), (20.0, 200), (500.0, 1_000)):
        world.sleep(2_000)
        world.join(f"first-{cost_ms}")
        assert world.group().assignment_epoch == world.group().epoch
        world.join(f"second-{cost_ms}")
        if not pause_ms:
            assert world.group().assignment_epoch == world.group().epoch
            continue
        assert world.group().assignment_epoch < world.group().epoch
        assert world.sleep(pause_ms - 1) == []
        assert [entry.cause.trigger for entry in world.sleep(1)] == [Trigger.TARGET_COMPUTED]


def test_the_majority_chooses_the_assignor(world: World) -> None:
    """The most voted ServerAssignor among members; none → first in the configuration; ties → the first."""
    world.join("a")
    assert describe(world).assignor_name == "uniform"
    world.join("b", server_assignor="range")
    assert describe(world).assignor_name == "range"
    world.join("c", server_assignor="uniform")
    assert describe(world).assignor_name == "uniform"


def test_unchanged_parts_write_no_record(world: World) -> None:
    """Output applied as a delta of records 7; then 6, which is written even when no 7 is."""
    a = Client(world, "a")
    a.beat()
    a.subscribe(["orders", "nowhere"])
    a.beat()
    assert world.log[-1].types == [5, 3, 6, 8]
    world.create_topic("more", 2)
    b = Client(world, "b", topics=("more",))
    b.beat()
    b.subscribe(["more", "nowhere"])
    b.beat()
    assert world.log[-1].types == [5, 3, 6, 8], "also where subscriptions differ"


def test_a_target_too_large_for_the_log_is_a_failed_one() -> None:
    """The old target stays and describe says why; members are in, and their heartbeats are answered."""
    world = World(limits=Limits(target_bytes_max=100))
    world.create_topic("orders", 4)
    world.create_topic("all", 200)
    a, b = Client(world, "a"), Client(world, "b", topics=("all",))
    settle([a])
    b.beat()
    assert (world.group().assignment_epoch, world.group().num_members) == (1, 2)
    assert "the maximum is 100" in (describe(world).error_message or "")
    assert a.beat().error_code == b.beat().error_code == 0
    b.leave()
    world.sleep(1_000)
    settle([a])
    assert (world.group().state.value, len(a.owned)) == ("Stable", 1)


def test_a_target_that_waits_for_the_catalog_does_not_spin(world: World) -> None:
    """While this node's catalog is too old the target is tried again after a pause, not over and over."""
    world.turn = 1
    world.join("a")
    world.join("b")
    world.turn = 2
    world.catalog.view.version -= 1
    assert world.work() == []
    deadline_ms = world.shard.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms >= world.now_ms + 100
    world.catalog.view.version += 1
    assert [entry.cause.trigger for entry in world.sleep(2_000)] == [Trigger.TARGET_COMPUTED]
