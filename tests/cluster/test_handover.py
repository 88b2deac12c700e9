"""Nodes hand a shard over only to a node that can serve it, here with a cut link or a full disk."""

from __future__ import annotations

import pytest

from cluster.runtime.committed_catalog import AGE_MAX_MS
from cluster.runtime.shard_runtime import LASTING_MS
from cluster.runtime.shard_state import ShardState
from raftlog.env.obstacles import Obstacle, obstacle_words
from records import METADATA_SHARD, shard_of
from tests.report import count_fault
from tests.support.requests import commit_request, join_request
from tests.support.three_nodes import ThreeNodes
from wire.apis import ApiKey
from wire.errors import ErrorCode

BALANCE_MS = 10_000
NUM_SHARDS = 2
SHARD = 1
"""A shard whose preferred leader is node 3; node 1 is the metadata shard's."""
GROUP = next(name for name in map("group-{}".format, range(100)) if shard_of(name, NUM_SHARDS) == SHARD)
BEHIND = obstacle_words(Obstacle.CATALOG_BEHIND)
FULL = obstacle_words(Obstacle.DISK_FULL)


class Parted(ThreeNodes):
    """Node 1 leads the metadata shard, node 2 the shard that node 3 should lead, and nodes 1 and 3 do not
    reach each other. A group of the shard relies on a topic that node 3 has not heard of."""

    def __init__(self, *, is_relied_on: bool = True) -> None:
        settings = {"leader_balance_delay_ms": BALANCE_MS}
        super().__init__(num_shards=NUM_SHARDS, settings=settings)
        self.cluster.cut(1, 3)
        count_fault("cluster", "one link cut")
        self.lead(METADATA_SHARD, 1)
        self.lead(SHARD, 2)
        assert self.create("news", 4) == 0
        if is_relied_on:
            assert self.join(2) == 0

    def lead(self, shard: int, node_id: int) -> None:
        leader = self.cluster.wait_for_leader(shard)
        if leader != node_id:
            assert self.transfer(shard, leader, node_id) is None
            self.cluster.wait_for(lambda: self.cluster.leader_of(shard) == node_id)

    def transfer(self, shard: int, leader: int, to: int | None) -> str | None:
        done: list[str | None] = []
        self.cluster[leader].node.transfer(shard, to, done.append)
        self.cluster.wait_for(lambda: bool(done))
        return done[0]

    def join(self, node_id: int, topic: str = "news") -> int:
        request = join_request(GROUP, "m", topic)
        return int(self.ask(node_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code)

    def leaders_over(self, ms: float) -> set[int | None]:
        """Return the nodes that served the shard, sampled ten times a second."""
        found = set()
        for _ in range(int(ms / 100)):
            self.world.run_for(100)
            found.add(self.cluster.leader_of(SHARD))
        return found


def test_a_shard_stays_with_who_can_serve_it_while_its_own_node_lacks_the_catalog() -> None:
    nodes = Parted()
    assert nodes.leaders_over(4 * BALANCE_MS) == {2}
    assert nodes.join(2) == 0
    status = nodes.cluster.runtime(3, SHARD).status()["log"]
    assert status["cannot_serve"] == BEHIND
    told = nodes.cluster.runtime(2, SHARD).replica.leadership.followers()
    assert {row["node_id"]: row["cannot_serve"] for row in told} == {1: None, 3: BEHIND}
    assert nodes.transfer(SHARD, 2, 3) == f"node 3 cannot serve: {BEHIND}"
    nodes.network.heal_all()
    nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) == 3)
    assert nodes.join(3) == 0


def test_a_node_that_misses_new_topics_gives_its_shards_away() -> None:
    """Its catalog is enough for the existing groups, but for no others."""
    nodes = ThreeNodes(num_shards=NUM_SHARDS)
    assert nodes.cluster.leader_of(SHARD) == 3
    nodes.cluster.cut(1, 3)
    count_fault("cluster", "one link cut")
    took_ms = nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) == 2)
    assert AGE_MAX_MS < took_ms < AGE_MAX_MS + LASTING_MS + 1_000
    assert nodes.create("news", 4) == 0
    request = join_request(GROUP, "m", "news")
    assert nodes.ask(2, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == 0


def test_a_leader_that_does_not_become_ready_hands_over() -> None:
    """It became leader before it could know that it would not receive the catalog."""
    nodes = Parted(is_relied_on=False)
    nodes.network.heal_all()
    nodes.world.run_for(1_000)
    nodes.cluster.cut(1, 3)
    assert nodes.create("more", 4) == 0
    assert nodes.join(2, "more") == 0
    assert nodes.transfer(SHARD, 2, 3) is None
    nodes.cluster.wait_for(lambda: nodes.cluster.runtime(3, SHARD).state is ShardState.CATCH_UP)
    took_ms = nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) == 2)
    assert took_ms < LASTING_MS + 1_000
    assert nodes.join(2, "more") == 0
    assert nodes.leaders_over(3 * BALANCE_MS) == {2}


def test_a_node_that_stops_hands_over_to_who_can_serve() -> None:
    nodes = Parted()
    nodes.world.run_for(LASTING_MS + 500)
    nodes.cluster[2].host.call_soon(nodes.cluster[2].node.stop, lambda: None)
    took_ms = nodes.cluster.wait_for(lambda: nodes.cluster.runtime(1, SHARD).replica.is_leader)
    assert took_ms < 200


# A full disk.


def _commit(nodes: Parted, node_id: int) -> int:
    answer = nodes.ask(node_id, ApiKey.OFFSET_COMMIT, 8, commit_request(GROUP, {0: 1}))
    return int(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def whole() -> Parted:
    nodes = Parted(is_relied_on=False)
    nodes.network.heal_all()
    nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) == 3)
    return nodes


def test_shards_leave_a_full_disk_and_come_back_with_room(whole: Parted) -> None:
    whole.cluster[3].disk.free = 1 << 20
    count_fault("cluster", "one disk of three full")
    took_ms = whole.cluster.wait_for(lambda: whole.cluster.leader_of(SHARD) not in (None, 3))
    assert took_ms < 2_000
    leader = whole.cluster.wait_for_leader(SHARD)
    assert _commit(whole, leader) == 0
    assert whole.leaders_over(3 * BALANCE_MS) == {leader}
    assert whole.transfer(SHARD, leader, 3) == f"node 3 cannot serve: {FULL}"
    whole.cluster[3].disk.free = 1 << 40
    took_ms = whole.cluster.wait_for(lambda: whole.cluster.leader_of(SHARD) == 3, within_ms=3 * BALANCE_MS)
    assert took_ms > BALANCE_MS
    assert _commit(whole, 3) == 0


def test_who_leads_stays_and_refuses_what_writes_when_every_disk_is_full(whole: Parted) -> None:
    for machine in whole.cluster.machines.values():
        machine.disk.free = 1 << 20
    whole.world.run_for(2_000)  # shards are checked one after the other
    leaders = whole.leaders_over(2 * BALANCE_MS)
    assert len(leaders) == 1
    assert _commit(whole, leaders.pop() or 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
