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
    assert bench.did.index("a ends") < bench.did.index("b ends")
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


def test_what_takes_a_slice_does_not_wait_for_all_that_is_long(bench: Bench) -> None:
    """One client's thousand descriptions of a second each must not hold up another's answer of some ms."""
    for number in range(20):
        bench.run(f"long-{number}", 100)
    bench.run("modest", 3)
    bench.world.run_for(5_000)
    ended = [name for name in bench.did if name.endswith("ends")]
    assert ended.index("modest ends") <= 1
    assert ended[-1] == "long-19 ends"
    assert [name for name in ended if name.startswith("long")] == [f"long-{n} ends" for n in range(20)]


def test_only_one_long_work_is_more_than_begun(bench: Bench) -> None:
    for number in range(5):
        bench.run(f"{number}", 50)
    largest = []

    def look() -> None:
        of_each = [bench.did.count(str(n)) for n in range(5) if f"{n} ends" not in bench.did]
        largest.append(sum(1 for steps in of_each if steps > 2 * SLICE_MS / STEP_MS))
        if len(bench.slices):
            bench.host.call_soon(look)

    bench.host.call_soon(look)
    bench.world.run_for(1_000)
    assert not len(bench.slices)
    assert max(largest) == 1


def test_what_raises_keeps_nobody_waiting(bench: Bench) -> None:
    def failing() -> Iterator[None]:
        yield from bench.work("a", 20)
        raise RuntimeError("of its own")

    bench.slices.run(failing(), lambda: True)
    bench.run("b", 20)
    bench.world.run_for(100)
    assert bench.did[-1] == "b ends"
    assert not len(bench.slices)
