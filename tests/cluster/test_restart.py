"""A restart brings back what was there, whatever ended the node; and one seed is one history."""

from __future__ import annotations

import random

import pytest

from cluster.runtime.shard_state import ShardState
from coordinator.shard import GroupShard
from raftlog.env.simulated_files import Crash
from tests.support.sim_node import GROUPS, Lab, assert_kept, replayed, runtimes
from wire.errors import ErrorCode


def busy(lab: Lab, seed: int, steps: int) -> dict[str, dict[int, int]]:
    """Members come, go and commit; topics grow. Returns every acknowledged offset."""
    chance = random.Random(seed)
    consumers = {(group, n): lab.consumer(f"{group}-{n}", group) for group in GROUPS for n in range(3)}
    joined: set[tuple[str, int]] = set()
    acknowledged: dict[str, dict[int, int]] = {group: {} for group in GROUPS}
    tool, size = lab.client("tool"), 12
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
            lab.grow_topic("orders", size)
        else:
            offsets = dict.fromkeys(consumer.partitions[:4], step)
            codes = lab.commit(
                consumer.client, group, offsets, member_id=consumer.member_id, epoch=consumer.epoch
            )
            acknowledged[group] |= {
                p: offset for (p, offset), code in zip(offsets.items(), codes, strict=True) if code == 0
            }
        lab.world.run_for(chance.uniform(0, 40))
    tool.close()
    return acknowledged


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("how", ["clean stop", Crash.KEPT, Crash.LOST, Crash.TORN], ids=str)
def test_a_restart_brings_back_what_was_there(seed: int, how: Crash | str) -> None:
    lab = Lab(seed)
    acknowledged = busy(lab, seed, 150)
    lab.world.run_for(1000)
    before = [(r.machine.state_hash, r.machine.applied_index) for r in runtimes(lab)]
    for runtime, (state_hash, index) in zip(runtimes(lab), before, strict=True):
        assert replayed(runtime, index).state_hash == state_hash
    if isinstance(how, Crash):
        lab.machine.crash(how, seed)
    else:
        lab.machine.stop()
    lab.reboot()
    for runtime, (state_hash, index) in zip(runtimes(lab), before, strict=True):
        assert replayed(runtime, index).state_hash == state_hash
        assert replayed(runtime, runtime.commit_index).state_hash == runtime.machine.state_hash
    tool = lab.client("tool")
    for group, offsets in acknowledged.items():
        assert_kept(offsets, lab.fetch(tool, group))


def test_members_go_on_after_a_restart_with_their_epochs_and_partitions() -> None:
    lab = Lab()
    one, two = lab.consumer("one"), lab.consumer("two")
    for _ in range(4):
        one.heartbeat()
        two.heartbeat()
    had = [(c.epoch, c.partitions) for c in (one, two)]
    assert len(one.partitions) == len(two.partitions) == 6
    lab.machine.kill()
    lab.reboot()
    for consumer in (one, two):
        answer = consumer.heartbeat()
        assert (answer.error_code, answer.member_epoch) == (0, consumer.epoch)
    assert [(c.epoch, c.partitions) for c in (one, two)] == had


def test_one_seed_is_one_history() -> None:
    def history(seed: int) -> tuple[int, int, list[int]]:
        lab = Lab(seed)
        busy(lab, seed, 60)
        return lab.world.trace_hash, lab.world.events_run, [r.machine.state_hash for r in runtimes(lab)]

    assert history(5) == history(5)
    assert history(5)[0] != history(6)[0]


def test_a_restart_from_snapshots_brings_back_the_same() -> None:
    """Deleted topics too: the catalog is then newer than any topic in it."""
    lab = Lab(settings={"snapshot_tail_records": 1_000, "log_segment_bytes": 16_384}, num_shards=1)
    consumer, tool = lab.consumer("one"), lab.client("tool")
    consumer.heartbeat()
    for step in range(600):
        if step < 200:
            lab.commit(tool, f"tool-{step % 3}", dict.fromkeys(range(12), step))
        lab.create_topic("brief", 1)
        lab.delete_topic("brief")
    consumer.heartbeat()
    lab.world.run_for(5_000)
    made = [runtime.replica.status()["snapshots_made"] for runtime in runtimes(lab)]
    assert all(made), made
    before = [runtime.machine.state_hash for runtime in runtimes(lab)]
    catalog = {topic.name: topic for topic in lab.node.catalog.topics()}
    lab.machine.kill()
    lab.reboot()
    for runtime, state_hash in zip(runtimes(lab), before, strict=True):
        assert runtime.replica.status()["snapshot_index"] > 0
        assert replayed(runtime, runtime.commit_index).state_hash == runtime.machine.state_hash
        assert replayed(runtime, runtime.commit_index - 1).state_hash == state_hash
    assert {topic.name: topic for topic in lab.node.catalog.topics()} == catalog
    assert lab.fetch(tool, "tool-2") == dict.fromkeys(range(12), 197)
    assert consumer.heartbeat().error_code == 0


def test_a_stop_in_the_middle_of_loading_leaves_a_log_that_loads() -> None:
    lab = Lab(host_options={"sync_ms": 0.01}, num_shards=2)
    client = lab.client("one")
    for offset in range(200):
        lab.commit(client, "billing", dict.fromkeys(range(12), offset))
    lab.machine.kill()
    lab.machine.host_options["clock_step_ms"] = 1.0
    node = lab.machine.boot()
    assert lab.world.run_until(lambda: bool(node.shards), within_ms=1_000)
    lab.world.run_for(15)
    assert not node.is_ready
    lab.machine.stop()
    lab.machine.host_options["clock_step_ms"] = 0.0
    lab.reboot()
    assert lab.fetch(client, "billing") == dict.fromkeys(range(12), 199)


def test_a_catalog_older_than_its_groups_is_said_and_not_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(num_shards=1)
    lab.machine.stop()
    monkeypatch.setattr(GroupShard, "newest_catalog_version", property(lambda _shard: 1_000))
    node = lab.machine.boot()
    lab.world.run_for(1_000)
    assert node.metadata.is_ready
    assert node.shards[0].state is ShardState.CATCH_UP
    assert "decided on version 1000 of the catalog" in caplog.text
    assert lab.consumer("late").heartbeat().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
