"""C.13 Session and rebalance timers."""

from __future__ import annotations

import pytest

from coordinator.api import DecisionBuilder
from coordinator.limits import Limits
from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    Expiry,
    ReasonKind,
    Record,
    TopicPartitions,
    Trigger,
    encode_record,
)
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, WALL_START_MS, Entry, World
from wire.errors import ErrorCode


def test_a_silent_member_is_removed_at_its_timeout_and_not_before(world: World) -> None:
    """Session: expiry → tombstones, bump; the client learns by UNKNOWN_MEMBER_ID 25."""
    world.join("a")
    world.join("b")
    world.sleep(30_000)
    world.heartbeat("b", 2)
    assert world.sleep(14_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.trigger == Trigger.SESSION_EXPIRED
    assert entry.types == [-8, -7, -5, 3, 7, 6]
    assert world.heartbeat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_expiry_carries_its_evidence(world: World) -> None:
    """An expiry carries timeout, when it was armed, the last heartbeat and the deadline, as wall times."""
    world.join("a")
    world.sleep(5_000)
    world.heartbeat("a", 1)
    (entry,) = world.sleep(45_000)
    last = WALL_START_MS + 6_000
    assert entry.cause.expiries == (Expiry("a", 45_000, last, last, last + 45_000),)


def test_expiries_of_one_group_are_one_decision(world: World) -> None:
    """Expiries of one group in one turn are one decision: one bump, every member a reason."""
    for member_id in "abc":
        world.join(member_id)
    epoch = world.group().epoch
    (entry,) = world.sleep(45_000)
    assert [reason.member_id for reason in entry.cause.reasons] == ["a", "b", "c"]
    assert world.group().epoch == epoch + 1
    assert entry.types == [-8, -7, -5, -8, -7, -5, -8, -7, -5, 4, 3, 6]


def test_a_member_that_does_not_ack_is_removed(world: World) -> None:
    """Rebalance: armed when the current assignment is written in UNREVOKED; delay = the member's own."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    for _ in range(3):
        world.sleep(3_000)
        a.beat(acknowledge=False)
        b.beat()
    assert world.sleep(999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.trigger == Trigger.REBALANCE_EXPIRED
    assert entry.cause.expiries[0].timeout_ms == 10_000
    b.beat()
    assert len(b.partitions(FIRST_TOPIC)) == 12


def test_an_ack_one_tick_before_keeps_the_member(world: World) -> None:
    """Cancelled when the member leaves UNREVOKED."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.sleep(9_999)
    a.beat()
    assert world.sleep(10_000) == []
    assert set(world.group().members) == {"a", "b"}


def test_a_heartbeat_that_comes_with_the_deadline_wins(world: World) -> None:
    """Timers re-check their condition when they fire: collected, then heard from, is not expired."""
    world.join("a")
    world.join("b", group_id="h")
    world.now_ms += 45_000
    world.shard.groups.collect_expired(world.now_ms)
    world.heartbeat("a", 1)
    entries = world.work()
    assert [entry.typed()[0].key.group_id for entry in entries] == ["h"]
    assert "a" in world.group().members
    assert world.sleep(44_999) == []
    assert len(world.sleep(1)) == 1


def test_after_a_failover_sessions_start_in_full(world: World) -> None:
    """At Ready: sessions restarted in full for every member; the last heartbeat is not known then."""
    world.join("a")
    world.sleep(44_000)
    world.failover()
    assert world.sleep(44_999) == []
    (entry,) = world.sleep(1)
    assert entry.cause.expiries[0].last_heartbeat_ms == -1


def test_after_a_failover_a_revoking_member_has_its_full_rebalance_timeout(world: World) -> None:
    """At Ready: rebalance timers for those revoking."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.sleep(9_000)
    world.failover()
    assert world.sleep(9_999) == []
    assert [entry.cause.trigger for entry in world.sleep(1)] == [Trigger.REBALANCE_EXPIRED]


def test_a_pause_of_the_node_fences_no_member(world: World) -> None:
    """A loop gap moves every deadline by that gap."""
    a, b = Client(world, "a", rebalance_timeout_ms=10_000), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.now_ms += 60_000
    world.shard.shift_deadlines(60_000)
    assert world.work() == []
    settle([a, b])
    assert world.group().state.value == "Stable"


def test_a_new_session_timeout_holds_from_the_next_heartbeat(world: World) -> None:
    """Dynamic config change takes effect at the next heartbeat."""
    world.join("a")
    world.configure(session_timeout_ms=3_000)
    assert world.sleep(3_000) == []
    world.heartbeat("a", 1)
    assert world.sleep(2_999) == []
    assert len(world.sleep(1)) == 1


def test_a_deposed_leader_fires_nothing(world: World) -> None:
    """Timers are volatile: after the leadership is lost there is nothing due."""
    world.join("a")
    world.shard.on_deposed()
    assert world.shard.next_deadline_ms() is None
    assert world.shard.next_work(world.ctx(monotonic_ms=1e9)) is None


def test_a_heartbeat_does_not_stand_for_an_ack(world: World) -> None:
    """Session and rebalance timeout end in one turn; a heartbeat comes before that, and no ack."""
    a = Client(world, "a", rebalance_timeout_ms=45_000)
    a.beat()
    Client(world, "b", group_id="a-group-before").beat()
    Client(world, "b").beat()
    a.beat()
    assert world.group().members["a"].current.state.name == "UNREVOKED_PARTITIONS"
    world.now_ms += 45_000
    world.shard.groups.collect_expired(world.now_ms)
    a.beat(acknowledge=False)
    reasons = [reason.kind for entry in world.work() for reason in entry.cause.reasons]
    assert ReasonKind.REBALANCE_EXPIRED in reasons
    assert "a" not in world.group().members


def test_a_great_many_expiries_are_several_decisions() -> None:
    """Neither the loop nor an entry can take ten thousand removals at once; none is forgotten."""
    world = World(limits=Limits(expiries_max=4))
    world.create_topic("orders", 4)
    for number in range(10):
        world.join(f"m{number}")
    entries = world.sleep(45_000)
    assert [len(entry.cause.expiries) for entry in entries if entry.cause.expiries] == [4, 4, 2]
    assert world.group().num_members == 0
    assert world.group().state.value == "Empty"


def test_reasons_cost_the_same_however_many_there_are() -> None:
    """An expiry of thousands of members must not compare each reason with all others."""
    comparisons = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__eq__(self, other)

    builder = DecisionBuilder()
    for number in range(100):
        builder.because(ReasonKind.SESSION_EXPIRED, member_id=Counted(number))
    builder.because(ReasonKind.SESSION_EXPIRED, member_id=Counted(0))
    assert len(builder.reasons) == 100
    assert comparisons < 100


def test_half_a_member_of_a_damaged_log_goes_with_its_session(world: World) -> None:
    """8 without 5: nobody can heartbeat for it, and what it owns would be blocked for ever."""
    a = Client(world, "a")
    a.beat()
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="ghost")
    orders = world.catalog.view.topic("orders")
    assert orders is not None
    world.grow_topic("orders", 13)
    part = TopicPartitions(topic_id=orders.topic_id, partitions=(12,))
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1, previous_member_epoch=0, state=0,
        assigned_partitions=(part,), partitions_pending_revocation=(),
    )  # fmt: skip
    alone = ConsumerGroupCurrentMemberAssignmentKey(group_id="only", member_id="ghost")
    ghosts = tuple(encode_record(Record(one, value)) for one in (key, alone))
    world.log.append(Entry(world.next_index, 0, Cause(trigger=Trigger.IMPORTED), ghosts))
    world.failover()
    for _ in range(2):
        a.beat()
        world.sleep(23_000)
    settle([a])
    assert a.partitions(orders.topic_id) == list(range(13))
    assert "only" not in world.shard.projection.groups


def test_a_member_whose_heartbeat_failed_halfway_still_has_a_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a later step raises, the records of the earlier ones stay: so must the timer."""
    monkeypatch.setattr("coordinator.members.updating.reconcile_step", None)
    with pytest.raises(TypeError):
        world.join("a")
    assert "a" in world.group().members
    monkeypatch.undo()
    assert [entry.cause.trigger for entry in world.sleep(45_000)] == [Trigger.SESSION_EXPIRED]
