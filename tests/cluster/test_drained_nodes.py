"""Transfers that last and drained nodes, on whole clusters: restarts, changes of leaders, partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.leadership import NOTHING_ASKED, asked_leader, with_drained, with_leader
from records import METADATA_SHARD, LeadershipValue
from tests.report import count_fault
from tests.support.three_nodes import ThreeNodes

BALANCE_MS = 2_000
AT_ONCE_MS = 1_000
SHARD = 1
"""A shard whose preferred leader is node 3; node 1 is the metadata shard's."""


class Asked(ThreeNodes):
    """Three nodes whose operators ask for leaders and drain nodes."""

    def __init__(self) -> None:
        super().__init__(num_shards=2, settings={"leader_balance_delay_ms": BALANCE_MS})
        self.cluster.wait_for(lambda: self.leaders() == [1, 2, 3])

    def leaders(self) -> list[int | None]:
        return [self.cluster.leader_of(shard) for shard in self.cluster.shards]

    def change(self, change: Callable[[LeadershipValue], LeadershipValue]) -> None:
        """Let the metadata leader write the changed request."""
        duties = self.cluster[self.cluster.wait_for_leader(METADATA_SHARD)].node.metadata.duties
        done: list[str | None] = []
        duties.ask_leadership(change(duties.committed.view.leadership), "test", done.append)
        self.cluster.wait_for(lambda: bool(done))
        assert done == [None]

    def drain(self, node_id: int, *, is_drained: bool = True) -> None:
        self.change(lambda asked: with_drained(asked, node_id, is_drained=is_drained))

    def transfer(self, shard: int, node_id: int | None) -> None:
        self.change(lambda asked: with_leader(asked, shard, node_id))

    def leads_nothing(self, node_id: int) -> bool:
        return node_id not in (leaders := self.leaders()) and None not in leaders

    def never_leads(self, node_id: int, ms: float) -> None:
        for _ in range(int(ms / 250)):
            self.world.run_for(250)
            assert node_id not in self.leaders()


@pytest.fixture
def nodes() -> Asked:
    return Asked()


def test_a_transfer_lasts_and_comes_back_with_its_node(nodes: Asked) -> None:
    cluster = nodes.cluster
    nodes.transfer(SHARD, 2)
    assert cluster.wait_for(lambda: cluster.leader_of(SHARD) == 2) < AT_ONCE_MS
    nodes.never_leads(3, 4 * BALANCE_MS)
    cluster[2].kill()
    cluster.wait_for(lambda: cluster.leader_of(SHARD) in (1, 3))
    nodes.world.run_for(2 * BALANCE_MS)
    assert cluster.leader_of(SHARD) in (1, 3)
    cluster.boot()
    cluster.wait_for(lambda: cluster.leader_of(SHARD) == 2, within_ms=3 * BALANCE_MS)
    nodes.transfer(SHARD, None)
    took_ms = cluster.wait_for(lambda: nodes.leaders() == [1, 2, 3], within_ms=3 * BALANCE_MS)
    assert took_ms > AT_ONCE_MS


def test_a_drained_node_leads_nothing_as_others_start_and_stop(nodes: Asked) -> None:
    cluster = nodes.cluster
    nodes.transfer(0, 3)
    cluster.wait_for(lambda: nodes.leaders() == [1, 3, 3])
    nodes.drain(3)
    assert cluster.wait_for(lambda: nodes.leads_nothing(3)) < AT_ONCE_MS
    nodes.never_leads(3, 3 * BALANCE_MS)
    cluster[3].kill()
    nodes.world.run_for(1_000)
    cluster.boot()
    cluster.settle()
    nodes.never_leads(3, 2 * BALANCE_MS)
    cluster[1].kill()
    count_fault("cluster", "kill -9 while a node is drained")
    cluster.wait_for(lambda: nodes.leaders() == [2, 2, 2])
    cluster.boot()
    cluster.settle()
    cluster[2].host.call_soon(cluster[2].node.stop, lambda: None)
    cluster.wait_for(lambda: nodes.leaders() == [1, 1, 1])
    cluster[2].kill()
    cluster.boot()
    cluster.settle()
    nodes.drain(3, is_drained=False)
    cluster.wait_for(lambda: nodes.leaders() == [1, 3, 3], within_ms=3 * BALANCE_MS)


def test_a_target_that_dies_while_it_is_drained_leads_nothing_when_it_is_back(nodes: Asked) -> None:
    nodes.transfer(0, 3)
    nodes.cluster.wait_for(lambda: nodes.leaders() == [1, 3, 3])
    nodes.drain(3)
    nodes.cluster[3].kill()
    nodes.cluster.wait_for(lambda: nodes.leads_nothing(3))
    nodes.cluster.boot()
    nodes.cluster.settle()
    nodes.never_leads(3, 2 * BALANCE_MS)


