"""Requests on their way: each ends exactly once, with an answer or a reason, whatever the nodes do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from client.core.network.connection import IN_FLIGHT_MAX, THROTTLE_MS_MAX
from client.core.network.delegate import UNSENT_MAX
from client.core.network.pool import HEDGE_MS
from client.core.requests import Destination, RequestFailure
from tests.client.fake_network import (
    Answers,
    ClientRig,
    FakeNetwork,
    ReceivedRequest,
    fetch,
    heartbeat,
    list_offsets,
)
from tests.report import count_fault
from wire.apis import ApiKey
from wire.messages.fetch import FetchResponse
from wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from wire.protocol import encode_response


def ready(network: FakeNetwork | None = None, **settings: Any) -> tuple[ClientRig, Answers]:
    """A consumer that knows its nodes and its coordinator."""
    rig = ClientRig(network, **settings)
    rig.run()
    return rig, Answers()


def test_an_answer_says_where_it_came_from() -> None:
    rig, answers = ready()
    rig.send(list_offsets(answers, to=3))
    rig.run(20)
    (asked,) = rig.network.asked_for(ApiKey.LIST_OFFSETS)
    rig.network.reply(asked, ListOffsetsResponse())
    rig.run()
    response = answers.last
    assert (response.node_id, response.version, response.failure) == (3, 10, None)
    assert response.received_ms == 20


def test_the_coordinator_has_a_connection_of_its_own() -> None:
    rig, answers = ready()
    rig.send(fetch(answers, to=1))
    rig.send(heartbeat(answers))
    rig.run()
    numbers = {one.api: one.connection for one in rig.network.asked}
    assert numbers[ApiKey.FETCH] != numbers[ApiKey.CONSUMER_GROUP_HEARTBEAT]


def test_a_fetch_beside_another_has_a_connection_of_its_own() -> None:
    rig, answers = ready()
    rig.send(fetch(answers, to=1))
    beside = fetch(answers, to=1)
    beside.is_beside = True
    rig.send(beside)
    rig.run()
    first, second = rig.network.asked_for(ApiKey.FETCH)
    assert first.connection != second.connection


def test_requests_to_any_node_do_not_wait_behind_a_fetch() -> None:
    rig, answers = ready(FakeNetwork(nodes=1))
    rig.send(fetch(answers, to=1))
    rig.run()
    rig.metadata.refresh(rig.network.now_ms, "a test")
    rig.run(200)
    assert len(rig.network.asked_for(ApiKey.METADATA)) == 2


# Failures.


def test_a_node_that_is_not_known_is_named() -> None:
    rig, answers = ready()
    rig.send(list_offsets(answers, to=7))
    rig.run()
    assert answers.last.failure is RequestFailure.UNREACHABLE
    assert answers.last.words == "node 7 is not part of the cluster's metadata"


def test_a_node_that_refuses_connections_fails_its_requests_at_once() -> None:
    rig, answers = ready()
    rig.network.kill(3)
    for _ in range(2):
        rig.send(list_offsets(answers, to=3))
        rig.run()
    assert answers.failures == [RequestFailure.UNREACHABLE] * 2
    first, second = (response.words for response in answers.all)
    assert first == "the connection to n3:9092 ended while connecting: refused"
    assert second == "n3:9092 could not be reached just now"


def test_back_off_grows_with_failures_and_ends_with_success() -> None:
    rig, answers = ready()
    rig.network.kill(3)
    times = []
    for _ in range(400):
        before = rig.delegate.addresses.wait_ms(rig.delegate.addresses.nodes[3], rig.network.now_ms)
        rig.send(list_offsets(answers, to=3))
        rig.run()
        if before == 0:
            times.append(rig.network.now_ms)
        rig.run(10)
    gaps = [round(late - early, -1) for early, late in itertools.pairwise(times)]
    assert gaps == [50, 100, 200, 400, 800, 1000, 1000]
    rig.network.nodes[3].is_up = True
    rig.run(1_000)
    rig.send(list_offsets(answers, to=3))
    rig.run()
    assert rig.delegate.addresses.wait_ms(rig.delegate.addresses.nodes[3], rig.network.now_ms) == 0


def test_a_connection_that_ends_fails_what_is_in_flight() -> None:
    rig, answers = ready()
    for _ in range(3):
        rig.send(list_offsets(answers, to=2))
    rig.run()
    rig.network.kill(2)
    rig.run()
    assert answers.failures == [RequestFailure.DISCONNECTED] * 3
    assert answers.last.words == "the connection to n2:9092 ended: reset"


def test_a_request_that_timed_out_leaves_its_connection_open() -> None:
    """Its manager may have had little time left; the answer that comes late is dropped."""
    rig, answers = ready()
    rig.send(list_offsets(answers, to=2, timeout_ms=100))
    rig.send(list_offsets(answers, to=2))
    rig.run(100)
    assert answers.failures == [RequestFailure.TIMED_OUT]
    assert answers.last.words == "ListOffsets on the connection to n2:9092 got no answer in time"
    for asked in rig.network.asked_for(ApiKey.LIST_OFFSETS):
        rig.network.reply(asked, ListOffsetsResponse())
    rig.run()
    assert answers.failures == [RequestFailure.TIMED_OUT, None]


def test_a_node_that_never_answers_loses_its_connection() -> None:
    rig, answers = ready()
    rig.send(list_offsets(answers, to=2, timeout_ms=90_000))
    rig.send(list_offsets(answers, to=2, timeout_ms=90_000))
    rig.run(30_000)
    assert answers.failures == [RequestFailure.TIMED_OUT, RequestFailure.DISCONNECTED]
    assert rig.network.asked_for(ApiKey.LIST_OFFSETS)[0].connection not in rig.network.connections


def test_a_request_without_a_coordinator_says_what_it_waited_for() -> None:
    rig = ClientRig()
    rig.network.coordinator = None
    answers = Answers()
    rig.send(heartbeat(answers, timeout_ms=1_000))
    rig.run(1_000)
    assert answers.last.words == (
        "ConsumerGroupHeartbeat was not sent in time: the group's coordinator is not known"
    )


def test_a_request_without_a_node_says_why() -> None:
    network = FakeNetwork(nodes=1)
    network.kill(1)
    rig, answers = ClientRig(network), Answers()
    rig.send(list_offsets(answers, to=Destination.ANY, timeout_ms=1_000))
    rig.run(1_000)
    assert answers.last.words == (
        "ListOffsets was not sent in time: the connection to n1:9092 ended while connecting: refused"
    )


@pytest.mark.parametrize("answer", [None, bytes.fromhex("15030300020250")], ids=["closed", "alert of TLS"])
def test_a_listener_of_another_protocol_is_guessed_at(answer: bytes | None) -> None:
    network = FakeNetwork(nodes=1)
    network.answer(ApiKey.API_VERSIONS, lambda asked: answer or network.cut(asked.connection))
    rig = ClientRig(network)
    rig.run(3_000)
    assert "(is security.protocol right?)" in rig.delegate.trouble


MALFORMED: dict[str, Callable[[ReceivedRequest], bytes]] = {
    "a body that ends early": lambda asked: b"\0\0\0\x06" + asked.correlation_id.to_bytes(4, "big") + b"\0\0",
    "another correlation id": lambda asked: encode_response(2, 10, 99, ListOffsetsResponse()),
    "a frame above the bound": lambda asked: b"\x7f\xff\xff\xff",
    "a negative length": lambda asked: b"\xff\xff\xff\xff",
    "an empty frame": lambda asked: b"\0\0\0\0",
    "two answers": lambda asked: encode_response(2, 10, asked.correlation_id, ListOffsetsResponse()) * 2,
    "another protocol": lambda asked: b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_answer_ends_the_connection(answer: Callable[[ReceivedRequest], bytes]) -> None:
    rig, answers = ready()
    rig.network.answer(ApiKey.LIST_OFFSETS, answer)
    rig.send(list_offsets(answers, to=2))
    rig.run()
    assert rig.network.asked_for(ApiKey.LIST_OFFSETS)[0].connection not in rig.network.connections
    assert answers.failures in ([RequestFailure.MALFORMED], [None])  # the first of two answers was one
    assert "n2:9092" in rig.delegate.trouble
    count_fault("client", "malformed answer")


def test_values_that_the_wire_cannot_carry_are_named() -> None:
    rig, answers = ready()
    request = list_offsets(answers, to=2)
    request.build = lambda version: ListOffsetsRequest(replica_id=2**40)
    rig.send(request)
    rig.run()
    assert answers.last.failure is RequestFailure.UNSUPPORTED_VERSION
    assert "replica_id" in answers.last.words


# Bounds.


def test_requests_beyond_the_bound_of_a_connection_wait() -> None:
    rig, answers = ready()
    for _ in range(IN_FLIGHT_MAX + 1):
        rig.send(list_offsets(answers, to=2))
    rig.run()
    asked = rig.network.asked_for(ApiKey.LIST_OFFSETS)
    assert len(asked) == IN_FLIGHT_MAX
    rig.network.reply(asked[0], ListOffsetsResponse())
    rig.run()
    assert len(rig.network.asked_for(ApiKey.LIST_OFFSETS)) == IN_FLIGHT_MAX + 1


def test_requests_beyond_the_bound_of_the_queue_fail() -> None:
    rig = ClientRig()
    rig.network.coordinator = None
    answers = Answers()
    rig.run()
    for _ in range(UNSENT_MAX + 1):
        rig.send(heartbeat(answers))
    rig.run()
    assert answers.last.words == f"{UNSENT_MAX} requests are waiting already"
    assert answers.failures == [RequestFailure.UNREACHABLE]


def test_a_throttled_connection_waits_and_the_others_do_not() -> None:
    """KIP-219: the node does not read before that, so that requests would only be late."""
    rig, answers = ready()
    rig.network.answer(ApiKey.LIST_OFFSETS, lambda asked: ListOffsetsResponse(throttle_time_ms=700))
    rig.send(list_offsets(answers, to=2))
    rig.run()
    rig.send(list_offsets(answers, to=2))
    rig.send(list_offsets(answers, to=3))
    rig.run(1_000)
    assert [(one.node, one.at_ms) for one in rig.network.asked_for(ApiKey.LIST_OFFSETS)] == [
        (2, 0), (3, 0), (2, 700),
    ]  # fmt: skip


def test_a_throttle_of_days_is_not_followed() -> None:
    rig, answers = ready()
    rig.network.answer(ApiKey.LIST_OFFSETS, lambda asked: ListOffsetsResponse(throttle_time_ms=2**31 - 1))
    rig.send(list_offsets(answers, to=2))
    rig.run()
    rig.send(list_offsets(answers, to=2, timeout_ms=THROTTLE_MS_MAX + 1))
    rig.run(THROTTLE_MS_MAX)
    assert answers.failures == [None, None]


def test_idle_connections_are_closed_and_made_again() -> None:
    rig, answers = ready(connections_max_idle_ms=60_000)
    rig.network.answer(ApiKey.FETCH, lambda asked: FetchResponse())
    rig.send(fetch(answers, to=2))
    rig.run(59_999)
    assert len(rig.network.connections) == 2
    rig.run(1)
    assert rig.network.connections == {}
    rig.send(fetch(answers, to=2))
    rig.run()
    assert answers.failures == [None, None]


def test_idle_connections_may_stay() -> None:
    rig, _ = ready(connections_max_idle_ms=-1)
    rig.run(10_000_000)
    assert len(rig.network.connections) == 1


# Which node.


def test_a_node_that_does_not_take_connections_does_not_hold_the_others_up() -> None:
    for chance in (0.0, 0.4, 0.9):  # the first node that is tried
        network = FakeNetwork()
        network.nodes[1 + int(chance * 3)].is_silent = True
        rig = ClientRig(network, chance=chance)
        rig.run(HEDGE_MS)
        rig.run()
        assert len(rig.metadata.view.nodes) == 3


def test_the_bootstrap_nodes_are_asked_when_all_known_nodes_are_gone() -> None:
    """KIP-899: the whole cluster has moved."""
    network = FakeNetwork(nodes=4)
    network.members = [1, 2]
    rig = ClientRig(network, bootstrap_servers=(("n1", 9092), ("n4", 9092)))
    rig.run()
    network.kill(1)
    network.kill(2)
    network.members = [3, 4]
    network.coordinator = 3
    network.answer_heartbeats()
    rig.metadata.refresh(network.now_ms, "a fetch failed")
    rig.send(heartbeat(Answers()))
    rig.run(500)
    assert sorted(rig.metadata.view.nodes) == [3, 4]
    assert rig.coordinator.node_id == 3


# The end.


def test_closing_cancels_what_is_left_and_ends_all_connections() -> None:
    rig, answers = ready()
    rig.send(list_offsets(answers, to=2))
    rig.send(heartbeat(answers))
    rig.run()
    rig.delegate.add(list_offsets(answers, to=Destination.ANY), rig.network.now_ms)
    rig.delegate.close(rig.network.now_ms)
    assert answers.failures == [RequestFailure.CANCELLED] * 3
    assert rig.network.connections == {}


@pytest.mark.parametrize("seed", range(40))
def test_every_request_ends_exactly_once_under_random_faults(seed: int) -> None:
    chance = random.Random(seed)
    network = FakeNetwork()

    def perhaps(asked: ReceivedRequest) -> Any:
        happens = chance.random()
        if happens < 0.5:
            return ListOffsetsResponse(throttle_time_ms=chance.choice((0, 0, 50)))
        if happens < 0.6:
            count_fault("client", "cut connection")
            return network.cut(asked.connection)
        if happens < 0.7:
            count_fault("client", "malformed answer")
            return b"\0\0\0\x02no"
        count_fault("client", "lost answer")
        return None

    network.answer(ApiKey.LIST_OFFSETS, perhaps)
    rig = ClientRig(network, chance=chance.random())
    each: list[Answers] = []
    for _ in range(60):
        to = chance.choice((1, 2, 3, 4, Destination.ANY, Destination.COORDINATOR))
        each.append(Answers())
        rig.send(list_offsets(each[-1], to=to, timeout_ms=chance.choice((10, 1_000, 40_000))))
        node = network.nodes[chance.choice((1, 2, 3))]
        if chance.random() < 0.1:
            node.is_up = not node.is_up
        network.coordinator = chance.choice((1, 2, 3, None))
        rig.run(chance.choice((0, 1, 30, 400)))
    rig.run(100_000)
    assert [len(answers.all) for answers in each] == [1] * len(each)
