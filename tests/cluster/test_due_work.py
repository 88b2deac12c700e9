"""Due work of one group that always raises: the other groups of its shard do not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.api import Steps
from coordinator.leader_state.retries import RETRY_MS
from coordinator.members.leaving import expire
from coordinator.shard import GroupShard
from coordinator.state.model import Group
from coordinator.targets.checks import check_group
from tests.support.sim_node import SimNode

SESSION_MS = 45_000
LATE_MS = 100
"""Bound on how much later than its time anything happens to a group without a fault."""

LOGGED = "a timer or a job failed"


class Broken:
    """Due work that raises for one group until it is mended."""

    def __init__(self, work: Callable[..., Any], group_id: str) -> None:
        self.work = work
        self.group_id: str | None = group_id
        self.tried_ms: list[float] = []

    def __call__(self, core: Any, group_id: str, ctx: Any, builder: Any) -> Steps:
        if group_id == self.group_id:
            self.tried_ms.append(ctx.monotonic_ms)
            raise RuntimeError("a bug in due work")
        return (yield from self.work(core, group_id, ctx, builder))


def group(sim: SimNode, group_id: str) -> Group:
    machine = sim.node.shards[0].machine
    assert isinstance(machine, GroupShard)
    return machine.projection.groups[group_id]


def assert_paused(broken: Broken, sim: SimNode, logged: int) -> None:
    """Two attempts may be first ones; all others are retries."""
    passed_ms = sim.machine.host.monotonic_ms() - broken.tried_ms[0]
    assert 5 < len(broken.tried_ms) <= 2 + passed_ms / RETRY_MS
    assert logged == len(broken.tried_ms)


def test_an_expiry_that_raises_delays_no_other_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither another group's expiry nor its check waits; the member goes when the fault is mended."""
    broken = Broken(expire, "hurt")
    monkeypatch.setattr("coordinator.shard.expire", broken)
    sim = SimNode(num_shards=1)
    sim.consumer("a", "hurt").heartbeat()
    sim.world.run_for(5_000)
    second = sim.consumer("a2", "hurt")
    second.heartbeat()
    sim.consumer("b", "well").heartbeat()
    sim.world.run_for(SESSION_MS - LATE_MS)
    assert group(sim, "well").members
    assert len(broken.tried_ms) > 3
    sim.world.run_for(2 * LATE_MS)
    assert not group(sim, "well").members
    assert sorted(group(sim, "hurt").members) == ["a", "a2"]

    checked = sim.consumer("c", "checked")
    checked.heartbeat()
    assert sim.grow_topic("orders", 13) == 0
    sim.world.run_for(LATE_MS)
    topics = group(sim, "checked").target["c"].topic_partitions
    assert sum(len(topic.partitions) for topic in topics) == 13

    sim.world.run_for(3 * RETRY_MS)
    assert_paused(broken, sim, caplog.text.count(LOGGED))
    broken.group_id = None
    sim.world.run_for(RETRY_MS)
    assert not group(sim, "hurt").members, "those whose time passed while the first was set aside too"


def test_a_check_that_raises_delays_no_other_group_and_no_heartbeat_is_cached_before_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(check_group, "hurt")
    monkeypatch.setattr("coordinator.targets.checks.check_group", broken)
    sim = SimNode(num_shards=1)
    members = {group_id: sim.consumer("m", group_id) for group_id in ("hurt", "well")}
    for member in members.values():
        member.heartbeat()
    broken.tried_ms.clear()
    caplog.clear()
    assert sim.grow_topic("orders", 13) == 0
    sim.world.run_for(LATE_MS)
    assert group(sim, "well").epoch == group(sim, "hurt").epoch + 1
    assert sim.node.shards[0].machine.fast_entry("hurt", "m") is None
    sim.world.run_for(20 * RETRY_MS)
    assert_paused(broken, sim, caplog.text.count(LOGGED))
    assert members["hurt"].heartbeat().member_epoch == group(sim, "well").epoch, "its own heartbeat finds it"
    broken.group_id = None
    sim.world.run_for(2 * RETRY_MS)
    members["hurt"].heartbeat()
    assert sim.node.shards[0].machine.fast_entry("hurt", "m") is not None
