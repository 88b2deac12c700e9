"""Commits that follow each other on a connection: which are served in one call, and how they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.kafka.commit_runs import COMMITS_MAX, RUN_BYTES_MAX
from tests.support.fault_rules import fault_rule
from tests.support.listener_rig import CLIENT_ID, RawClient, Rig, heartbeat
from tests.support.requests import commit_request
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.leave_group import LeaveGroupRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.protocol import encode_request

METADATA = encode_request(ApiKey.METADATA, 12, 90, CLIENT_ID, MetadataRequest(topics=None))


def commit(number: int, group: str = "g", *, version: int = 9, client_id: str = CLIENT_ID) -> bytes:
    request = commit_request(group, {0: number})
    return encode_request(ApiKey.OFFSET_COMMIT, version, number, client_id, request)


class RunRig(Rig):
    """Remembers the commits that the node was asked together."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.runs: list[int] = []
        submit_run = self.node.submit_run

        def submitted(api_key: int, version: int, bodies: list[Any], *rest: Any) -> None:
            self.runs.append(len(bodies))
            submit_run(api_key, version, bodies, *rest)

        self.node.submit_run = submitted  # type: ignore[method-assign]

    def serve(self, *frames: bytes) -> RawClient:
        client = self.connect()
        client.send(b"".join(frames))
        self.run(50)
        return client


def test_commits_that_come_together_are_one_run_answered_in_order() -> None:
    rig = RunRig()
    client = rig.serve(*map(commit, range(5)))
    assert rig.runs == [5]
    assert client.correlation_ids == [0, 1, 2, 3, 4]
    offsets = [body.topics[0].partitions[0].committed_offset for _, _, body, _ in rig.node.asked]
    assert offsets == [0, 1, 2, 3, 4]
    counters = rig.listener.context.counters
    assert counters.requests[ApiKey.OFFSET_COMMIT] == sum(counters.latency[ApiKey.OFFSET_COMMIT].buckets) == 5


def test_one_alone_is_no_run() -> None:
    rig = RunRig()
    assert rig.serve(commit(1)).correlation_ids == [1]
    assert rig.runs == []


