"""Every link between real nodes in turn, and every two of them: cut, half open each way, or slow.

The same search in virtual time has more cases and closer checks (`tests/simulated/test_links.py`). Here one
client commits to each shard, one offset higher each time. All clients go on within the bound, none waits long
again while the fault lasts, and acknowledged commits are there afterwards.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.client import Client
from raftlog.replica.balancing import preferred_node
from tests.failover.conftest import SETTINGS
from tests.failover.mesh import Meshed, mesh
from tests.failover.proxy import Proxy, Way
from tests.report import count_fault
from tests.support.real_cluster import (
    NUM_SHARDS,
    TOPIC,
    Committer,
    addresses,
    check_nothing_lost,
    group_in,
    leader_of,
)
from tests.support.waiting import wait_for

SLOW_S = 0.3
LASTS_S = 7.0
"""Longer than a catalog is trusted without updates, plus a hand-over and a balancing."""
BOUND_S = 6.0
"""Time for the link's silence, an election and a hand-over, on a busy machine."""

FEW = 5
"""Number of commits: a distant leader takes more than half a second for each."""

Fault = Callable[[Proxy], None]
FAULTS: dict[str, Fault] = {
    "cut": Proxy.cut,
    "held there": lambda proxy: proxy.hold(Way.THERE),
    "held back": lambda proxy: proxy.hold(Way.BACK),
    "slow": lambda proxy: proxy.delay(SLOW_S),
}
LINKS = ((2, 1), (3, 1), (3, 2))
"""(dialling id, listening id) of each link."""
ONES = [(what, (link,)) for link in LINKS for what in FAULTS]
TWOS = [(what, links) for links in itertools.combinations(LINKS, 2) for what in FAULTS]
SHORT = [("cut", ((3, 1),)), ("slow", ((2, 1), (3, 1)))]
LONG = 3 * (ONES + TWOS)
"""72 rounds."""
PER_CLUSTER = 12

Round = tuple[str, tuple[tuple[int, int], ...]]


def _mend(proxy: Proxy) -> None:
    proxy.delay(0.0)
    for way in Way:
        proxy.pass_on(way)
    proxy.heal()


def _play(meshed: Meshed, rounds: list[Round]) -> None:
    nodes = meshed.cluster.nodes
    with Client(meshed.cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    all_of = [Committer(addresses(nodes), group_in(shard, "link")) for shard in range(NUM_SHARDS)]
    for one in all_of:
        one.wait_for_more()
    preferred = [preferred_node((1, 2, 3), shard) for shard in range(NUM_SHARDS)]

    def is_balanced() -> bool:
        return [leader_of(nodes, one.group_id).node_id for one in all_of] == preferred

    for what, links in rounds:
        wait_for(is_balanced, "every shard is led by its own node")
        for one in all_of:
            one.longest_gap_s = 0.0
        began_s = time.monotonic()
        for link in links:
            FAULTS[what](meshed.proxies[link])
        count_fault("failover", f"{len(links)} of three links {what}")
        for one in all_of:
            one.wait_for_more(FEW, within_s=BOUND_S)
        time.sleep(max(0.0, began_s + LASTS_S - time.monotonic()))
        gaps = {one.group_id: round(one.longest_gap_s, 2) for one in all_of}
        print(f"{what} {links}: longest {gaps}")
        for link in links:
            _mend(meshed.proxies[link])
        for one in all_of:
            one.wait_for_more()
        assert max(gaps.values()) < BOUND_S, f"{what} {links}: {gaps}"
    check_nothing_lost(meshed.cluster, all_of)


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[Meshed]:
    """Like `meshed`, with balancing at once: every round begins with one leader on each node."""
    with mesh(tmp_path / "cluster", SETTINGS | {"leader.balance.delay.ms": "100"}) as started:
        yield started


@pytest.mark.timeout(90)
def test_one_link_cut_and_two_slow(balanced: Meshed) -> None:
    _play(balanced, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(len(LONG) // PER_CLUSTER))
def test_every_link_in_turn(balanced: Meshed, part: int) -> None:
    _play(balanced, LONG[part * PER_CLUSTER : (part + 1) * PER_CLUSTER])
