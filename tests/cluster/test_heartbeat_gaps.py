"""Gaps between heartbeats are measured on both paths, bounded in number, and expire."""

from __future__ import annotations

import pytest

from cluster.runtime import heartbeat_gaps
from cluster.runtime.heartbeat_gaps import SILENT_MAX_MS, HeartbeatGaps
from cluster.simulator import Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles


class Notes:
    def __init__(self) -> None:
        self.gaps: list[tuple[str, float]] = []

    def heartbeat_gap(self, shard: int, group_id: str, member_id: str, gap_ms: float) -> None:
        assert shard == 3
        self.gaps.append((member_id, gap_ms))


class Entry:
    """A coordinator's FastEntry."""

    touched: tuple[float, int] = (0.0, 0)

    def is_valid(self) -> bool:
        return True

    def touch(self, monotonic_ms: float, wall_ms: int) -> None:
        self.touched = (monotonic_ms, wall_ms)


@pytest.fixture
def world() -> World:
    return World(1)


def measuring(world: World) -> tuple[HeartbeatGaps, Notes]:
    notes = Notes()
    gaps = HeartbeatGaps(VirtualHost(world, Network(world), SimFiles()), notes, 3)  # type: ignore[arg-type]
    gaps.start()
    return gaps, notes


def test_the_longest_gap_of_both_paths_is_reported_once(world: World) -> None:
    gaps, notes = measuring(world)
    entry = Entry()
    gaps.measure("g", "m", 0)
    fast = gaps.measured("g", "m", entry)  # type: ignore[arg-type]
    fast.touch(1_000, 77)
    gaps.measure("g", "m", 1_500)
    fast.touch(2_000, 78)
    assert fast.is_valid()
    assert entry.touched == (2_000, 78)
    world.run_for(10_000)
    assert notes.gaps == [("m", 1_000)]


def test_a_member_that_left_or_went_silent_is_forgotten(world: World) -> None:
    gaps, notes = measuring(world)
    for member in ("left", "silent"):
        gaps.measure("g", member, 0)
    gaps.forget("g", "left")
    world.run_for(SILENT_MAX_MS + 6_000)
    gaps.measure("g", "left", world.now_ms)
    gaps.measure("g", "silent", world.now_ms)
    world.run_for(6_000)
    assert notes.gaps == []


def test_members_beyond_the_bound_are_not_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_gaps, "MEMBERS_MAX", 2)
    monkeypatch.setattr(heartbeat_gaps, "MEMBERS_PER_TURN", 1)
    gaps, notes = measuring(world)
    for at_ms in (0, 10):
        for member in ("a", "b", "c"):
            gaps.measure("g", member, at_ms)
    world.run_for(6_000)
    assert notes.gaps == [("a", 10), ("b", 10)]
    gaps.measure("g", "a", 500)
    gaps.stop()
    assert notes.gaps[2:] == [("a", 490)]


def test_a_member_that_is_new_to_this_leader_is_measured_from_its_first_heartbeat_on(world: World) -> None:
    """A new leader knows the member from the log; its first heartbeat misses the fast path and is decided."""
    gaps, notes = measuring(world)
    fast = gaps.measured("g", "m", Entry())  # type: ignore[arg-type]
    gaps.measure("g", "m", 0)
    for now_ms in (500, 1_000, 1_500, 2_000):
        fast.touch(now_ms, 77)
    gaps.measure("g", "m", 2_500)
    world.run_for(10_000)
    assert notes.gaps == [("m", 500)]
