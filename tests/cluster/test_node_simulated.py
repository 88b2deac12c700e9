"""Whole nodes on virtual time: what is acknowledged is durable, what is durable comes back, nobody waits for
ever, nobody is fenced for the node's own sleep."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.group_runtime import GroupRuntime
from cluster.node_info import ClientInfo
from cluster.shard_runtime import ShardRuntime
from cluster.shard_state import ShardState
from coordinator.catalog import CatalogShard
from coordinator.shard import GroupShard
from raftlog.evidence import read_evidence
from raftlog.simfiles import Crash
from records import iter_records
from tests.cluster.lab import Lab, commit_request, join_request
from tests.report import count_fault
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.list_groups import ListGroupsRequest

GROUPS = ["billing", "audit", "search", "mail", "stock"]


def replayed(runtime: ShardRuntime, up_to: int) -> GroupShard | CatalogShard:
    """A fresh projection of the shard's log."""
    fresh = GroupShard(runtime.shard) if isinstance(runtime, GroupRuntime) else CatalogShard()
    index = 1
    while index <= up_to:
        for frame in runtime.replica.read_committed(index, 1 << 20):
            index = frame.index + 1
            if frame.index <= up_to:
                for raw in iter_records(bytes(frame.body)):
                    fresh.apply(raw, frame.index)
    return fresh


def assert_kept(acknowledged: dict[int, int], found: dict[int, int], what: object = "") -> None:
    """Every acknowledged offset is there, or a later one: a commit without an answer may count or not."""
    assert all(found.get(partition, -1) >= offset for partition, offset in acknowledged.items()), (
        acknowledged,
        found,
        what,
    )


def runtimes(lab: Lab) -> list[ShardRuntime]:
    return [lab.node.metadata, *lab.node.shards]


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


# Restart and replay


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


# Durability of replies


@pytest.mark.parametrize("sync_ms", [0.2, 30.0], ids=["inline sync", "disk thread"])
def test_nothing_is_answered_that_a_power_failure_could_take_back(sync_ms: float) -> None:
    lab = Lab(host_options={"sync_ms": sync_ms}, num_shards=1)
    answered: list[tuple[int, Any]] = []

    def answer(partition: int, response: Any) -> None:
        assert response.topics[0].partitions[0].error_code == 0
        answered.append((partition, lab.machine.disk.crash(Crash.LOST)))

    def submit(partition: int) -> None:
        request = commit_request("billing", {partition: 100 + partition})
        lab.node.submit(
            ApiKey.OFFSET_COMMIT, 9, request, ClientInfo(), lambda response: answer(partition, response)
        )

    for partition in range(12):
        lab.machine.host.call_later(partition * 3.0, submit, partition)
    lab.world.run_for(2_000)
    assert [partition for partition, _ in answered] == list(range(12))
    for partition, disk in answered:
        lab.machine.kill()
        lab.machine.disk = disk
        lab.reboot()
        assert lab.fetch(lab.client("tool"), "billing")[partition] == 100 + partition


def test_a_read_waits_for_what_it_has_seen() -> None:
    """What is answered right behind a commit may show it, so it must not go before it is durable."""
    lab = Lab(host_options={"sync_ms": 30.0}, num_shards=1)
    order: list[str] = []
    group = {"group_id": "billing"}
    node, nobody = lab.node, ClientInfo()

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
        assert node.shards[0].num_held == 2

    lab.machine.host.call_soon(both)
    lab.world.run_for(10)
    assert order == []
    lab.world.run_for(100)
    assert order == ["commit", "refusal"]
    assert node.shards[0].num_held == 0


def test_a_reply_that_the_disk_keeps_for_five_seconds_says_so_and_the_commit_may_still_count() -> None:
    lab = Lab(host_options={"sync_ms": 5.0}, num_shards=1)
    client = lab.client("one")
    for offset in range(10):
        assert lab.commit(client, "billing", {0: offset}) == [0]
    lab.machine.host.sync_ms = 20_000.0
    asked_ms = lab.world.now_ms
    commit = client.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 99}))
    create = lab.admin
    lab.world.run_for(7_000)
    assert commit.answered_ms is not None
    assert 5_000 <= commit.answered_ms - asked_ms < 5_100
    assert commit.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert create.is_connected
    lab.machine.host.sync_ms = 0.2
    lab.world.run_for(20_000)
    assert lab.fetch(client, "billing") == {0: 99}


