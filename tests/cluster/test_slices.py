"""Long work in slices: one slice a turn, in order, and what is short does not wait for it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from cluster.runtime.slices import SLICE_MS, Slices, finished
from cluster.simulator import Network, VirtualHost, World
from raftlog.simfiles import SimFiles

STEP_MS = 1.0
"""What passes at each look at the clock."""


class Bench:
    def __init__(self) -> None:
        self.world = World(1)
        self.host = VirtualHost(
            self.world, Network(self.world), SimFiles(), name="node", clock_step_ms=STEP_MS
        )
        self.slices = Slices(self.host)
        self.did: list[str] = []

    def work(self, name: str, steps: int) -> Iterator[None]:
        for _ in range(steps):
            self.did.append(name)
            yield
        self.did.append(f"{name} ends")

    def run(self, name: str, steps: int) -> None:
        self.slices.run(self.work(name, steps), lambda: True)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_short_work_is_done_at_once(bench: Bench) -> None:
    bench.run("a", 2)
    assert bench.did == ["a", "a", "a ends"]
    assert not len(bench.slices)


def test_long_work_takes_a_slice_of_each_turn_and_ends_in_order(bench: Bench) -> None:
    bench.run("a", 30)
    in_first_turn = len(bench.did)
    assert in_first_turn <= SLICE_MS / STEP_MS
    bench.run("b", 30)
    assert bench.did.count("b") == 1, "its first step, and then it waits"
    sizes = []
    bench.host.call_soon(_watch, bench, sizes)
    bench.world.run_for(100)
    assert bench.did.index("a ends") < [n for n, name in enumerate(bench.did) if name == "b"][1]
    assert bench.did[-1] == "b ends"
    assert len(sizes) >= 10
    assert max(sizes) <= SLICE_MS / STEP_MS + 1


def _watch(bench: Bench, sizes: list[int], before: int = 0) -> None:
    """How much is done between two turns."""
    if before:
        sizes.append(len(bench.did) - before)
    if len(bench.slices):
        bench.host.call_soon(_watch, bench, sizes, len(bench.did))


def test_what_is_short_passes_by(bench: Bench) -> None:
    bench.run("long", 30)
    bench.run("short", 0)
    assert bench.did[-1] == "short ends"


def test_what_nobody_waits_for_any_more_is_let_go(bench: Bench) -> None:
    wanted = [True]
    bench.slices.run(bench.work("a", 30), lambda: wanted[0])
    bench.run("b", 30)
    done = bench.did.count("a")
    wanted[0] = False
    bench.world.run_for(100)
    assert bench.did.count("a") == done
    assert bench.did[-1] == "b ends"
    assert not len(bench.slices)


def test_finished() -> None:
    def adding() -> Generator[None, None, int]:
        yield
        return 3

    assert finished(adding()) == 3
