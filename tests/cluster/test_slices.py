"""Slow work shares one budget per turn: every piece of it gets its share, and short work does not wait."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import groupby

import pytest

from cluster.runtime.slices import MORE, OWN, SHARE_MS, SLICE_MS, SOON, Slices, Timed, finished
from cluster.simulator import Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles

STEP_MS = 0.2
"""Milliseconds that pass at each reading of the clock."""


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


def test_long_work_takes_a_share_of_each_turn_and_ends_in_order(bench: Bench) -> None:
    bench.run("a", 200)
    in_first_turn = len(bench.did)
    assert in_first_turn <= SLICE_MS / STEP_MS
    bench.run("b", 200)
    assert "b" not in bench.did, "the turn has spent what it may"
    sizes = []
    bench.host.call_soon(_watch, bench, sizes)
    bench.world.run_for(200)
    assert bench.did.index("a ends") < bench.did.index("b ends")
    assert bench.did[-1] == "b ends"
    assert len(sizes) >= 50
    assert max(sizes) <= SHARE_MS / STEP_MS + 1


def test_short_calls_are_made_until_the_turn_has_spent_its_slice(bench: Bench) -> None:
    calls: list[int] = []
    made = [bench.slices.at_once(calls.append, number) for number in range(100)]
    assert made.count(True) == len(calls) <= SLICE_MS / STEP_MS + 1
    assert made == sorted(made, reverse=True), "once the slice is spent, no call is made in this turn"
    bench.world.run_for(1)
    assert bench.slices.at_once(calls.append, 100)


def _watch(bench: Bench, sizes: list[int], before: int = 0) -> None:
    """Record the number of steps in each turn."""
    if before:
        sizes.append(len(bench.did) - before)
    if len(bench.slices):
        bench.host.call_soon(_watch, bench, sizes, len(bench.did))


def test_what_is_short_passes_by(bench: Bench) -> None:
    bench.run("long", 300)
    bench.run("short", 0)
    _turn_for(bench, 1)
    assert "short ends" in bench.did
    assert bench.did.count("long") < 40
    bench.run("short again", 1)
    assert bench.did[-1] == "short again ends", "nor does it wait for a turn while there is time in this one"


def _turn_for(bench: Bench, turns: int) -> None:
    """Run this number of turns in which work waits."""
    before = bench.slices._turns
    assert bench.world.run_until(lambda: bench.slices._turns == before + turns, within_ms=1_000)


def test_work_that_is_no_longer_wanted_is_dropped(bench: Bench) -> None:
    wanted = [True]
    bench.slices.run(bench.work("a", 100), lambda: wanted[0])
    bench.run("b", 100)
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
    """A client's thousand one-second descriptions must not delay another client's answer of a few ms."""
    for number in range(20):
        bench.run(f"long-{number}", 200)
    bench.run("modest", 3)
    bench.world.run_for(5_000)
    ended = [name for name in bench.did if name.endswith("ends")]
    assert ended.index("modest ends") <= 1
    assert ended[-1] == "long-19 ends"


def test_only_one_long_work_is_more_than_begun(bench: Bench) -> None:
    for number in range(5):
        bench.run(f"{number}", 200)
    largest = []

    def look() -> None:
        of_each = [bench.did.count(str(n)) for n in range(5) if f"{n} ends" not in bench.did]
        largest.append(sum(1 for steps in of_each if steps > 1.5 * SLICE_MS / STEP_MS))
        if len(bench.slices):
            bench.host.call_soon(look)

    bench.host.call_soon(look)
    bench.world.run_for(1_000)
    assert not len(bench.slices)
    assert max(largest) == 1


def test_work_that_raises_keeps_no_other_work_waiting(bench: Bench) -> None:
    def failing() -> Iterator[None]:
        yield from bench.work("a", 100)
        raise RuntimeError("of its own")

    bench.slices.run(failing(), lambda: True)
    bench.run("b", 100)
    bench.world.run_for(100)
    assert bench.did[-1] == "b ends"
    assert not len(bench.slices)


class Requests:
    """A number of requests of one connection."""

    is_long = False

    def __init__(self, bench: Bench, name: str, count: int) -> None:
        self.bench = bench
        self.name = name
        self.count = count

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        while self.count:
            self.count -= 1
            self.bench.did.append(self.name)
            if self.bench.host.monotonic_ms() >= end_ms:
                break
        return None if self.count else self.bench.host.monotonic_ms()


def test_each_has_a_share_in_its_turn_and_one_request_goes_before_thousands(bench: Bench) -> None:
    for number in range(20):
        bench.slices.submit(Requests(bench, f"greedy {number}", 2_000), MORE)
    _turn_for(bench, 60)
    begun = len(bench.did)
    bench.slices._at_once_ms = SLICE_MS  # the turn's budget for immediate work is used up
    bench.slices.submit(Requests(bench, "modest", 1), SOON)
    _turn_for(bench, 4)
    assert "modest" in bench.did[begun : begun + 3 * int(SHARE_MS / STEP_MS) + 1]
    shares = [bench.did.count(f"greedy {number}") for number in range(1, 20)]
    assert max(shares) - min(shares) <= SHARE_MS / STEP_MS + 1, "round and round"
    assert min(shares) >= 2 * SHARE_MS / STEP_MS


def test_no_lane_starves_another(bench: Bench) -> None:
    """The lanes are short work in every turn, connections with thousands of requests, and long answers."""
    bench.run("long", 2_000)
    _turn_for(bench, 30)
    bench.slices.submit(Requests(bench, "greedy", 10_000), MORE)

    def flood() -> None:
        for _ in range(10):
            bench.slices._lanes[SOON].append(Requests(bench, "little", 5))
        bench.host.call_soon(flood)

    bench.host.call_soon(flood)
    bench.did.clear()
    _turn_for(bench, 40)
    counted = [bench.did.count(name) for name in ("little", "greedy", "long")]
    assert min(counted) >= 10 * SHARE_MS / STEP_MS * 0.8
    assert counted[0] >= 20 * SHARE_MS / STEP_MS * 0.8


def test_shards_and_clients_that_never_rest_have_their_part_of_each_turn(bench: Bench) -> None:
    """Sixteen shards become leaders beside five hundred busy connections."""
    for number in range(16):
        bench.slices.run(bench.work(f"shard {number}", 10_000), lambda: True, OWN)
    for number in range(500):
        bench.slices.submit(Requests(bench, f"greedy {number}", 10_000), MORE)
    _turn_for(bench, 5)
    bench.did.clear()
    sizes: list[int] = []
    bench.host.call_soon(_watch, bench, sizes)
    _turn_for(bench, 100)
    of_each = [bench.did.count(f"shard {number}") for number in range(16)]
    assert min(of_each) >= 0.8 * max(of_each), "round and round"
    assert sum(of_each) >= 100 * SLICE_MS / STEP_MS * 0.8
    assert len(bench.did) - sum(of_each) >= 100 * SHARE_MS / STEP_MS * 0.8
    assert max(sizes) <= (SLICE_MS + SHARE_MS) / STEP_MS + 6


@pytest.mark.parametrize("lane", [SOON, MORE])
def test_a_turn_spends_a_slice_on_all_that_comes_in_it_however_much_that_is(bench: Bench, lane: int) -> None:
    for number in range(500):
        bench.slices.submit(Requests(bench, str(number), 3), lane)
    assert len(bench.did) <= (SLICE_MS + SHARE_MS) / STEP_MS
    sizes: list[int] = []
    bench.host.call_soon(_watch, bench, sizes)
    bench.world.run_for(2_000)
    assert len(bench.did) == 1_500
    assert max(sizes) <= SHARE_MS / STEP_MS + 3


@pytest.mark.parametrize("lane", [SOON, MORE])
def test_a_batch_that_fits_into_a_share_is_never_cut(bench: Bench, lane: int) -> None:
    for number in range(50):
        bench.slices.submit(Requests(bench, str(number), 3), lane)
    bench.world.run_for(1_000)
    assert len(bench.did) == 150
    assert len(list(groupby(bench.did))) == 50


def test_what_is_handed_in_by_work_has_part_in_its_share(bench: Bench) -> None:
    """The work here is an answer that a request makes due at once."""

    class Asking(Requests):
        def go_on(self, now_ms: float, end_ms: float) -> float | None:
            assert not self.bench.slices.run(self.bench.work("answer", 500), lambda: True)
            return now_ms

    bench.slices.submit(Asking(bench, "asking", 1))
    assert 1 < len(bench.did) <= SLICE_MS / STEP_MS + 1
    bench.world.run_for(1_000)
    assert bench.did[-1] == "answer ends"


def test_the_cost_of_work_is_without_the_time_between_its_steps() -> None:
    readings = iter([0.0, 1.0, 50.0, 52.0, 90.0, 93.0])

    def work() -> Generator[None, None, str]:
        yield
        yield
        return "done"

    timed = Timed(lambda: next(readings))
    assert (finished(timed.run(work())), timed.spent) == ("done", 6.0)