def test_an_admin_call_that_takes_too_long_is_told_that_it_timed_out() -> None:
    lab = Lab(host_options={"sync_ms": 5.0}, num_shards=1)
    for n in range(12):
        lab.create_topic(f"t{n}", 1)
    lab.machine.host.sync_ms = 20_000.0
    assert lab.create_topic("late", 1) == ErrorCode.REQUEST_TIMED_OUT
    lab.world.run_for(20_000)
    assert lab.create_topic("late", 1) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_replies_of_one_shard_leave_in_the_order_of_their_entries_and_once() -> None:
    lab = Lab(host_options={"sync_ms": 7.0}, num_shards=1)
    seen: list[int] = []
    chance = random.Random(3)
    for n in range(200):
        request = commit_request("billing", {n % 12: n})
        lab.machine.host.call_later(
            n * chance.uniform(0.5, 1.0),
            lab.node.submit,
            ApiKey.OFFSET_COMMIT,
            9,
            request,
            ClientInfo(),
            lambda _response, n=n: seen.append(n),
        )
    asked: list[int] = []
    original = lab.node.shards[0].machine.handle

    def handle(api_key: int, api_version: int, request: Any, ctx: Any) -> Any:
        asked.append(request.topics[0].partitions[0].committed_offset)
        return original(api_key, api_version, request, ctx)

    lab.node.shards[0].machine.handle = handle  # type: ignore[method-assign]
    lab.world.run_for(5_000)
    assert seen == asked
    assert sorted(seen) == list(range(200))


# Crash points


def test_a_crash_at_any_call_of_the_disk_loses_nothing_that_was_acknowledged() -> None:
    """A run is cut at each disk call, before and after it, with the unsynced bytes kept, lost or torn."""

    class PowerFailure(BaseException):
        pass

    def run(cut_at: int, is_after: bool) -> tuple[Lab, dict[int, int]]:
        lab = Lab(num_shards=1)
        first = lab.machine.disk.calls
        acknowledged: dict[int, int] = {}

        def on_call(number: int, _operation: str, _path: str, is_done: bool) -> None:
            if number - first == cut_at and is_done == is_after:
                raise PowerFailure

        if cut_at:
            lab.machine.on_disk_call = on_call
        try:
            one, two = lab.consumer("one"), lab.consumer("two")
            for offset in range(1, 4):
                for consumer in (one, two):
                    consumer.heartbeat()
                    offsets = dict.fromkeys(consumer.partitions[:3], offset)
                    codes = lab.commit(
                        consumer.client,
                        "billing",
                        offsets,
                        member_id=consumer.member_id,
                        epoch=consumer.epoch,
                    )
                    acknowledged |= {p: offset for p, code in zip(offsets, codes, strict=True) if code == 0}
                lab.grow_topic("orders", 12 + offset)
        except PowerFailure:
            pass
        lab.machine.on_disk_call = None
        return lab, acknowledged

    lab, _ = run(0, False)
    num_calls = lab.machine.disk.calls - run(1, False)[0].machine.disk.calls + 1
    points = 0
    for cut_at in range(1, num_calls + 1):
        for is_after in (False, True):
            for how in Crash:
                lab, acknowledged = run(cut_at, is_after)
                lab.machine.crash(how, seed=points)
                lab.reboot()
                assert_kept(acknowledged, lab.fetch(lab.client("tool"), "billing"), (cut_at, is_after, how))
                for shard in lab.node.shards:
                    assert replayed(shard, shard.commit_index).state_hash == shard.machine.state_hash
                    assert shard.machine.newest_catalog_version <= lab.node.catalog.version
                count_fault("cluster", f"crash point, bytes {how.value}")
                points += 1
    assert points >= 180


