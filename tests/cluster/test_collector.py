"""The oldest generation is collected while that is quick; large nodes leave it to reference counting."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from cluster import collector
from cluster.collector import PAUSE_MS, ROUNDS_MAX, Collector
from cluster.simulator import Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture(autouse=True)
def running(world: World) -> Iterator[Collector]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    running = Collector(VirtualHost(world, Network(world), SimFiles(), name="node"))
    running.start()
    yield running
    running.stop()
    gc.unfreeze()
    if was_enabled:
        gc.enable()


def old_garbage() -> weakref.ref[Cycle]:
    """Return a weak reference to a garbage cycle that has reached the oldest generation."""
    cycle = Cycle()
    gc.collect(1)
    return weakref.ref(cycle)


def test_old_cycles_are_freed(world: World) -> None:
    garbage = old_garbage()
    gc.collect(0)
    assert garbage() is not None, "the young alone do not show it"
    world.run_for(PAUSE_MS + 1)
    assert garbage() is None
    later = old_garbage()
    world.run_for(PAUSE_MS + 1)
    assert later() is None


def test_what_took_too_long_is_not_looked_at_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LOOK_MS_MAX", -1.0)
    kept = Cycle()
    world.run_for(PAUSE_MS + 1)
    assert not [one for one in gc.get_objects() if one is kept]
    assert gc.get_freeze_count()


def test_what_came_in_great_numbers_is_not_looked_at_at_all(world: World) -> None:
    kept = Cycle()
    for _ in range(ROUNDS_MAX + 1):
        gc.collect(1)
    world.run_for(PAUSE_MS + 1)
    assert not [one for one in gc.get_objects() if one is kept]


def test_it_ends(world: World, running: Collector) -> None:
    running.stop()
    garbage = old_garbage()
    world.run_for(3 * PAUSE_MS)
    assert garbage() is not None
    gc.collect()
