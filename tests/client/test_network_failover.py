"""Finding the coordinator, losing it, and finding the next one, in virtual time."""

from __future__ import annotations

import itertools

import pytest

from client.core.backoff import STEADY_ATTEMPTS
from client.core.requests import RequestFailure
from tests.client.fake_network import Answers, ClientRig, FakeNetwork, fetch, heartbeat
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse


def found(rig: ClientRig) -> int | None:
    return rig.coordinator.node_id


def test_a_consumer_finds_its_coordinator_and_the_nodes() -> None:
    rig = ClientRig()
    rig.run()
    assert found(rig) == 1
    assert sorted(rig.metadata.view.nodes) == [1, 2, 3]
    assert rig.network.asked[0].api is ApiKey.API_VERSIONS
    assert len(rig.network.connections) == 1  # both requests went through the first connection


def test_without_a_group_no_coordinator_is_looked_for() -> None:
    rig = ClientRig(group_id=None, enable_auto_commit=False)
    rig.run(10_000)
    assert rig.network.asked_for(ApiKey.FIND_COORDINATOR) == []


def test_a_consumer_that_waits_makes_few_passes() -> None:
    rig = ClientRig()
    rig.run(60_000)
    assert rig.passes < 30


def test_the_next_coordinator_is_asked_for_in_the_moment_when_the_connection_ends() -> None:
    rig = ClientRig()
    answers = Answers()
    rig.network.answer_heartbeats()
    rig.send(heartbeat(answers))
    rig.run(5_000)
    assert answers.last.node_id == 1
    rig.network.coordinator = 2
    rig.network.kill(1)
    killed_ms = rig.network.now_ms
    rig.send(heartbeat(answers))
    rig.run()
    assert (found(rig), answers.last.node_id, rig.network.now_ms) == (2, 2, killed_ms)


def test_a_request_that_waits_for_the_coordinator_survives_its_loss() -> None:
    rig = ClientRig()
    rig.network.coordinator = None
    rig.network.answer_heartbeats()
    answers = Answers()
    rig.send(heartbeat(answers))
    rig.run(300)
    assert answers.all == []
    rig.network.coordinator = 3
    rig.run(200)
    assert answers.last.node_id == 3


def test_an_election_is_asked_after_at_a_steady_pace_that_then_slows_down() -> None:
    rig = ClientRig()
    rig.network.coordinator = None
    rig.run(10_000)
    times = [one.at_ms for one in rig.network.asked_for(ApiKey.FIND_COORDINATOR)]
    gaps = [round(after - before) for before, after in itertools.pairwise(times)]
    assert gaps[:STEADY_ATTEMPTS] == [100] * STEADY_ATTEMPTS
    assert gaps[STEADY_ATTEMPTS : STEADY_ATTEMPTS + 4] == [200, 400, 800, 1000]
    assert rig.coordinator.unknown_because == ("FindCoordinator was answered with COORDINATOR_NOT_AVAILABLE")


def test_a_coordinator_that_moved_is_asked_for_at_once_but_not_in_a_loop() -> None:
    """Every node says that node 1 is the coordinator, and node 1 says that it is not."""
    rig = ClientRig()
    rig.run(5_000)
    for _ in range(1_000):
        rig.coordinator.lost(1, "NOT_COORDINATOR", rig.network.now_ms)
        rig.run(10)
    assert 10 <= len(rig.network.asked_for(ApiKey.FIND_COORDINATOR)) <= 20


def test_old_news_of_another_coordinator_are_ignored() -> None:
    rig = ClientRig()
    rig.run()
    rig.coordinator.lost(2, "an answer that was on its way", rig.network.now_ms)
    assert found(rig) == 1


def test_a_coordinator_that_answered_not_coordinator_keeps_its_connection() -> None:
    rig = ClientRig()
    rig.network.answer_heartbeats(ErrorCode.NOT_COORDINATOR)
    answers = Answers()
    rig.send(heartbeat(answers))
    rig.run(2_000)
    before = dict(rig.network.connections)
    rig.coordinator.lost(1, "NOT_COORDINATOR", rig.network.now_ms)
    rig.run()
    assert rig.network.connections == before
    assert not rig.delegate.addresses.has_failed(rig.delegate.addresses.nodes[1])


