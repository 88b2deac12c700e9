"""A consumer group becomes a classic group again (C.15)."""

from __future__ import annotations

import pytest

from coordinator.limits import Limits, MigrationPolicy
from records import ReasonKind, Trigger
from tests.support.embedded_member import EmbeddedConsumer, Stable, owned, settled, shared
from tests.support.group_client import Client
from tests.support.world import World
from wire.errors import ErrorCode


def mixed(world: World, *client_ids: str, **changes: object) -> tuple[list[EmbeddedConsumer], Client]:
    """A settled group of classic members with these client ids and one member of the consumer protocol."""
    classic = [EmbeddedConsumer(world, client_id, **changes) for client_id in client_ids]  # type: ignore[arg-type]
    settled(world, *classic)
    consumer = Client(world, "c")
    settled(world, *classic, consumer)
    shared(world, *classic, consumer)
    return classic, consumer


@pytest.mark.parametrize("cooperative", [False, True])
def test_the_last_consumer_member_leaves(world: World, cooperative: bool) -> None:
    classic, c = mixed(world, "a", "b", cooperative=cooperative)
    epoch = world.group().epoch
    c.leave()
    entry = world.log[-1]
    assert entry.types == [*[-8] * 3, *[-7] * 3, -6, *[-5] * 3, -4, -3, 2]
    assert entry.cause.trigger == Trigger.MEMBER_LEFT
    assert [reason.kind for reason in entry.cause.reasons] == [
        ReasonKind.MEMBER_LEFT, ReasonKind.GROUP_DOWNGRADED,
    ]  # fmt: skip
    group = world.group()
    assert not group.is_consumer
    assert group.classic is not None
    assert group.classic.generation == epoch
    assert [one.heartbeat() for one in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settled(world, *classic)
    shared(world, *classic)
    assert {one.generation for one in classic} == {world.group().classic.generation}  # type: ignore[union-attr]
    assert not any(one.lost for one in classic)


def test_the_last_consumer_member_expires(world: World) -> None:
    (a,), _ = mixed(world, "a")
    for _ in range(16):
        world.sleep(3_000)
        a.poll()
    kinds = [reason.kind for entry in world.log for reason in entry.cause.reasons]
    assert kinds.count(ReasonKind.GROUP_DOWNGRADED) >= 1
    settled(world, a)
    shared(world, a)


def test_after_a_failover_the_group_still_prepares_a_rebalance(world: World) -> None:
    classic, c = mixed(world, "a", "b")
    c.leave()
    world.failover()
    assert [one.heartbeat() for one in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settled(world, *classic)
    shared(world, *classic)


def test_members_that_do_not_come_back_are_removed(world: World) -> None:
    (a, b), c = mixed(world, "a", "b")
    c.leave()
    a.poll()
    world.sleep(70_000)
    settled(world, a)
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_the_policy_keeps_a_consumer_group(policy: MigrationPolicy) -> None:
    world = World(limits=Limits(serves_classic=True, migration_policy=policy))
    world.create_topic("orders", 6)
    (a, b), c = mixed(world, "a", "b")
    c.leave()
    assert world.group().is_consumer
    settled(world, a, b)
    shared(world, a, b)
    a.leave()
    b.leave()
    assert world.group().is_consumer
    d = EmbeddedConsumer(world, "d")
    settled(world, d)
    assert not world.group().is_consumer, "a group without members always converts"


def test_a_group_too_large_for_the_classic_protocol_stays() -> None:
    world = World(limits=Limits(serves_classic=True, classic_group_size_max=2))
    world.create_topic("orders", 6)
    (a, b), c = mixed(world, "a", "b")
    d = EmbeddedConsumer(world, "d")
    settled(world, a, b, c, d)
    c.leave()
    assert world.group().is_consumer
    settled(world, a, b, d)
    shared(world, a, b, d)


# Static members.


def test_a_classic_process_takes_the_place_of_the_last_consumer_member(world: World) -> None:
    """KAFKA-17317: nobody leaves, and yet no member speaks the consumer protocol any more."""
    a = EmbeddedConsumer(world, "a")
    settled(world, a)
    c = Client(world, "c", instance_id="i")
    settled(world, a, c)
    b = EmbeddedConsumer(world, "b", instance_id="i")
    b.poll()
    group = world.group()
    assert not group.is_consumer, "all members speak the classic protocol now"
    assert b.phase == "stable", "the group goes on as it was: nobody has to join again"
    assert owned(world, b) == owned(world, c)
    assert a.heartbeat() == 0
    shared(world, a, b)
    assert c.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    entry = world.log[-1]
    assert [reason.kind for reason in entry.cause.reasons] == [ReasonKind.GROUP_DOWNGRADED]
    world.failover()
    assert [one.heartbeat() for one in (a, b)] == [0, 0], "nor after a failover"


def test_a_classic_process_with_other_topics_takes_the_place(world: World) -> None:
    """KAFKA-19546: the new subscription has to be assigned."""
    world.create_topic("payments", 2)
    a = EmbeddedConsumer(world, "a")
    settled(world, a)
    c = Client(world, "c", instance_id="i")
    settled(world, a, c)
    b = EmbeddedConsumer(world, "b", ["orders", "payments"], instance_id="i")
    b.poll()
    assert not world.group().is_consumer
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "it may still commit"
    settled(world, b, a)
    assert not a.lost
    everything = {("orders", number) for number in range(6)} | {("payments", 0), ("payments", 1)}
    assert a.owned | b.owned == everything
    assert not a.owned & b.owned


def test_a_classic_process_takes_the_place_of_a_subscriber_by_expression(world: World) -> None:
    a = EmbeddedConsumer(world, "a")
    settled(world, a)
    c = Client(world, "c", (), regex="ord.*", instance_id="i")
    settled(world, a, c)
    shared(world, a, c)
    assert world.group().regexes
    b = EmbeddedConsumer(world, "b", instance_id="i")
    settled(world, b, a)
    assert not world.group().is_consumer
    assert not world.group().regexes
    shared(world, a, b)


def test_a_stale_target_is_not_kept(world: World) -> None:
    """KAFKA-20273: a member that has not reached its target would lose partitions to nobody."""
    a, b = EmbeddedConsumer(world, "a"), EmbeddedConsumer(world, "b")
    settled(world, a, b)
    c = Client(world, "c", instance_id="i")
    c.beat()  # a and b have not given anything up yet
    d = EmbeddedConsumer(world, "d", instance_id="i")
    d.poll()
    assert not world.group().is_consumer
    assert not (d.owned & (a.owned | b.owned)), "what others own is not given away"
    settled(world, a, b, d)
    shared(world, a, b, d)


def test_static_members_of_both_kinds_replace_each_other(world: World) -> None:
    a = EmbeddedConsumer(world, "a")
    settled(world, a)
    processes = [
        Client(world, "c1", instance_id="i"),
        EmbeddedConsumer(world, "c2", instance_id="i"),
        Client(world, "c3", instance_id="i"),
        EmbeddedConsumer(world, "c4", instance_id="i"),
    ]
    for process in processes:
        settled(world, process, a, rounds=6)
        shared(world, a, process)
        assert world.group().is_consumer == isinstance(process, Client)


def test_a_consumer_static_member_is_replaced_while_it_is_present(world: World, stable: Stable) -> None:
    """KAFKA-17228: two processes of different protocols with one instance id: the newer one has it."""
    a, b = stable("a", "b")
    c = Client(world, "c", instance_id="i")
    e = Client(world, "e")
    settled(world, a, b, c, e)
    d = EmbeddedConsumer(world, "d", instance_id="i")
    settled(world, d, a, b, e)
    assert world.group().static_members == {"i": d.member_id}
    assert world.group().is_consumer, "e speaks the consumer protocol"
    assert c.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    shared(world, a, b, d, e)


def test_a_refused_join_does_not_touch_a_consumer_group_that_all_members_have_left(world: World) -> None:
    """Kafka 4.3.0 forgets the group, in memory only."""
    consumer = Client(world, "c")
    settled(world, consumer)
    consumer.leave()
    epoch, end = world.group().epoch, len(world.log)
    stranger = EmbeddedConsumer(world, "a")
    assert stranger.send_join(member_id="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log) == end
    assert (world.group().epoch, world.group().is_consumer) == (epoch, True)
