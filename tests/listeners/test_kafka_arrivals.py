"""Clients that start together: which JoinGroup is said to be one of several."""

from __future__ import annotations

import pytest

from cluster.kafka.arrivals import EXPECTED_MS, GROUP_ID_CHARS_MAX, GROUPS_MAX, TOGETHER_MS, Arrivals
from tests.support.listener_rig import CLIENT_ID, RawClient, Rig
from wire.apis import ApiKey
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.join_group import JoinGroupRequest
from wire.protocol import encode_request

LIBRDKAFKA_AGAIN_MS = 51
"""After this time a consumer of librdkafka asks by another connection, as measured."""


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.node.holding = True
    return rig


def find(rig: Rig, client: RawClient, *groups: str) -> None:
    rig.ask(client, ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=list(groups)))


def join(rig: Rig, client: RawClient, group: str) -> bool:
    """Send JoinGroup; return whether its client counts as one of several."""
    client.send(encode_request(ApiKey.JOIN_GROUP, 9, 1, CLIENT_ID, JoinGroupRequest(group_id=group)))
    rig.run(5)
    api_key, _, _, info = rig.node.asked[-1]
    assert api_key == ApiKey.JOIN_GROUP
    return info.is_one_of_several


def test_clients_that_ask_for_a_coordinator_at_the_same_time_come_together(rig: Rig) -> None:
    a, b, c = rig.connect(), rig.connect(), rig.connect()
    find(rig, a, "g")
    find(rig, b, "g")
    assert join(rig, a, "g")
    assert not join(rig, c, "another")
    rig.run(EXPECTED_MS)
    assert not join(rig, b, "g"), "whoever came with it has joined or gone"


def test_a_client_that_asks_twice_comes_alone(rig: Rig) -> None:
    first = rig.connect()
    find(rig, first, "g")
    find(rig, first, "g")
    assert not join(rig, rig.connect(), "g")
    second = rig.connect()
    rig.run(LIBRDKAFKA_AGAIN_MS)
    find(rig, second, "g")
    assert not join(rig, rig.connect(), "g")


def test_who_asks_for_many_groups_is_not_about_to_join_them(rig: Rig) -> None:
    a, b = rig.connect(), rig.connect()
    find(rig, a, "g", "h")
    find(rig, b, "g")
    assert not join(rig, b, "g")


def test_what_is_remembered_is_bounded() -> None:
    arrivals = Arrivals()
    for number in range(GROUPS_MAX + 1):
        arrivals.asked(f"g{number}", "a:1", 0.0)
        arrivals.asked(f"g{number}", "b:1", TOGETHER_MS)
    assert not arrivals.are_several("g0", TOGETHER_MS)
    assert arrivals.are_several("g1", TOGETHER_MS)
    endless = "g" * (GROUP_ID_CHARS_MAX + 1)
    arrivals.asked(endless, "a:1", TOGETHER_MS)
    assert arrivals.are_several("g1", TOGETHER_MS), "it takes no place"