# Loading


def test_requests_that_come_while_the_log_is_read_are_told_to_wait() -> None:
    lab = Lab(host_options={"sync_ms": 0.01}, num_shards=2)
    client = lab.client("one")
    for offset in range(300):
        assert lab.commit(client, "billing", dict.fromkeys(range(12), offset)) == [0] * 12
    lab.machine.stop()
    lab.machine.host_options["clock_step_ms"] = 1.0
    node = lab.machine.boot()
    fresh = lab.client("early")
    lab.world.run_until(lambda: bool(lab.network.listeners), within_ms=1_000)
    runtime = node.shard_for("billing")
    assert runtime.state is ShardState.CATCH_UP
    early = fresh.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request("billing", "m", "orders"))
    assert early.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert lab.commit(fresh, "billing", {0: 1}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    listed = fresh.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not node.is_ready
    assert lab.world.run_until(lambda: node.is_ready, within_ms=60_000)
    assert lab.fetch(fresh, "billing") == dict.fromkeys(range(12), 299)


def test_group_shards_are_ready_only_on_the_catalog_that_they_were_decided_on() -> None:
    lab = Lab()
    consumer = lab.consumer("one")
    consumer.heartbeat()
    lab.machine.kill()
    node = lab.machine.boot()
    states: list[tuple[bool, bool]] = []

    def look() -> bool:
        if node.shards:
            states.append((node.metadata.is_ready, any(runtime.is_ready for runtime in node.shards)))
        return node.is_ready

    assert lab.world.run_until(look, within_ms=5_000)
    assert (False, True) not in states
    assert (True, False) in states


# Clocks


def test_a_pause_of_a_minute_fences_nobody() -> None:
    lab = Lab(settings={"group_consumer_session_timeout_ms": 3_000})
    consumers = [lab.consumer(f"c{n}") for n in range(4)]
    for _ in range(5):
        for consumer in consumers:
            assert consumer.heartbeat().error_code == 0
        lab.world.run_for(500)
    had = [(c.epoch, c.partitions) for c in consumers]
    lab.machine.host.pause(60_000)
    calls = [
        c.client.send(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            ConsumerGroupHeartbeatRequest(group_id="billing", member_id=c.member_id, member_epoch=c.epoch),
        )
        for c in consumers
    ]
    lab.world.run_for(60_200)
    assert [call.response.error_code for call in calls] == [0] * 4
    for _ in range(6):
        for consumer in consumers:
            assert consumer.heartbeat().error_code == 0
        lab.world.run_for(500)
    assert [(c.epoch, c.partitions) for c in consumers] == had


def test_a_silent_member_is_expired_on_time_and_not_by_the_pause() -> None:
    lab = Lab(settings={"group_consumer_session_timeout_ms": 3_000})
    quiet, lively = lab.consumer("quiet"), lab.consumer("lively")
    for _ in range(4):
        quiet.heartbeat()
        lively.heartbeat()
    silent_since_ms = lab.world.now_ms
    lab.machine.host.pause(10_000)
    lab.world.run_for(10_000)
    expired_ms = 0.0
    for _ in range(100):
        lively.heartbeat()
        if len(lively.partitions) == 12:
            expired_ms = lab.world.now_ms
            break
        lab.world.run_for(100)
    assert 13_000 <= expired_ms - silent_since_ms <= 13_500


def test_sessions_expire_by_themselves_when_nobody_asks() -> None:
    lab = Lab(settings={"group_consumer_session_timeout_ms": 3_000})
    consumer = lab.consumer("one")
    consumer.heartbeat()
    lab.world.run_for(2_900)
    assert lab.node.shard_for("billing").counters.rebalances == 1
    lab.world.run_for(200)
    assert lab.node.shard_for("billing").counters.rebalances == 2
    assert consumer.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_many_sessions_that_end_at_once_do_not_hold_the_loop() -> None:
    lab = Lab(settings={"group_consumer_session_timeout_ms": 3_000}, num_shards=1)
    client = lab.client("many")
    calls = [
        client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request(f"g{n}", "m", "orders"))
        for n in range(100)
    ]
    lab.world.run_until(lambda: all(call.response for call in calls), within_ms=1_000)
    lab.machine.host.clock_step_ms = 0.5
    lab.machine.host.sync_ms = 0.0
    longest_ms, last_ms = 0.0, lab.world.now_ms

    def tick() -> None:
        nonlocal longest_ms, last_ms
        longest_ms = max(longest_ms, lab.world.now_ms - last_ms)
        last_ms = lab.world.now_ms
        if lab.world.now_ms < end_ms:
            lab.machine.host.call_later(1, tick)

    end_ms = lab.world.now_ms + 4_000
    lab.machine.host.call_later(2_900, tick)
    last_ms = lab.world.now_ms + 2_900
    lab.world.run_for(6_000)
    shard = lab.node.shards[0]
    assert shard.counters.rebalances == 200
    assert longest_ms < 30


