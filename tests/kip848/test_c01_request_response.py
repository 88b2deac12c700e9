"""C.1 ConsumerGroupHeartbeat: request and response."""

from __future__ import annotations

import pytest

from tests.support.world import World
from wire.errors import ErrorCode


def test_v0_the_coordinator_generates_the_member_id(world: World) -> None:
    """v0: an empty member id on join makes the server generate one, which the reply carries."""
    answer = world.heartbeat(
        "", 0, version=0, rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"], owned={}
    )
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert answer.member_id
    assert world.heartbeat(answer.member_id, 1, version=0).error_code == 0
    assert list(world.group().members) == [answer.member_id]


def test_v1_the_client_generates_the_member_id(world: World) -> None:
    """v1: the client generates the member id, always required."""
    assert world.join("").error_code == ErrorCode.INVALID_REQUEST
    assert world.join("mine+/=").member_id == "mine+/="


def test_null_means_unchanged(world: World) -> None:
    """Unset = "unchanged" makes steady heartbeats tiny: group, member, epoch."""
    world.join("a", rack_id="r1", server_assignor="range")
    before = world.group().members["a"].metadata
    entries = len(world.log)
    assert world.heartbeat("a", 1).error_code == 0
    assert world.group().members["a"].metadata == before
    assert len(world.log) == entries


@pytest.mark.parametrize(
    ("field", "value"), [("rack_id", "r2"), ("rebalance_timeout_ms", 5_000), ("server_assignor", "uniform")]
)
def test_what_is_set_replaces_what_was(world: World, field: str, value: object) -> None:
    """Each field that is not null replaces the member's."""
    world.join("a")
    world.heartbeat("a", 1, **{field: value})
    assert getattr(world.group().members["a"].metadata, field) == value


def test_the_first_epoch_of_a_new_group_is_1(world: World) -> None:
    """First epoch of a new group: 1, for the first member."""
    assert world.join("a").member_epoch == 1
    assert [abs(kind) for kind in world.log[0].types] == [5, 4, 3, 7, 6, 8]
