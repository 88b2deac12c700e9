"""One client can make a group hold a bounded amount only, and large groups stay cheap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.leader_state.classic_groups import ClassicTimer
from coordinator.limits import DECISION_BYTES_MAX, Limits
from coordinator.state.machines import ClassicState
from tests.support.classic_member import ClassicConsumer, rebalanced
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.join_group import JoinGroupRequestProtocol

Make = Callable[..., list[ClassicConsumer]]
HALF = DECISION_BYTES_MAX // 2


def group_of(world: World) -> ClassicGroup:
    group = world.shard.groups.classic.get("g")
    assert group is not None
    return group


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": "g" * 1_025}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "i" * 1_000_000}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": [JoinGroupRequestProtocol(name=f"p{number}") for number in range(101)]},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"protocols": [JoinGroupRequestProtocol(name="range", metadata=b"x" * (2 * HALF + 1))]},
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ),
    ],
)
def test_what_does_not_fit_is_refused(world: World, changes: dict[str, Any], code: ErrorCode) -> None:
    assert ClassicConsumer(world, "a").send_join(**changes).error_code == code
    assert not world.log


def test_a_long_client_id_makes_no_long_member_id(world: World) -> None:
    a = ClassicConsumer(world, "a" * 32_767, protocols={"range": b""})
    a.join()
    world.work()
    rebalanced(a)
    assert len(a.member_id) < 300


def test_the_metadata_of_all_members_is_bounded(world: World) -> None:
    a, b = (ClassicConsumer(world, name, protocols={"range": b"x" * HALF}) for name in "ab")
    a.join()
    assert b.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.work()
    a.joined()
    assert a.join().error_code == 0, "its own metadata counts once"
    a.sync({})
    a.leave()
    b.member_id = ""
    assert b.join() is None


def test_assignments_that_cannot_be_written_begin_a_new_generation(world: World) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR when a generation does not fit into a batch of its log."""
    a, b = ClassicConsumer(world, "a"), ClassicConsumer(world, "b")
    a.join(), b.join()
    world.work()
    a.joined(), b.joined()
    assert b.sync() is None
    before = len(world.log)
    too_large = a.sync({b.member_id: b"x" * DECISION_BYTES_MAX})
    assert too_large.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert b.synced().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(world.log) == before
    a.join(), b.join()
    rebalanced(a, b)


def test_a_static_member_that_makes_the_generation_too_large_begins_a_new_one(world: World) -> None:
    a, b = (ClassicConsumer(world, name, instance_id=f"i-{name}") for name in "ab")
    a.join(), b.join()
    world.work()
    a.joined(), b.joined()
    b.sync()
    a.sync({b.member_id: b"x" * HALF})
    b.synced()
    new = ClassicConsumer(world, "b", instance_id="i-b", protocols={"range": b"x" * HALF})
    assert new.join() is None
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    assert a.joined().error_code == new.joined().error_code == 0


def test_reasons_of_clients_are_kept_short(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    for _ in range(1_100):
        b.member_id = ""
        b.join(reason="r" * 10_000)
        b.leave(reason="l" * 10_000)
    assert len(group_of(world).reasons) == 1_000
    assert max(len(reason.detail) for reason in group_of(world).reasons) == 255
    a.join()
    rebalanced(a)
    assert not group_of(world).reasons


def test_evidence_of_timeouts_is_bounded(world: World) -> None:
    """No generation is completed, so nothing is written: the evidence waits for the entry of the next one."""
    a = ClassicConsumer(world, "a")
    a.join(rebalance_timeout_ms=100)
    world.work()
    a.joined()
    for number in range(11):
        for _ in range(100):
            ClassicConsumer(world, "late", version=3, protocols={"range": b""}).join(rebalance_timeout_ms=100)
        a.join(rebalance_timeout_ms=100)
        a.joined()
        a.protocols = {"range": b"%d" % number}
        a.join(rebalance_timeout_ms=100)
        world.sleep(150)
        a.joined()
    assert len(group_of(world).expiries) == 1_000
    assert a.sync({}).error_code == 0
    assert not group_of(world).expiries


def test_unused_member_ids_are_bounded() -> None:
    world = World(limits=Limits(classic_pending_max=2))
    a, b, c = (ClassicConsumer(world, name) for name in "abc")
    a.send_join(), b.send_join(), c.send_join()
    assert list(group_of(world).pending) == [b.member_id, c.member_id]
    assert a.send_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.send_join() is None
    assert not world.shard.groups.classic.is_armed(ClassicTimer.SESSION, "g", a.member_id)


def test_who_is_counted_is_who_is_there(world: World, stable: Make) -> None:
    """The counts that save a look at every member: who waits, who supports what, how much they say."""

    def check() -> None:
        group = group_of(world)
        members = list(group.members.values())
        assert group.num_waiting == sum(member.join is not None for member in members)
        names = [name for member in members for name, _ in member.protocols]
        assert dict(group.support) == {name: names.count(name) for name in names}
        assert group.protocols_bytes == sum(
            len(name) + len(data) for member in members for name, data in member.protocols
        )

    a, b = stable("a", "b")
    s = ClassicConsumer(world, "s", instance_id="s", protocols={"range": b"r", "sticky": b"s"})
    s.join()
    check()
    again = ClassicConsumer(world, "s", instance_id="s", protocols={"sticky": b"ss", "range": b"r"})
    again.join()
    assert s.joined().error_code == ErrorCode.FENCED_INSTANCE_ID
    check()
    b.protocols = {"range": b"new", "other": b""}
    b.join()
    b.join()
    check()
    assert a.leave() == 0
    check()
    rebalanced(b, again)
    check()
    again.leave()
    b.leave()
    check()
    assert group_of(world).state is ClassicState.EMPTY


def test_a_heartbeat_does_not_grow_the_timers(world: World, stable: Make) -> None:
    (a,) = stable("a")
    timers = world.shard.groups.classic._timers[ClassicTimer.SESSION]
    before = timers.heap_size
    for _ in range(100):
        a.heartbeat()
    assert timers.heap_size == before


def test_many_members_are_described_in_several_turns(world: World, stable: Make) -> None:
    stable("a")
    turns = []
    world.between_decisions = lambda: turns.append(1)
    answer = world.handle(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g", "none"] * 300))
    assert [group.group_state for group in answer.groups] == ["Stable", "Dead"] * 300
    assert len(turns) > 1