def test_messages_that_keep_the_metadata_shard_do_not_stop_who_asks_for_a_move(nodes: Asked) -> None:
    cluster = nodes.cluster
    for node_id in (1, 2):
        cluster.runtime(node_id, METADATA_SHARD).replica.keeps_leadership = lambda: True
    nodes.transfer(METADATA_SHARD, 2)
    assert cluster.wait_for(lambda: cluster.leader_of(METADATA_SHARD) == 2) < AT_ONCE_MS
    nodes.transfer(METADATA_SHARD, None)
    nodes.world.run_for(3 * BALANCE_MS)
    assert cluster.leader_of(METADATA_SHARD) == 2, "balancing does not move it"
    nodes.drain(2)
    assert cluster.wait_for(lambda: nodes.leads_nothing(2)) < AT_ONCE_MS


def test_a_node_that_stops_passes_over_a_drained_one(nodes: Asked) -> None:
    nodes.drain(1)
    nodes.cluster.wait_for(lambda: nodes.leads_nothing(1))
    assert nodes.cluster.leader_of(SHARD) == 3
    nodes.cluster[3].host.call_soon(nodes.cluster[3].node.stop, lambda: None)
    nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) not in (None, 3))
    assert nodes.cluster.leader_of(SHARD) == 2


def test_all_nodes_drained_serve_on_and_elect_again(nodes: Asked) -> None:
    for node_id in (1, 2, 3):
        nodes.drain(node_id)
    nodes.cluster.settle()
    nodes.world.run_for(2 * BALANCE_MS)
    leaders = nodes.leaders()
    assert None not in leaders
    killed = leaders[0]
    assert killed is not None
    nodes.cluster[killed].kill()
    nodes.cluster.wait_for(lambda: nodes.leads_nothing(killed), within_ms=3_000)
    assert nodes.create("more", 4) == 0
    nodes.cluster.boot()
    nodes.cluster.settle()
    nodes.drain(killed, is_drained=False)
    nodes.cluster.wait_for(lambda: nodes.leaders() == [killed] * 3)


def test_a_drained_leader_without_a_link_to_the_metadata_leader_is_emptied(nodes: Asked) -> None:
    """It does not learn that it is drained. Its catalog grows old, and so it hands over what it leads."""
    nodes.cluster.cut(1, 3)
    count_fault("cluster", "one link cut")
    nodes.drain(3)
    nodes.cluster.wait_for(lambda: nodes.leads_nothing(3))
    nodes.network.heal_all()
    nodes.never_leads(3, 2 * BALANCE_MS)


def test_a_drained_leader_that_is_cut_off_leads_nothing_afterwards(nodes: Asked) -> None:
    nodes.cluster.isolate(3)
    count_fault("cluster", "a node cut off")
    nodes.drain(3)
    nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) in (1, 2))
    nodes.network.heal_all()
    nodes.cluster.wait_for(lambda: nodes.leads_nothing(3))
    nodes.never_leads(3, 2 * BALANCE_MS)


def test_drained_nodes_are_known_after_a_restart_of_all(nodes: Asked) -> None:
    """Before they hear from each other, a drained node may lead for a moment."""
    nodes.transfer(0, 1)
    nodes.drain(3)
    nodes.cluster.wait_for(lambda: nodes.leads_nothing(3))
    for machine in nodes.cluster.machines.values():
        machine.kill()
    nodes.cluster.boot_until_ready()
    assert nodes.cluster.wait_for(lambda: nodes.leads_nothing(3)) < AT_ONCE_MS
    nodes.cluster.wait_for(lambda: nodes.leaders()[1] == 1)
    nodes.never_leads(3, 2 * BALANCE_MS)


def test_a_request_is_one_record() -> None:
    asked = with_leader(with_leader(NOTHING_ASKED, 1, 3), METADATA_SHARD, 2)
    assert [(one.shard, one.node_id) for one in asked.asked] == [(METADATA_SHARD, 2), (1, 3)]
    asked = with_drained(with_drained(with_leader(asked, 1, 2), 3, is_drained=True), 1, is_drained=True)
    assert (asked_leader(asked, 1), asked_leader(asked, 0), asked.drained) == (2, None, (1, 3))
    asked = with_leader(with_leader(asked, 1, None), METADATA_SHARD, None)
    assert with_drained(with_drained(asked, 1, is_drained=False), 3, is_drained=False) == NOTHING_ASKED