# Failures


def test_a_handler_that_raises_gets_an_error_reply_and_the_next_request_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab(num_shards=1)
    client = lab.client("one")
    machine = lab.node.shards[0].machine
    original = machine.handle

    def broken(*_args: Any) -> Any:
        raise RuntimeError("a bug in a handler")

    machine.handle = broken  # type: ignore[method-assign]
    answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request("billing", "m", "orders"))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    trace_id = answer.error_message.split("trace ")[1].rstrip(")")
    assert trace_id in caplog.text
    assert "a bug in a handler" in caplog.text
    machine.handle = original  # type: ignore[method-assign]
    assert lab.commit(client, "billing", {0: 1}) == [0]


def test_a_projection_that_ran_ahead_of_its_log_stops_the_node() -> None:
    lab = Lab(num_shards=1)
    machine = lab.node.shards[0].machine

    def half_done(api_key: int, api_version: int, request: Any, ctx: Any) -> Any:
        commit = next(iter(lab.node.shards[0].replica.read_committed(1, 1 << 20)))
        machine.apply(iter_records(bytes(commit.body))[0], ctx.next_index)
        raise RuntimeError("after the first record")

    machine.handle = half_done  # type: ignore[method-assign]
    call = lab.client("one").send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 1}))
    lab.world.run_for(1_000)
    assert lab.machine.host.is_dead
    assert "left no records" in str(lab.machine.host.fatal_message)
    assert call.response is None


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync"])
def test_a_disk_that_fails_stops_the_node_and_nothing_acknowledged_is_lost(operation: str) -> None:
    lab = Lab(num_shards=1)
    client, acknowledged = lab.client("one"), {}
    for partition in range(6):
        assert lab.commit(client, "billing", {partition: 5}) == [0]
        acknowledged[partition] = 5
    lab.machine.disk.fail = lambda _number, what, _path: (
        OSError(28, "no space") if what == operation else None
    )
    call = client.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 6}))
    lab.world.run_for(1_000)
    assert lab.machine.host.is_dead
    assert "no space" in str(lab.machine.host.fatal_message)
    assert call.response is None
    lab.machine.disk.fail = None
    lab.machine.crash(Crash.LOST)
    lab.reboot()
    assert_kept(acknowledged, lab.fetch(lab.client("tool"), "billing"))


