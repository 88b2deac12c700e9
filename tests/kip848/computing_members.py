"""Members with client-side assignors, up to the moment that a test of H.1 is about."""

from __future__ import annotations

from typing import Any

from tests.support.computing_client import (
    ComputingClient,
    settle_computing,
)
from tests.support.world import FIRST_TOPIC, World

T = FIRST_TOPIC


def computing_world() -> World:
    """A topic `orders` of six partitions."""
    world = World()
    world.create_topic("orders", 6)
    return world


def settled(world: World, *names: str, **fields: Any) -> list[ComputingClient]:
    """Members with the assignor "warm", stable on a target that one of them computed."""
    members = [ComputingClient(world, name, **fields) for name in names]
    settle_computing(members, rounds=5)
    group = world.group()
    assert group.state.value == "Stable"
    assert {len(member.owned.get(T, ())) for member in members} <= {6 // len(names), -(-6 // len(names))}
    return members


def joins_and_waits(world: World, name: str = "z") -> ComputingClient:
    """Let a new member join, so that a target is due; the chosen member has not been asked yet."""
    member = ComputingClient(world, name)
    member.beat()
    assert world.group().epoch > world.group().assignment_epoch
    return member


def chosen(world: World) -> str:
    round_ = world.shard.groups.client_side.rounds.get("g")
    return round_.chosen if round_ is not None else ""
