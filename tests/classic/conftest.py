"""Fixtures: one shard that serves the classic protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.state.machines import ClassicState
from tests.support.classic_member import ClassicConsumer, rebalanced
from tests.support.world import TALLY, World


@pytest.fixture(autouse=True)
def _count_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count each change of state, for `test_zz_tally`."""
    move = ClassicGroup.move

    def counted(group: ClassicGroup, to: ClassicState) -> None:
        TALLY["classic", f"{group.state.name}, {to.name}"] += 1
        move(group, to)

    monkeypatch.setattr(ClassicGroup, "move", counted)


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topic("orders", 6)
    return world


@pytest.fixture
def stable(world: World) -> Callable[..., list[ClassicConsumer]]:
    """A function that makes a stable group of members with these client ids; the first one leads."""

    def make(*client_ids: str, **changes: object) -> list[ClassicConsumer]:
        consumers = [ClassicConsumer(world, client_id, **changes) for client_id in client_ids]  # type: ignore[arg-type]
        assert consumers[0].join() is None
        for consumer in consumers[1:]:
            assert consumer.join() is None
        world.work()
        rebalanced(*consumers)
        return consumers

    return make
