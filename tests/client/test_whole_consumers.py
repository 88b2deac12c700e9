"""Whole consumers and the real coordinator in virtual time: single situations."""

from __future__ import annotations

import pytest

from client.core.member.states import MemberState
from client.core.types import TopicPartition
from cluster.simulator.virtual_consumer import GRACE_MS
from tests.client.model_cluster import SESSION_MS, ModelCluster, NetworkFaults
from tests.client.model_users import CLOSE_MS, MAX_POLL_MS, Group, Habits
from wire.apis import ApiKey
from wire.errors import ErrorCode

TOPIC = "orders"


def group_of(*names: str, partitions: int = 4, messages: int = 3) -> Group:
    """Start users and let them come to rest."""
    cluster = ModelCluster(7)
    group = Group(cluster)
    cluster.create_topic(TOPIC, partitions)
    for at in cluster.leaders:
        cluster.produce(at, messages)
    for name in names:
        group.user(name, [TOPIC])
    settle(group)
    return group


def settle(group: Group, ms: float = 30_000.0) -> None:
    """Let time pass until everything is handed out."""
    for _ in range(int(ms / 250)):
        if group.is_done():
            return
        group.cluster.run(250.0)
    assert group.is_done(), [str(user.consumer.assembly.explain()) for user in group.living]


@pytest.fixture
def pair() -> Group:
    """Two users that share four partitions."""
    return group_of("a", "b")


def test_a_group_of_three_shares_the_partitions() -> None:
    group = group_of("a", "b", "c", partitions=6)
    assert [len(user.holds) for user in group.users] == [2, 2, 2]
    assert group.users[0].application.assignment == group.users[0].holds
    group.users[0].is_closing = True
    group.cluster.run(3_000.0)
    settle(group)
    assert [len(user.holds) for user in group.users] == [0, 3, 3]


def test_a_member_whose_session_ended_loses_its_partitions_and_joins_again(pair: Group) -> None:
    frozen, other = pair.users
    frozen.freeze(2 * SESSION_MS)
    pair.cluster.run(2 * SESSION_MS - 500)
    assert len(other.holds) == 4
    assert len(frozen.holds) == 2, "it has not heard of it, but its commits are refused"
    settle(pair)
    assert len(other.holds) == len(frozen.holds) == 2


def test_a_callback_that_never_returns_costs_its_partitions_and_close_ends(pair: Group) -> None:
    """The member leaves after max.poll.interval.ms; the others take what it had."""
    pair.habits = Habits(never_returns=1.0)
    pair.user("c", [TOPIC])
    pair.cluster.run(2_500.0)
    pair.habits = Habits()
    stuck = [user for user in pair.users if user.is_stuck]
    assert stuck
    pair.cluster.run(MAX_POLL_MS + 2 * SESSION_MS)
    for user in stuck:
        assert user.consumer.assembly.explain().state is MemberState.STALE
        user.cancel()
    pair.cluster.run(CLOSE_MS)
    assert all(user.is_closed for user in stuck)
    settle(pair)


def test_a_static_member_that_restarts_has_its_partitions_at_once(pair: Group) -> None:
    static = pair.user("s", [TOPIC], group_instance_id="s")
    settle(pair)
    before = set(static.holds)
    others = [set(user.holds) for user in pair.users[:2]]
    static.is_closing = True
    pair.cluster.run(3_000.0)
    assert static.is_closed
    again = pair.user("s again", [TOPIC], group_instance_id="s")
    pair.cluster.run(1_000.0)
    assert again.holds == before
    assert [user.holds for user in pair.users[:2]] == others, "nobody else has noticed"


def test_new_leaders_of_the_coordinator_change_nothing_for_its_members(pair: Group) -> None:
    held = [set(user.holds) for user in pair.users]
    for node in (2, 3, 1, 2, 1):
        pair.cluster.move_coordinator(node)
        pair.cluster.run(3_000.0)
    assert [user.holds for user in pair.users] == held
    assert pair.is_done()


def test_a_coordinator_that_moves_twice_during_a_commit_has_it_once() -> None:
    group = group_of("a", messages=0)
    (user,) = group.users
    cluster, at = group.cluster, TopicPartition(TOPIC, 0)
    moves = iter((2, 3))

    def move() -> None:
        if (node := next(moves, None)) is not None:
            cluster.move_coordinator(node)
            cluster.before[ApiKey.OFFSET_COMMIT] = move

    user.commits = "sync"
    cluster.before[ApiKey.OFFSET_COMMIT] = move
    cluster.produce(at, 5)
    cluster.run(3_000.0)
    assert next(moves, None) is None
    assert group.committed[at] == 5
    assert cluster.met["NOT_COORDINATOR"] >= 2


@pytest.mark.parametrize("is_silent", [False, True])
def test_close_ends_at_each_step_of_the_set_up(is_silent: bool) -> None:
    """From the first connection to the first records, closed in steps of 7 ms; on a dead network as well."""
    for step in range(25):
        cluster = ModelCluster(step)
        group = Group(cluster)
        cluster.create_topic(TOPIC, 2)
        user = group.user("a", [TOPIC])
        cluster.agenda.run(7.0 * step)
        if is_silent:
            cluster.faults = NetworkFaults(silent=1.0)
        user.cancel()
        cluster.run(CLOSE_MS + GRACE_MS if is_silent else 500.0)
        assert user.is_closed, f"closed after {7 * step} ms"
        assert not user.connections.links
        if not is_silent:
            group_state = cluster.world.shard.projection.groups.get("g")
            assert group_state is None or not group_state.members


def test_answers_that_arrive_after_close_change_nothing(pair: Group) -> None:
    user = pair.users[0]
    numbers = list(user.connections.links)
    user.is_closing = True
    pair.cluster.run(3_000.0)
    assert user.is_closed
    passes = user.consumer.passes
    for number in numbers:
        assert not user.consumer.assembly.delegate.received(number, b"\0\0\0\4\0\0\0\1")
        user.consumer.assembly.delegate.lost(number, None)
    pair.cluster.run(1_000.0)
    assert user.consumer.passes == passes


def test_jumps_of_the_wall_clock_change_nothing(pair: Group) -> None:
    held = [set(user.holds) for user in pair.users]
    for jump_ms in (86_400_000, -2 * 86_400_000, 3_600_000):
        for user in pair.users:
            user.wall_ms += jump_ms
        pair.cluster.run(2 * SESSION_MS)
    assert [user.holds for user in pair.users] == held
    errors = {ErrorCode.FENCED_MEMBER_EPOCH.name, ErrorCode.UNKNOWN_MEMBER_ID.name}
    assert not errors & pair.cluster.met.keys()


def test_a_process_that_sleeps_for_a_day_goes_on(pair: Group) -> None:
    """Its monotonic clock jumps forward, as after the suspension of a machine."""
    sleeper = pair.users[0]
    sleeper.freeze(86_400_000.0)
    pair.cluster.agenda.now_ms += 86_400_000.0
    settle(pair, 60_000.0)
    assert sleeper.holds