def test_a_coordinator_that_hangs_loses_its_connection_when_a_manager_gives_it_up() -> None:
    rig = ClientRig()
    rig.network.answer_heartbeats()
    answers = Answers()
    rig.send(heartbeat(answers))
    rig.run(2_000)
    rig.network.nodes[1].is_silent = True
    rig.network.coordinator = 2
    rig.send(heartbeat(answers, timeout_ms=3_000))
    rig.run(3_000)
    assert answers.last.failure is RequestFailure.TIMED_OUT
    rig.coordinator.lost(answers.last.node_id, answers.last.words, rig.network.now_ms)
    rig.send(heartbeat(answers))
    rig.run(2_500)  # the first node that is asked may be the one that hangs
    assert answers.last.node_id == 2


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_of_find_coordinator_is_understood(version: int) -> None:
    network = FakeNetwork()
    network.limit(FIND_COORDINATOR=(version, version))

    def answer(asked: object) -> FindCoordinatorResponse:
        if version < 4:
            return FindCoordinatorResponse(node_id=2, host="n2", port=9092)
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=2, host="n2", port=9092)])

    network.answer(ApiKey.FIND_COORDINATOR, answer)
    rig = ClientRig(network)
    rig.run()
    assert found(rig) == 2


def test_a_group_that_is_not_authorized_ends_the_search_and_what_waits_for_it() -> None:
    network = FakeNetwork()
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    network.answer(
        ApiKey.FIND_COORDINATOR,
        lambda asked: FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=code)]),
    )
    rig = ClientRig(network)
    answers = Answers()
    rig.send(heartbeat(answers))
    rig.run(10_000)
    words = "the client is not authorized to use group 'g' (GROUP_AUTHORIZATION_FAILED, 30)"
    assert rig.errors() == [words]
    assert (answers.last.failure, answers.last.words) == (RequestFailure.UNREACHABLE, words)
    assert len(network.asked_for(ApiKey.FIND_COORDINATOR)) == 1


def test_an_error_that_no_table_knows_is_told_once_and_the_search_goes_on() -> None:
    network = FakeNetwork()
    network.answer(
        ApiKey.FIND_COORDINATOR,
        lambda asked: FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=4_242)]),
    )
    rig = ClientRig(network)
    rig.run(10_000)
    assert rig.errors() == ["FindCoordinator was answered with UNKNOWN_ERROR_CODE (UNKNOWN_ERROR_CODE, 4242)"]
    assert len(network.asked_for(ApiKey.FIND_COORDINATOR)) > 5


@pytest.mark.parametrize("groups", [[], ["another"]])
def test_an_answer_without_the_group_is_asked_again(groups: list[str]) -> None:
    network = FakeNetwork()
    others = [Coordinator(key=group, node_id=2, host="n2", port=9092) for group in groups]
    network.answer(ApiKey.FIND_COORDINATOR, lambda asked: FindCoordinatorResponse(coordinators=others))
    rig = ClientRig(network)
    rig.run(250)
    assert rig.coordinator.unknown_because == "FindCoordinator was answered with no coordinator at all"
    assert len(network.asked_for(ApiKey.FIND_COORDINATOR)) == 3


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("n1", -1), ("n1", 0), ("n1", 2**31 - 1)])
def test_a_coordinator_without_an_address_is_asked_for_again(host: str, port: int) -> None:
    rig = ClientRig()
    one = Coordinator(key="g", node_id=2, host=host, port=port)
    rig.network.answer(ApiKey.FIND_COORDINATOR, lambda asked: FindCoordinatorResponse(coordinators=[one]))
    rig.run(250)
    assert (
        rig.coordinator.unknown_because
        == f"FindCoordinator named node 2 at {host}:{port}, which is no address"
    )
    assert len(rig.network.asked_for(ApiKey.FIND_COORDINATOR)) == 3


def test_heartbeats_do_not_wait_behind_a_fetch() -> None:
    rig = ClientRig()
    rig.network.answer_heartbeats()
    fetched, beaten = Answers(), Answers()
    rig.run()
    rig.send(fetch(fetched, to=1))
    rig.run()
    rig.send(heartbeat(beaten))
    rig.run()
    assert isinstance(beaten.last.body, ConsumerGroupHeartbeatResponse)
    assert fetched.all == []


def test_an_outage_of_any_length_leaves_the_consumer_asking() -> None:
    rig = ClientRig()
    rig.coordinator._backoff.failures = rig.metadata._failing.failures = 2_000
    rig.run(1_000)
    assert rig.coordinator.node_id == 1
    assert rig.metadata.view.nodes.keys() == {1, 2, 3}


def test_a_coordinator_behind_the_address_of_the_one_before_is_given_up_by_its_own_id() -> None:
    """All nodes may be reached by one proxy."""
    rig = ClientRig()
    rig.run(5_000)
    one = Coordinator(key="g", node_id=2, host="n1", port=9092)
    rig.network.answer(ApiKey.FIND_COORDINATOR, lambda asked: FindCoordinatorResponse(coordinators=[one]))
    rig.network.answer_heartbeats(ErrorCode.NOT_COORDINATOR)
    answers = Answers()
    rig.send(heartbeat(answers))
    rig.run()
    rig.coordinator.lost(1, "it moved", rig.network.now_ms)
    rig.run(2_000)
    rig.send(heartbeat(answers))
    rig.run()
    assert (answers.last.node_id, rig.coordinator.node_id) == (2, 2)
