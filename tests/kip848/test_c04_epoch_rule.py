"""C.4 The epoch rule: received e, current c, previous p, owned partitions."""

from __future__ import annotations

import pytest

from coordinator.state.reconcile import Current
from records import MemberState
from tests.support.group_client import Client, settle
from tests.support.world import FIRST_TOPIC, World
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

FENCED = ErrorCode.FENCED_MEMBER_EPOCH


def given(answer: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if answer.assignment is None:
        return None
    return {part.topic_id: part.partitions for part in answer.assignment.topic_partitions}


def test_equal_is_ok(world: World) -> None:
    """e == c → ok."""
    world.join("a")
    assert world.heartbeat("a", 1).error_code == 0


def test_greater_is_fenced(world: World) -> None:
    """e > c → 110."""
    world.join("a")
    assert world.heartbeat("a", 2).error_code == FENCED


def _moved_to_epoch_2(world: World) -> bytes:
    """Member a at epoch 2, previous 1, with all 12 partitions: its reply may have been lost."""
    topic = world.create_topic("more", 2)
    world.join("a")
    world.heartbeat("a", 1, subscribed_topic_names=["orders", "more"], owned={})
    current = world.group().members["a"].current
    assert (current.epoch, current.previous_epoch) == (2, 1)
    return topic


def test_a_lost_reply_may_be_asked_for_again_and_again(world: World) -> None:
    """e < c → ok iff e == p and owned ≠ null and owned ⊆ assigned: the lost-response case."""
    _moved_to_epoch_2(world)
    orders = world.catalog.view.topic("orders").topic_id
    entries = len(world.log)
    for _ in range(3):
        answer = world.heartbeat("a", 1, owned={orders: range(12)})
        assert (answer.error_code, answer.member_epoch) == (0, 2)
        assert given(answer) is not None, "the reply that was lost carried the assignment"
    assert len(world.log) == entries


@pytest.mark.parametrize("owned", [None, {b"?" * 16: [0]}, {FIRST_TOPIC: [12]}])
def test_otherwise_the_previous_epoch_is_fenced(world: World, owned: dict[bytes, list[int]] | None) -> None:
    """… otherwise 110: nothing said about what is owned, or something that was not given."""
    _moved_to_epoch_2(world)
    assert world.heartbeat("a", 1, owned=owned).error_code == FENCED


def test_an_epoch_before_the_previous_is_fenced(world: World) -> None:
    """Only p, no older epoch."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    settle([a, b])
    b.leave()
    settle([a])
    assert a.epoch == 3
    assert world.heartbeat("a", 1, owned={}).error_code == FENCED


def test_after_entering_unrevoked_a_late_heartbeat_is_fenced(world: World) -> None:
    """p is set to the old c at each write, even if the epoch is unchanged: after UNREVOKED at 1, p is 1."""
    world.create_topic("more", 2)
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    a.subscribe(["orders", "more"])
    a.beat()
    assert world.group().members["a"].current.previous_epoch == 1
    b.beat()
    a.beat()
    current = world.group().members["a"].current
    assert (current.state, current.epoch, current.previous_epoch) == (MemberState.UNREVOKED_PARTITIONS, 2, 2)
    assert world.heartbeat("a", 1, owned={}).error_code == FENCED


@pytest.mark.parametrize("state", ["STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS"])
def test_epoch_0_rejoins_in_every_state(world: World, state: str) -> None:
    """KAFKA-19233: e = 0 is always accepted for an existing member, state by state, answered in full."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    if state == "UNREVOKED_PARTITIONS":
        a.beat()
    who = b if state == "UNRELEASED_PARTITIONS" else a
    member = world.group().members[who.member_id]
    if state != "STABLE":
        assert member.current.state.name == state
    epoch = world.group().epoch
    who.epoch = 0
    answer = who.beat()
    assert answer.error_code == 0
    assert given(answer) is not None
    assert world.group().epoch == epoch, "joining again is no reason to rebalance"
    settle([a, b])
    assert world.group().state.value == "Stable"
    assert len(a.partitions(FIRST_TOPIC)) == 6


def test_rejoining_twice_changes_nothing_the_second_time(world: World) -> None:
    """Duplicates of a full heartbeat are idempotent."""
    world.join("a")
    first = world.join("a")
    entries = len(world.log)
    assert world.join("a") == first
    assert len(world.log) == entries


def test_leaving_is_not_epoch_checked(world: World) -> None:
    """−1/−2 leave requests are not epoch-checked."""
    world.join("a")
    assert world.heartbeat("a", -1).error_code == 0
    assert world.group().num_members == 0


def test_a_member_in_an_unknown_state_is_fenced_until_it_owns_nothing(world: World) -> None:
    """State byte from a newer release: owned must be [], otherwise 110; then reconciled to the target."""
    world.join("a")
    world.create_topic("more", 3)
    _make_unknown(world, "a")
    assert world.heartbeat("a", 1).error_code == FENCED
    orders = world.catalog.view.topic("orders").topic_id
    assert world.heartbeat("a", 1, owned={orders: [3]}).error_code == FENCED
    answer = world.heartbeat("a", 1, owned={})
    assert answer.error_code == 0
    assert world.group().members["a"].current.state is MemberState.STABLE


def test_an_unknown_state_may_lead_to_waiting(world: World) -> None:
    """UNKNOWN, then partitions of the target still owned by others: UNRELEASED."""
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    _make_unknown(world, "b")
    world.heartbeat("b", 2, owned={})
    assert world.group().members["b"].current.state is MemberState.UNRELEASED_PARTITIONS


def _make_unknown(world: World, member_id: str) -> None:
    """As if a newer release had written the member's record 8."""
    from dataclasses import replace

    from records import ConsumerGroupCurrentMemberAssignmentKey, Record, encode_record

    value = world.group().members[member_id].current_value
    assert value is not None
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)
    world.shard.apply(encode_record(Record(key, replace(value, state=9))), world.next_index)
    assert isinstance(world.group().members[member_id].current, Current)
    assert world.group().members[member_id].current.state is MemberState.UNKNOWN
