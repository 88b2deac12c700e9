"""A classic group with members becomes a consumer group (C.15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.limits import GroupSettings, Limits, MigrationPolicy
from coordinator.migration import preparing
from records import MemberState, ReasonKind, Trigger
from tests.support.classic_member import SESSION_MS
from tests.support.embedded_member import EmbeddedConsumer, Stable, assignment, owned, settled, shared
from tests.support.group_client import Client
from tests.support.world import World
from wire.errors import ErrorCode


def test_the_first_consumer_heartbeat_converts_the_group(world: World, stable: Stable) -> None:
    a, b = stable("a", "b")
    generation = a.generation
    shared(world, a, b)
    c = Client(world, "c")
    answer = c.beat()
    assert answer.error_code == 0
    entry = world.log[-1]
    assert entry.types == [-2, 5, 5, 3, 7, 7, 6, 8, 8, 5, 4, 3, *[7] * entry.types[12:].count(7), 6, 8]
    assert entry.cause.trigger == Trigger.MEMBER_JOINED
    assert [reason.kind for reason in entry.cause.reasons] == [
        ReasonKind.GROUP_UPGRADED, ReasonKind.MEMBER_JOINED,
    ]  # fmt: skip
    group = world.group()
    assert group.epoch == generation + 1
    for one in (a, b):
        member = group.members[one.member_id]
        assert member.is_classic
        assert member.current.epoch == generation
        assert member.current.state is MemberState.STABLE
        assert member.metadata is not None
        assert member.metadata.group_epoch == generation


@pytest.mark.parametrize("cooperative", [False, True])
def test_classic_members_go_on_and_give_their_share(world: World, stable: Stable, cooperative: bool) -> None:
    a, b = stable("a", "b", cooperative=cooperative)
    c = Client(world, "c")
    c.beat()
    assert c.owned == {}
    settled(world, a, b, c)
    shared(world, a, b, c)
    assert a.generation == b.generation == c.epoch == world.group().epoch
    assert not a.lost
    assert not b.lost
    assert world.group().state.value == "Stable"


def test_one_by_one_until_all_speak_the_consumer_protocol(world: World, stable: Stable) -> None:
    classic = stable("a", "b", "c")
    consumers: list[Client] = []
    for number in range(3):
        assert classic.pop().leave() == 0
        consumers.append(Client(world, f"m{number}"))
        settled(world, *classic, *consumers)
        shared(world, *classic, *consumers)
    assert not world.group().num_classic


def test_commits_go_on_through_the_upgrade(world: World, stable: Stable) -> None:
    (a,) = stable("a")
    assert a.commit({("orders", 0): 1}) == {("orders", 0): 0}
    c = Client(world, "c")
    c.beat()
    assert a.commit({("orders", 0): 2}) == {("orders", 0): 0}
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.commit({("orders", 0): 3}) == {("orders", 0): 0}
    before = a.generation
    settled(world, a, c)
    assert a.generation > before
    assert a.commit({("orders", 0): 4}) == {("orders", 0): 0}
    a.generation = before
    assert a.commit({("orders", 0): 5}) == {("orders", 0): 0}, "a has had it since that generation (KIP-1251)"
    assert a.commit({("orders", 5): 5}) == {("orders", 5): ErrorCode.ILLEGAL_GENERATION}
    assert world.fetch()["orders", 0] == 5


def test_the_reasons_of_a_rebalance_under_way_are_those_of_the_upgrade(world: World, stable: Stable) -> None:
    a, b, _ = stable("a", "b", "c")
    a.leave(reason="closing")
    world.sleep(SESSION_MS / 2)
    b.heartbeat()
    world.sleep(SESSION_MS / 2 + 1)
    Client(world, "d").beat()
    cause = world.log[-1].cause
    assert [reason.kind for reason in cause.reasons] == [
        ReasonKind.GROUP_UPGRADED,
        ReasonKind.MEMBER_LEFT,
        ReasonKind.SESSION_EXPIRED,
        ReasonKind.MEMBER_JOINED,
    ]
    assert len(cause.expiries) == 1


def test_waiting_requests_are_told_to_join_again(world: World, stable: Stable) -> None:
    a, b = stable("a", "b")
    b.send_join(protocols=[])
    d = EmbeddedConsumer(world, "d")
    d.protocols = {"range": d.subscription()}
    assert d.join() is None, "waits for the others to join"
    c = Client(world, "c")
    c.beat()
    answer = d.joined()
    assert answer.error_code == ErrorCode.NOT_COORDINATOR, "the only one that no client takes amiss"
    assert answer.member_id == d.member_id
    settled(world, a, b, c, d)
    shared(world, a, b, c, d)


def test_a_waiting_sync_is_told_to_join_again(world: World) -> None:
    a, b = EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b")
    for one in (a, b):
        one.protocols = {"range": one.subscription()}
        assert one.join() is None
    world.work()
    assert a.joined().error_code == 0
    assert b.joined().error_code == 0
    follower = b if a.is_leader else a
    assert follower.sync() is None
    c = Client(world, "c")
    c.beat()
    assert follower.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    settled(world, a, b, c)
    shared(world, a, b, c)


def test_what_a_cooperative_member_still_owns_is_not_given_away(world: World, stable: Stable) -> None:
    """The generation in which it gave its partitions up is not complete: it owns what it told when it
    joined."""
    a, b = stable("a", "b", cooperative=True)
    a.phase = b.phase = "unjoined"
    for one in (a, b):
        one._join_group()
    world.work()
    for one in (a, b):
        one._joined_group(one.joined())
    assert world.shard.groups.classic.get("g").state.value == "CompletingRebalance"  # type: ignore[union-attr]
    EmbeddedConsumer(world, "d", cooperative=True)._join_group()  # the assignments of this generation go
    c = Client(world, "c")
    c.beat()
    assert c.owned == {}, "everything still belongs to a and b"
    settled(world, a, b, c)
    assert not a.lost


def test_a_cooperative_member_whose_assignment_was_lost_keeps_what_it_had(world: World) -> None:
    """The group took the answer to its SyncGroup for received. It joins again, and says what it owns."""
    a, b = (EmbeddedConsumer(world, name, cooperative=True) for name in "ab")

    def generation(of_a: list[tuple[str, int]]) -> None:
        for one in (a, b):
            one.protocols = {"range": one.subscription()}
            one.join()
        world.work()
        for one in (a, b):
            assert one.joined().error_code == 0
        leader = a if a.is_leader else b
        leader.sync({a.member_id: assignment(of_a), b.member_id: assignment([])})
        (b if leader is a else a).sync()

    generation([("orders", 0), ("orders", 1)])
    a.owned = {("orders", 0), ("orders", 1)}
    generation([("orders", 1), ("orders", 2)])  # a does not get the answer
    a.protocols = {"range": a.subscription()}
    assert a.join() is None
    Client(world, "c").beat()
    ((numbers,),) = (epochs.values() for epochs in [world.group().members[a.member_id].current.assigned])
    assert set(numbers) == {0, 1, 2}


def test_the_new_member_takes_the_place_of_a_static_one(world: World) -> None:
    a = EmbeddedConsumer(world, "a", instance_id="i")
    b = EmbeddedConsumer(world, "b")
    settled(world, a, b)
    had = a.owned
    c = Client(world, "c", instance_id="i")
    c.beat()
    group = world.group()
    assert a.member_id not in group.members
    assert group.static_members == {"i": "c"}
    assert world.log[-1].cause.trigger == Trigger.MEMBER_REPLACED
    assert owned(world, c) == [had]
    assert a.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    settled(world, b, c)
    shared(world, b, c)


def test_a_member_may_change_its_protocol_under_its_id(world: World, stable: Stable) -> None:
    a, b = stable("a", "b")
    again = Client(world, a.member_id)
    again.beat()
    assert not world.group().members[a.member_id].is_classic
    settled(world, again, b)
    shared(world, again, b)


def test_a_rebalance_that_all_members_left_does_not_keep_the_group(world: World, stable: Stable) -> None:
    (a,) = stable("a")
    b = EmbeddedConsumer(world, "b")
    b.protocols = {"range": b.subscription()}
    assert b.send_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    a.leave()
    assert world.shard.groups.classic.get("g").state.value == "PreparingRebalance"  # type: ignore[union-attr]
    c = Client(world, "c")
    assert c.beat().error_code == 0
    settled(world, b, c)
    shared(world, b, c)


def test_sessions_are_those_that_the_members_named(world: World, stable: Stable) -> None:
    a, b = stable("a", "b")
    c = Client(world, "c")
    c.beat()
    for _ in range(4):
        world.sleep(3_000)
        c.beat()
        a.poll()
    assert b.member_id not in world.group().members
    assert a.member_id in world.group().members
    settled(world, a, c)
    shared(world, a, c)


# Preparation in turns.


def upgraded_in_turns(
    monkeypatch: pytest.MonkeyPatch, at_once: int, between: Callable[[World, EmbeddedConsumer], object]
) -> tuple[World, list[EmbeddedConsumer], Client]:
    """A group of four that a consumer upgrades after `between`, which comes in the second turn of several."""
    monkeypatch.setattr(preparing, "MEMBERS_AT_ONCE", at_once)
    world = World(limits=Limits(serves_classic=True))
    world.create_topic("orders", 6)
    members = [EmbeddedConsumer(world, name) for name in "abcd"]
    settled(world, *members)
    turns = iter(range(10))

    def turn() -> None:
        if next(turns) == 2:
            between(world, members[1])

    world.between_decisions = turn
    client = Client(world, "m")
    if at_once > len(members):
        between(world, members[1])
    assert client.beat().error_code == 0
    assert (next(turns) > 2) is (at_once < len(members))
    world.between_decisions = lambda: None
    return world, members, client


@pytest.mark.parametrize(
    "between",
    [
        lambda world, b: None,
        lambda world, b: b.heartbeat(),
        lambda world, b: b.leave(),
        lambda world, b: b.join(),
        lambda world, b: world.grow_topic("orders", 8),
        lambda world, b: world.delete_topic("orders"),
    ],
    ids=["nothing", "heartbeat", "leave", "join", "grow", "delete"],
)
def test_an_upgrade_that_is_prepared_in_turns_is_the_same(
    monkeypatch: pytest.MonkeyPatch, between: Callable[[World, EmbeddedConsumer], object]
) -> None:
    """Whatever comes in between: the entry is that of an upgrade in one turn after it."""
    (plain, *_), (world, members, client) = (
        upgraded_in_turns(monkeypatch, at_once, between) for at_once in (100, 1)
    )
    assert [entry.records for entry in world.log] == [entry.records for entry in plain.log]
    assert [entry.cause for entry in world.log] == [entry.cause for entry in plain.log]
    assert world.shard.state_hash == plain.shard.state_hash
    world.renew()
    settled(world, *members, client)


def test_a_group_that_becomes_small_or_gone_while_it_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "MEMBERS_AT_ONCE", 1)
    world = World(limits=Limits(serves_classic=True))
    world.create_topic("orders", 6)
    members = [EmbeddedConsumer(world, name) for name in "abc"]
    settled(world, *members)

    def all_leave() -> None:
        world.between_decisions = lambda: None
        for member in members:
            member.leave()

    world.between_decisions = all_leave
    client = Client(world, "m")
    assert client.beat().error_code == 0
    settled(world, client)
    shared(world, client)


def two_members(world: World) -> tuple[EmbeddedConsumer, EmbeddedConsumer, EmbeddedConsumer]:
    """The members of a classic group that has just been formed, and its leader."""
    a, b = EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b")
    for one in (a, b):
        one.protocols = {"range": one.subscription()}
        assert one.join() is None
    world.work()
    for one in (a, b):
        assert one.joined().error_code == 0
    return a, b, a if a.is_leader else b


def test_an_upgrade_that_is_refused_after_preparation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "MEMBERS_AT_ONCE", 1)
    a, b, leader = two_members(world)
    leader.sync(dict.fromkeys(leader.members, assignment([("orders", 0)])))
    refused(
        world,
        f"its assignor gave partition 0 of topic orders to two members, {a.member_id} and {b.member_id}",
    )
    assert not world.shard.groups.classic.get("g").prepared  # type: ignore[union-attr]


# Refusals.


def refused(world: World, why: str) -> None:
    """Assert that a consumer member is refused for this reason, and nothing is written."""
    before = len(world.log)
    answer = Client(world, "c").beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == f"Cannot upgrade classic group g to consumer group because {why}."
    assert len(world.log) == before
    assert world.notices == [answer.error_message]


@pytest.mark.parametrize("policy", [MigrationPolicy.DOWNGRADE, MigrationPolicy.DISABLED])
def test_the_policy_refuses(policy: MigrationPolicy) -> None:
    world = World(limits=Limits(serves_classic=True, migration_policy=policy))
    world.create_topic("orders", 6)
    settled(world, a := EmbeddedConsumer(world, "a"))
    refused(world, f"group.consumer.migration.policy is {policy}: stop its members first")
    a.leave()
    assert Client(world, "c").beat().error_code == 0, "a group without members always converts"


def test_other_protocol_types_are_refused(world: World) -> None:
    a = EmbeddedConsumer(world, "a")
    a.protocols = {"default": b"x"}
    a.join(protocol_type="connect")
    refused(world, "its members are not consumers: their protocol type is connect")


def test_a_group_that_is_too_large_is_refused() -> None:
    world = World(GroupSettings(max_size=1), Limits(serves_classic=True))
    world.create_topic("orders", 6)
    settled(world, EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b"))
    refused(world, "its 2 members are more than group.consumer.max.size, 1")


def test_a_group_without_room_for_the_new_member_is_refused() -> None:
    world = World(GroupSettings(max_size=2), Limits(serves_classic=True))
    world.create_topic("orders", 6)
    settled(world, EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b"))
    before = len(world.log)
    assert Client(world, "c").beat().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(world.log) == before


def synced_with(world: World, data: bytes) -> EmbeddedConsumer:
    a = EmbeddedConsumer(world, "a")
    a.protocols = {"range": a.subscription()}
    assert a.join() is None
    world.work()
    assert a.joined().error_code == 0
    assert a.sync({a.member_id: data}).error_code == 0
    return a


def test_user_data_of_an_assignor_is_not_lost(world: World) -> None:
    a = synced_with(world, assignment([("orders", 0)], b"mine"))
    refused(
        world,
        f"its assignor sent data of its own to member {a.member_id}, which would be lost: change the members "
        "to an assignor that does not",
    )


def test_an_assignment_that_cannot_be_read_is_refused(world: World) -> None:
    a = synced_with(world, b"\x00\x01\x00")
    answer = Client(world, "c").beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert f"the assignment of member {a.member_id} cannot be read" in (answer.error_message or "")


def test_a_subscription_that_cannot_be_read_is_refused(world: World) -> None:
    a = EmbeddedConsumer(world, "a")
    a.protocols = {"range": b"?"}
    assert a.join() is None
    answer = Client(world, "c").beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert f"the subscription of member {a.member_id} cannot be read" in (answer.error_message or "")


def test_partitions_that_two_members_share_are_refused(world: World) -> None:
    a, b, leader = two_members(world)
    everything = assignment([("orders", number) for number in range(6)])
    leader.sync(dict.fromkeys(leader.members, everything))
    refused(
        world,
        f"its assignor gave partition 0 of topic orders to two members, {a.member_id} and {b.member_id}",
    )


def test_partitions_of_unknown_topics_are_dropped(world: World) -> None:
    a = synced_with(world, assignment([("orders", 0), ("orders", 99), ("gone", 1)]))
    Client(world, "c").beat()
    (assigned,) = world.group().members[a.member_id].current.assigned.values()
    assert set(assigned) == {0}
