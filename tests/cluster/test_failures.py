"""Handlers that raise, disks that fail or are full, floods, and a clean stop, as clients see them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from cluster.node_info import ClientInfo
from coordinator.limits import DECISION_BYTES_MAX
from raftlog.env.settings import LogSettings
from raftlog.env.simulated_files import Crash
from raftlog.storage.frames import frames_in
from records import iter_records
from tests.support.requests import commit_request, join_request
from tests.support.sim_node import SimNode, assert_kept
from wire.apis import ApiKey
from wire.errors import ErrorCode


def test_a_handler_that_raises_gets_an_error_reply_and_the_next_request_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = SimNode(num_shards=1)
    client = sim.client("one")
    machine = sim.node.shards[0].machine
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
    assert sim.commit(client, "billing", {0: 1}) == [0]


def test_a_projection_that_ran_ahead_of_its_log_stops_the_node() -> None:
    sim = SimNode(num_shards=1)
    machine = sim.node.shards[0].machine

    def half_done(api_key: int, api_version: int, request: Any, ctx: Any) -> Any:
        commit = frames_in(sim.node.shards[0].replica.log.read(1, 1 << 20))[0]
        machine.apply(iter_records(bytes(commit.body))[0], ctx.next_index)
        raise RuntimeError("after the first record")

    machine.handle = half_done  # type: ignore[method-assign]
    call = sim.client("one").send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 1}))
    sim.world.run_for(1_000)
    assert sim.machine.host.is_dead
    assert "without records" in str(sim.machine.host.fatal_message)
    assert call.response is None


def test_due_work_that_ran_ahead_of_its_log_stops_the_node() -> None:
    sim = SimNode(num_shards=1)
    consumer, machine = sim.consumer("one"), sim.node.shards[0].machine
    consumer.heartbeat()
    record = iter_records(bytes(frames_in(sim.node.shards[0].replica.log.read(2, 1))[0].body))[0]

    def half_done(ctx: Any) -> Any:
        machine.apply(record, ctx.next_index)
        raise RuntimeError("after the first record")

    machine.next_work = half_done  # type: ignore[method-assign]
    sim.world.run_for(60_000)
    assert sim.machine.host.is_dead
    assert "without records" in str(sim.machine.host.fatal_message)


def test_an_entry_that_cannot_be_appended_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = SimNode(num_shards=1)

    def broken(*_args: Any) -> bytes:
        raise struct.error("a length that does not fit")

    monkeypatch.setattr("cluster.runtime.requests.join_body", broken)
    call = sim.client("one").send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 1}))
    sim.world.run_for(1_000)
    assert "cannot be appended: a length" in str(sim.machine.host.fatal_message)
    assert call.response is None


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync"])
def test_a_disk_that_fails_stops_the_node_and_nothing_acknowledged_is_lost(operation: str) -> None:
    sim = SimNode(num_shards=1)
    client, acknowledged = sim.client("one"), {}
    for partition in range(6):
        assert sim.commit(client, "billing", {partition: 5}) == [0]
        acknowledged[partition] = 5
    sim.machine.disk.fail = lambda _number, what, _path: (
        OSError(28, "no space") if what == operation else None
    )
    call = client.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 6}))
    sim.world.run_for(1_000)
    assert sim.machine.host.is_dead
    assert "no space" in str(sim.machine.host.fatal_message)
    assert call.response is None
    sim.machine.disk.fail = None
    sim.machine.crash(Crash.LOST)
    sim.reboot()
    assert_kept(acknowledged, sim.fetch(sim.client("tool"), "billing"))


def test_a_full_disk_refuses_before_anything_is_written_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sim = SimNode(num_shards=1)
    client = sim.client("one")
    sim.machine.disk.free = 1024
    sim.world.run_for(2_000)
    for _ in range(3):
        assert sim.commit(client, "billing", {0: 1}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    refused = sim.consumer("two").heartbeat()
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "disk is full" in refused.error_message
    assert caplog.text.count("1024 bytes are free on the disk of /data/shard-0") == 1
    assert not sim.machine.host.is_dead
    sim.machine.disk.free = 1 << 40
    sim.world.run_for(2_000)
    assert sim.commit(client, "billing", {0: 1}) == [0]
    assert "writes are accepted again" in caplog.text


def test_a_disk_that_cannot_be_asked_stops_the_node() -> None:
    sim = SimNode(num_shards=1)

    def gone(_path: str) -> int:
        raise OSError(5, "input/output error")

    sim.machine.disk.free_bytes = gone  # type: ignore[method-assign]
    sim.world.run_for(2_000)
    call = sim.client("one").send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 1}))
    sim.world.run_for(1_000)
    assert "input/output error" in str(sim.machine.host.fatal_message)
    assert call.response is None


def test_more_held_replies_than_the_bound_are_refused_retriably() -> None:
    sim = SimNode(settings={"runtime_held_replies_max": 100}, host_options={"sync_ms": 50.0}, num_shards=1)
    codes: list[int] = []

    def flood() -> None:
        for n in range(150):
            sim.node.submit(
                ApiKey.OFFSET_COMMIT,
                9,
                commit_request("billing", {0: n}),
                ClientInfo(),
                lambda response: codes.append(response.topics[0].partitions[0].error_code),  # type: ignore[attr-defined]
            )

    sim.machine.host.call_soon(flood)
    sim.world.run_for(1_000)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 50 + [0] * 100


def test_a_clean_stop_answers_what_waits_and_refuses_what_comes() -> None:
    sim = SimNode(host_options={"sync_ms": 30.0}, num_shards=1)
    client = sim.client("one")
    for offset in range(3):
        assert sim.commit(client, "billing", {0: offset}) == [0]
    pending = client.send(ApiKey.OFFSET_COMMIT, 9, commit_request("billing", {0: 42}))
    sim.world.run_for(1.0)
    late: list[int] = []

    def too_late() -> None:
        sim.node.submit(
            ApiKey.OFFSET_COMMIT,
            9,
            commit_request("billing", {0: 43}),
            ClientInfo(),
            lambda response: late.append(response.topics[0].partitions[0].error_code),  # type: ignore[attr-defined]
        )

    sim.machine.host.call_later(0.1, too_late)
    sim.machine.stop()
    sim.world.run_for(100)
    assert pending.response.topics[0].partitions[0].error_code == 0
    assert late == [ErrorCode.NOT_COORDINATOR]
    sim.reboot()
    assert sim.fetch(sim.client("tool"), "billing") == {0: 42}


def test_a_request_too_large_for_one_entry_is_refused_and_the_node_goes_on() -> None:
    """A frame of 400 KB can ask for 26 MB of records: each repeats the ids of group and topic."""
    name = "t" * 249
    sim = SimNode(num_shards=1, topics={name: 20_000})
    client, offsets = sim.client("one"), dict.fromkeys(range(20_000), 7)
    codes = sim.commit(client, "g" * 1000, offsets, topic=name)
    assert set(codes) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert not sim.machine.host.is_dead
    assert sim.commit(client, "g" * 1000, {0: 8}, topic=name) == [0]
    assert sim.fetch(client, "g" * 1000) == {0: 8}


def test_topics_too_many_for_one_entry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = SimNode(num_shards=1)
    monkeypatch.setattr("coordinator.steps.DECISION_BYTES_MAX", 100)
    assert sim.create_topic("n" * 100, 1) == ErrorCode.INVALID_REQUEST
    assert sim.create_topic("n", 1) == 0


def test_due_work_too_large_for_one_entry_leaves_the_node_serving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sim = SimNode(num_shards=1)
    consumer = sim.consumer("one")
    consumer.heartbeat()
    monkeypatch.setattr("coordinator.steps.DECISION_BYTES_MAX", 10)
    sim.world.run_for(60_000)
    assert "more than the" in caplog.text
    assert not sim.machine.host.is_dead
    monkeypatch.undo()
    sim.world.run_for(2_000)
    assert consumer.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_every_decision_of_the_largest_size_fits_into_an_entry() -> None:
    assert LogSettings().entry_bytes_max >= DECISION_BYTES_MAX * 4 // 3


def test_no_member_expires_for_heartbeats_that_a_full_disk_refused() -> None:
    """A heartbeat that would write is refused; its session must not run out when there is room again."""
    sim = SimNode(num_shards=1)
    consumer = sim.consumer("one")
    assert consumer.heartbeat().error_code == 0
    sim.machine.disk.free = 1024
    consumer.topics = ("orders", "payments")
    for _ in range(60):
        sim.world.run_for(1_000)
        request = consumer.next_heartbeat()
        request.subscribed_topic_names = list(consumer.topics)
        answer = consumer.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    sim.machine.disk.free = 1 << 40
    sim.world.run_for(3_000)
    assert consumer.heartbeat().error_code == 0
    sim.world.run_for(60_000)
    assert consumer.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
