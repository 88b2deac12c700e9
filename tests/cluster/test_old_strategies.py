"""Groups of seed 000 with a user's strategy on three nodes in virtual time, in both variants."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from lineage.rewrite.machines import RewriteEvent, RewriteState
from tests.cluster.old_protocols import SESSION_MS, OldNodes
from tests.report import count_fault
from tests.support.three_nodes import GROUP
from tests.support.users_assignors import install

MODULE = """
from coordinator.assignors import UniformAssignor

class Moody(UniformAssignor):
    name = "moody"
    is_broken = False

    def assign(self, spec):
        if Moody.is_broken:
            raise RuntimeError("out of order")
        return super().assign(spec)
"""


JOB_MS = 1_000.0


@pytest.fixture(params=["design", "thread"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nodes(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldNodes:
    install(tmp_path, "moody", MODULE, {"moody": "moody:Moody"})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "moody", raising=False)
    monkeypatch.setattr("cluster.simulator.host.JOB_DURATION_MS", JOB_MS)
    strategies = ("range", "moody")
    return OldNodes(
        settings={
            "lineage_rewrite_variant": variant,
            "lineage_rewrite_partition_assignment_strategies": strategies,
        }
    )


def join(nodes: OldNodes, variant: str, *names: str) -> None:
    for name in names:
        nodes.rewrite(name, variant=variant, settings={"strategy": "moody"})


def shard_of(nodes: OldNodes, node_id: int) -> Any:
    return nodes.cluster[node_id].node._lineage._rewrite._shards[nodes.shard]


def ask(nodes: OldNodes, variant: str) -> None:
    """Let c join a and b, until the strategy is asked about all three."""
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    join(nodes, variant, "c")
    group = shard_of(nodes, nodes.leader)._coordinator._groups[GROUP]
    nodes.wait(lambda: group.asked is not None and len(group.asked.joined) == 3)


def test_a_users_strategy_shares_out_and_keeps_what_consumers_had(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    before = {part: names[0] for part, names in nodes.owners().items()}
    join(nodes, variant, "c")
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    moved = [part for part, (name,) in nodes.owners().items() if name != before[part]]
    assert len(moved) == 4, "a third of twelve, and nothing between a and b"
    assert {nodes.owners()[part][0] for part in moved} == {"c"}
    record = nodes.rewrite_record
    assert record is not None
    assert record.strategy == "moody"


def test_a_coordinator_killed_while_it_asks_is_replaced_by_one_that_asks_again(
    nodes: OldNodes, variant: str
) -> None:
    ask(nodes, variant)
    nodes.cluster[nodes.leader].kill()
    count_fault("cluster", "rewrite coordinator killed while it asks a strategy")
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))


def test_a_lead_lost_while_a_strategy_is_asked_drops_its_answer(nodes: OldNodes, variant: str) -> None:
    """The node goes on running, so the job is cancelled, and its slot is free again."""
    ask(nodes, variant)
    leader = nodes.leader
    node = nodes.cluster[leader].node
    told: list[str | None] = []
    node.transfer(nodes.shard, None, told.append)
    nodes.cluster.wait_for_leader(nodes.shard, other_than=leader)
    count_fault("cluster", "shard of old groups handed over while a strategy is asked")
    shard = shard_of(nodes, leader)
    asking = RewriteState.REBALANCING if variant == "design" else RewriteState.PREPARING
    assert shard._coordinator.taken[asking, RewriteEvent.DEMOTED] == 1
    assert shard._strategies._running == {}
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    assert all(not slots.num_running for slots in node.job_slots.values())


def test_a_broken_strategy_keeps_the_generation_until_it_works_again(
    nodes: OldNodes, variant: str, caplog: pytest.LogCaptureFixture
) -> None:
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    before = nodes.rewrite_record
    strategy: Any = sys.modules["moody"]
    strategy.Moody.is_broken = True
    count_fault("cluster", "strategy of seed 000 that raises")
    with caplog.at_level(logging.WARNING, "quorate.lineage"):
        join(nodes, variant, "c")
        nodes.world.run_for(3 * SESSION_MS)
    assert nodes.rewrite_record == before
    assert f"Strategy moody failed for group {GROUP}: RuntimeError: out of order" in caplog.text
    counters = nodes.cluster[nodes.leader].node.shards[nodes.shard].counters
    assert counters.assignor_failures > 1
    strategy.Moody.is_broken = False
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    record = nodes.rewrite_record
    assert record is not None
    assert before is not None
    assert {one.consumer_id for one in record.consumers} > {one.consumer_id for one in before.consumers}
