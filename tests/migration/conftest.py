"""Fixtures: one shard that serves both protocols, and a check that no partition is used twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.limits import Limits
from tests.support.embedded_member import EmbeddedConsumer, settled
from tests.support.world import World


@pytest.fixture
def world() -> World:
    world = World(limits=Limits(serves_classic=True))
    world.create_topic("orders", 6)
    return world


@pytest.fixture
def stable(world: World) -> Callable[..., list[EmbeddedConsumer]]:
    """A function that makes a stable classic group of consumers with these client ids."""

    def make(*client_ids: str, **changes: object) -> list[EmbeddedConsumer]:
        consumers = [EmbeddedConsumer(world, client_id, **changes) for client_id in client_ids]  # type: ignore[arg-type]
        settled(world, *consumers)
        assert [one.phase for one in consumers] == ["stable"] * len(consumers)
        return consumers

    return make
