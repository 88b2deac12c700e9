"""The right to answer: proofs, leases; replies and cached heartbeats when leadership changes."""

from __future__ import annotations

import pytest

from cluster.runtime.answers import Unavailable
from tests.cluster.fakes import Bench
from tests.cluster.led_node import FETCH, JOIN, error_of
from tests.support.requests import commit_request, join_request
from wire.apis import ApiKey
from wire.errors import ErrorCode

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
