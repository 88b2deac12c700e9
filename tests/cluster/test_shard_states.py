"""The states of a shard on one node: becoming ready, lacking room or a catalog, following, being rebuilt."""

from __future__ import annotations

import pytest

from cluster.runtime.answers import Unavailable
from cluster.runtime.shard_runtime import LASTING_MS
from cluster.runtime.shard_state import ShardState
from raftlog.env.obstacles import Obstacle
from records import METADATA_SHARD, MemberState
from tests.cluster.fakes import Bench, FakeReplica, records_of
from tests.cluster.led_node import FETCH, JOIN, create, error_of
from tests.support.requests import commit_request, join_request
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest


def _lead_groups(bench: Bench, number: int) -> FakeReplica:
    """Lead, with this many groups of one member."""
    bench.log(bench.metadata).lead()
    replica = bench.log(bench.groups)
    replica.lead()
    for group in range(number):
        bench.heartbeat(join_request(f"group-{group}", "one", "orders"))
    replica.commit()
    return replica


# States.


def test_the_states_of_a_shard_from_its_start_to_its_end(bench: Bench) -> None:
    groups, replica = bench.groups, bench.log(bench.groups)
    bench.log(bench.metadata).lead()
    assert groups.state is ShardState.CATCH_UP, "it loads, and knows no leader"
    assert bench.heartbeat(JOIN)[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    replica.follow(None)
    assert groups.state is ShardState.CATCH_UP
    replica.follow(2)
    assert groups.state is ShardState.DOWN
    assert bench.heartbeat(JOIN)[0].error_code == ErrorCode.NOT_COORDINATOR
    replica.follow(None)
    assert groups.state is ShardState.DOWN
    replica.lead(until_ready=False)
    assert groups.state is ShardState.CATCH_UP
    assert bench.heartbeat(JOIN)[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.later(7)
    replica.ready()
    assert groups.state is ShardState.READY
    replica.lose()
    assert groups.state is ShardState.DOWN
    entered = groups.status()["state_since_ms"]
    assert entered["CatchUp"] + 7 == entered["Ready"] == entered["Down"]


def test_a_term_begins_in_slices_and_ends_in_the_middle(bench: Bench) -> None:
    replica = _lead_groups(bench, 300)
    replica.lose()
    bench.host.clock_step_ms = 0.1
    replica.lead()
    assert bench.groups.state is ShardState.CATCH_UP
    replica.lose()
    bench.later(1_000)
    assert bench.groups.state is ShardState.DOWN
    assert bench.groups.machine.next_deadline_ms() is None
    replica.lead()
    turns: list[ShardState] = []

    def look() -> None:
        turns.append(bench.groups.state)
        if bench.groups.state is not ShardState.READY:
            bench.host.call_soon(look)

    bench.host.call_soon(look)
    bench.later(1_000)
    assert len(turns) > 5
    assert turns[-1] is ShardState.READY
    bench.host.clock_step_ms = 0.0
    before = len(replica.bodies)
    bench.later(43_900)
    assert len(replica.bodies) == before, "every session has its full time from the new term on"
    bench.later(2_000)
    assert len(replica.bodies) == before + 300


def test_a_pause_in_the_middle_of_becoming_ready_expires_no_member(bench: Bench) -> None:
    replica = _lead_groups(bench, 200)
    replica.lose()
    bench.host.clock_step_ms = 0.1
    began_ms = bench.world.now_ms
    replica.lead()
    assert bench.groups.state is ShardState.CATCH_UP
    bench.groups.duties.shift_deadlines(60_000)  # the effect of a minute's pause, without the wait
    bench.later(1_000)
    assert bench.groups.is_ready
    first = bench.groups.machine.groups.sessions.get(("group-0", "one"))
    assert first is not None
    assert first.deadline_ms >= began_ms + 60_000 + 45_000


def test_room_that_comes_back_renews_every_session_in_slices(bench: Bench) -> None:
    replica = _lead_groups(bench, 300)
    bench.later(10)
    replica.can_append, replica.is_disk_full = False, True
    assert bench.heartbeat(JOIN)[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.later(60_000)
    replica.can_append, replica.is_disk_full = True, False
    bench.host.clock_step_ms = 0.1
    before, turns = len(replica.bodies), 0
    while len(replica.bodies) == before:
        answers = bench.heartbeat(JOIN)
        bench.later(1)
        assert not answers or answers[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        turns += 1
    assert turns > 2
    bench.host.clock_step_ms = 0.0
    bench.later(44_000)
    assert len(replica.bodies) == before + 1, "the one that joined"
    bench.later(2_000)
    assert len(replica.bodies) == before + 302


def test_questions_to_a_shard_change_nothing(led: Bench) -> None:
    runtime, requests = led.groups, led.groups.requests
    led.log(runtime).can_append = False
    catalog = led.metadata.duties.committed
    asked = (runtime, requests, catalog)
    before = [dict(vars(one)) for one in asked]
    assert runtime.duties.may_serve()
    assert runtime.duties.lacks(led.world.now_ms) is Obstacle.NONE
    assert runtime.obstacle() is Obstacle.NONE
    assert catalog.is_fresh(led.world.now_ms)
    assert requests.has_room, "only a look notices that there is none"
    assert requests.why_not() is None
    assert [vars(one) for one in asked] == before
    requests.observe_room(led.world.now_ms)
    assert not requests.has_room
    assert requests.why_not() is Unavailable.OVERLOADED


def test_a_shard_that_cannot_be_ready_for_its_catalog_reports_the_version(
    led: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = led.groups
    led.log(runtime).lose(leader_id=None)
    monkeypatch.setattr(Bench, "is_catalog_usable", lambda bench, version: False)
    led.log(runtime).lead()
    assert runtime.state is ShardState.CATCH_UP
    assert set(led.catalog_misses) == {runtime.catalog_version()}


def test_only_a_look_notices_a_lack_and_that_it_lasts(led: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = led.groups
    monkeypatch.setattr(Bench, "is_catalog_usable", lambda bench, version: False)
    found = []
    for now_ms in (0.0, LASTING_MS - 1, LASTING_MS):
        runtime.observe_obstacles(now_ms)
        found.append(runtime.obstacle())
    monkeypatch.undo()
    assert found == [Obstacle.NONE, Obstacle.NONE, Obstacle.CATALOG_BEHIND]
    assert led.catalog_misses == 3 * [runtime.catalog_version()]
    assert runtime.obstacle() is Obstacle.CATALOG_BEHIND, "until the next look"
    runtime.observe_obstacles(LASTING_MS)
    assert runtime.obstacle() is Obstacle.NONE


def test_what_writes_nothing_is_answered_without_room(led: Bench) -> None:
    groups, metadata = led.log(led.groups), led.log(led.metadata)
    for replica in (groups, metadata):
        replica.can_append, replica.is_disk_full = False, True
    reads = [
        led.ask(FETCH, ApiKey.OFFSET_FETCH, 9),
        led.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4),
        led.ask(DescribeGroupsRequest(groups=["billing"]), ApiKey.DESCRIBE_GROUPS, 5),
        led.ask(ConsumerGroupDescribeRequest(group_ids=["billing"]), ApiKey.CONSUMER_GROUP_DESCRIBE, 0),
    ]
    consistent: list[Unavailable | None] = []
    led.groups.requests.when_consistent(consistent.append)
    led.groups.proven(led.world.now_ms)
    fetched, listed, classic, described = (answers[0] for answers in reads)
    assert error_of(fetched) == error_of(described) == listed.error_code == 0
    assert [group.group_id for group in listed.groups] == ["billing"]
    assert error_of(classic) != ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert consistent == [None]
    before = groups.last_index
    changed = led.heartbeat(join_request("billing", "two", "orders"))
    assert changed[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    created = led.ask(create("more"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)[0].topics[0]
    assert created.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "disk is full" in created.error_message
    assert groups.last_index == before


def test_reads_of_a_shard_that_is_handed_over_go_to_the_next_leader(led: Bench) -> None:
    replica = led.log(led.groups)
    replica.can_append, replica.leadership.is_handing_over = False, True
    assert [error_of(answer) for answer in led.ask(FETCH, ApiKey.OFFSET_FETCH, 9)] == [
        ErrorCode.NOT_COORDINATOR
    ]


def test_only_a_leader_that_is_ready_expires_members(led: Bench) -> None:
    replica = led.log(led.groups)
    replica.lose()
    before = len(replica.bodies)
    led.later(120_000)
    assert len(replica.bodies) == before
    replica.lead(until_ready=False)
    led.later(120_000)
    assert len(replica.bodies) == before
    replica.ready()
    led.later(40_000)
    assert len(replica.bodies) == before
    led.later(10_000)
    assert len(replica.bodies) == before + 1


def test_gaps_of_members_are_not_measured_while_another_node_leads(led: Bench) -> None:
    replica, gaps = led.log(led.groups), []
    led.evidence.heartbeat_gap = lambda *args: gaps.append(args[-1])  # type: ignore[assignment]
    for pause_ms in (500, 900, 500):
        led.later(pause_ms)
        beat = join_request("billing", "one", "orders")
        beat.member_epoch = 1
        led.heartbeat(beat)
    replica.lose()
    assert gaps == [pytest.approx(900, abs=1)]
    led.later(20_000)
    replica.lead()
    led.heartbeat(beat)
    led.later(6_000)
    assert len(gaps) == 1


# Followers.


def test_a_follower_is_hot(led: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Bench(monkeypatch)
    replica = follower.log(follower.groups)
    replica.follow(2)
    replica.receive(*led.log(led.groups).bodies)
    assert follower.groups.machine.state_hash == led.groups.machine.state_hash
    assert follower.groups.is_readable
    assert follower.groups.is_following
    group = follower.groups.machine.projection.groups["billing"]
    assert group.members["one"].current.state is MemberState.STABLE


def test_a_rebuilt_projection_is_another_one_and_not_readable_before_its_end(led: Bench) -> None:
    replica, before = led.log(led.groups), led.groups.machine
    bodies, state_hash = list(replica.bodies), before.state_hash
    replica.lose()
    replica.machine.reset()
    assert led.groups.machine is not before
    assert not led.groups.is_readable
    replica.bodies = []
    replica.receive(*bodies)
    assert led.groups.is_readable
    assert led.groups.machine.state_hash == state_hash


def test_half_a_snapshot_is_not_readable(led: Bench) -> None:
    """All its records carry the index of its last entry, so the index alone does not show what is missing."""
    replica = led.log(led.groups)
    records = records_of(*replica.bodies)
    replica.lose()
    for last_index in (replica.last_index, 9):  # one of what was committed before, and a newer one
        seen = []
        for _ in replica.installing(records, last_index, 1):
            seen.append(led.groups.is_readable)
        assert len(seen) > 2
        assert not any(seen)
        assert led.groups.is_readable


def test_a_projection_that_is_not_needed_any_more_goes_in_slices(led: Bench) -> None:
    """The garbage collector does not free it: objects loaded before the node served are frozen."""
    replica = led.log(led.groups)
    for number in range(30):
        led.ask(commit_request(f"tool-{number}", dict.fromkeys(range(4), number)), ApiKey.OFFSET_COMMIT, 9)
    replica.commit()
    replica.lose()
    old = led.groups.machine.projection
    led.host.clock_step_ms = 1.0
    replica.machine.reset()
    assert len(old.offsets) > 0
    led.later(1_000)
    assert (len(old.offsets), old.groups) == (0, {})
