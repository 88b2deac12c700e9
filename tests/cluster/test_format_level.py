"""The format level at which a new cluster begins: mixed releases, old directories, late nodes, crashes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from cluster.format_level import AWAITED_MS
from cluster.node import Node
from cluster.simulator import Machine, Network, World
from coordinator.topics import FIRST_FORMAT_LEVEL
from raftlog.env.simulated_files import Crash
from records import LATEST_FORMAT_LEVEL, METADATA_SHARD
from tests.report import count_fault
from tests.support.three_nodes import ThreeNodes

FIRST, LATEST = FIRST_FORMAT_LEVEL, LATEST_FORMAT_LEVEL


class OlderNode(Node):
    """A node of the release before this one."""

    format_level_max = LATEST - 1


class Fresh(ThreeNodes):
    """Three machines on which no node has run; `starting` are the levels in their directories."""

    def __init__(self, *starting: int, seed: int = 1, **machine: Any) -> None:
        super().__init__(seed, is_booted=False, num_shards=1, **machine)
        for one, level in zip(self.cluster.machines.values(), starting or (LATEST,) * 3, strict=True):
            one.format_anew(starting_level=level)

    @property
    def levels(self) -> list[int]:
        return [one.node.format_level for one in self.cluster.up.values() if one.node.shards]

    def boot(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.cluster[node_id].boot()

    def wait_ready(self) -> None:
        self.cluster.wait_for(lambda: all(one.node.is_ready for one in self.cluster.up.values()))

    def upgrade(self) -> None:
        node = self.cluster[self.cluster.wait_for_leader(METADATA_SHARD)].node
        done: list[str | None] = []
        node.host.call_soon(node.upgrade, done.append)
        self.cluster.wait_for(lambda: done == [None])

    def restart(self) -> None:
        for one in self.cluster.machines.values():
            one.kill()
        self.cluster.boot()
        self.wait_ready()
        self.world.run_for(2_000)


def test_a_new_cluster_is_ready_with_the_newest_level() -> None:
    nodes = Fresh()
    ready: list[int] = []
    for one in nodes.cluster.machines.values():
        node = one.boot()
        node.when_ready(lambda node=node: ready.append(node.format_level))
    nodes.cluster.wait_for(lambda: len(ready) == 3, within_ms=AWAITED_MS)
    assert ready == [LATEST] * 3


def test_a_new_node_that_is_alone_is_ready_with_the_newest_level() -> None:
    world = World(1)
    machine = Machine(world, Network(world), starting_level=LATEST)
    assert machine.boot_until_ready().format_level == LATEST
    assert world.now_ms < AWAITED_MS


def test_the_directories_of_an_older_release_keep_their_level() -> None:
    """Also without a topic, after restarts, and until an operator raises it."""
    nodes = Fresh(FIRST, FIRST, FIRST)
    nodes.boot(1, 2, 3)
    nodes.wait_ready()
    assert nodes.world.now_ms < AWAITED_MS
    nodes.restart()
    assert nodes.levels == [FIRST] * 3
    nodes.upgrade()
    assert nodes.levels == [LATEST] * 3


@pytest.mark.parametrize("starting", [(FIRST, LATEST, LATEST), (LATEST, LATEST, FIRST)])
def test_one_directory_of_an_older_release_keeps_the_cluster_at_the_first(starting: tuple[int, ...]) -> None:
    nodes = Fresh(*starting)
    nodes.boot(1, 2, 3)
    nodes.wait_ready()
    nodes.restart()
    assert nodes.levels == [FIRST] * 3


@pytest.mark.parametrize("order", [*permutations((1, 2, 3))])
def test_nodes_that_come_one_after_the_other_raise_it_with_the_last(order: tuple[int, ...]) -> None:
    """Meanwhile two of them serve, at the first level, and have a topic."""
    nodes = Fresh()
    for node_id in order[:2]:
        nodes.boot(node_id)
        nodes.world.run_for(1_000)
    nodes.wait_ready()
    assert nodes.create("orders", 3) == 0
    assert nodes.levels == [FIRST] * 2
    nodes.boot(order[2])
    nodes.wait_ready()
    assert nodes.levels == [LATEST] * 3


def test_a_node_is_ready_without_the_level_while_another_one_is_missing() -> None:
    nodes = Fresh()
    ready_ms: list[float] = []
    for node_id in (1, 2):
        nodes.cluster[node_id].boot().when_ready(lambda: ready_ms.append(nodes.world.now_ms))
    nodes.cluster.wait_for(lambda: len(ready_ms) == 2)
    assert all(AWAITED_MS <= at_ms < AWAITED_MS + 100 for at_ms in ready_ms)


@pytest.mark.parametrize("starting", [(LATEST,) * 3, (LATEST, LATEST, LATEST - 1)])
def test_a_cluster_with_a_node_of_the_release_before_begins_at_its_level(starting: tuple[int, ...]) -> None:
    """It stays there when that node has the newer release, which its operator may take back."""
    nodes = Fresh(*starting)
    nodes.cluster[3].node_class = OlderNode
    nodes.boot(1, 2, 3)
    nodes.wait_ready()
    assert nodes.levels == [LATEST - 1] * 3
    nodes.cluster[3].node_class = Node
    nodes.restart()
    assert nodes.levels == [LATEST - 1] * 3
    nodes.upgrade()
    assert nodes.levels == [LATEST] * 3


def test_an_older_release_that_comes_after_the_level_is_refused() -> None:
    nodes = Fresh()
    nodes.boot(1, 2, 3)
    nodes.wait_ready()
    late = nodes.cluster[3]
    late.kill()
    late.node_class = OlderNode
    late.boot()
    nodes.world.run_for(3_000)
    assert not nodes.cluster.takes_part(3)
    late.kill()
    late.node_class = Node
    late.boot()
    nodes.wait_ready()
    assert nodes.cluster.takes_part(3)


def test_a_replaced_disk_does_not_raise_the_level_of_its_cluster() -> None:
    nodes = Fresh(FIRST, FIRST, LATEST)
    nodes.boot(1, 2, 3)
    nodes.wait_ready()
    nodes.cluster[3].kill()
    nodes.cluster[3].replace_disk()
    nodes.cluster[3].boot()
    nodes.wait_ready()
    nodes.world.run_for(2_000)
    assert nodes.levels == [FIRST] * 3


def test_a_level_that_was_given_is_not_begun_again() -> None:
    """An older release ran the new directories, and its operator chose a level: newer ones keep it."""
    nodes = Fresh()
    for one in nodes.cluster.machines.values():
        one.node_class = OlderNode
    nodes.boot(1, 2, 3)
    nodes.wait_ready()
    for one in nodes.cluster.machines.values():
        one.node_class = Node
    nodes.restart()
    assert nodes.levels == [LATEST - 1] * 3


@pytest.mark.parametrize("how", [Crash.KEPT, Crash.TORN, Crash.LOST])
def test_crashes_between_the_first_election_and_the_level_do_not_matter(how: Crash) -> None:
    """Every disk call of the leader of the metadata shard is a crash point, until the level is written."""
    num_crashes = 0
    for after_calls in range(1_000):
        nodes = Fresh(seed=3)
        nodes.boot(1, 2, 3)
        nodes.world.run_until(lambda nodes=nodes: _elected(nodes) is not None, within_ms=AWAITED_MS)
        elected = _elected(nodes)
        assert elected is not None
        crashed = _crash_at(nodes, nodes.cluster[elected], after_calls, how)
        nodes.cluster.wait_for(lambda nodes=nodes: LATEST in nodes.levels or len(nodes.levels) < 3)
        if not crashed:
            break
        num_crashes += 1
        nodes.cluster.boot()
        nodes.wait_ready()
        assert nodes.levels == [LATEST] * 3, after_calls
    assert num_crashes > 3
    count_fault("cluster", "crash before a new cluster has its level", num_crashes)


def _elected(nodes: Fresh) -> int | None:
    for node_id, one in nodes.cluster.up.items():
        if one.node.shards and one.node.metadata.replica.is_leader:
            return node_id
    return None


def _crash_at(nodes: Fresh, machine: Machine, after_calls: int, how: Crash) -> list[int]:
    """Let the machine crash at a disk call from now on; the list that is returned tells when it has."""
    crashed: list[int] = []
    seen = 0

    def on_call(number: int, operation: str, path: str, is_done: bool) -> None:
        nonlocal seen
        seen += not is_done
        if seen > after_calls and not crashed and "metadata" in path:
            crashed.append(number)
            nodes.world.at(nodes.world.now_ms, lambda: machine.crash(how, after_calls))

    machine.on_disk_call = on_call
    return crashed
