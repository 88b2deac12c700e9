"""C.6 What bumps the group epoch, and what only rewrites record 5."""

from __future__ import annotations

from typing import Any

import pytest

from records import METADATA_SHARD, ReasonKind, Ref, Trigger
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, Entry, World

ORDERS = FIRST_TOPIC


def kinds(entry: Entry) -> list[ReasonKind]:
    return [ReasonKind(reason.kind) for reason in entry.cause.reasons]


def test_a_new_member(world: World) -> None:
    """Bumps: new member. The cause names it."""
    world.join("a")
    world.join("b")
    assert world.group().epoch == 2
    entry = world.log[-1]
    assert (entry.cause.trigger, kinds(entry)) == (Trigger.MEMBER_JOINED, [ReasonKind.MEMBER_JOINED])
    assert (entry.cause.member_id, entry.cause.member_epoch) == ("b", 0)
    assert entry.cause.reasons[0].member_id == "b"


def test_another_subscription(world: World) -> None:
    """Bumps: the set of subscribed names changed."""
    world.join("a")
    world.heartbeat("a", 1, subscribed_topic_names=["orders", "nowhere"])
    assert world.group().epoch == 2
    assert (world.log[-1].cause.trigger, kinds(world.log[-1])) == (
        Trigger.MEMBER_UPDATED,
        [ReasonKind.SUBSCRIPTION_CHANGED],
    )


def test_the_same_subscription_in_another_order_is_the_same(world: World) -> None:
    """The *set* of names counts."""
    world.join("a", topics=["orders", "b", "a"])
    entries = len(world.log)
    world.heartbeat("a", 1, subscribed_topic_names=["a", "orders", "a", "b"])
    assert len(world.log) == entries


def test_leaving(world: World) -> None:
    """Bumps: leave. ~8 ~7 ~5, 3, and the target of those who stay at once."""
    world.join("a")
    world.join("b")
    world.heartbeat("a", -1)
    assert world.group().epoch == 3
    assert (world.log[-1].cause.trigger, kinds(world.log[-1])) == (
        Trigger.MEMBER_LEFT,
        [ReasonKind.MEMBER_LEFT],
    )
    assert world.log[-1].types == [-8, -7, -5, 3, 7, 6]


def test_the_last_leave_leaves_equal_epochs(world: World) -> None:
    """KAFKA-20442: when the group becomes empty its target epoch follows, and its topics are none."""
    world.join("a")
    world.heartbeat("a", -1)
    assert world.log[-1].types == [-8, -7, -5, 4, 3, 6]
    group = world.group()
    assert (group.epoch, group.assignment_epoch, group.topics) == (2, 2, ())


def test_the_preferred_assignor(world: World) -> None:
    """Bumps: the effective preferred assignor changed (KAFKA-20434)."""
    world.join("a")
    world.heartbeat("a", 1, server_assignor="range")
    assert world.group().epoch == 2
    assert kinds(world.log[-1]) == [ReasonKind.ASSIGNOR_CHANGED]
    assert world.log[-1].cause.reasons[0].detail == "uniform to range"


def test_a_minority_vote(world: World) -> None:
    """Does not bump: a minority vote change."""
    for member_id in "abc":
        world.join(member_id, server_assignor="uniform")
    epoch = world.group().epoch
    world.heartbeat("a", 1, server_assignor="range")
    assert world.group().epoch == epoch
    assert world.log[-1].types[0] == 5


@pytest.mark.parametrize("change", [{"rack_id": "r"}, {"rebalance_timeout_ms": 7}])
def test_what_only_rewrites_record_5(world: World, change: dict[str, Any]) -> None:
    """Does not bump: rack id, rebalance timeout."""
    world.join("a")
    world.heartbeat("a", 1, **change)
    assert world.group().epoch == 1
    assert world.log[-1].types == [5]
    assert (world.log[-1].cause.trigger, world.log[-1].cause.reasons) == (Trigger.MEMBER_UPDATED, ())


def test_another_client_id_or_host(world: World) -> None:
    """Does not bump: client id and host."""
    from wire.apis import ApiKey
    from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    world.join("a")
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    world.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, client_host="/10.0.0.9")
    assert (world.group().epoch, world.log[-1].types) == (1, [5])


def test_progress_and_acks(world: World) -> None:
    """Does not bump: reconcile progress, acks. An ack's cause says what was owned."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    settle([a, b])
    assert world.group().epoch == 2
    ack = next(entry for entry in world.log if entry.cause.trigger == Trigger.MEMBER_ACKED)
    assert ack.cause.owned is not None
    assert len(ack.cause.owned[0].partitions) == 6
    assert ack.cause.reasons == ()


def test_several_reasons_bump_the_epoch_once(world: World) -> None:
    """One heartbeat bumps by at most 1; every reason is in the cause, with the catalog change it answers."""
    world.join("a")
    world.grow_topic("orders", 14)
    world.heartbeat("a", 1, subscribed_topic_names=["orders", "more"], server_assignor="range")
    assert world.group().epoch == 2
    entry = world.log[-1]
    assert set(kinds(entry)) == {
        ReasonKind.SUBSCRIPTION_CHANGED,
        ReasonKind.TOPIC_GROWN,
        ReasonKind.ASSIGNOR_CHANGED,
    }
    assert entry.cause.refs == (Ref(shard=METADATA_SHARD, index=2),)
    assert entry.types == [5, 4, 3, 7, 6, 8]


def test_a_report_that_still_has_what_is_pending_is_no_ack(world: World) -> None:
    """The trigger says what happened: a full heartbeat of a member that has not given up anything yet."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    assert world.group().members["a"].current.pending
    a.forget()
    world.grow_topic("orders", 14)
    a.beat(acknowledge=False)
    entry = world.log[-1]
    assert kinds(entry) == [ReasonKind.TOPIC_GROWN]
    assert (entry.cause.trigger, entry.cause.owned) == (Trigger.HEARTBEAT, None)
