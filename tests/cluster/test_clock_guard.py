"""A pause of the loop is reported once, with its length; a busy loop is not reported."""

from __future__ import annotations

import pytest

from cluster.host.clock_guard import CLOCK_GAP_MS, ClockGuard
from cluster.simulator import Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles


@pytest.fixture
def world() -> World:
    return World(1)


def guarded(world: World) -> tuple[VirtualHost, ClockGuard, list[float]]:
    host = VirtualHost(world, Network(world), SimFiles(1))
    gaps: list[float] = []
    guard = ClockGuard(host, gaps.append)
    guard.start()
    return host, guard, gaps


def test_time_that_passes_normally_is_no_gap(world: World) -> None:
    _, guard, gaps = guarded(world)
    world.run_for(60_000)
    assert gaps == []
    assert guard.quiet_ms(world.now_ms) <= 0


def test_a_stall_below_the_bound_is_no_gap(world: World) -> None:
    host, _, gaps = guarded(world)
    host.pause(CLOCK_GAP_MS - 150)
    world.run_for(60_000)
    assert gaps == []


def test_a_pause_is_one_gap_of_its_length_and_timers_wait_a_moment(world: World) -> None:
    host, guard, gaps = guarded(world)
    world.run_for(1_000)
    host.pause(60_000)
    world.run_for(60_001)
    assert gaps == [pytest.approx(60_000, abs=101)]
    assert guard.quiet_ms(world.now_ms) > 0
    world.run_for(1_000)
    assert guard.quiet_ms(world.now_ms) <= 0
    assert len(gaps) == 1


def test_the_first_read_of_the_clock_after_a_pause_notices(world: World) -> None:
    _, guard, gaps = guarded(world)
    guard.observe(world.now_ms + 700)
    assert gaps == [pytest.approx(700)]


def test_a_stopped_guard_is_silent(world: World) -> None:
    _, guard, gaps = guarded(world)
    guard.stop()
    world.run_for(10_000)
    assert gaps == []
