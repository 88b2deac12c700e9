"""Every byte kept for a connection counts towards the connection's bound and towards the listener's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.kafka.connection import COUNTED_BYTES_MIN, Connection
from cluster.kafka.dispatch import FAST_FRAME_BYTES_MAX
from cluster.kafka.steady import FAST_REPLIES_MAX
from tests.support.listener_rig import CLIENT_ID, CountingEntry, RawClient, Rig, heartbeat, log_lines
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.protocol import encode_request

LARGE = 50_000


def only(rig: Rig) -> Connection:
    (connection,) = rig.listener.connections
    return connection


def fetch(correlation_id: int, partitions: int, wait_ms: int = 30_000) -> bytes:
    """Return a fetch that waits for data; it names one partition again and again."""
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * partitions
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=asked)]
    )
    return encode_request(ApiKey.FETCH, 4, correlation_id, CLIENT_ID, request)


def owning(correlation_id: int, partitions: int, first: int = 0) -> bytes:
    """Return a heartbeat that reports owned partitions, as after applying an assignment."""
    owned = TopicPartitions(topic_id=b"orders-topic-id!", partitions=list(range(first, first + partitions)))
    body = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=3, rebalance_timeout_ms=-1, topic_partitions=[owned]
    )
    return encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, correlation_id, CLIENT_ID, body)


# Each case makes the node keep one kind of bytes, yields their number, and then lets the node release them.

Case = Callable[[Rig, RawClient], Iterator[int]]


def half_a_frame(rig: Rig, client: RawClient) -> Iterator[int]:
    frame = heartbeat(1, member="m" * 2 * LARGE)
    client.send(frame[:LARGE])
    yield LARGE
    client.send(frame[LARGE:])


def a_request_without_an_answer(rig: Rig, client: RawClient) -> Iterator[int]:
    rig.node.holding = True
    frame = heartbeat(1, group="g" * LARGE)
    client.send(frame)
    yield len(frame) - 4
    rig.node.release()


def requests_behind_the_most_in_flight(rig: Rig, client: RawClient) -> Iterator[int]:
    rig.node.holding = True
    frames = [heartbeat(number, group="g" * LARGE) for number in range(10)]
    client.send(b"".join(frames))
    yield sum(len(frame) - 4 for frame in frames[:8])  # the network may deliver them in two pieces
    rig.node.holding = False
    rig.node.release()
    rig.run()
    while rig.node.held:
        rig.node.release()


def a_reply_behind_one_that_is_not_there(rig: Rig, client: RawClient) -> Iterator[int]:
    rig.node.holding = True
    client.send(heartbeat(1))
    rig.run()
    rig.node.holding, rig.node.padding = False, "x" * LARGE
    client.send(heartbeat(2))
    yield LARGE
    rig.node.release()


def a_fetch_that_waits(rig: Rig, client: RawClient) -> Iterator[int]:
    client.send(fetch(1, 3_000, wait_ms=500))
    yield 30 * 3_000
    rig.run(600)
    assert client.correlation_ids == [1]


def replies_that_are_not_read(rig: Rig, client: RawClient) -> Iterator[int]:
    client.transport.pause_reading()
    rig.node.padding = "x" * LARGE
    client.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    yield 3 * LARGE  # one write, which the transport keeps until the last byte of it is sent
    client.transport.resume_reading()
    rig.run()
    client.send(heartbeat(4))  # a reply that leaves is counted with the next request


def cached_heartbeats(rig: Rig, client: RawClient) -> Iterator[int]:
    entry = rig.node.entries["g", "m"] = CountingEntry()
    rig.node.epoch = 3
    frames = [owning(number, 150, first=number) for number in range(FAST_REPLIES_MAX)]
    client.send(b"".join(frames))
    rig.run()
    assert len(only(rig)._fast) == FAST_REPLIES_MAX
    yield sum(len(frame) - 12 for frame in frames)
    entry.valid = False
    client.send(b"".join(frames))


CASES: list[Case] = [
    half_a_frame,
    a_request_without_an_answer,
    requests_behind_the_most_in_flight,
    a_reply_behind_one_that_is_not_there,
    a_fetch_that_waits,
    replies_that_are_not_read,
    cached_heartbeats,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_counts_as_long_as_it_is_kept(case: Case) -> None:
    rig = Rig(connection_requests_max=4)
    client = rig.connect()
    steps = case(rig, client)
    num_bytes = next(steps)
    rig.run()
    assert num_bytes <= rig.listener.context.kept_bytes <= 1.3 * num_bytes + COUNTED_BYTES_MIN
    assert rig.listener.context.kept_bytes == only(rig).kept_bytes == only(rig).kept_now()
    next(steps, None)
    rig.run(100)
    client.send(heartbeat(99, member="another"))
    rig.run()
    assert only(rig).kept_now() == rig.listener.context.kept_bytes == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_is_let_go_with_its_connection(case: Case) -> None:
    rig = Rig(connection_requests_max=4)
    client = rig.connect()
    steps = case(rig, client)
    next(steps)
    rig.run()
    client.transport.abort()
    rig.run(100)
    assert (rig.listener.context.kept_bytes, rig.listener.context.fetches_waiting) == (0, 0)


@pytest.mark.parametrize("case", CASES[:6], ids=lambda case: case.__name__)
def test_the_connection_that_makes_the_node_keep_most_goes_first(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    """Each connection is far below its own bound; only their sum counts."""
    rig = Rig(listener_buffered_max_bytes=2**20, connection_requests_max=4)
    modest = rig.connect()
    modest.send(heartbeat(1)[:-1])
    kept, waiting, clients = [], [], []
    with log_lines(caplog) as lines:
        for _ in range(40):
            client = rig.connect()
            clients.append(client)
            steps = case(rig, client)
            next(steps)
            rig.run()
            rig.node.holding, rig.node.padding = False, ""
            waiting.append(rig.listener.context.fetches_waiting)
            kept.append(sum(connection.kept_now() for connection in rig.listener.connections))
        told = lines()
    assert max(kept) <= 2**20
    if case is a_fetch_that_waits:  # from half of the bound on, fetches are answered at once instead
        assert 0 < max(waiting) < 10
        assert max(kept) <= 2**19
    else:
        assert any(client.is_lost for client in clients)
        assert all("listener.buffered.max.bytes" in line for line in told)
    modest.send(heartbeat(1)[-1:])
    rig.run()
    assert modest.correlation_ids == [1]


def test_a_long_heartbeat_is_not_cached() -> None:
    """A heartbeat may report 100,000 partitions; 64 such frames would stay with an idle connection."""
    rig = Rig()
    rig.node.entries["g", "m"] = CountingEntry()
    client = rig.connect()
    partitions = FAST_FRAME_BYTES_MAX // 4
    for _ in range(3):
        client.send(owning(1, partitions))
        rig.run()
    assert len(rig.node.asked) == 3
    assert not len(only(rig)._fast)
    for _ in range(3):
        client.send(owning(1, partitions - 50))
        rig.run()
    assert len(rig.node.asked) == 4, "a shorter one is"


def test_one_large_fetch_waits_and_ends_the_one_before_it() -> None:
    rig = Rig(connection_buffered_pause_bytes=LARGE)
    client = rig.connect()
    for number in range(40):
        client.send(fetch(number, 2_000))
    rig.run(200)
    assert client.correlation_ids == list(range(39))
    assert rig.listener.context.fetches_waiting == 1
    assert only(rig).kept_now() < 2 * LARGE
    client.send(heartbeat(40))
    rig.run()
    assert client.correlation_ids == list(range(41)), "and a heartbeat behind it does not wait"


def test_small_fetches_of_one_connection_wait_side_by_side() -> None:
    rig = Rig()
    client = rig.connect()
    for number in range(20):
        client.send(fetch(number, 3))
    rig.run(200)
    assert rig.listener.context.fetches_waiting == 20
    assert not client.frames


def test_requests_without_an_answer_stop_the_reading_by_their_bytes() -> None:
    rig = Rig(connection_buffered_pause_bytes=LARGE)
    rig.node.holding = True
    client = rig.connect()
    for number in range(20):
        client.send(heartbeat(number, group="g" * (LARGE // 4)))
    rig.run()
    assert len(rig.node.asked) == 4
    while rig.node.held:
        rig.node.release()
        rig.run()
    assert client.correlation_ids == list(range(20))


def test_a_frame_larger_than_the_pause_mark_is_received_and_served() -> None:
    rig = Rig(connection_buffered_pause_bytes=1_024)
    client = rig.connect()
    for number in range(3):
        client.send(heartbeat(number, group="g" * LARGE))
    rig.run(100)
    assert client.correlation_ids == [0, 1, 2]


def test_counting_anew_is_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every reply may cause a pass over all connections when nearly all memory is used."""
    rig = Rig(listener_buffered_max_bytes=2**20)
    looks: list[int] = []
    make_room = rig.listener._make_room
    monkeypatch.setattr(rig.listener, "_make_room", lambda: (looks.append(1), make_room()))
    half = struct.pack(">i", 900_000)
    clients = [rig.connect() for _ in range(20)]
    for client in clients:
        client.send(half + b"\x00" * 49_000)
    rig.run()
    assert not looks
    for _ in range(200):
        for client in clients:
            if not client.is_lost:
                client.send(b"\x00" * 300)
        rig.run(2)
    lost: list[Any] = [client for client in clients if client.is_lost]
    assert lost
    assert len(looks) <= len(lost)
