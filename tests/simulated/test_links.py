"""Every link between three nodes, and every two: cut, cut one way, 300 ms slow; and links that come and go.

Each case bounds how long a shard may be without an acknowledged commit, how long a new group may wait for
its partitions of a topic created meanwhile, and how often leadership may move; docs/reliability.md has a
table of these figures. In no case is anything acknowledged lost, or a partition owned twice.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.report import count_fault
from tests.simulated.run import NUM_SHARDS
from tests.simulated.weather import LASTS_MS, Weather, Weathered

SLOW_MS: Final = 300.0
SLOWER_MS: Final = 20.0
SLOWER_EVERY_MS: Final = 200.0
COMES_AND_GOES_MS: Final = 900.0
HEARD_LATE_MS: Final = 400.0

Way = tuple[int, int]
LINKS: Final[tuple[Way, ...]] = ((1, 2), (1, 3), (2, 3))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds for any shard; `moves` are elections and hand-overs of one shard."""

    outage_ms: float
    served_ms: float
    moves: int


ONE_CUT: Final = Bounds(2_000, 5_000, 1)
TWO_CUT: Final = Bounds(2_500, 5_500, 1)
ONE_SLOW: Final = Bounds(500, 2_500, 0)
TWO_SLOW: Final = Bounds(2_500, 3_500, 1)
TWO_SLOWER: Final = Bounds(1_500, 3_000, 1)
ALL_SLOW: Final = Bounds(math.inf, math.inf, 0)
ALL_SLOW_AND_PATIENT: Final = Bounds(2_500, 6_000, 1)
COMING_AND_GOING: Final = Bounds(2_500, 6_000, 3)

PATIENT: Final = {"raft_min_timeout_ms": 1_500, "raft_max_timeout_ms": 2_500}


def cut(ways: tuple[Way, ...]) -> Weather:
    def begin(run: Weathered) -> None:
        for source, target in ways:
            run.cluster.cut_one_way(source, target)

    return begin


def slow(ways: tuple[Way, ...]) -> Weather:
    def begin(run: Weathered) -> None:
        for source, target in ways:
            run.network.latency_ms[f"node-{source}", f"node-{target}"] = SLOW_MS

    return begin


def slow_down(ways: tuple[Way, ...]) -> Weather:
    """Slow links down step by step: no heartbeat is ever missing, so the leader stays, without a lease."""

    def begin(run: Weathered) -> None:
        def step(extra_ms: float) -> None:
            for source, target in ways:
                run.network.latency_ms[f"node-{source}", f"node-{target}"] = extra_ms
            if extra_ms < SLOW_MS:
                run.world.at(run.world.now_ms + SLOWER_EVERY_MS, step, extra_ms + SLOWER_MS)

        step(SLOWER_MS)

    return begin


def come_and_go(ways: tuple[Way, ...]) -> Weather:
    """Break a slow link's connection again and again. One end notices later than the other, so it still reads
    the old connection when the new one begins."""

    def begin(run: Weathered) -> None:
        slow(ways)(run)
        end_ms = run.world.now_ms + LASTS_MS

        def again() -> None:
            if run.world.now_ms < end_ms:
                for source, target in ways:
                    run.cluster.reset(source, target, HEARD_LATE_MS)
                run.world.at(run.world.now_ms + COMES_AND_GOES_MS, again)

        again()

    return begin


def ways_of(link: Way) -> dict[str, tuple[Way, ...]]:
    one, other = link
    return {
        f"{one}<->{other}": (link, (other, one)),
        f"{one}->{other}": (link,),
        f"{one}<-{other}": ((other, one),),
    }


def cases() -> dict[str, tuple[Weather, Bounds, dict[str, Any]]]:
    found: dict[str, tuple[Weather, Bounds, dict[str, Any]]] = {}
    for link in LINKS:
        for name, ways in ways_of(link).items():
            found[f"cut {name}"] = (cut(ways), ONE_CUT, {})
            found[f"slow {name}"] = (slow(ways), ONE_SLOW, {})
            found[f"coming and going {name}"] = (come_and_go(ways), COMING_AND_GOING, {})
    for one, other in itertools.combinations(LINKS, 2):
        for first, second in itertools.product(ways_of(one).items(), ways_of(other).items()):
            ways = (*first[1], *second[1])
            found[f"cut {first[0]} {second[0]}"] = (cut(ways), TWO_CUT, {})
            found[f"slow {first[0]} {second[0]}"] = (slow(ways), TWO_SLOW, {})
            found[f"slower {first[0]} {second[0]}"] = (slow_down(ways), TWO_SLOWER, {})
    everywhere = tuple(way for link in LINKS for way in (link, link[::-1]))
    found["slow everywhere"] = (slow(everywhere), ALL_SLOW, {})
    found["slow everywhere, patient"] = (slow(everywhere), ALL_SLOW_AND_PATIENT, PATIENT)
    return found


CASES: Final = cases()
ALWAYS: Final = ("cut 1<->3", "slow 1<->2 1<->3", "slower 1<->2 1<->3")
QUICK: Final = ALWAYS[0]


def play(name: str) -> None:
    weather, bounds, settings = CASES[name]
    run = Weathered(weather, settings=settings)
    outcome = run.play()
    count_fault("simulated", f"{name.split()[0]} links, lasting")
    said = f"{name}: {run.say()}"
    print(said)
    assert outcome.violations == [], said
    if math.isfinite(bounds.outage_ms):
        assert max(run.outages_ms.values()) <= bounds.outage_ms, said
        assert len(run.served_ms) == NUM_SHARDS, said
        assert max(run.served_ms.values()) <= bounds.served_ms, said
    assert max(run.moves.values()) <= bounds.moves, said


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.thorough) for name in ALWAYS if name != QUICK)]
)
def test_a_fault_of_the_links(name: str) -> None:
    play(name)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ALWAYS])
def test_every_fault_of_the_links(name: str) -> None:
    play(name)