def test_a_full_disk_refuses_before_anything_is_written() -> None:
    lab = Lab(num_shards=1)
    client = lab.client("one")
    lab.machine.disk.free = 1024
    lab.world.run_for(2_000)
    assert lab.commit(client, "billing", {0: 1}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not lab.machine.host.is_dead
    lab.machine.disk.free = 1 << 40
    lab.world.run_for(2_000)
    assert lab.commit(client, "billing", {0: 1}) == [0]


def test_more_held_replies_than_the_bound_are_refused_retriably() -> None:
    lab = Lab(settings={"runtime_held_replies_max": 100}, host_options={"sync_ms": 50.0}, num_shards=1)
    codes: list[int] = []

    def flood() -> None:
        for n in range(150):
            lab.node.submit(
                ApiKey.OFFSET_COMMIT,
                9,
                commit_request("billing", {0: n}),
                ClientInfo(),
                lambda response: codes.append(response.topics[0].partitions[0].error_code),  # type: ignore[attr-defined]
            )

    lab.machine.host.call_soon(flood)
    lab.world.run_for(1_000)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 50 + [0] * 100


def test_a_clean_stop_answers_what_waits_and_refuses_what_comes() -> None:
    lab = Lab(host_options={"sync_ms": 30.0}, num_shards=1)
    client = lab.client("one")
    for offset in range(3):
        assert lab.commit(client, "billing", {0: offset}) == [0]
    pending = client.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 42}))
    lab.world.run_for(1.0)
    late: list[int] = []

    def too_late() -> None:
        lab.node.submit(
            ApiKey.OFFSET_COMMIT,
            9,
            commit_request("billing", {0: 43}),
            ClientInfo(),
            lambda response: late.append(response.topics[0].partitions[0].error_code),  # type: ignore[attr-defined]
        )

    lab.machine.host.call_later(0.1, too_late)
    lab.machine.stop()
    lab.world.run_for(100)
    assert pending.response.topics[0].partitions[0].error_code == 0
    assert late == [ErrorCode.NOT_COORDINATOR]
    lab.reboot()
    assert lab.fetch(lab.client("tool"), "billing") == {0: 42}


# Between the shards


def test_an_admin_reply_comes_when_groups_can_use_the_topic() -> None:
    lab = Lab(topics={})
    consumer = lab.consumer("one", "billing", "payments")
    consumer.heartbeat()
    assert consumer.partitions == []
    assert lab.create_topic("payments", 3) == 0
    assert lab.node.catalog.topic("payments") is not None
    consumer.heartbeat()
    assert consumer.partitions == [0, 1, 2]


def test_lists_and_describes_over_all_shards() -> None:
    lab = Lab()
    for group in GROUPS:
        lab.consumer(f"m-{group}", group).heartbeat()
    assert len({lab.node.shard_for(group).shard for group in GROUPS}) > 1
    listed = lab.admin.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    assert sorted(group.group_id for group in listed.groups) == sorted(GROUPS)


def test_waiters_are_called_once_when_their_index_is_committed() -> None:
    lab = Lab(num_shards=1)
    shard, seen = lab.node.shards[0], []
    index = shard.commit_index
    shard.when_committed(index, lambda: seen.append("now"))
    shard.when_committed(index + 1, lambda: seen.append("next"))
    shard.when_committed(index + 1, lambda: seen.append("cancelled")).cancel()
    assert seen == []
    lab.world.run_for(1)
    assert seen == ["now"]
    lab.commit(lab.client("one"), "billing", {0: 1})
    lab.world.run_for(1)
    assert seen == ["now", "next"]


def test_status_is_plain_data() -> None:
    lab = Lab(num_shards=2)
    status = lab.node.status()
    assert [shard["name"] for shard in status["shards"]] == ["metadata", "shard-0", "shard-1"]
    assert {shard["state"] for shard in status["shards"]} == {"Ready"}
    assert status["ready"] is True


# Evidence


def test_refusals_and_the_regularity_of_heartbeats_are_kept_as_evidence() -> None:
    lab = Lab()
    consumer = lab.consumer("one")
    for pause_ms in (500, 500, 2_700, 500, 6_000):
        assert consumer.heartbeat().error_code == 0
        lab.world.run_for(pause_ms)
    consumer.epoch = 99
    assert consumer.heartbeat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    lab.machine.stop()
    notes = read_evidence(lab.machine.disk, lab.machine.settings.data_dir)
    gaps = [note["gap_ms"] for note in notes if note["kind"] == "heartbeat_gap"]
    assert gaps == [pytest.approx(2_700, abs=5)]
    refused = [note for note in notes if note["kind"] == "refused"]
    assert [(note["error"], note["group"], note["member"]) for note in refused] == [
        (ErrorCode.FENCED_MEMBER_EPOCH, "billing", "one")
    ]
    assert refused[0]["reason"]
    assert refused[0]["client"].startswith("one/")
