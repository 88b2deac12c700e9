"""D.2–D.4: members join, the leader assigns, and whoever comes, changes or goes begins a new generation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.limits import Limits
from coordinator.shard import Counts
from coordinator.state.machines import ClassicState
from records import Arrival, Expiry, Phases, ReasonKind, Trigger
from tests.support.classic_member import REBALANCE_MS, SESSION_MS, ClassicConsumer, rebalanced
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.list_groups import ListGroupsRequest

Make = Callable[..., list[ClassicConsumer]]


def state(world: World, group_id: str = "g") -> ClassicState:
    group = world.shard.groups.classic.get(group_id)
    assert group is not None
    return group.state


def test_a_new_member_is_given_its_id_first(world: World) -> None:
    a = ClassicConsumer(world, "a")
    first = a.send_join()
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert a.member_id.startswith("a-")
    assert world.log[-1].types == [2], "the empty group"
    assert a.send_join() is None


def test_older_clients_join_without_an_id(world: World) -> None:
    a = ClassicConsumer(world, "a", version=3)
    assert a.send_join() is None
    world.work()
    assert a.joined().error_code == 0
    assert a.member_id.startswith("a-")


def test_the_first_generation_is_written_with_the_leaders_assignments(world: World) -> None:
    a, b = ClassicConsumer(world, "a"), ClassicConsumer(world, "b")
    a.join(reason="starting")
    b.join()
    assert state(world) is ClassicState.PREPARING_REBALANCE
    before = len(world.log)
    world.work()
    assert len(world.log) == before, "a generation without assignments is not written"
    assert a.joined().members
    assert not b.joined().members
    assert (a.generation, b.generation) == (1, 1)
    assert a.is_leader
    assert b.leader == a.member_id
    assert b.sync() is None
    assert a.heartbeat() == b.heartbeat() == 0
    given = {a.member_id: b"0-2", b.member_id: b"3-5"}
    assert a.sync(given).assignment == b"0-2"
    assert b.synced().assignment == b"3-5"
    (entry,) = world.log[before:]
    assert entry.types == [2]
    assert entry.cause.trigger == Trigger.GENERATION_COMPLETED
    assert [(reason.kind, reason.member_id, reason.detail) for reason in entry.cause.reasons] == [
        (ReasonKind.MEMBER_JOINED, a.member_id, "starting"),
        (ReasonKind.MEMBER_JOINED, b.member_id, ""),
    ]
    (value,) = [record.value for record in entry.typed()]
    assert (value.generation, value.leader, value.protocol) == (1, a.member_id, "range")
    assert {member.member_id: member.assignment for member in value.members} == given


def test_the_initial_delay_is_extended_while_members_come() -> None:
    world = World(limits=Limits(classic_initial_delay_ms=3_000))
    a, b, c = (ClassicConsumer(world, name) for name in "abc")
    a.join()
    world.sleep(2_900)
    b.join()
    world.sleep(200)
    assert a.joined() is None, "b came, so three more seconds"
    world.sleep(2_000)
    c.join()
    world.sleep(900)
    assert a.joined() is None
    world.sleep(3_000)
    rebalanced(a, b, c)


def test_the_initial_delay_ends_with_the_longest_rebalance_timeout() -> None:
    world = World(limits=Limits(classic_initial_delay_ms=3_000))
    first = ClassicConsumer(world, "first")
    first.join(rebalance_timeout_ms=7_000)
    for number in range(7):
        world.sleep(999)
        ClassicConsumer(world, f"m{number}").join(rebalance_timeout_ms=7_000)
    world.sleep(7)
    assert first.joined().error_code == 0


def test_without_a_delay_a_client_that_comes_alone_does_not_wait(world: World) -> None:
    alone = ClassicConsumer(world, "alone")
    alone.join()
    world.work()
    assert alone.joined().error_code == 0


def test_without_a_delay_the_first_of_several_clients_waits_for_the_others(world: World) -> None:
    a, b, c = (ClassicConsumer(world, name, is_one_of_several=True) for name in "abc")
    a.join()
    world.sleep(90)
    b.join()
    world.sleep(90)
    assert a.joined() is None, "b came, so as long again"
    c.join()
    world.sleep(90)
    assert a.joined() is None
    world.sleep(100)
    rebalanced(a, b, c)
    assert {one.generation for one in (a, b, c)} == {1}


def test_a_delay_that_is_set_is_the_same_for_several_clients() -> None:
    world = World(limits=Limits(classic_initial_delay_ms=30))
    a = ClassicConsumer(world, "a", is_one_of_several=True)
    a.join()
    world.sleep(60)
    assert a.joined().error_code == 0


def test_a_member_that_comes_later_lets_the_others_join_again(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    c = ClassicConsumer(world, "c")
    assert c.join() is None
    assert a.heartbeat() == b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.join() is None
    assert c.joined() is None
    assert b.join() is None, "the last one completes the join phase"
    rebalanced(a, b, c)
    assert {one.generation for one in (a, b, c)} == {2}
    assert a.is_leader, "the leader stays"


def test_a_member_that_does_not_join_again_in_time_is_removed(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    c = ClassicConsumer(world, "c")
    c.join()
    b.join()
    for _ in range(10):  # the late one goes on with heartbeats
        world.sleep(REBALANCE_MS / 10)
        assert a.heartbeat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
    rebalanced(b, c)
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert (ReasonKind.JOIN_TIMED_OUT, a.member_id) in [
        (reason.kind, reason.member_id) for reason in world.log[-1].cause.reasons
    ]


def test_a_member_that_does_not_sync_in_time_is_removed(world: World) -> None:
    a, b = ClassicConsumer(world, "a"), ClassicConsumer(world, "b")
    a.join()
    b.join()
    world.work()
    a.joined(), b.joined()
    assert a.sync({a.member_id: b"all"}).assignment == b"all"
    for _ in range(10):
        world.sleep(REBALANCE_MS / 10)
        a.heartbeat(), b.heartbeat()
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    a.join()
    rebalanced(a)
    assert world.log[-1].cause.reasons[0].kind == ReasonKind.SYNC_TIMED_OUT


def test_a_leader_that_dies_between_join_and_sync_is_replaced(world: World) -> None:
    a, b = ClassicConsumer(world, "a"), ClassicConsumer(world, "b")
    a.join()
    b.join()
    world.work()
    a.joined(), b.joined()
    assert b.sync() is None
    world.sleep(SESSION_MS + 1)
    assert b.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    b.join()
    rebalanced(b)
    assert b.is_leader
    assert [reason.kind for reason in world.log[-1].cause.reasons][-1] == ReasonKind.SESSION_EXPIRED


def test_a_session_that_ends_begins_a_generation(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    for _ in range(3):
        world.sleep(SESSION_MS / 2)
        a.heartbeat()
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    rebalanced(a)
    assert world.log[-1].cause.reasons[0].kind == ReasonKind.SESSION_EXPIRED
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_generation_that_is_written(world: World, stable: Make) -> None:
    (a,) = stable("a")
    assert a.leave(reason="closing") == 0
    assert state(world) is ClassicState.EMPTY
    (value,) = [record.value for record in world.log[-1].typed()]
    assert (value.generation, value.members, value.protocol) == (2, (), None)
    assert world.log[-1].cause.reasons[0].detail == "closing"


def test_a_follower_with_unchanged_metadata_is_answered_at_once(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    answer = b.join()
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 1, [])
    assert b.sync().assignment == b"for b"
    assert a.join(reason="topics changed") is None, "a leader that joins again wants a new generation"
    b.join()
    rebalanced(a, b)
    (reason,) = world.log[-1].cause.reasons
    assert (reason.kind, reason.detail) == (ReasonKind.LEADER_REJOINED, "topics changed")


def test_changed_metadata_begins_a_generation(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    b.protocols = {"range": b"other topics"}
    assert b.join(reason="subscription changed") is None
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    rebalanced(a, b)
    assert (world.log[-1].cause.reasons[0].kind, world.log[-1].cause.reasons[0].detail) == (
        ReasonKind.SUBSCRIPTION_CHANGED,
        "subscription changed",
    )


def test_a_lost_reply_to_a_join_is_given_again(world: World) -> None:
    a, b = ClassicConsumer(world, "a"), ClassicConsumer(world, "b")
    a.join()
    b.join()
    world.work()
    a.joined()  # b's reply is lost
    answer = b.join()
    assert (answer.error_code, answer.generation_id) == (0, 1)
    again = a.join()
    assert set(a.members) == {a.member_id, b.member_id}
    assert again.generation_id == 1


def test_the_protocol_with_most_votes_wins(world: World) -> None:
    wants = {"a": ("range", "sticky"), "b": ("sticky", "range"), "c": ("sticky", "uniform", "range")}
    members = [
        ClassicConsumer(world, name, protocols={one: f"{name} {one}".encode() for one in protocols})
        for name, protocols in wants.items()
    ]
    for member in members:
        member.join()
    world.work()
    leader = members[0]
    assert leader.joined().protocol_name == "sticky"
    assert leader.members[leader.member_id] == b"a sticky"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_invalid_joins_are_refused_and_change_nothing(
    world: World, stable: Make, changes: dict[str, object], code: ErrorCode
) -> None:
    (a,) = stable("a")
    before = len(world.log)
    assert ClassicConsumer(world, "b").send_join(**changes).error_code == code
    assert len(world.log) == before
    assert a.heartbeat() == 0


def test_a_group_of_the_maximum_size_refuses_more() -> None:
    world = World(limits=Limits(classic_group_size_max=2))
    a, b, c = (ClassicConsumer(world, name) for name in "abc")
    a.join()
    b.join()
    assert c.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.work()
    rebalanced(a, b)
    assert c.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_id_that_is_not_used_is_forgotten(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    b.send_join()
    c = ClassicConsumer(world, "c")
    c.join()
    a.join()
    assert a.joined() is None, "the member id that was given to b is waited for"
    world.sleep(SESSION_MS)
    rebalanced(a, c)
    assert b.send_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "nothing"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_syncs_and_heartbeats_of_others_are_refused(
    world: World, stable: Make, changes: dict[str, object], code: ErrorCode
) -> None:
    (a,) = stable("a")
    assert a.heartbeat(**changes) == code
    assert a.sync(**changes).error_code == code


def test_a_sync_with_another_protocol_is_refused(world: World, stable: Make) -> None:
    (a,) = stable("a")
    assert a.sync(protocol_name="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_type="consumer", protocol_name="range").error_code == 0


def test_commits_are_fenced_by_generation(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    orders = {("orders", 0): 5}
    assert a.commit(orders) == {("orders", 0): 0}
    b.protocols = {"range": b"x"}
    b.join()
    assert a.commit(orders) == {("orders", 0): 0}, "before it joins again, a may commit what it did"
    a.join()
    a.joined(), b.joined()
    assert a.commit(orders) == {("orders", 0): ErrorCode.REBALANCE_IN_PROGRESS}
    a.generation = 1
    assert a.commit(orders) == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}
    a.member_id = "nobody"
    assert a.commit(orders) == {("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_new_leader_goes_on_from_the_generation_that_was_written(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    c = ClassicConsumer(world, "c")
    c.join()
    a.join()
    b.join()
    world.failover()
    assert state(world) is ClassicState.STABLE
    assert a.heartbeat(generation_id=1) == b.heartbeat(generation_id=1) == 0
    assert c.send_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    c.member_id = ""
    assert c.join() is None
    assert a.heartbeat(generation_id=1) == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    b.join()
    rebalanced(a, b, c)
    assert a.generation == 2


def counts_of(world: World) -> Counts:
    counting = world.shard.counting()
    while True:
        try:
            next(counting)
        except StopIteration as end:
            return end.value


def test_groups_that_form_are_listed_and_counted(world: World, stable: Make) -> None:
    a, _ = stable("a", "b")
    c = ClassicConsumer(world, "c", group_id="forming")
    c.join(protocol_type="connect")
    listed = world.handle(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
    assert {(one.group_id, one.protocol_type, one.group_state) for one in listed} == {
        ("g", "consumer", "Stable"),
        ("forming", "connect", "PreparingRebalance"),
    }
    assert counts_of(world).members == 3
    assert a.heartbeat() == 0


def test_a_generation_tells_how_long_its_phases_took_and_who_was_waited_for(
    world: World, stable: Make
) -> None:
    a, b = stable("a", "b")
    assert world.log[-1].cause.phases is not None
    assert world.log[-1].cause.phases.waited_for == (), "the initial delay was waited for, and nobody else"
    c = ClassicConsumer(world, "c")
    c.join()
    began_ms = world.ctx().wall_ms
    world.sleep(1_000)
    a.join()
    world.sleep(2_000)
    b.join()
    for one in (a, b, c):
        one.joined()
    world.sleep(500)
    a.sync({one.member_id: b"some" for one in (a, b, c)})
    arrivals = (Arrival(b.member_id, began_ms + 3_000), Arrival(a.member_id, began_ms + 1_000))
    assert world.log[-1].cause.phases == Phases(began_ms, began_ms + 3_000, arrivals)


def test_a_timeout_is_told_with_its_evidence(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    armed_ms = world.ctx().wall_ms
    world.sleep(SESSION_MS / 2)
    a.heartbeat()
    world.sleep(SESSION_MS / 2)
    a.join()
    rebalanced(a)
    (expiry,) = world.log[-1].cause.expiries
    assert expiry == Expiry(b.member_id, SESSION_MS, armed_ms, armed_ms, armed_ms + SESSION_MS)
    phases = world.log[-1].cause.phases
    assert phases is not None
    assert phases.began_ms == expiry.deadline_ms


def test_who_does_not_join_again_is_told_with_the_time_it_had(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    c = ClassicConsumer(world, "c")
    c.join()
    b.join()
    armed_ms = world.ctx().wall_ms
    for _ in range(10):
        world.sleep(REBALANCE_MS / 10)
        a.heartbeat()
    rebalanced(b, c)
    (expiry,) = world.log[-1].cause.expiries
    assert expiry == Expiry(a.member_id, REBALANCE_MS, armed_ms, -1, armed_ms + REBALANCE_MS)
