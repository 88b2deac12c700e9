"""Produce: every batch is refused at once with a fatal error; with acks=0 the connection is closed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.kafka.producing import PARTITIONS_MAX
from tests.support.listener_rig import CLIENT_ID, ORDERS, Rig, heartbeat, log_lines
from wire.apis import API_VERSIONS, ApiKey
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.protocol import encode_request

VERSIONS = list(range(API_VERSIONS[ApiKey.PRODUCE][0], API_VERSIONS[ApiKey.PRODUCE][1] + 1))
SAYS = "topics here hold no messages, only partitions to assign; produce to a Kafka cluster"


def produce_request(
    version: int, acks: int = -1, records: bytes | None = b"batch", partitions: Sequence[int] = (0, 99)
) -> ProduceRequest:
    """Return a request to partitions of a topic that exists and of one that does not."""
    topics = [("orders", ORDERS.topic_id), ("nowhere", b"?" * 16)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                **({"topic_id": topic_id} if version >= 13 else {"name": name}),  # type: ignore[arg-type]
                partition_data=[PartitionProduceData(index=index, records=records) for index in partitions],
            )
            for name, topic_id in topics
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 1, 7])
def test_every_partition_of_every_topic_is_refused(version: int, acks: int) -> None:
    rig = Rig()
    answer = rig.ask(rig.connect(), ApiKey.PRODUCE, version, produce_request(version, acks))
    names = [topic.topic_id if version >= 13 else topic.name for topic in answer.responses]
    assert names == ([ORDERS.topic_id, b"?" * 16] if version >= 13 else ["orders", "nowhere"])
    for topic in answer.responses:
        assert [one.index for one in topic.partition_responses] == [0, 99]
        for one in topic.partition_responses:
            assert (one.error_code, one.base_offset, one.log_append_time_ms) == (44, -1, -1)
            assert one.error_message == (SAYS if version >= 8 else None)
            assert one.record_errors == []
    assert rig.listener.context.counters.errors[ApiKey.PRODUCE, 44] == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_without_acks_the_connection_is_the_answer(version: int, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    bystander, client = rig.connect(), rig.connect()
    with log_lines(caplog) as lines:
        client.send(encode_request(ApiKey.PRODUCE, version, 1, CLIENT_ID, produce_request(version, acks=0)))
        rig.run()
        assert client.is_lost
        assert client.frames == []
        (line,) = lines()
    assert f"{CLIENT_ID!r}: it produces with acks=0; {SAYS}" in line
    assert rig.listener.context.counters.connections_closed["unacknowledged"] == 1
    bystander.send(heartbeat(5))
    rig.run()
    assert bystander.correlation_ids == [5]


def test_replies_before_an_unacknowledged_batch_are_delivered_and_none_after_it() -> None:
    rig = Rig()
    client = rig.connect()
    batch = encode_request(ApiKey.PRODUCE, 9, 2, CLIENT_ID, produce_request(9, acks=0))
    client.send(heartbeat(1) + batch + heartbeat(3))
    rig.run()
    assert client.correlation_ids == [1]
    assert len(rig.node.asked) == 1


def test_a_thousand_unacknowledged_batches_write_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    batch = encode_request(ApiKey.PRODUCE, 9, 2, CLIENT_ID, produce_request(9, acks=0))
    with log_lines(caplog) as lines:
        for _ in range(1_000):
            rig.connect().send(batch)
        rig.run()
        assert 10 <= len(lines()) <= 20
    assert rig.listener.context.counters.connections_closed["unacknowledged"] == 1_000


@pytest.mark.parametrize("records", [None, b"", b"\xff" * 200_000])
def test_records_are_not_read(records: bytes | None) -> None:
    rig = Rig()
    answer = rig.ask(rig.connect(), ApiKey.PRODUCE, 12, produce_request(12, records=records))
    assert {one.error_code for topic in answer.responses for one in topic.partition_responses} == {44}


def test_a_request_for_nothing_is_answered_with_nothing() -> None:
    rig = Rig()
    assert rig.ask(rig.connect(), ApiKey.PRODUCE, 12, ProduceRequest(acks=-1)).responses == []


def test_an_answer_much_larger_than_its_request_is_not_given(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    many = produce_request(12, records=None, partitions=range(PARTITIONS_MAX // 2))
    assert len(rig.ask(rig.connect(), ApiKey.PRODUCE, 12, many).responses) == 2
    client = rig.connect()
    more = produce_request(12, records=None, partitions=range(PARTITIONS_MAX // 2 + 1))
    with log_lines(caplog) as lines:
        client.send(encode_request(ApiKey.PRODUCE, 12, 1, CLIENT_ID, more))
        rig.run()
        assert client.is_lost
        assert client.frames == []
        (line,) = lines()
    assert f"it produces to {PARTITIONS_MAX + 2} partitions in one request" in line
