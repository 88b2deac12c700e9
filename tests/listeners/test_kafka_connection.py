"""Connections: order of replies, coalescing, bounds, fast path, and fairness between clients."""

from __future__ import annotations

import pytest

from cluster.kafka.steady import FAST_REPLIES_MAX
from tests.support.listener_rig import CLIENT_ID, CountingEntry, Rig, heartbeat
from wire.apis import ApiKey
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.metadata import MetadataRequest
from wire.protocol import encode_request

METADATA = encode_request(ApiKey.METADATA, 12, 2, CLIENT_ID, MetadataRequest(topics=None))


def test_replies_keep_the_order_of_requests() -> None:
    rig = Rig()
    client = rig.connect()
    rig.node.holding = True
    client.send(heartbeat(1) + METADATA + heartbeat(3) + heartbeat(4))
    rig.run()
    assert client.frames == []  # Metadata's reply is ready, and waits for the heartbeat's before it
    rig.node.release(2)
    rig.run()
    assert client.frames == []
    rig.node.release(0)
    rig.run()
    assert client.correlation_ids == [1, 2]
    rig.node.release(0)
    rig.run()
    assert client.correlation_ids == [1, 2, 3, 4]


def test_replies_of_one_turn_leave_in_one_write() -> None:
    rig = Rig()
    client = rig.connect()
    rig.node.holding = True
    client.send(b"".join(heartbeat(number) for number in range(10)))
    rig.run()
    connection = next(iter(rig.listener.connections))
    writes: list[int] = []
    write = connection._transport.write
    connection._transport.write = lambda data: (writes.append(len(data)), write(data))
    for _ in range(10):
        rig.node.release()
    rig.run()
    assert client.correlation_ids == list(range(10))
    assert len(writes) == 1


def test_ten_thousand_pipelined_requests_are_answered_in_order_beside_others() -> None:
    rig = Rig(clock_step_ms=0.02)
    greedy, modest = rig.connect(), rig.connect()
    greedy.send(b"".join(heartbeat(number) for number in range(10_000)))
    modest.send(heartbeat(5))
    served_before: list[int] = []

    def modest_served() -> bool:
        if modest.frames and not served_before:
            served_before.append(len(rig.node.asked))
        return bool(modest.frames)

    assert rig.world.run_until(modest_served, within_ms=500)
    assert served_before[0] < 2_000, "the pipelining client was served to the end first"
    rig.run(1_000)
    assert greedy.correlation_ids == list(range(10_000))


@pytest.mark.parametrize("is_read", [True, False])
def test_hundreds_that_pipeline_do_not_hold_up_one_who_asks_now_and_then(is_read: bool) -> None:
    """Each reading of the clock takes a fiftieth of a slice; all their requests together take 40 s."""
    rig = Rig(clock_step_ms=0.1, connection_buffered_pause_bytes=65_536)
    rig.node.padding = "x" * 100
    many = b"".join(heartbeat(number) for number in range(2_000))
    greedy = [rig.connect() for _ in range(200)]
    modest = rig.connect()
    for client in greedy:
        if not is_read:
            client.transport.pause_reading()
        client.send(many)
    waits_ms: list[float] = []
    for number in range(60):
        begun_ms = rig.world.now_ms
        modest.send(heartbeat(number))
        assert rig.world.run_until(lambda: len(modest.frames) > len(waits_ms), within_ms=10_000)
        waits_ms.append(rig.world.now_ms - begun_ms)
    assert len(rig.listener.context.slices) > 150, "they still have much to ask"
    assert sorted(waits_ms)[-3] < 10, "but for the moment in which all of them come"
    assert max(waits_ms) < 50
    served = [len(client.frames) for client in greedy]
    if is_read:
        assert max(served) - min(served) < 80, "each has its share"


def test_requests_in_flight_are_bounded_by_not_reading_on() -> None:
    rig = Rig(connection_requests_max=8)
    client = rig.connect()
    rig.node.holding = True
    client.send(b"".join(heartbeat(number) for number in range(100)))
    rig.run()
    assert len(rig.node.asked) == 8
    connection = next(iter(rig.listener.connections))
    assert not connection._reading
    while len(client.frames) < 100:
        rig.node.release()
        rig.run(2)
        assert len(rig.node.held) <= 8
    assert client.correlation_ids == list(range(100))
    assert connection._reading


def test_a_reply_after_the_connection_is_gone_goes_nowhere() -> None:
    rig = Rig()
    client = rig.connect()
    rig.node.holding = True
    client.send(heartbeat(1) + heartbeat(2))
    rig.run()
    client.transport.abort()
    rig.run()
    assert rig.listener.connections == {}
    rig.node.release()
    rig.node.release()
    rig.run()
    assert client.frames == []


