"""Answers are durable: no reply precedes its sync, none is held for ever, and every crash point loads."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.node_info import ClientInfo
from raftlog.env.simulated_files import Crash
from tests.report import count_fault
from tests.support.requests import commit_request
from tests.support.sim_node import SimNode, assert_kept, replayed
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize("sync_ms", [0.2, 30.0], ids=["inline sync", "disk thread"])
def test_nothing_is_answered_that_a_power_failure_could_take_back(sync_ms: float) -> None:
    sim = SimNode(host_options={"sync_ms": sync_ms}, num_shards=1)
    answered: list[tuple[int, Any]] = []

    def answer(partition: int, response: Any) -> None:
        assert response.topics[0].partitions[0].error_code == 0
        answered.append((partition, sim.machine.disk.crash(Crash.LOST)))

    def submit(partition: int) -> None:
        request = commit_request("billing", {partition: 100 + partition})
        sim.node.submit(
            ApiKey.OFFSET_COMMIT, 9, request, ClientInfo(), lambda response: answer(partition, response)
        )

    for partition in range(12):
        sim.machine.host.call_later(partition * 3.0, submit, partition)
    sim.world.run_for(2_000)
    assert [partition for partition, _ in answered] == list(range(12))
    for partition, disk in answered:
        sim.machine.kill()
        sim.machine.disk = disk
        sim.reboot()
        assert sim.fetch(sim.client("tool"), "billing")[partition] == 100 + partition


def test_a_read_waits_for_what_it_has_seen() -> None:
    """A read right after a commit may show it, so the answer must wait until the commit is durable."""
    sim = SimNode(host_options={"sync_ms": 30.0}, num_shards=1)
    order: list[str] = []
    group = {"group_id": "billing"}
    node, nobody = sim.node, ClientInfo()

    def both() -> None:
        node.submit(
            ApiKey.OFFSET_COMMIT,
            9,
            commit_request("billing", {0: 7}),
            nobody,
            lambda _: order.append("commit"),
        )
        heartbeat = ConsumerGroupHeartbeatRequest(**group, member_id="nobody", member_epoch=5)
        node.submit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat, nobody, lambda _: order.append("refusal"))
        assert order == []
        assert len(node.shards[0].pending_replies) == 2

    sim.machine.host.call_soon(both)
    sim.world.run_for(10)
    assert order == []
    sim.world.run_for(100)
    assert order == ["commit", "refusal"]
    assert len(node.shards[0].pending_replies) == 0


def test_a_reply_that_waits_five_seconds_for_the_disk_says_that_the_commit_may_count() -> None:
    sim = SimNode(host_options={"sync_ms": 5.0}, num_shards=1)
    client = sim.client("one")
    for offset in range(10):
        assert sim.commit(client, "billing", {0: offset}) == [0]
    sim.machine.host.sync_ms = 20_000.0
    asked_ms = sim.world.now_ms
    commit = client.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 99}))
    create = sim.admin
    sim.world.run_for(7_000)
    assert commit.answered_ms is not None
    assert 5_000 <= commit.answered_ms - asked_ms < 5_100
    assert commit.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert create.is_connected
    sim.machine.host.sync_ms = 0.2
    sim.world.run_for(20_000)
    assert sim.fetch(client, "billing") == {0: 99}


def test_an_admin_call_that_takes_too_long_is_told_that_it_timed_out() -> None:
    sim = SimNode(host_options={"sync_ms": 5.0}, num_shards=1)
    for n in range(12):
        sim.create_topic(f"t{n}", 1)
    sim.machine.host.sync_ms = 20_000.0
    assert sim.create_topic("late", 1) == ErrorCode.REQUEST_TIMED_OUT
    sim.world.run_for(20_000)
    assert sim.create_topic("late", 1) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_replies_of_one_shard_leave_in_the_order_of_their_entries_and_once() -> None:
    sim = SimNode(host_options={"sync_ms": 7.0}, num_shards=1)
    seen: list[int] = []
    chance = random.Random(3)
    for n in range(200):
        request = commit_request("billing", {n % 12: n})
        sim.machine.host.call_later(
            n * chance.uniform(0.5, 1.0),
            sim.node.submit,
            ApiKey.OFFSET_COMMIT,
            9,
            request,
            ClientInfo(),
            lambda _response, n=n: seen.append(n),
        )
    asked: list[int] = []
    original = sim.node.shards[0].machine.handle

    def handle(api_key: int, api_version: int, request: Any, ctx: Any) -> Any:
        asked.append(request.topics[0].partitions[0].committed_offset)
        return original(api_key, api_version, request, ctx)

    sim.node.shards[0].machine.handle = handle  # type: ignore[method-assign]
    sim.world.run_for(5_000)
    assert seen == asked
    assert sorted(seen) == list(range(200))


def test_a_crash_at_any_call_of_the_disk_loses_nothing_that_was_acknowledged() -> None:
    """A run is cut at each disk call, before and after it, with the unsynced bytes kept, lost or torn."""

    class PowerFailure(BaseException):
        pass

    def run(cut_at: int, is_after: bool) -> tuple[SimNode, dict[int, int]]:
        sim = SimNode(num_shards=1)
        first = sim.machine.disk.calls
        acknowledged: dict[int, int] = {}

        def on_call(number: int, _operation: str, _path: str, is_done: bool) -> None:
            if number - first == cut_at and is_done == is_after:
                raise PowerFailure

        if cut_at:
            sim.machine.on_disk_call = on_call
        try:
            one, two = sim.consumer("one"), sim.consumer("two")
            for offset in range(1, 4):
                for consumer in (one, two):
                    consumer.heartbeat()
                    offsets = dict.fromkeys(consumer.partitions[:3], offset)
                    codes = sim.commit(
                        consumer.client,
                        "billing",
                        offsets,
                        member_id=consumer.member_id,
                        epoch=consumer.epoch,
                    )
                    acknowledged |= {p: offset for p, code in zip(offsets, codes, strict=True) if code == 0}
                sim.grow_topic("orders", 12 + offset)
        except PowerFailure:
            pass
        sim.machine.on_disk_call = None
        return sim, acknowledged

    sim, _ = run(0, False)
    num_calls = sim.machine.disk.calls - run(1, False)[0].machine.disk.calls + 1
    points = 0
    for cut_at in range(1, num_calls + 1):
        for is_after in (False, True):
            for how in Crash:
                sim, acknowledged = run(cut_at, is_after)
                sim.machine.crash(how, seed=points)
                sim.reboot()
                assert_kept(acknowledged, sim.fetch(sim.client("tool"), "billing"), (cut_at, is_after, how))
                for shard in sim.node.shards:
                    assert replayed(shard, shard.commit_index).state_hash == shard.machine.state_hash
                    assert shard.machine.newest_catalog_version <= sim.node.catalog.version
                count_fault("cluster", f"crash point, bytes {how.value}")
                points += 1
    assert points >= 180
