"""H.1 Client-side assignors: which assignor is used, if any, and when the choice changes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.leader_state.clientrounds import Choice
from coordinator.limits import Limits
from coordinator.targets.clientside import chosen_assignor, common_assignor
from records import ClientAssignor, ReasonKind, Trigger
from tests.kip848.computing_members import T, chosen, computing_world, settled
from tests.support.computing_client import (
    ComputingClient,
    dealt_round,
    offer,
    settle_computing,
)
from tests.support.group_client import Client
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.extended_consumer_group_heartbeat import (
    Assignor,
    ExtendedConsumerGroupHeartbeatRequest,
    ExtendedConsumerGroupHeartbeatResponse,
)


@pytest.fixture
def world() -> World:
    return computing_world()


# The choice


def client_assignor(name: str, low: int = 0, high: int = 0) -> ClientAssignor:
    return ClientAssignor(
        reason=0, minimum_version=low, maximum_version=high, version=high, name=name, metadata=b""
    )


A, B, C = client_assignor("a"), client_assignor("b"), client_assignor("c")


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ([[A]], "a"),
        ([[B, A], [B, A], [A, B]], "b"),  # most votes
        ([[A, B], [B, A]], "a"),  # a tie: by places alike, then by name
        ([[C, A, B], [B, A, C], [A, B, C], [C, B, A]], "c"),  # two votes
        ([[A, B], [B, C]], "b"),  # the only one in common
        ([[A], [B]], None),
        ([[A], []], None),  # one member has none
        ([[], []], None),
        ([], None),
        ([[client_assignor("a", 0, 1)], [client_assignor("a", 2, 3)]], None),  # no version in common
        ([[client_assignor("a", 0, 1), B], [client_assignor("a", 2, 3), B]], "b"),
    ],
)
def test_the_assignor_is_common_to_all_by_votes(
    offers: list[list[ClientAssignor]], expected: str | None
) -> None:
    """One common to all members with overlapping version ranges, by priority/votes, else server assignor."""
    choice = common_assignor(offers)
    assert (choice.name if choice else None) == expected
    again = common_assignor(list(reversed(offers)))
    assert again == choice, "the order of members decides nothing"


def test_the_version_is_the_newest_that_all_understand() -> None:
    offers = [[client_assignor("a", 0, 5)], [client_assignor("a", 2, 4)], [client_assignor("a", 1, 7)]]
    assert common_assignor(offers) == Choice("a", 2, 4)


def test_votes_before_places_before_names() -> None:
    """c has the most votes; where c and b have two each, b stands higher in the other lists."""
    first = [[C, A, B], [C, A, B], [B, A, C]]
    assert common_assignor(first) == Choice("c", 0, 0)
    assert common_assignor([[C, B, A], [C, B, A], [B, A, C], [B, A, C]]) == Choice("b", 0, 0)


# Changes of assignors


@pytest.mark.parametrize(
    ("offers", "bumps"),
    [
        ([offer("warm", metadata=b"new")], True),
        ([offer("warm", reason=2)], True),
        ([offer("warm", 0, 4, version=0)], False),  # a wider range, the same version chosen
        ([offer("warm"), offer("cold", metadata=b"nobody uses it")], False),
        ([offer("warm")], False),
        ([offer("cold")], True),  # none in common any more
    ],
)
def test_the_epoch_moves_when_the_change_matters(world: World, offers: list[Any], bumps: bool) -> None:
    a, b = settled(world, "a", "b")
    epoch = world.group().epoch
    b.offering(*offers)
    assert world.group().epoch == epoch + bumps
    reasons = [reason.kind for reason in world.log[-1].cause.reasons]
    if bumps:
        assert reasons == [ReasonKind.CLIENT_ASSIGNORS_CHANGED]
        assert world.log[-1].cause.trigger == Trigger.MEMBER_UPDATED
    metadata = world.group().members["b"].metadata
    assert metadata is not None
    assert [one.name for one in metadata.assignors] == [one.name for one in offers]
    settle_computing([a, b])
    assert world.group().state.value == "Stable"


def test_an_offer_in_a_group_that_is_too_large_changes_no_epoch() -> None:
    """No member computes there, and to compare the offers of ten thousand takes a tenth of a second."""
    world = World(limits=Limits(client_members_max=1))
    world.create_topic("orders", 6)
    a, b = ComputingClient(world, "a"), ComputingClient(world, "b")
    settle_computing([a, b])
    epoch = world.group().epoch
    b.offering(offer("warm", metadata=b"new"))
    assert world.group().epoch == epoch
    metadata = world.group().members["b"].metadata
    assert metadata is not None
    assert metadata.assignors[0].metadata == b"new"


def test_a_version_that_is_common_no_more_matters(world: World) -> None:
    a = ComputingClient(world, "a", offers=[offer("warm", 0, 2)])
    b = ComputingClient(world, "b", offers=[offer("warm", 1, 3)])
    settle_computing([a, b], rounds=5)
    epoch = world.group().epoch
    b.offering(offer("warm", 1, 1, version=1))
    assert (world.group().epoch, chosen_assignor(world.group())) == (epoch + 1, Choice("warm", 1, 1))


def test_a_join_without_assignors_takes_them_away(world: World) -> None:
    """A client that comes back without assignors has none; a heartbeat that names none leaves them."""
    (a,) = settled(world, "a")
    world.heartbeat("a", a.epoch, subscribed_topic_names=["orders"], rebalance_timeout_ms=1_000)
    metadata = world.group().members["a"].metadata
    assert metadata is not None
    assert len(metadata.assignors) == 1
    world.join("a")
    metadata = world.group().members["a"].metadata
    assert metadata is not None
    assert metadata.assignors == ()
    assert ReasonKind.CLIENT_ASSIGNORS_CHANGED in [r.kind for r in world.log[-1].cause.reasons]


# Stock members beside them


def test_a_stock_member_makes_it_the_servers_turn(world: World) -> None:
    """Else server assignor: also when a stock member without client assignors is in the group."""
    (a,) = settled(world, "a")
    stock = Client(world, "b")
    stock.beat()
    assert world.group().assignment_epoch == world.group().epoch, "computed in the join's own decision"
    settle_computing([a, stock])
    assert (len(a.owned[T]), len(stock.owned[T]), world.group().state.value) == (3, 3, "Stable")
    assert not a.must_compute
    stock.leave()
    assert chosen(world) == "a"
    settle_computing([a])
    assert Trigger.ASSIGNMENT_INSTALLED in [entry.cause.trigger for entry in world.log[-2:]]
    assert a.partitions(T) == [0, 1, 2, 3, 4, 5]


def test_a_computation_under_way_is_dropped_when_a_stock_member_joins(world: World) -> None:
    (a,) = settled(world, "a")
    world.grow_topic("orders", 8)
    world.work()
    a.beat()
    shown = a.prepare()
    Client(world, "b").beat()
    entries = len(world.log)
    assert a.install(shown.group_epoch, dealt_round(shown)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log) == entries


def test_an_extended_member_may_have_no_assignors(world: World) -> None:
    """It hears pending partitions all the same."""

    def join(member_id: str, offers: list[Assignor] | None) -> ExtendedConsumerGroupHeartbeatResponse:
        request = ExtendedConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
            client_assignors=offers,
        )
        answer = world.beat(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request)
        assert isinstance(answer, ExtendedConsumerGroupHeartbeatResponse)
        return answer

    answer = join("a", [])
    assert answer.assignment is not None
    (topic,) = answer.assignment.assigned_topic_partitions
    assert (answer.should_compute_assignment, len(topic.partitions)) == (False, 6)
    answer = join("b", None)
    assert answer.assignment is not None
    assert sum(len(one.partitions) for one in answer.assignment.pending_topic_partitions) == 3


def test_a_member_may_withdraw_its_assignors(world: World) -> None:
    _, b = settled(world, "a", "b")
    epoch = world.group().epoch
    request = ExtendedConsumerGroupHeartbeatRequest(
        group_id="g", member_id="b", member_epoch=b.epoch, client_assignors=[]
    )
    assert world.beat(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request).error_code == 0
    assert world.group().epoch == epoch + 1
    assert [reason.kind for reason in world.log[-1].cause.reasons] == [ReasonKind.CLIENT_ASSIGNORS_CHANGED]
