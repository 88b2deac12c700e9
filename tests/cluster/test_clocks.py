"""Loading and the clock: early requests wait, silent members expire on time, a pause fences no member."""

from __future__ import annotations

from cluster.runtime.shard_state import ShardState
from raftlog.storage.evidence import read_evidence
from tests.support.requests import join_request
from tests.support.sim_node import SimNode, runtimes
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.list_groups import ListGroupsRequest


def test_requests_that_come_while_the_log_is_read_are_told_to_wait() -> None:
    sim = SimNode(host_options={"sync_ms": 0.01}, num_shards=2)
    client = sim.client("one")
    for offset in range(300):
        assert sim.commit(client, "billing", dict.fromkeys(range(12), offset)) == [0] * 12
    sim.machine.stop()
    sim.machine.host_options["clock_step_ms"] = 1.0
    node = sim.machine.boot()
    fresh = sim.client("early")
    sim.world.run_until(lambda: bool(sim.network.listeners), within_ms=1_000)
    runtime = node.shard_for("billing")
    assert runtime.state is ShardState.CATCH_UP
    early = fresh.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request("billing", "m", "orders"))
    assert early.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.commit(fresh, "billing", {0: 1}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    listed = fresh.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not node.is_ready
    assert sim.world.run_until(lambda: node.is_ready, within_ms=60_000)
    assert sim.fetch(fresh, "billing") == dict.fromkeys(range(12), 299)


def test_group_shards_are_ready_only_on_the_catalog_that_they_were_decided_on() -> None:
    sim = SimNode(host_options={"sync_ms": 0.01})
    for n in range(60):
        assert sim.create_topic(f"t{n}", 1) == 0  # the metadata shard has more to read than the others
    consumer = sim.consumer("one")
    consumer.heartbeat()
    sim.machine.kill()
    sim.machine.host_options["clock_step_ms"] = 1.0
    node = sim.machine.boot()
    states: list[tuple[bool, bool]] = []

    def look() -> bool:
        if node.shards:
            states.append((node.metadata.is_ready, any(runtime.is_ready for runtime in node.shards)))
        return node.is_ready

    assert sim.world.run_until(look, within_ms=5_000)
    assert (False, True) not in states
    assert (False, False) in states
    assert consumer.heartbeat().error_code == 0


def test_a_pause_of_a_minute_fences_no_member() -> None:
    sim = SimNode(settings={"group_consumer_session_timeout_ms": 3_000})
    consumers = [sim.consumer(f"c{n}") for n in range(4)]
    for _ in range(5):
        for consumer in consumers:
            assert consumer.heartbeat().error_code == 0
        sim.world.run_for(500)
    had = [(c.epoch, c.partitions) for c in consumers]
    sim.machine.host.pause(60_000)
    calls = [
        c.client.send(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            ConsumerGroupHeartbeatRequest(group_id="billing", member_id=c.member_id, member_epoch=c.epoch),
        )
        for c in consumers
    ]
    sim.world.run_for(60_200)
    assert [call.response.error_code for call in calls] == [0] * 4
    for _ in range(6):
        for consumer in consumers:
            assert consumer.heartbeat().error_code == 0
        sim.world.run_for(500)
    assert [(c.epoch, c.partitions) for c in consumers] == had


def test_a_silent_member_is_expired_on_time_and_not_by_the_pause() -> None:
    sim = SimNode(settings={"group_consumer_session_timeout_ms": 3_000})
    quiet, lively = sim.consumer("quiet"), sim.consumer("lively")
    for _ in range(4):
        quiet.heartbeat()
        lively.heartbeat()
    silent_since_ms = sim.world.now_ms
    sim.machine.host.pause(10_000)
    sim.world.run_for(10_000)
    expired_ms = 0.0
    for _ in range(100):
        lively.heartbeat()
        if len(lively.partitions) == 12:
            expired_ms = sim.world.now_ms
            break
        sim.world.run_for(100)
    assert 13_000 <= expired_ms - silent_since_ms <= 13_500


def test_sessions_expire_without_any_request() -> None:
    sim = SimNode(settings={"group_consumer_session_timeout_ms": 3_000})
    consumer = sim.consumer("one")
    consumer.heartbeat()
    sim.world.run_for(2_900)
    assert sim.node.shard_for("billing").counters.rebalances == 1
    sim.world.run_for(200)
    assert sim.node.shard_for("billing").counters.rebalances == 2
    assert consumer.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_many_sessions_that_end_at_once_do_not_hold_the_loop() -> None:
    sim = SimNode(settings={"group_consumer_session_timeout_ms": 3_000}, num_shards=1)
    client = sim.client("many")
    calls = [
        client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request(f"g{n}", "m", "orders"))
        for n in range(100)
    ]
    sim.world.run_until(lambda: all(call.response for call in calls), within_ms=1_000)
    sim.machine.host.clock_step_ms = 0.5
    sim.machine.host.sync_ms = 0.0
    longest_ms, last_ms = 0.0, sim.world.now_ms

    def tick() -> None:
        nonlocal longest_ms, last_ms
        longest_ms = max(longest_ms, sim.world.now_ms - last_ms)
        last_ms = sim.world.now_ms
        if sim.world.now_ms < end_ms:
            sim.machine.host.call_later(1, tick)

    end_ms = sim.world.now_ms + 4_000
    sim.machine.host.call_later(2_900, tick)
    last_ms = sim.world.now_ms + 2_900
    sim.world.run_for(6_000)
    shard = sim.node.shards[0]
    assert shard.counters.rebalances == 200
    assert longest_ms < 30


def test_a_pause_of_the_node_is_no_gap_of_its_members() -> None:
    sim = SimNode(num_shards=1)
    consumer = sim.consumer("one")
    for _ in range(5):
        consumer.heartbeat()
        sim.world.run_for(1_000)
    sim.machine.host.pause(60_000)
    consumer.client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer.next_heartbeat())
    sim.world.run_for(61_000)
    sim.machine.stop()
    notes = read_evidence(sim.machine.disk, "/data")
    gaps = [note["gap_ms"] for note in notes if note["kind"] == "heartbeat_gap"]
    assert gaps
    assert max(gaps) < 2_000


def test_offsets_expire_where_nothing_but_commits_ever_came() -> None:
    """A commit alone sets the timer for its expiry, and expired offsets are counted."""
    sim = SimNode(settings={"offsets_retention_minutes": 2, "offsets_retention_check_interval_ms": 10_000})
    client = sim.client("tool")
    assert sim.commit(client, "billing", {0: 5, 1: 6}) == [0, 0]
    sim.world.run_for(131_000)  # without any request, as that would set a timer too
    assert sum(runtime.counters.offsets_expired for runtime in runtimes(sim)) == 2
    assert sim.fetch(client, "billing") == {}