def test_a_handler_that_fails_answers_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    client = rig.connect()
    client.send(heartbeat(1, group="explode") + heartbeat(2))
    rig.run()
    assert client.correlation_ids == [1, 2]
    assert rig.listener.context.counters.errors[ApiKey.CONSUMER_GROUP_HEARTBEAT, -1] == 1
    assert "on purpose" in caplog.text


def test_an_answer_that_cannot_be_encoded_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    client = rig.connect()
    rig.node.epoch = 2**40
    client.send(heartbeat(1))
    rig.run()
    assert client.is_lost
    assert "could not be sent" in caplog.text


# The fast path


def steady_rig() -> tuple[Rig, CountingEntry]:
    rig = Rig()
    entry = rig.node.entries["g", "m"] = CountingEntry()
    return rig, entry


def test_the_second_equal_heartbeat_is_fast_and_gets_the_same_bytes() -> None:
    rig, entry = steady_rig()
    client = rig.connect()
    for number in range(5):
        client.send(heartbeat(number))
        rig.run()
    assert client.correlation_ids == [0, 1, 2, 3, 4]
    assert len({frame[4:] for frame in client.frames}) == 1
    assert len(rig.node.asked) == 1
    assert rig.listener.context.counters.fast_heartbeats == 4
    assert len(entry.touched) == 4
    assert entry.touched[-1][0] > entry.touched[0][0] > 0


def test_nothing_is_fast_once_the_entry_is_invalid() -> None:
    rig, entry = steady_rig()
    client = rig.connect()
    client.send(heartbeat(1))
    rig.run()
    entry.valid = False
    rig.node.epoch = 4
    client.send(heartbeat(2))
    rig.run()
    assert len(rig.node.asked) == 2
    assert client.frames[0][4:] != client.frames[1][4:]


def test_a_group_that_changed_while_the_reply_was_held_is_not_cached() -> None:
    rig, entry = steady_rig()
    rig.node.holding = True
    client = rig.connect()
    client.send(heartbeat(1))
    rig.run()
    entry.valid = False
    rig.node.release()
    entry.valid = True
    rig.run()
    client.send(heartbeat(2))
    rig.run()
    assert len(rig.node.asked) == 2, "a reply from before the change was served again"


def test_any_difference_takes_the_slow_path() -> None:
    rig, _ = steady_rig()
    client = rig.connect()
    client.send(heartbeat(1))
    rig.run()
    for other in (
        heartbeat(2, epoch=4),
        heartbeat(2, member="n"),
        heartbeat(2, group="h"),
        heartbeat(2, client_id="someone else"),
    ):
        asked = len(rig.node.asked)
        client.send(other)
        rig.run()
        assert len(rig.node.asked) == asked + 1
    client.send(heartbeat(2)[:7] + b"\x00" + heartbeat(2)[8:])  # equal but for the version in its header
    rig.run()
    assert client.is_lost
    assert rig.listener.context.counters.fast_heartbeats == 0


def test_another_connection_has_its_own_cache() -> None:
    rig, _ = steady_rig()
    for _ in range(2):
        rig.connect().send(heartbeat(1))
        rig.run()
    assert len(rig.node.asked) == 2


def test_fast_replies_keep_their_place_behind_a_held_one() -> None:
    rig, _ = steady_rig()
    client = rig.connect()
    client.send(heartbeat(1))
    rig.run()
    rig.node.holding = True
    client.send(heartbeat(2, member="slow") + heartbeat(3) + heartbeat(4))
    rig.run()
    assert client.correlation_ids == [1]
    assert rig.listener.context.counters.fast_heartbeats == 2
    rig.node.release()
    rig.run()
    assert client.correlation_ids == [1, 2, 3, 4]


def test_joins_and_leaves_are_never_cached_and_the_cache_is_bounded() -> None:
    rig = Rig()
    client = rig.connect()
    for epoch in (0, -1):
        rig.node.entries["g", "m"] = CountingEntry()
        client.send(heartbeat(1, epoch=epoch) + heartbeat(2, epoch=epoch))
        rig.run()
    assert len(rig.node.asked) == 4
    for number in range(3 * FAST_REPLIES_MAX):
        rig.node.entries["g", f"m{number}"] = CountingEntry()
        client.send(heartbeat(number, member=f"m{number}"))
        rig.run(2)
    assert len(next(iter(rig.listener.connections))._fast) <= FAST_REPLIES_MAX


def test_the_client_is_named_to_the_node_as_kafka_does() -> None:
    rig = Rig()
    client = rig.connect()
    rig.ask(client, ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
    client.send(heartbeat(1, client_id="consumer-1"))
    rig.run()
    named = rig.node.asked[0][3]
    assert (named.client_id, named.host, named.principal) == ("consumer-1", "/127.0.0.1", "")
