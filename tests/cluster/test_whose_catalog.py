"""A node whose catalog is behind: what it does not know yet is not taken for deleted, by anybody.

Nodes 1 and 3 do not reach each other, node 1 leads the metadata shard, both reach node 2: what is created
stays unknown to node 3 for as long as the cut lasts.
"""

from __future__ import annotations

import pytest

from cluster.runtime.shard_state import ShardState
from records import METADATA_SHARD
from tests.cluster.test_three_nodes import SHARD, Nodes
from tests.report import count_fault
from wire.errors import ErrorCode

MAY_SAY_NOTHING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


@pytest.fixture
def cut() -> Nodes:
    """The link between nodes 1 and 3 is cut, node 1 leads the metadata shard, node 2 the shard of `GROUP`."""
    nodes = Nodes()
    assert nodes.cluster.leader_of(METADATA_SHARD) == 1
    if nodes.leader != 2:
        give(nodes, 2)
        nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(SHARD) == 2)
    nodes.cluster.cut(1, 3)
    count_fault("cluster", "one link cut")
    nodes.world.run_for(1_000)
    assert nodes.leader == 2
    return nodes


def give(nodes: Nodes, node_id: int) -> None:
    """Hands the shard of `GROUP` to this node, if it takes it."""
    nodes.cluster.runtime(nodes.leader, SHARD).replica.transfer(node_id, lambda why: None)


def test_no_node_denies_an_acknowledged_offset_of_a_topic_that_it_does_not_know(cut: Nodes) -> None:
    assert cut.create("late", 1) == 0
    assert cut.cluster[3].node.catalog.topic("late") is None
    assert cut.commit(2, 42, topic="late") == 0
    runtime = cut.cluster.runtime(3, SHARD)
    cut.cluster.wait_for(lambda: runtime.machine.applied_index == cut.cluster.runtime(2, SHARD).commit_index)
    assert not runtime.may_serve()
    give(cut, 3)
    for _ in range(20):
        cut.world.run_for(100)
        for node_id in (2, 3):
            error, offsets = cut.fetch(node_id)
            assert error in MAY_SAY_NOTHING or offsets == [42]
    assert runtime.state is not ShardState.READY
    cut.network.heal_all()
    cut.cluster.settle()
    assert runtime.may_serve()
    give(cut, 3)
    cut.cluster.wait_for(lambda: cut.cluster.leader_of(SHARD) == 3)
    assert cut.fetch(3) == (0, [42])
