"""ListOffsets and Fetch: an empty log that ends at any position a client has, and a long poll."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.topics import CatalogView
from records import METADATA_SHARD
from tests.support.listener_rig import CLIENT_ID, ORDERS, PEER, CountingEntry, Rig, heartbeat
from wire.apis import API_VERSIONS, ApiKey
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.protocol import decode_response, encode_request

FETCH_VERSIONS = list(range(API_VERSIONS[ApiKey.FETCH][0], API_VERSIONS[ApiKey.FETCH][1] + 1))
LIST_VERSIONS = list(range(API_VERSIONS[ApiKey.LIST_OFFSETS][0], API_VERSIONS[ApiKey.LIST_OFFSETS][1] + 1))


def fetch_request(
    version: int,
    *partitions: tuple[int, int],
    topic: str = "orders",
    topic_id: bytes = ORDERS.topic_id,
    max_wait_ms: int = 500,
    **fields: Any,
) -> FetchRequest:
    named = FetchTopic(topic_id=topic_id) if version >= 13 else FetchTopic(topic=topic)
    named.partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
        for partition, offset in partitions
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=fields.pop("min_bytes", 1), topics=[named], **fields
    )


def timed(rig: Rig, version: int, request: FetchRequest) -> tuple[Any, float]:
    client = rig.connect()
    start_ms = rig.world.now_ms
    answer = rig.ask(client, ApiKey.FETCH, version, request, within_ms=60_000)
    return answer, rig.world.now_ms - start_ms


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_both_ends_of_every_log_are_0(version: int) -> None:
    rig = Rig()
    asked = [(0, -1), (1, -2), (2, 1_700_000_000_000), (3, -1), (-1, -2), (0, -3), (0, -4), (0, -99)]
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="orders",
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=time) for index, time in asked
                ],
            ),
            ListOffsetsTopic(name="new", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]),
        ],
    )
    answer = rig.ask(rig.connect(), ApiKey.LIST_OFFSETS, version, request)
    orders, new = answer.topics
    assert (orders.name, new.name) == ("orders", "new")
    assert [(one.partition_index, one.error_code, one.offset) for one in orders.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, -1),
        (3, 3, -1),
        (-1, 3, -1),
        (0, 0, -1),
        (0, 0, 0),
        (0, 35, -1),
    ]
    assert {one.timestamp for one in orders.partitions} == {-1}
    assert {one.leader_epoch for one in orders.partitions} == {-1}
    assert new.partitions[0].error_code == 3


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_waits_and_its_offset_is_the_end_of_the_log(version: int) -> None:
    answer, took_ms = timed(Rig(), version, fetch_request(version, (0, 0), (2, 9_000_000_000)))
    assert 500 <= took_ms < 510
    assert (answer.error_code, answer.session_id) == (0, 0)
    (topic,) = answer.responses
    assert (topic.topic_id if version >= 13 else topic.topic) == (
        ORDERS.topic_id if version >= 13 else "orders"
    )
    got = [
        (one.partition_index, one.error_code, one.high_watermark, one.last_stable_offset, one.records)
        for one in topic.partitions
    ]
    assert got == [(0, 0, 0, 0, b""), (2, 0, 9_000_000_000, 9_000_000_000, b"")]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_unknown_topic_or_partition_is_told_at_once(version: int) -> None:
    rig = Rig()
    answer, took_ms = timed(rig, version, fetch_request(version, (0, 5), (3, 5)))
    assert took_ms < 10
    assert [one.error_code for one in answer.responses[0].partitions] == [0, 3]
    answer, took_ms = timed(rig, version, fetch_request(version, (0, 5), topic="new", topic_id=b"?" * 16))
    assert took_ms < 10
    assert [one.error_code for one in answer.responses[0].partitions] == [100 if version >= 13 else 3]


@pytest.mark.parametrize(
    "fields", [{"max_wait_ms": 0}, {"max_wait_ms": -1}, {"min_bytes": 0}, {"min_bytes": -5}], ids=str
)
def test_a_fetch_that_does_not_want_to_wait_does_not(fields: dict[str, int]) -> None:
    assert timed(Rig(), 12, fetch_request(12, (0, 5), **fields))[1] < 10


def test_the_longest_wait_is_the_nodes_to_say() -> None:
    assert (
        timed(Rig(fetch_wait_max_ms=2_000), 12, fetch_request(12, (0, 5), max_wait_ms=2**31 - 1))[1] < 2_010
    )


def test_sessions_are_not_kept() -> None:
    answer, took_ms = timed(Rig(), 12, fetch_request(12, (0, 5), session_id=99, session_epoch=3))
    assert (answer.error_code, answer.responses, took_ms < 10) == (70, [], True)


def test_a_waiting_fetch_holds_up_nothing_but_the_next_fetch_on_its_connection() -> None:
    rig = Rig()
    client, other = rig.connect(), rig.connect()
    client.send(fetch(1) + fetch(2))
    other.send(heartbeat(3))
    rig.run(100)
    assert (client.frames, other.correlation_ids) == ([], [3])
    client.send(heartbeat(4))
    rig.run()
    assert client.correlation_ids == [1, 2, 4]
    assert rig.listener.context.fetches_waiting == 0
    rig.run(1_000)
    assert client.correlation_ids == [1, 2, 4]


def test_a_steady_heartbeat_behind_a_fetch_does_not_wait_either() -> None:
    rig = Rig()
    client, rig.node.entries["g", "m"] = rig.connect(), CountingEntry()
    client.send(heartbeat(1))
    rig.run()
    client.send(fetch(2) + heartbeat(3))
    rig.run()
    assert client.correlation_ids == [1, 2, 3]
    assert rig.listener.context.counters.fast_heartbeats == 1


def fetch(correlation_id: int) -> bytes:
    return encode_request(ApiKey.FETCH, 12, correlation_id, CLIENT_ID, fetch_request(12, (0, 5)))


def test_a_fetch_does_not_care_who_leads() -> None:
    rig = Rig()
    for leader in (PEER, None):
        rig.node.leaders[METADATA_SHARD] = leader
        answer, took_ms = timed(rig, 12, fetch_request(12, (0, 5)))
        assert [one.error_code for one in answer.responses[0].partitions] == [0]
        assert 500 <= took_ms < 510


def test_waiting_fetches_are_bounded_and_end_with_their_connection() -> None:
    rig = Rig(fetch_waiting_max=5)
    request = encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(12, (0, 5), max_wait_ms=10_000))
    clients = [rig.connect() for _ in range(7)]
    for client in clients:
        client.send(request)
        rig.run()
    assert [len(client.frames) for client in clients] == [0] * 5 + [1, 1]
    assert rig.listener.context.fetches_waiting == 5
    for client in clients[:3]:
        client.transport.abort()
    rig.run()
    assert rig.listener.context.fetches_waiting == 2
    rig.run(10_000)
    assert rig.listener.context.fetches_waiting == 0
    assert [len(client.frames) for client in clients] == [0] * 3 + [1] * 4


def test_a_topic_that_goes_while_a_fetch_waits_is_told_by_the_next_one() -> None:
    rig = Rig()
    client = rig.connect()
    client.send(encode_request(ApiKey.FETCH, 12, 1, CLIENT_ID, fetch_request(12, (0, 5))))
    rig.run()
    rig.node.catalog = CatalogView()
    rig.run(600)
    _, first = decode_response(ApiKey.FETCH, 12, client.frames[0])
    assert first.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
    assert (
        rig.ask(client, ApiKey.FETCH, 12, fetch_request(12, (0, 5))).responses[0].partitions[0].error_code
        == 3
    )
