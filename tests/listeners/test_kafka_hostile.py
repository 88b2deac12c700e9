"""Hostile clients: closed or answered, with one log line and bounded memory; others notice nothing."""

from __future__ import annotations

import random
import re
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.kafka.connection import Connection
from cluster.kafka.connection_table import FIRST_REQUEST_MS, UNUSED_MS
from tests.report import count_fault
from tests.support.listener_rig import CLIENT_ID, RawClient, Rig, heartbeat, log_lines
from wire.apis import API_VERSIONS, ApiKey, is_private, served_apis
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from wire.protocol import decode_response, encode_request


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, correlation_id: int = 1, client_id: str = CLIENT_ID) -> bytes:
    name = client_id.encode()
    return struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name


def still_serves(rig: Rig) -> bool:
    client = rig.connect()
    client.send(heartbeat(5))
    rig.run()
    return client.correlation_ids == [5]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8))
def test_random_bytes_are_answered_or_closed(chunks: list[bytes]) -> None:
    rig = Rig()
    bystander, client = rig.connect(), rig.connect()
    for chunk in chunks:
        client.send(chunk)
        rig.run(2)
    bystander.send(heartbeat(9))
    rig.run(50)
    assert bystander.correlation_ids == [9]
    assert client.is_lost or len(next(reversed(rig.listener.connections))._unserved.rest) <= 4 + 2400


@pytest.mark.parametrize("api_key", sorted(API_VERSIONS))
def test_random_bodies_of_every_served_version_are_answered_or_closed(api_key: ApiKey) -> None:
    rig, chance = Rig(), random.Random(api_key)
    low, high = API_VERSIONS[api_key]
    for version in range(low, high + 1):
        for _ in range(4):
            client = rig.connect()
            body = chance.randbytes(chance.randrange(60))
            client.send(framed(header(api_key, version) + body))
            rig.run(50)
            assert client.is_lost or client.frames or rig.listener.context.fetches_waiting
    assert still_serves(rig)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 16 * 2**20 + 1])
