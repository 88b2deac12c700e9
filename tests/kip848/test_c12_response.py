"""C.12 What a reply carries."""

from __future__ import annotations

from tests.support.group_client import Client
from tests.support.world import World


def test_a_steady_heartbeat_writes_nothing_and_carries_no_assignment(world: World) -> None:
    """Assignment present iff full request or the assigned set changed in this call."""
    world.join("a")
    entries = len(world.log)
    answer = world.heartbeat("a", 1)
    assert answer.assignment is None
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 1, 1_000)
    assert len(world.log) == entries


def test_a_new_epoch_alone_carries_no_assignment(world: World) -> None:
    """… only if the *assigned* set changed, not if the epoch did."""
    world.join("a")
    world.join("b", topics=["nowhere"])
    answer = world.heartbeat("a", 1)
    assert (answer.member_epoch, answer.assignment) == (2, None)


def test_a_full_request_is_answered_in_full(world: World) -> None:
    """RebalanceTimeoutMs ≠ −1 and names ≠ null and owned ≠ null: the assignment even if unchanged."""
    topic = world.catalog.view.topic("orders").topic_id
    world.join("a")
    answer = world.heartbeat(
        "a", 1, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], owned={topic: range(12)}
    )
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions[0].partitions == list(range(12))
    partial = world.heartbeat("a", 1, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"])
    assert partial.assignment is None


def test_a_revocation_is_told_by_omission(world: World) -> None:
    """It lists assigned only: a revocation is signalled by omission."""
    topic = world.catalog.view.topic("orders").topic_id
    a = Client(world, "a")
    a.beat()
    Client(world, "b").beat()
    answer = a.beat()
    assert answer.assignment is not None
    assert len(answer.assignment.topic_partitions[0].partitions) == 6
    assert len(world.group().members["a"].current.pending[topic]) == 6


def test_a_join_with_nothing_to_give_is_empty_and_not_null(world: World) -> None:
    """A join with nothing to give carries an empty Assignment, not null."""
    world.join("a")
    answer = world.join("b")
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []


def test_leave_replies(world: World) -> None:
    """Leave replies: MemberId, MemberEpoch −1, no interval, no Assignment."""
    world.join("a")
    answer = world.heartbeat("a", -1)
    assert (answer.member_id, answer.member_epoch) == ("a", -1)
    assert (answer.heartbeat_interval_ms, answer.assignment) == (0, None)


def test_the_interval_is_the_configured_one(world: World) -> None:
    """HeartbeatIntervalMs = the group's setting, in force at the next heartbeat."""
    world.join("a")
    world.configure(heartbeat_interval_ms=3_000)
    assert world.heartbeat("a", 1).heartbeat_interval_ms == 3_000


def test_every_reply_names_the_member(world: World) -> None:
    """MemberId in every reply but a refusal."""
    replies = [world.join("a"), world.heartbeat("a", 1), world.heartbeat("a", -1)]
    assert [reply.member_id for reply in replies] == ["a", "a", "a"]
    assert world.heartbeat("a", 1).member_id is None


def test_no_reply_throttles(world: World) -> None:
    """ThrottleTimeMs is 0 in every reply, a refusal's too."""
    replies = [world.join("a"), world.heartbeat("a", 1), world.heartbeat("a", 7), world.heartbeat("b", 7)]
    assert [reply.error_code for reply in replies] == [0, 0, 110, 25]
    assert {reply.throttle_time_ms for reply in replies} == {0}
