"""J.2 Bugs that others had around the coordinator: completions, loading and unloading."""

from __future__ import annotations

from typing import Any

from cluster.node_info import ClientInfo
from tests.support.group_client import Client, settle
from tests.support.requests import join_request
from tests.support.sim_node import SimNode
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode


def slow_lab() -> SimNode:
    """One node whose disk is so slow that syncs leave the loop."""
    sim = SimNode(host_options={"sync_ms": 5.0}, num_shards=1)
    for offset in range(10):
        assert sim.commit(sim.admin, "audit", {0: offset}) == [0]
    return sim


def test_kafka_18174_a_reply_that_timed_out_is_not_completed_again_by_the_commit() -> None:
    """A write event was completed by its timeout, and once more when its record was committed after all."""
    sim = slow_lab()
    sim.machine.host.sync_ms = 20_000.0
    answers: list[Any] = []
    request = join_request("billing", "a", "orders")
    sim.machine.host.call_later(
        0.1,
        lambda: sim.node.submit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, ClientInfo(), answers.append),
    )
    sim.world.run_for(6_000)
    assert [answer.error_code for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    sim.machine.host.sync_ms = 5.0
    sim.world.run_for(30_000)
    assert len(answers) == 1
    member = sim.consumer("a")
    answer = member.heartbeat()
    assert (answer.error_code, member.partitions) == (0, list(range(12))), "it was in; asking again is safe"
    assert answer.member_epoch == 1


def test_kafka_18484_a_completion_that_raises_wedges_nothing() -> None:
    """An exception inside a deferred completion kept every later one of the shard from its turn."""
    sim = SimNode(num_shards=1)
    answers: list[Any] = []

    def raises(answer: object) -> None:
        answers.append(answer)
        raise RuntimeError("the listener is gone")

    def submit() -> None:
        for name, told in (("a", raises), ("b", answers.append)):
            request = join_request("billing", name, "orders")
            sim.node.submit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, ClientInfo(), told)

    sim.machine.host.call_later(0.1, submit)
    sim.world.run_for(100)
    assert [answer.member_id for answer in answers] == ["a", "b"]
    assert sim.consumer("a").heartbeat().error_code == 0
    sim.machine.stop()
    sim.world.run_for(1_000)


def test_kafka_16118_an_unload_wins_whenever_it_comes(world: World) -> None:
    """Loads and unloads overtook each other (also -19274): here an unload ends whatever was begun."""
    settle([Client(world, "a"), Client(world, "b")])
    becoming_ready = world.shard.becoming_ready(world.ctx)
    while len(world.shard.groups.sessions) == 0:
        next(becoming_ready)
    for step in (world.shard.on_deposed(), world.shard.on_deposed()):
        list(step)
    assert len(world.shard.groups.sessions) == 0
    assert world.shard.next_deadline_ms() is None, "whoever does not lead fences nobody"
    world.shard.on_ready(world.ctx())
    assert len(world.shard.groups.sessions) == 2
    world.sleep(44_000)
    assert world.group().num_members == 2


def test_kafka_20115_an_unload_asks_neither_catalog_nor_settings(world: World) -> None:
    """Clean-up asked the log that was gone already, raised, and the shard was never unloaded."""
    settle([Client(world, "a")])
    world.catalog = None  # type: ignore[assignment]
    world.settings = None  # type: ignore[assignment]
    list(world.shard.on_deposed())
    list(world.shard.free_incrementally())
    assert world.shard.projection.groups == {}
