"""The right to answer: proofs, leases; replies, timers and cached heartbeats when leadership changes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.runtime.answers import Unavailable
from cluster.runtime.shard_runtime import LASTING_MS
from cluster.runtime.shard_state import ShardState
from raftlog.env.obstacles import Obstacle
from records import METADATA_SHARD, MemberState
from tests.cluster.fakes import Bench, records_of
from tests.support.requests import commit_request, join_request
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

FETCH = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="billing", topics=None)])
JOIN = join_request("billing", "one", "orders")


def create(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=4, replication_factor=1)], timeout_ms=5000
    )


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


@pytest.fixture
def led(bench: Bench) -> Bench:
    """A node that leads both shards, with topic orders, one stable member, and no reply held."""
    bench.log(bench.metadata).lead()
    bench.log(bench.groups).lead()
    created = bench.ask(create("orders"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    bench.log(bench.metadata).commit()
    spread_everywhere(bench)
    assert created[0].topics[0].error_code == 0
    joined = bench.heartbeat(JOIN)
    bench.log(bench.groups).commit()
    assert joined[0].member_epoch == 1
    return bench


def spread_everywhere(bench: Bench) -> None:
    waiting, bench.log(bench.metadata).everywhere = bench.log(bench.metadata).everywhere, []
    for _, fn in waiting:
        fn()


def error_of(answer: Any) -> int:
    return int(answer.groups[0].error_code)


# The node's log.


def test_the_log_says_who_leads_and_nothing_that_reads_like_a_failure(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quorate")
    replica = bench.log(bench.groups)
    bench.log(bench.metadata).follow(3)
    replica.follow(3)
    replica.follow(None)
    replica.term = 4
    replica.follow(2)
    bench.log(bench.metadata).lead()
    replica.lead()
    bench.log(bench.metadata).lose("handed over in term 6", leader_id=3)
    assert [record.getMessage() for record in caplog.records] == [
        "metadata: node 3 leads term 0",
        "shard-0: node 3 leads term 0",
        "shard-0: node 2 leads term 4",
        "metadata is Ready: this node leads term 1",
        "shard-0 is Ready: this node leads term 5",
        "metadata: this node is no longer the leader: handed over in term 6",
        "metadata: node 3 leads term 1",
    ]


# Proof.


def test_a_read_waits_for_a_proof_obtained_after_it_came(led: Bench) -> None:
    replica = led.log(led.groups)
    came_ms = led.world.now_ms
    answers = led.ask(FETCH, ApiKey.OFFSET_FETCH, 9)
    assert (answers, replica.proofs_asked) == ([], 1)
    led.groups.proven(came_ms - 0.1)
    assert answers == []
    led.groups.proven(came_ms)
    assert [error_of(answer) for answer in answers] == [0]
    led.groups.proven(came_ms + 1)
    assert len(answers) == 1


def test_a_read_waits_for_what_it_has_seen_too(led: Bench) -> None:
    led.ask(commit_request("simple", {0: 1}), ApiKey.OFFSET_COMMIT, 9)
    answers = led.ask(FETCH, ApiKey.OFFSET_FETCH, 9)
    led.groups.proven(led.world.now_ms)
    assert answers == []
    led.log(led.groups).commit()
    assert len(answers) == 1


def test_the_commit_of_an_entry_is_proof_enough_for_its_reply(led: Bench) -> None:
    answers = led.ask(commit_request("simple", {0: 1}), ApiKey.OFFSET_COMMIT, 9)
    assert led.log(led.groups).proofs_asked == 0
    led.log(led.groups).commit()
    assert len(answers) == 1


def test_a_refusal_by_the_coordinator_is_a_read_as_well(led: Bench) -> None:
    """A deposed leader that does not know of its successor must fence no member."""
    stale = join_request("billing", "one", "orders")
    stale.member_epoch = 77
    answers = led.heartbeat(stale)
    assert answers == []
    led.log(led.groups).lose()
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]


def test_a_barrier_is_a_read_that_asks_nothing(led: Bench) -> None:
    told: list[Unavailable | None] = []
    led.groups.requests.when_consistent(told.append)
    assert told == []
    led.groups.proven(led.world.now_ms)
    assert told == [None]
    led.groups.requests.when_consistent(told.append)
    led.later(1)
    led.groups.requests.when_consistent(told.append)
    led.log(led.groups).lose()
    assert told == [None, None, Unavailable.DEPOSED]
    led.groups.requests.when_consistent(told.append)
    assert told[3:] == [Unavailable.NOT_LEADER]


def test_a_node_that_is_alone_needs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, is_alone=True)
    bench.log(bench.metadata).lead()
    bench.log(bench.groups).lead()
    answers = bench.ask(FETCH, ApiKey.OFFSET_FETCH, 9)
    assert [error_of(answer) for answer in answers] == [0]
    assert bench.log(bench.groups).proofs_asked == 0


# Losing leadership.


def test_a_leader_that_loses_the_lead_answers_every_request_once(led: Bench) -> None:
    replica = led.log(led.groups)
    written = led.ask(commit_request("simple", {0: 1}), ApiKey.OFFSET_COMMIT, 9)
    read = led.ask(FETCH, ApiKey.OFFSET_FETCH, 9)
    replica.lose()
    assert written[0].topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert error_of(read[0]) == ErrorCode.NOT_COORDINATOR
    replica.commit()
    led.groups.proven(led.world.now_ms + 1)
    led.later(10_000)
    assert (len(written), len(read)) == (1, 1)


@pytest.mark.parametrize("is_lost", [False, True], ids=["committed", "lost"])
def test_decisions_that_build_on_each_other_are_answered_or_lost_together(led: Bench, is_lost: bool) -> None:
    """Both are decided on the newest state, before either is committed; neither is answered until then."""
    replica = led.log(led.groups)
    answers = [led.heartbeat(join_request("billing", name, "orders")) for name in ("two", "three")]
    assert led.groups.machine.projection.groups["billing"].epoch == 3
    assert answers == [[], []]
    replica.lose() if is_lost else replica.commit()
    told = [(answer.error_code, answer.member_epoch) for (answer,) in answers]
    assert told == ([(ErrorCode.NOT_COORDINATOR, 0)] * 2 if is_lost else [(0, 2), (0, 3)])


def test_an_old_proof_is_worth_nothing_in_a_new_term(led: Bench) -> None:
    replica = led.log(led.groups)
    led.groups.proven(led.world.now_ms + 1_000)
    replica.lose()
    replica.lead()
    assert led.ask(FETCH, ApiKey.OFFSET_FETCH, 9) == []


def test_a_planned_end_closes_the_connections_and_another_does_not(led: Bench) -> None:
    replica = led.log(led.groups)
    replica.lose("term 5 began")
    assert led.given_away == []
    replica.lead()
    replica.lose("handed over to node 2")
    assert led.given_away == [0]


def test_a_shard_that_is_being_handed_over_sends_its_clients_away(led: Bench) -> None:
    replica = led.log(led.groups)
    replica.can_append, replica.leadership.is_handing_over = False, True
    assert led.heartbeat(JOIN)[0].error_code == ErrorCode.NOT_COORDINATOR


def test_changes_of_the_lead_are_counted(led: Bench) -> None:
    replica, counters = led.log(led.groups), led.groups.counters
    replica.lose()
    replica.lead()
    replica.lose("handed over to node 2")
    counted = counters.as_dict()
    assert [counted[name] for name in ("elections_won", "leads_lost", "leads_handed_over")] == [2, 1, 1]


# The fast path.


def test_a_steady_heartbeat_needs_the_lead_and_a_lease(led: Bench) -> None:
    replica = led.log(led.groups)
    entry = led.groups.duties.fast_entry("billing", "one")
    assert entry is not None
    assert entry.is_valid()
    replica.lease = False
    assert not entry.is_valid()
    replica.lease = True
    replica.lose()
    assert not entry.is_valid()
    assert led.groups.duties.fast_entry("billing", "one") is None
    replica.lead()
    assert not entry.is_valid()


def test_a_rebuilt_projection_ends_every_cached_heartbeat(led: Bench) -> None:
    replica = led.log(led.groups)
    entry = led.groups.duties.fast_entry("billing", "one")
    assert entry is not None
    replica.lose()
    replica.rebuild(replica.bodies)
    replica.lead()
    assert not entry.is_valid()


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


def test_a_term_begins_in_slices_and_ends_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.log(bench.metadata).lead()
    replica = bench.log(bench.groups)
    replica.lead()
    for number in range(300):
        bench.heartbeat(join_request(f"group-{number}", "one", "orders"))
    replica.commit()
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


def test_a_pause_in_the_middle_of_becoming_ready_expires_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.log(bench.metadata).lead()
    replica = bench.log(bench.groups)
    replica.lead()
    for number in range(200):
        bench.heartbeat(join_request(f"group-{number}", "one", "orders"))
    replica.commit()
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


def test_room_that_comes_back_renews_every_session_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.log(bench.metadata).lead()
    replica = bench.log(bench.groups)
    replica.lead()
    for number in range(300):
        bench.heartbeat(join_request(f"group-{number}", "one", "orders"))
    replica.commit()
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


# The catalog.


def test_a_shard_waits_for_the_catalog_that_its_groups_were_decided_on(
    led: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bench(monkeypatch)
    metadata, replica = other.log(other.metadata), other.log(other.groups)
    replica.follow(2)
    replica.receive(*led.log(led.groups).bodies)
    metadata.follow(2)
    replica.lead()
    assert other.groups.state is ShardState.CATCH_UP
    metadata.receive(*led.log(led.metadata).bodies)
    assert other.groups.state is ShardState.READY


def test_followers_learn_topics_in_order_and_groups_of_the_leader_here_are_told(
    led: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bench(monkeypatch)
    metadata = other.log(other.metadata)
    metadata.follow(2)
    metadata.receive(*led.log(led.metadata).bodies)
    assert other.catalog_changes == [(["orders"], True)]
    assert other.catalog.topic("orders") is not None


def test_what_came_and_went_in_one_commit_is_told_apart(led: Bench) -> None:
    led.catalog_changes.clear()
    led.ask(create("brief"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    led.ask(delete("brief"), ApiKey.DELETE_TOPICS, 6, shard=METADATA_SHARD)
    led.ask(create("other"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    led.log(led.metadata).commit()
    assert led.catalog_changes == [(["brief"], True), (["brief", "other"], True)]


def test_a_rebuilt_catalog_takes_over_when_it_is_as_new_and_never_goes_back(led: Bench) -> None:
    metadata = led.log(led.metadata)
    led.ask(create("payments"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.commit()
    led.ask(create("lost"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    bodies = metadata.bodies[:2]
    metadata.lose()
    led.catalog_changes.clear()
    metadata.machine.reset()
    metadata.bodies = []
    sizes = []
    for body in bodies:
        metadata.receive(body)
        sizes.append(len(led.catalog))
    assert sizes == [2, 2]
    assert led.catalog.topic("lost") is None
    assert led.catalog_changes == [([], False)]


def test_an_installed_snapshot_tells_what_differs_and_that_more_may_have_come_and_gone(led: Bench) -> None:
    metadata = led.log(led.metadata)
    metadata.lose()
    led.catalog_changes.clear()
    led.metadata.catalog_version()
    other = records_of(metadata.bodies[0].replace(b"orders", b"others"))
    metadata.install(other, 9)
    assert led.catalog.version == 9
    assert led.catalog_changes == [(["orders", "others"], False)]


def test_an_admin_reply_waits_until_every_node_in_contact_has_the_change(led: Bench) -> None:
    metadata = led.log(led.metadata)
    answers = led.ask(create("payments"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.commit()
    assert (answers, metadata.everywhere[0][0]) == ([], 2)
    spread_everywhere(led)
    assert [answer.topics[0].error_code for answer in answers] == [0]


def test_an_admin_reply_that_only_waits_for_others_is_given_when_the_lead_is_lost(led: Bench) -> None:
    metadata = led.log(led.metadata)
    done = led.ask(create("payments"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.commit()
    unknown = led.ask(create("refunds"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.lose()
    assert [answer.topics[0].error_code for answer in done] == [0]
    assert [answer.topics[0].error_code for answer in unknown] == [ErrorCode.REQUEST_TIMED_OUT]
    spread_everywhere(led)
    assert len(done) == len(unknown) == 1


def test_the_format_level_is_raised_by_a_record_that_all_nodes_have(led: Bench) -> None:
    metadata, told = led.log(led.metadata), []
    assert led.metadata.duties.committed.format_level == 1
    led.metadata.duties.raise_format_level(2, told.append)
    assert led.metadata.duties.committed.format_level == 1, "nothing is committed yet"
    metadata.commit()
    assert told == []
    spread_everywhere(led)
    assert (told, led.metadata.duties.committed.format_level) == ([None], 2)
    metadata.lose()
    bodies = list(metadata.bodies)
    metadata.machine.reset()
    assert led.metadata.duties.committed.format_level == 2, "also while the projection is built again"
    metadata.bodies = []
    metadata.receive(*bodies)
    assert led.metadata.duties.committed.format_level == 2
    led.metadata.duties.raise_format_level(3, told.append)
    assert told[1:] == [Unavailable.NOT_LEADER.value]


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