def test_impossible_frame_lengths_close_at_once(length: int, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    client = rig.connect()
    with log_lines(caplog) as lines:
        client.send(struct.pack(">i", length))
        rig.run()
        assert client.is_lost
        (line,) = lines()
    assert "closing the connection of 127.0.0.1:" in line
    assert f"length {length} is outside 0 to" in line
    assert still_serves(rig)


@pytest.mark.parametrize(
    ("first", "hint"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "security.protocol=PLAINTEXT"),
        (b"GET / HTTP/1.1\r\n\r\n", "use the node's HTTP port"),
    ],
)
def test_other_protocols_are_recognised(first: bytes, hint: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    client = rig.connect()
    with log_lines(caplog) as lines:
        client.send(first)
        rig.run()
        assert client.is_lost
        assert hint in lines()[0]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        header(3, 12)[:9],
        header(68, 1) + b"\x00\xff\xff\xff\xff\x0f",  # a string of 4 GiB
        header(3, 8) + b"\x7f\xff\xff\xff",  # an array of 2^31 - 1 topics
        header(3, 8) + b"\xff\xff\xff\xfe",
        struct.pack(">hhih", 3, 8, 1, 2)
        + b"\xff\xfe"
        + b"\xff\xff\xff\xff\x00\x00",  # client id is not UTF-8
        struct.pack(">hhih", 3, 8, 1, 30000),
    ],
)
def test_malformed_requests_close_with_one_line(payload: bytes, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    client = rig.connect()
    with log_lines(caplog) as lines:
        client.send(framed(payload))
        rig.run()
        assert client.is_lost
        (line,) = lines()
    assert "malformed" in line
    assert rig.listener.context.counters.connections_closed["malformed"] == 1
    assert still_serves(rig)


def test_every_truncation_of_a_good_request_waits_or_closes() -> None:
    rig = Rig()
    whole = heartbeat(1)
    for cut in range(len(whole)):
        client = rig.connect()
        client.send(whole[:cut])
        rig.run(2)
        assert not client.frames
        client.send(framed(whole[4 : 4 + cut]))  # and the same bytes as a whole frame of that length
        client.transport.close()
        rig.run(2)
    assert still_serves(rig)


@pytest.mark.parametrize(
    ("api_key", "version", "expected"),
    [
        (11, 9, r"JOIN_GROUP \(11\) version 9: it is not served; .*group\.protocol=consumer"),
        (14, 5, r"SYNC_GROUP \(14\) version 5: it is not served; .*group\.protocol=consumer"),
        (22, 4, r"INIT_PRODUCER_ID \(22\) version 4: it is not served; .*hold no messages"),
        (0, 2, r"PRODUCE \(0\) version 2: versions 3 to 13 are served; .*hold no messages"),
        (17, 1, r"SASL_HANDSHAKE \(17\) version 1: .*security\.protocol=PLAINTEXT"),
        (3, 99, r"METADATA \(3\) version 99: versions 0 to 13 are served"),
        (3, -1, r"METADATA \(3\) version -1: versions 0 to 13 are served"),
        (999, 0, r"API key 999 version 0: it is not served"),
        (-5, 0, r"API key -5 version 0: it is not served"),
    ],
)
def test_unknown_apis_and_versions_close_and_say_what_to_change(
    api_key: int, version: int, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(group_coordinator_rebalance_protocols=("consumer",))
    client = rig.connect()
    with log_lines(caplog) as lines:
        client.send(framed(header(api_key, version, client_id="billing-7") + b"\x00\x00"))
        rig.run()
        assert client.is_lost
        (line,) = lines()
    assert "'billing-7'" in line
    assert re.search(expected, line), line


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    rig = Rig()
    client = rig.connect()
    client.send(framed(header(18, version, correlation_id=42) + b"\x00junk"))
    rig.run()
    correlation_id, response = decode_response(ApiKey.API_VERSIONS, 0, client.frames[0])
    assert correlation_id == 42
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == 35
    served = {key: API_VERSIONS[key] for key in served_apis(classic=True) if not is_private(key)}
    assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == served
    assert rig.ask(client, ApiKey.API_VERSIONS, 4, ApiVersionsRequest()).error_code == 0


def asked_of_groups(names: list[str]) -> list[tuple[ApiKey, int, Any]]:
    """Return every request that may name many groups."""
    fetched = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    return [
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=names)),
        (ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=names)),
        (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=names)),
        (ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=fetched)),
    ]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize(
    "names",
    [["g"] * 12, [f"{number:x}" for number in range(10_001)]],
    ids=["one again and again", "too many"],
)
def test_floods_of_groups_lose_their_connection(
    names: list[str], which: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A large group, named again and again in one frame, would be answered with gigabytes."""
    api_key, version, asked = asked_of_groups(names)[which]
    rig = Rig()
    bystander, client = rig.connect(), rig.connect()
    with log_lines(caplog) as lines:
        client.send(encode_request(api_key, version, 1, CLIENT_ID, asked))
        rig.run()
        (line,) = lines()
    assert "groups" in line
    assert client.is_lost
    assert not client.frames
    assert rig.listener.context.counters.connections_closed["flooding"] == 1
    bystander.send(heartbeat(9))
    rig.run(50)
    assert bystander.correlation_ids == [9]


@pytest.mark.parametrize("which", range(4))
def test_many_groups_are_no_flood(which: int) -> None:
    """The groups are as many as an admin client may name, and some are named twice."""
    names = [f"{number:x}" for number in range(9_990)]
    api_key, version, asked = asked_of_groups([*names, *names[:10]])[which]
    rig = Rig()
    client = rig.connect()
    client.send(encode_request(api_key, version, 1, CLIENT_ID, asked))
    rig.run()
    assert not rig.listener.context.counters.connections_closed["flooding"]


def test_a_hundred_bad_clients_write_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    with log_lines(caplog) as lines:
        for _ in range(100):
            rig.connect().send(b"\xff\xff\xff\xff")
        rig.run()
        assert len(lines()) <= 12
        rig.run(5_000)
        rig.connect().send(b"\xff\xff\xff\xff")
        rig.run()
        assert "similar lines were suppressed" in lines()[-1]
    assert rig.listener.context.counters.connections_closed["malformed"] == 101
    count_fault("listeners", "malformed clients", 101)


def connected_and_asked(rig: Rig) -> RawClient:
    client = rig.connect()
    client.send(heartbeat(1))
    rig.run()
    assert client.correlation_ids == [1]
    return client


def test_connections_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(max_connections=3)
    clients = [connected_and_asked(rig) for _ in range(3)]
    with log_lines(caplog) as lines:
        refused = rig.connect()
        assert refused.is_lost
        assert "3 are open (max.connections)" in lines()[0]
    clients[0].transport.close()
    rig.run()
    assert not rig.connect().is_lost
    assert len(rig.listener.connections) == 3


# Slow and silent clients


def test_who_has_asked_nothing_makes_room_the_oldest_first(caplog: pytest.LogCaptureFixture) -> None:
    """Clients that have sent a request stay; new ones get in, however many silent ones there are."""
    rig = Rig(max_connections=4)
    established = [connected_and_asked(rig) for _ in range(2)]
    silent = [rig.connect() for _ in range(2)]
    silent[1].send(heartbeat(1)[:-1])
    with log_lines(caplog) as lines:
        established.append(connected_and_asked(rig))
        assert "it has not sent a complete request, and 4 are open (max.connections)" in lines()[0]
    assert [client.is_lost for client in silent] == [True, False]
    established.append(connected_and_asked(rig))
    assert [client.is_lost for client in silent] == [True, True]
    assert rig.connect().is_lost
    assert not any(client.is_lost for client in established)
    assert len(rig.listener.connections) == 4
    assert rig.listener.context.counters.connections_closed == {"silent": 2, "too many": 1}


def test_when_all_have_asked_who_has_not_for_long_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    """One request does not hold a connection for minutes; a client that waits for its answer, or sends
    requests now and then, keeps its connection."""
    rig = Rig(max_connections=4)
    rig.node.holding = True
    waiting = rig.connect()
    waiting.send(heartbeat(1))
    rig.run()
    rig.node.holding = False
    once, busy, later = (connected_and_asked(rig) for _ in range(3))
    rig.run(UNUSED_MS - 1_000)
    assert rig.connect().is_lost
    later.send(heartbeat(2))
    busy.send(heartbeat(2))
    rig.run(2_000)
    with log_lines(caplog) as lines:
        connected_and_asked(rig)
        assert "it has sent no request for 31 s, and 4 are open (max.connections)" in lines()[0]
    assert [client.is_lost for client in (waiting, once, busy, later)] == [False, True, False, False]
    rig.run(UNUSED_MS - 3_000)
    assert rig.connect().is_lost
    busy.send(heartbeat(3))
    rig.run(3_000)
    connected_and_asked(rig)
    assert [client.is_lost for client in (waiting, once, busy, later)] == [False, True, False, True]
    assert len(rig.listener.connections) == 4
    assert rig.listener.context.counters.connections_closed == {"idle": 2, "too many": 2}


def test_a_crowd_at_a_full_port_costs_one_look_at_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(max_connections=3)
    established = [connected_and_asked(rig) for _ in range(3)]
    looks: list[object] = []
    monkeypatch.setattr(Connection, "is_waiting", property(looks.append))
    for _ in range(100):
        assert rig.connect().is_lost
    assert len(looks) == len(established)


def test_a_first_request_has_seconds_to_come_whole() -> None:
    rig = Rig()
    asked = connected_and_asked(rig)
    silent, half = rig.connect(), rig.connect()
    rig.run(FIRST_REQUEST_MS / 2)
    late = rig.connect()
    half.send(heartbeat(1)[:-1])
    rig.run(FIRST_REQUEST_MS / 2 - 100)
    assert not silent.is_lost
    rig.run(200)
    assert silent.is_lost
    assert half.is_lost
    assert not late.is_lost
    late.send(heartbeat(2))
    rig.run(FIRST_REQUEST_MS)
    assert late.correlation_ids == [2]
    assert not late.is_lost
    assert not asked.is_lost
    assert rig.listener.context.counters.connections_closed == {"silent": 2}


def test_a_thousand_silent_ones_are_dismissed_over_several_turns() -> None:
    rig = Rig()
    silent = [RawClient() for _ in range(1_000)]
    for client in silent:
        rig.far.connect(*rig.listener.address, lambda client=client: client, lambda *_: None)
    rig.run(FIRST_REQUEST_MS + 100)
    assert all(client.is_lost for client in silent)
    assert not rig.listener._newcomers
    assert rig.listener._newcomers_timer is None


def stop_reading(client: RawClient) -> None:
    client.transport.pause_reading()


def test_a_slow_reader_is_not_read_and_then_closed(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(connection_buffered_pause_bytes=16_384, connection_buffered_max_bytes=262_144)
    slow, other = rig.connect(), rig.connect()
    rig.node.padding = "x" * 1_000
    stop_reading(slow)
    for number in range(1_000):
        slow.send(heartbeat(number))
    rig.run(200)
    asked = len(rig.node.asked)
    assert asked < 200, "requests of a client that does not read were still served"
    other.send(heartbeat(1))
    rig.run()
    assert other.correlation_ids == [1]
    slow.transport.resume_reading()
    rig.run(500)
    assert slow.correlation_ids == list(range(1_000)), "a client that reads again gets everything"


def test_a_reply_beyond_the_bound_cuts_a_slow_reader_off(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(connection_buffered_pause_bytes=16_384, connection_buffered_max_bytes=262_144)
    slow = rig.connect()
    rig.node.holding = True
    rig.node.padding = "x" * 20_000
    stop_reading(slow)
    for number in range(40):
        slow.send(heartbeat(number))
    rig.run()
    with log_lines(caplog) as lines:
        while rig.node.held:
            rig.node.release()
            rig.run(1)
        rig.run()
        assert [line for line in lines() if "of replies that are unread" in line]
    assert slow.is_lost
    assert rig.listener.connections == {}
    assert rig.listener.context.counters.connections_closed["slow"] == 1


def test_early_replies_behind_a_held_one_are_bounded() -> None:
    rig = Rig(connection_buffered_pause_bytes=16_384, connection_buffered_max_bytes=262_144)
    client = rig.connect()
    rig.node.holding = True
    client.send(heartbeat(0))
    rig.run()
    rig.node.holding = False
    rig.node.padding = "x" * 1_000
    for number in range(1, 400):
        client.send(heartbeat(number))
    rig.run()
    assert len(rig.node.asked) < 40
    rig.node.release()
    rig.run(100)
    assert client.correlation_ids == list(range(400))


def test_all_slow_readers_together_are_bounded() -> None:
    rig = Rig(
        connection_buffered_pause_bytes=16_384,
        connection_buffered_max_bytes=2 * 2**20,
        listener_buffered_max_bytes=2**20,
    )
    rig.node.padding = "x" * 20_000
    clients = [rig.connect() for _ in range(40)]
    for client in clients:
        stop_reading(client)
        for number in range(6):
            client.send(heartbeat(number))
    rig.run(50)
    assert sum(held.unread_bytes() for held in rig.listener.connections) <= 2**20
    rig.node.holding = True
    for client in clients:
        if not client.is_lost:
            client.transport.resume_reading()
    rig.run(200)
    rig.node.holding = False
    rig.node.padding = ""
    assert still_serves(rig)


def test_unfinished_frames_of_all_together_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(listener_buffered_max_bytes=2**20)
    start = struct.pack(">i", 600_000)
    clients = [rig.connect() for _ in range(4)]
    with log_lines(caplog) as lines:
        for position, client in enumerate(clients):
            client.send(start + b"\x00" * (200_000 + 60_000 * position))
            rig.run()
        assert [client.is_lost for client in clients] == [False, False, False, True]
        assert "unfinished frame" in lines()[0]
        assert "listener.buffered.max.bytes" in lines()[0]
    held = sum(len(connection._unserved.rest) for connection in rig.listener.connections)
    assert held <= 2**20
    clients[0].transport.abort()
    clients[1].transport.abort()
    rig.run()
    assert rig.listener.context.kept_bytes == 320_004
    clients[2].send(b"\x00" * 300_000)
    rig.run()
    assert rig.listener.context.kept_bytes == 0
    assert still_serves(rig)


def test_unfinished_frames_behind_whole_ones_count_too(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(listener_buffered_max_bytes=2**20)
    clients = [rig.connect() for _ in range(4)]
    with log_lines(caplog) as lines:
        for position, client in enumerate(clients):
            client.send(heartbeat(1) + struct.pack(">i", 600_000) + b"\x00" * (300_000 + position))
            rig.run()
        assert [client.is_lost for client in clients] == [False, False, False, True]
        assert "unfinished frame" in lines()[0]
    assert [client.correlation_ids for client in clients[:3]] == [[1], [1], [1]]


def test_idle_and_half_open_connections_are_closed_and_waiting_ones_are_not() -> None:
    rig = Rig(connections_max_idle_ms=1_000)
    idle, dribbling, waiting, busy = (rig.connect() for _ in range(4))
    rig.node.holding = True
    waiting.send(heartbeat(1))
    dribbling.send(struct.pack(">i", 1_000))
    for _ in range(20):
        dribbling.send(b"\x00") if not dribbling.is_lost else None
        if rig.node.holding:
            rig.run(50)
            rig.node.holding = False
        busy.send(heartbeat(2))
        rig.run(100)
    assert (idle.is_lost, dribbling.is_lost, waiting.is_lost, busy.is_lost) == (True, True, False, False)
    assert rig.listener.context.counters.connections_closed["idle"] == 2


def test_stop_delivers_ready_replies_and_closes_every_connection() -> None:
    rig = Rig()
    client, other = rig.connect(), rig.connect()
    rig.node.holding = True
    client.send(heartbeat(1))
    rig.run()
    rig.node.release()
    rig.listener.stop()
    rig.run()
    assert client.correlation_ids == [1]
    assert client.is_lost
    assert other.is_lost
    refused: list[Any] = []
    rig.far.connect(*rig.listener.address, RawClient, lambda transport, error: refused.append(error))
    rig.run()
    assert isinstance(refused[0], ConnectionRefusedError)


def test_a_client_that_leaves_frees_all_that_was_kept_for_it() -> None:
    rig = Rig()
    request = encode_request(ApiKey.METADATA, 12, 2, CLIENT_ID, MetadataRequest(topics=None))
    for _ in range(50):
        client = rig.connect()
        client.send(request + heartbeat(1) + request[: len(request) // 2])
        rig.run(1)
        client.transport.abort()
        rig.run(2)
    listener = rig.listener
    assert (len(listener.connections), listener.context.kept_bytes) == (0, 0)
