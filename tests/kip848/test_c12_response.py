"""C.12 What a reply carries."""

from __future__ import annotations

import pytest

from coordinator.leader_state.reports import REPEATS
from records import MemberState
from tests.support.group_client import Client
from tests.support.world import FIRST_TOPIC, World
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


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


INTERVAL_MS = 1_000


def partitions(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    """The partitions of the only topic in a reply; None without an assignment."""
    if answer.assignment is None:
        return None
    return [number for topic in answer.assignment.topic_partitions for number in topic.partitions]


@pytest.fixture
def revoking(world: World) -> World:
    """`a` has twelve partitions and must give up six; the reply that said so was lost."""
    world.join("a")
    world.take_up("a")
    world.join("b")
    assert partitions(world.heartbeat("a", 1)) == [*range(6)]
    return world


def test_an_assignment_is_repeated_after_an_interval_without_a_report(revoking: World) -> None:
    """librdkafka waits one interval for a reply, and its next heartbeat is as short as any other."""
    assert partitions(revoking.heartbeat("a", 1)) is None
    revoking.sleep(INTERVAL_MS)
    assert partitions(revoking.heartbeat("a", 1)) == [*range(6)]
    assert partitions(revoking.heartbeat("a", 1)) is None
    assert revoking.heartbeat("a", 1, owned={FIRST_TOPIC: range(6)}).member_epoch == 2
    revoking.sleep(INTERVAL_MS)
    assert partitions(revoking.heartbeat("a", 2)) is None


def test_a_revocation_is_repeated_until_the_rebalance_timeout(revoking: World) -> None:
    for _ in range(60_000 // INTERVAL_MS - 1):
        revoking.sleep(INTERVAL_MS)
        assert partitions(revoking.heartbeat("a", 1)) == [*range(6)]
    revoking.sleep(INTERVAL_MS)
    assert "a" not in revoking.group().members


def test_a_revocation_is_repeated_to_a_member_that_never_reported_to_this_leader(world: World) -> None:
    """The leader changed between two heartbeats, which the member did not notice."""
    world.join("a")
    world.take_up("a")
    world.lead_again()
    world.join("b")
    assert partitions(world.heartbeat("a", 1)) == [*range(6)]
    world.sleep(INTERVAL_MS)
    assert partitions(world.heartbeat("a", 1)) == [*range(6)]


def test_a_new_leader_repeats_a_revocation_without_a_report(revoking: World) -> None:
    revoking.lead_again()
    assert partitions(revoking.heartbeat("a", 1)) == [*range(6)]


def test_a_new_leader_repeats_new_partitions_once(revoking: World) -> None:
    """The former leader's reply was lost, and the member did not notice that the leader changed."""
    revoking.take_up("a")
    assert partitions(revoking.heartbeat("b", 2)) == [*range(6, 12)]
    revoking.lead_again()
    revoking.work()
    assert revoking.shard.fast_entry("g", "b") is None
    assert partitions(revoking.heartbeat("b", 2)) == [*range(6, 12)]
    assert revoking.shard.fast_entry("g", "b") is not None
    revoking.sleep(INTERVAL_MS)
    assert partitions(revoking.heartbeat("b", 2)) is None


def test_a_repeated_revocation_leaves_the_cached_replies_of_others_valid(revoking: World) -> None:
    """A member may take minutes to give up its partitions, in a group of thousands."""
    revoking.heartbeat("b", 2, owned={})
    revoking.sleep(INTERVAL_MS)
    revoking.join("c")
    revoking.heartbeat("c", 3)
    replies = revoking.shard.groups.replies_of("g")
    for _ in range(3):
        revoking.sleep(INTERVAL_MS)
        assert partitions(revoking.heartbeat("a", 1)) is not None
    assert replies.are_valid


def test_new_partitions_are_repeated_a_few_times_to_a_client_that_never_lists_them(world: World) -> None:
    world.join("a")
    found = []
    for _ in range(REPEATS + 2):
        world.sleep(INTERVAL_MS)
        found.append(partitions(world.heartbeat("a", 1)))
    assert found == [[*range(12)]] * REPEATS + [None, None]
    assert world.shard.fast_entry("g", "a") is not None


def test_new_partitions_are_repeated_although_the_epoch_stays(revoking: World) -> None:
    """The reply in which a waiting member gets what another gave up is lost; no epoch tells of it."""
    revoking.take_up("a")
    assert partitions(revoking.heartbeat("b", 2)) == [*range(6, 12)]
    assert revoking.group().members["b"].current.state is MemberState.STABLE
    revoking.sleep(INTERVAL_MS)
    assert partitions(revoking.heartbeat("b", 2)) == [*range(6, 12)]
    revoking.take_up("b")
    revoking.sleep(INTERVAL_MS)
    assert partitions(revoking.heartbeat("b", 2)) is None


def test_a_cached_reply_ends_with_an_assignment_that_is_to_be_reported(world: World) -> None:
    """A member that reports to own nothing gets its partitions again, which no record says."""
    world.join("a")
    world.take_up("a")
    world.heartbeat("a", 1)
    entry = world.shard.fast_entry("g", "a")
    assert entry is not None
    full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "owned": {}}
    assert partitions(world.heartbeat("a", 1, **full)) == [*range(12)]
    assert not entry.is_valid()
    world.sleep(INTERVAL_MS)
    assert partitions(world.heartbeat("a", 1)) == [*range(12)]
