"""Faults on demand: what the listener makes of them, on the wire and in the evidence."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.kafka.injecting import GROUPS_PER_NOTE_MAX, NOTES_PER_FAULT_MAX, SILENT_MS_MAX
from tests.support.fault_rules import fault_rule
from tests.support.listener_rig import CLIENT_ID, CountingEntry, RawClient, Rig, heartbeat
from wire.apis import API_VERSIONS, ApiKey, message_classes
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.fetch import FetchRequest, FetchTopic
from wire.messages.metadata import MetadataRequest
from wire.messages.produce import ProduceRequest, TopicProduceData
from wire.protocol import decode_response, encode_request, encode_response
from wire.refusals import refuse

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
METADATA = encode_request(ApiKey.METADATA, 12, 2, CLIENT_ID, MetadataRequest(topics=None))


def faulty(**given: Any) -> tuple[Rig, RawClient]:
    rig = Rig()
    client = rig.connect()
    rig.listener.add_fault(fault_rule(**given))
    return rig, client


def error_in(frame: bytes) -> int:
    code: int = decode_response(HEARTBEAT, 1, frame)[1].error_code
    return code


def test_a_delayed_reply_holds_back_those_behind_it() -> None:
    rig, client = faulty(action="delay", delay_ms=500, times=1)
    client.send(heartbeat(1) + heartbeat(2))
    rig.run(480)
    assert len(rig.node.asked) == 2, "both are carried out at once"
    assert client.frames == []
    rig.run(40)
    assert client.correlation_ids == [1, 2]


def test_a_client_that_leaves_before_its_delayed_reply_leaves_nothing_behind() -> None:
    rig, client = faulty(action="delay", delay_ms=500)
    client.send(heartbeat(1))
    rig.run()
    client.transport.abort()
    rig.run(1_000)
    assert not rig.listener.connections
    assert rig.listener.context.kept_bytes == 0


def test_a_dropped_reply_closes_the_connection_after_the_work() -> None:
    rig, client = faulty(action="drop", api="ConsumerGroupHeartbeat", times=1)
    rig.node.holding = True
    client.send(heartbeat(1))
    rig.run()
    assert not client.is_lost, "the work is not done yet"
    rig.node.release()
    rig.run()
    assert client.is_lost
    assert client.frames == []
    assert rig.listener.context.counters.connections_closed["fault"] == 1


def test_a_dropped_reply_may_be_missed_only_later() -> None:
    rig, client = faulty(action="drop", delay_ms=300)
    client.send(heartbeat(1))
    rig.run(280)
    assert not client.is_lost
    rig.run(40)
    assert client.is_lost
    assert client.frames == []


def test_an_error_is_answered_without_work_and_only_so_often() -> None:
    rig, client = faulty(action="error", error="NOT_COORDINATOR", group="g", times=2)
    client.send(b"".join(heartbeat(number) for number in range(4)))
    rig.run()
    assert client.correlation_ids == [0, 1, 2, 3]
    assert [error_in(frame) for frame in client.frames] == [ErrorCode.NOT_COORDINATOR] * 2 + [0, 0]
    assert len(rig.node.asked) == 2
    said = decode_response(HEARTBEAT, 1, client.frames[0])[1].error_message
    assert said == "injected by fault 1 of an operator (quorate faults list)"


def test_a_producer_that_wants_no_reply_loses_its_connection_by_an_error() -> None:
    rig, client = faulty(action="error", error="NOT_LEADER_OR_FOLLOWER", api="Produce")
    topic = TopicProduceData(name="orders", partition_data=[])
    body = ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[topic])
    client.send(encode_request(ApiKey.PRODUCE, 9, 1, CLIENT_ID, body))
    rig.run()
    assert client.is_lost
    assert client.frames == []
    assert rig.listener.context.counters.connections_closed["fault"] == 1


def test_an_error_may_come_late() -> None:
    rig, client = faulty(action="error", error="NOT_COORDINATOR", delay_ms=300)
    client.send(heartbeat(1))
    rig.run(280)
    assert client.frames == []
    rig.run(40)
    assert [error_in(frame) for frame in client.frames] == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("api", sorted(API_VERSIONS), ids=lambda api: api.name)
def test_every_api_can_answer_an_injected_error(api: ApiKey) -> None:
    for version in range(API_VERSIONS[api][0], API_VERSIONS[api][1] + 1):
        body = refuse(
            api, version, message_classes(api)[0](), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "injected"
        )
        assert encode_response(api, version, 1, body)


def test_a_closed_connection_did_no_work() -> None:
    rig, client = faulty(action="close", member="m", times=1)
    client.send(heartbeat(1) + heartbeat(2))
    rig.run()
    assert client.is_lost
    assert rig.node.asked == []
    again = rig.connect()
    again.send(heartbeat(3))
    rig.run()
    assert again.correlation_ids == [3]


def test_a_connection_closed_late_serves_nothing_meanwhile() -> None:
    rig, client = faulty(action="close", delay_ms=300, times=1)
    client.send(heartbeat(1) + heartbeat(2))
    rig.run(280)
    assert (client.is_lost, client.frames, rig.node.asked) == (False, [], [])
    rig.run(40)
    assert client.is_lost


def test_a_silent_connection_answers_what_came_before_and_nothing_else() -> None:
    rig, client = faulty(action="silence", member="hushed")
    client.send(heartbeat(1) + heartbeat(2, member="hushed") + heartbeat(3))
    rig.run()
    client.send(heartbeat(4))
    rig.run(60_000)
    assert client.correlation_ids == [1]
    assert not client.is_lost
    assert len(rig.node.asked) == 1
    other = rig.connect()
    other.send(heartbeat(5))
    rig.run()
    assert other.correlation_ids == [5]


def test_a_silent_connection_notices_its_client_going() -> None:
    rig, client = faulty(action="silence")
    client.send(heartbeat(1))
    rig.run()
    client.transport.abort()
    rig.run()
    assert not rig.listener.connections


@pytest.mark.parametrize(("delay_ms", "life_ms"), [(None, SILENT_MS_MAX), (2_000, 2_000)])
def test_a_silent_connection_does_not_live_for_ever(delay_ms: int | None, life_ms: int) -> None:
    rig, client = faulty(action="silence", delay_ms=delay_ms)
    client.send(heartbeat(1))
    rig.run(life_ms - 100)
    assert not client.is_lost
    rig.run(200)
    assert client.is_lost


def test_a_throttled_reply_says_so_and_the_next_one_does_not() -> None:
    rig, client = faulty(action="throttle", throttle_ms=5_000, times=1)
    client.send(heartbeat(1) + heartbeat(2))
    rig.run()
    answers = [decode_response(HEARTBEAT, 1, frame)[1] for frame in client.frames]
    assert [answer.throttle_time_ms for answer in answers] == [5_000, 0]
    assert len(rig.node.asked) == 2


def test_a_throttled_answer_of_many_pieces_says_so_too() -> None:
    rig, client = faulty(action="throttle", throttle_ms=5_000)
    answer = rig.ask(client, ApiKey.METADATA, 12, MetadataRequest(topics=None))
    assert answer.throttle_time_ms == 5_000


def test_a_fetch_that_waits_is_delayed_on_top() -> None:
    rig, client = faulty(action="delay", delay_ms=500, api="Fetch")
    body = FetchRequest(max_wait_ms=200, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[])])
    client.send(encode_request(ApiKey.FETCH, 11, 1, CLIENT_ID, body))
    rig.run(680)
    assert client.frames == []
    rig.run(60)
    assert client.correlation_ids == [1]


# The fast path.


def test_a_new_fault_reaches_a_member_whose_heartbeats_were_answered_from_the_cache() -> None:
    rig = Rig()
    rig.node.entries["g", "m"] = CountingEntry()
    client = rig.connect()
    for number in range(3):
        client.send(heartbeat(number))
        rig.run()
    assert rig.listener.context.counters.fast_heartbeats == 2
    rig.listener.add_fault(fault_rule(action="error", error="FENCED_MEMBER_EPOCH", times=1))
    client.send(heartbeat(3))
    rig.run()
    assert error_in(client.frames[-1]) == ErrorCode.FENCED_MEMBER_EPOCH
    for number in range(4, 7):
        client.send(heartbeat(number))
        rig.run()
    assert rig.listener.context.counters.fast_heartbeats == 4, "the fault has ended, so they are cached again"


def test_nothing_is_cached_while_a_fault_is_set() -> None:
    rig = Rig()
    rig.node.entries["g", "m"] = CountingEntry()
    client = rig.connect()
    rig.node.holding = True
    client.send(heartbeat(1))
    rig.run()
    rig.listener.add_fault(fault_rule(action="throttle", throttle_ms=9, after=1))
    rig.node.holding = False
    rig.node.release()
    rig.run()
    for number in range(3):
        client.send(heartbeat(number))
        rig.run()
    assert rig.listener.context.counters.fast_heartbeats == 0
    assert [decode_response(HEARTBEAT, 1, frame)[1].throttle_time_ms for frame in client.frames] == [
        0,
        0,
        9,
        9,
    ]


def test_a_reply_that_met_a_fault_is_never_cached() -> None:
    rig = Rig()
    rig.node.entries["g", "m"] = CountingEntry()
    client = rig.connect()
    rig.listener.add_fault(fault_rule(action="throttle", throttle_ms=9, times=1))
    for number in range(3):
        client.send(heartbeat(number))
        rig.run()
    assert [decode_response(HEARTBEAT, 1, frame)[1].throttle_time_ms for frame in client.frames] == [9, 0, 0]


# Evidence.


def test_every_applied_fault_is_noted_up_to_a_bound() -> None:
    rig, client = faulty(action="error", error="NOT_COORDINATOR", delay_ms=0)
    client.send(heartbeat(1, group="billing", member="m7"))
    rig.run()
    assert rig.node.evidence.noted == [
        {
            "fault_id": 1,
            "action": "error",
            "api": 68,
            "error": 16,
            "delay_ms": 0,
            "throttle_ms": 0,
            "group_id": "billing",
            "member_id": "m7",
            "client": f"{CLIENT_ID}/127.0.0.1",
        }
    ]
    client.send(b"".join(heartbeat(number) for number in range(NOTES_PER_FAULT_MAX + 5)))
    rig.run(2_000)
    assert len(rig.node.evidence.noted) == NOTES_PER_FAULT_MAX
    assert rig.listener.context.faults.listed(0)[0]["applied"] == NOTES_PER_FAULT_MAX + 6


def test_a_request_about_several_groups_is_noted_for_each() -> None:
    rig, client = faulty(action="close")
    body = ConsumerGroupDescribeRequest(group_ids=[f"g{number}" for number in range(20)])
    client.send(encode_request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, 1, CLIENT_ID, body))
    rig.run()
    assert [note["group_id"] for note in rig.node.evidence.noted] == [
        f"g{number}" for number in range(GROUPS_PER_NOTE_MAX)
    ]


def test_a_request_without_a_group_is_noted_all_the_same() -> None:
    rig, client = faulty(action="close")
    client.send(METADATA)
    rig.run()
    assert [note["group_id"] for note in rig.node.evidence.noted] == [""]