ENDS = {
    "another group": commit(3, "other"),
    "another version": commit(3, version=8),
    "another client id": commit(3, client_id="another"),
    "another request": heartbeat(3),
    "a longer group": commit(3, "gg"),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_ends_a_run(what: str) -> None:
    rig = RunRig()
    client = rig.serve(commit(1), commit(2), ENDS[what], commit(4), commit(5))
    assert rig.runs[0] == rig.runs[-1] == 2
    assert client.correlation_ids == [1, 2, 3, 4, 5]
    groups = [body.group_id for _, _, body, _ in rig.node.asked]
    assert [groups[0], groups[1], groups[3], groups[4]] == ["g"] * 4


@pytest.mark.parametrize("group", ["", "\x02", "\x00"])
@pytest.mark.parametrize("version", [7, 9])
def test_a_group_id_that_its_length_hides_is_not_that_of_others(group: str, version: int) -> None:
    rig = RunRig()
    rig.serve(*(commit(at, one, version=version) for at, one in enumerate((group, group, "g", "g"))))
    assert max(rig.runs) == 2
    assert [body.group_id for _, _, body, _ in rig.node.asked] == [group, group, "g", "g"]


def test_a_run_is_short() -> None:
    rig = RunRig()
    client = rig.serve(*map(commit, range(2 * COMMITS_MAX + 1)))
    assert COMMITS_MAX in rig.runs
    assert max(rig.runs) == COMMITS_MAX
    assert client.correlation_ids == list(range(2 * COMMITS_MAX + 1))


def test_large_commits_are_no_run() -> None:
    rig = RunRig()
    many = commit_request("g", dict.fromkeys(range(RUN_BYTES_MAX // 18), 1))
    frames = [encode_request(ApiKey.OFFSET_COMMIT, 9, number, CLIENT_ID, many) for number in range(3)]
    assert rig.serve(*frames).correlation_ids == [0, 1, 2]
    assert rig.runs == []


def test_commits_that_may_take_several_decisions_are_no_run_and_served_alone() -> None:
    """So none overtakes the rest of an earlier one."""
    rig = RunRig()
    rig.node.pending_groups.add("g")
    rig.node.holding = True
    client = rig.serve(*map(commit, range(3)))
    for number in range(3):
        assert len(rig.node.asked) == number + 1
        rig.node.release()
        rig.run()
    assert rig.runs == []
    assert client.correlation_ids == [0, 1, 2]


def test_what_follows_a_join_that_may_take_several_decisions_waits_for_its_answer() -> None:
    """A LeaveGroup that came with it would be decided before it."""
    rig = RunRig()
    rig.node.pending_groups.add("g")
    rig.node.holding = True
    join = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
    )
    leave = LeaveGroupRequest(group_id="g", members=[])
    rig.serve(
        encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 0, CLIENT_ID, join),
        encode_request(ApiKey.LEAVE_GROUP, 5, 1, CLIENT_ID, leave),
    )
    assert [api for api, *_ in rig.node.asked] == [ApiKey.CONSUMER_GROUP_HEARTBEAT]
    rig.node.release()
    rig.run()
    assert [api for api, *_ in rig.node.asked] == [ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.LEAVE_GROUP]


def test_a_run_counts_towards_the_requests_in_flight() -> None:
    rig = RunRig(connection_requests_max=8)
    rig.node.holding = True
    client = rig.serve(*map(commit, range(20)))
    assert len(rig.node.asked) == 8
    while rig.node.held:
        rig.node.release()
        rig.run()
        assert len(rig.node.asked) - len(client.frames) <= 8
    assert max(rig.runs) <= 8
    assert client.correlation_ids == list(range(20))


def test_replies_of_a_run_wait_for_earlier_ones() -> None:
    rig = RunRig()
    rig.node.holding = True
    client = rig.serve(heartbeat(1), commit(2), commit(3), METADATA)
    rig.node.release(1)
    rig.run()
    assert client.frames == []
    rig.node.release()
    rig.run()
    assert client.correlation_ids == [1, 2, 3, 90]


def test_a_frame_that_cannot_be_decoded_ends_the_run_and_the_connection() -> None:
    rig = RunRig()
    broken = commit(3)[:-1] + b"\x07"
    client = rig.serve(commit(1), commit(2), broken, commit(4))
    assert rig.runs == [2], "those before it are carried out, those behind it are not"
    assert client.is_lost
    assert rig.listener.context.counters.connections_closed["malformed"] == 1
    assert RunRig().serve(broken, commit(4)).is_lost


def test_a_version_that_is_not_served_is_refused_as_ever() -> None:
    rig = RunRig()
    strange = bytearray(commit(1) + commit(2))
    strange[6:8] = strange[len(strange) // 2 + 6 : len(strange) // 2 + 8] = b"\x00\x63"
    assert rig.serve(bytes(strange)).is_lost
    assert rig.listener.context.counters.connections_closed["unsupported"] == 1


def test_each_meets_a_fault_by_itself() -> None:
    rig = RunRig()
    rig.listener.add_fault(fault_rule(action="error", error="NOT_COORDINATOR", times=1))
    client = rig.serve(commit(1), commit(2))
    assert rig.runs == []
    assert client.correlation_ids == [1, 2]


def test_a_node_that_fails_answers_each_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    rig = RunRig()

    def explode(*_: object) -> None:
        raise RuntimeError("on purpose")

    rig.node.submit_run = explode  # type: ignore[assignment]
    client = rig.serve(commit(1), commit(2), heartbeat(3))
    assert client.correlation_ids == [1, 2, 3]
    errors = rig.listener.context.counters.errors
    assert errors[ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_SERVER_ERROR] == 2
    assert "on purpose" in caplog.text


@pytest.mark.parametrize("clock_step_ms", [0.0, 0.5, 3.0])
def test_answers_are_the_same_when_the_turn_has_no_time_left(clock_step_ms: float) -> None:
    """The responses of a run differ, so each must be in the frame of its own request."""
    rig = RunRig(clock_step_ms=clock_step_ms)

    def answer(body: Any) -> object:
        partition = OffsetCommitResponsePartition(
            partition_index=body.topics[0].partitions[0].committed_offset
        )
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=[partition])])

    rig.node.answer = answer  # type: ignore[method-assign]
    client = rig.serve(*map(commit, range(60)))
    rig.run(1_000)
    assert client.correlation_ids == list(range(60))
    assert [int.from_bytes(frame[-9:-5], "big") for frame in client.frames] == list(range(60))


def test_replies_to_a_connection_that_is_gone_go_nowhere() -> None:
    rig = RunRig()
    rig.node.holding = True
    client = rig.serve(commit(1), commit(2))
    client.transport.abort()
    rig.run()
    rig.node.release()
    rig.run()
    assert client.frames == []
