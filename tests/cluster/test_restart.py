"""A restart restores the state, whatever ended the node; and a seed always gives the same history."""

from __future__ import annotations

import random

import pytest

from cluster.runtime.shard_state import ShardState
from coordinator.shard import GroupShard
from raftlog.env.simulated_files import Crash
from tests.support.sim_node import GROUPS, SimNode, assert_kept, replayed, runtimes
from wire.errors import ErrorCode


def busy(sim: SimNode, seed: int, steps: int) -> dict[str, dict[int, int]]:
    """Let members join, leave and commit, and topics grow; return every acknowledged offset."""
    chance = random.Random(seed)
    consumers = {(group, n): sim.consumer(f"{group}-{n}", group) for group in GROUPS for n in range(3)}
    joined: set[tuple[str, int]] = set()
    acknowledged: dict[str, dict[int, int]] = {group: {} for group in GROUPS}
    tool, size = sim.client("tool"), 12
    for step in range(steps):
        group, _ = key = chance.choice(GROUPS), chance.randrange(3)
        consumer, dice = consumers[key], chance.random()
        if key not in joined or dice < 0.5:
            consumer.heartbeat()
            joined.add(key)
        elif dice < 0.6:
            consumer.leave()
            consumer.epoch, consumer.owned = 0, []
            joined.discard(key)
        elif dice < 0.62:
            size += 1
            sim.grow_topic("orders", size)
        else:
            offsets = dict.fromkeys(consumer.partitions[:4], step)
            codes = sim.commit(
                consumer.client, group, offsets, member_id=consumer.member_id, epoch=consumer.epoch
            )
            acknowledged[group] |= {
                p: offset for (p, offset), code in zip(offsets.items(), codes, strict=True) if code == 0
            }
        sim.world.run_for(chance.uniform(0, 40))
    tool.close()
    return acknowledged


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("how", ["clean stop", Crash.KEPT, Crash.LOST, Crash.TORN], ids=str)
def test_a_restart_brings_back_what_was_there(seed: int, how: Crash | str) -> None:
    sim = SimNode(seed)
    acknowledged = busy(sim, seed, 150)
    sim.world.run_for(1000)
    before = [(r.machine.state_hash, r.machine.applied_index) for r in runtimes(sim)]
    for runtime, (state_hash, index) in zip(runtimes(sim), before, strict=True):
        assert replayed(runtime, index).state_hash == state_hash
    if isinstance(how, Crash):
        sim.machine.crash(how, seed)
    else:
        sim.machine.stop()
    sim.reboot()
    for runtime, (state_hash, index) in zip(runtimes(sim), before, strict=True):
        assert replayed(runtime, index).state_hash == state_hash
        assert replayed(runtime, runtime.commit_index).state_hash == runtime.machine.state_hash
    tool = sim.client("tool")
    for group, offsets in acknowledged.items():
        assert_kept(offsets, sim.fetch(tool, group))


def test_members_go_on_after_a_restart_with_their_epochs_and_partitions() -> None:
    sim = SimNode()
    one, two = sim.consumer("one"), sim.consumer("two")
    for _ in range(4):
        one.heartbeat()
        two.heartbeat()
    had = [(c.epoch, c.partitions) for c in (one, two)]
    assert len(one.partitions) == len(two.partitions) == 6
    sim.machine.kill()
    sim.reboot()
    for consumer in (one, two):
        answer = consumer.heartbeat()
        assert (answer.error_code, answer.member_epoch) == (0, consumer.epoch)
    assert [(c.epoch, c.partitions) for c in (one, two)] == had


def test_one_seed_is_one_history() -> None:
    def history(seed: int) -> tuple[int, int, list[int]]:
        sim = SimNode(seed)
        busy(sim, seed, 60)
        return sim.world.trace_hash, sim.world.events_run, [r.machine.state_hash for r in runtimes(sim)]

    assert history(5) == history(5)
    assert history(5)[0] != history(6)[0]


def test_a_restart_from_snapshots_brings_back_the_same() -> None:
    """Topics are deleted too: the catalog is then newer than any topic in it."""
    sim = SimNode(settings={"snapshot_tail_records": 1_000, "log_segment_bytes": 16_384}, num_shards=1)
    consumer, tool = sim.consumer("one"), sim.client("tool")
    consumer.heartbeat()
    for step in range(600):
        if step < 200:
            sim.commit(tool, f"tool-{step % 3}", dict.fromkeys(range(12), step))
        sim.create_topic("brief", 1)
        sim.delete_topic("brief")
    consumer.heartbeat()
    sim.world.run_for(5_000)
    made = [runtime.replica.status()["snapshots_made"] for runtime in runtimes(sim)]
    assert all(made), made
    before = [runtime.machine.state_hash for runtime in runtimes(sim)]
    catalog = {topic.name: topic for topic in sim.node.catalog.topics()}
    sim.machine.kill()
    sim.reboot()
    for runtime, state_hash in zip(runtimes(sim), before, strict=True):
        assert runtime.replica.status()["snapshot_index"] > 0
        assert replayed(runtime, runtime.commit_index).state_hash == runtime.machine.state_hash
        assert replayed(runtime, runtime.commit_index - 1).state_hash == state_hash
    assert {topic.name: topic for topic in sim.node.catalog.topics()} == catalog
    assert sim.fetch(tool, "tool-2") == dict.fromkeys(range(12), 197)
    assert consumer.heartbeat().error_code == 0


def test_a_stop_in_the_middle_of_loading_leaves_a_log_that_loads() -> None:
    sim = SimNode(host_options={"sync_ms": 0.01}, num_shards=2)
    client = sim.client("one")
    for offset in range(200):
        sim.commit(client, "billing", dict.fromkeys(range(12), offset))
    sim.machine.kill()
    sim.machine.host_options["clock_step_ms"] = 1.0
    node = sim.machine.boot()
    assert sim.world.run_until(lambda: bool(node.shards), within_ms=1_000)
    sim.world.run_for(15)
    assert not node.is_ready
    sim.machine.stop()
    sim.machine.host_options["clock_step_ms"] = 0.0
    sim.reboot()
    assert sim.fetch(client, "billing") == dict.fromkeys(range(12), 199)


def test_a_catalog_older_than_its_groups_is_said_and_not_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sim = SimNode(num_shards=1)
    sim.machine.stop()
    monkeypatch.setattr(GroupShard, "newest_catalog_version", property(lambda _shard: 1_000))
    node = sim.machine.boot()
    sim.world.run_for(1_000)
    assert node.metadata.is_ready
    assert node.shards[0].state is ShardState.CATCH_UP
    assert "uses version 1000 of the catalog" in caplog.text
    assert sim.consumer("late").heartbeat().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
