"""`quorate.Consumer` and `quorate.SyncConsumer` with a real server, Quorate and Apache Kafka alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quorate import (
    Consumer,
    DeserializationError,
    NoOffset,
    OffsetAndMetadata,
    SyncConsumer,
    TimedOut,
    TopicPartition,
)
from quorate.confluent import TopicPartition as ConfluentPartition
from tests.clients.consumer.reading import WITHIN_S, part, polls_until, produce, read
from tests.support.waiting import until


async def test_messages_arrive_whole_and_in_the_order_of_their_partitions(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 50)
    async with consumer() as reader:
        records = []
        async for record in reader:
            records.append(record)
            if len(records) == 50:
                break
    for number in (0, 1):
        mine = [record for record in records if record.partition == number]
        assert [record.offset for record in mine] == list(range(25))
        assert [int(record.value) for record in mine] == list(range(number, 50, 2))
    first = next(record for record in records if record.value == b"7")
    assert (first.key, first.timestamp_ms, first.timestamp_type) == (b"key-7", 1_700_000_000_007, 0)
    assert first.headers == (("number", b"7"), ("none", None))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_messages_of_each_codec_are_read(
    server: str, topic: str, consumer: Callable[..., Consumer], codec: str
) -> None:
    produce(server, topic, 30, **{"compression.type": codec})
    async with consumer() as reader:
        assert sorted(await read(reader, 30)) == list(range(30))


async def test_a_consumer_goes_on_where_the_last_one_committed(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 20)
    async with consumer(max_poll_records=5) as reader:
        numbers = await read(reader, 10)
    async with consumer() as reader:
        assert sorted(numbers + await read(reader, 20 - len(numbers))) == list(range(20))
        committed = await reader.commit({part(topic, 0): OffsetAndMetadata(3, "mine")})
        assert committed == {part(topic, 0): OffsetAndMetadata(3, "mine")}
        found = await reader.committed([part(topic, 0)])
        assert found[part(topic, 0)] is not None
        assert (found[part(topic, 0)].offset, found[part(topic, 0)].metadata) == (3, "mine")


async def test_positions_lag_and_offsets_are_told(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 20)
    zero, one = part(topic, 0), part(topic, 1)
    async with consumer() as reader:
        await read(reader, 20)
        assert await reader.position(zero) == 10
        assert reader.lag(zero) == 0
        assert await reader.beginning_offsets([zero, one]) == {zero: 0, one: 0}
        assert await reader.end_offsets([zero, one]) == {zero: 10, one: 10}
        at = await reader.offsets_for_times({zero: 1_700_000_000_005, one: 1_800_000_000_000})
        assert at[zero] is not None
        assert (at[zero].offset, at[zero].timestamp_ms) == (3, 1_700_000_000_006)
        assert at[one] is None
        assert topic in (await reader.cluster([topic])).topics


async def test_seek_and_pause(server: str, topic: str, consumer: Callable[..., Consumer]) -> None:
    produce(server, topic, 20)
    zero, one = part(topic, 0), part(topic, 1)
    async with consumer() as reader:
        await read(reader, 20)
        reader.seek(zero, 8)
        assert await read(reader, 2) == [16, 18]
        reader.pause(one)
        reader.seek_to_beginning()
        assert await read(reader, 10) == list(range(0, 20, 2))
        assert await reader.poll(0.5) == []
        assert reader.paused() == {one}
        reader.resume(one)
        assert await read(reader, 10) == list(range(1, 20, 2))
        reader.seek_to_end(zero)
        assert await reader.position(zero) == 10


async def test_partitions_can_be_assigned_by_hand_without_a_group(server: str, topic: str) -> None:
    produce(server, topic, 20)
    async with Consumer(bootstrap_servers=server, auto_offset_reset="earliest") as reader:
        await reader.assign({part(topic, 0): 7, part(topic, 1): None})
        assert sorted(await read(reader, 13)) == sorted([*range(1, 20, 2), 14, 16, 18])


async def test_without_an_offset_and_a_reset_poll_raises(
    topic: str, consumer: Callable[..., Consumer]
) -> None:
    async with consumer(auto_offset_reset="none") as reader:
        with pytest.raises(NoOffset, match=topic):
            await polls_until(reader, lambda: False)


async def test_a_deserialiser_that_raises_holds_the_position(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    def deserialise(data: bytes) -> int:
        if data == b"4":
            raise ValueError("four")
        return int(data)

    produce(server, topic, 10, partition=0)
    async with consumer(value_deserializer=deserialise) as reader:
        assert await read(reader, 4) == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(DeserializationError, match="offset 4"):
                await reader.poll(1.0)
        reader.seek(part(topic, 0), 5)
        assert await read(reader, 5) == [5, 6, 7, 8, 9]


async def test_two_members_share_the_partitions_and_hand_them_over(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    """The second gets what the first gives up, after its commit, and gives it back when it leaves."""
    events: list[tuple[str, str, tuple[int, ...]]] = []

    def callbacks(name: str) -> dict[str, Any]:
        async def note(kind: str, member: Consumer, partitions: list[TopicPartition]) -> None:
            await member.committed(partitions)  # the callback takes the time of a request
            events.append((name, kind, tuple(each.partition for each in partitions)))

        return {
            "on_assign": partial(note, "assign"),
            "on_revoke": partial(note, "revoke"),
        }

    produce(server, topic, 20)
    async with consumer(**callbacks("a")) as first:
        assert len(await read(first, 20)) == 20
        async with consumer(**callbacks("b")) as second:
            both = [first, second]

            async def poll_both(holds: Callable[[], bool]) -> None:
                await asyncio.gather(*(polls_until(one, holds) for one in both))

            await poll_both(lambda: [len(one.assignment()) for one in both] == [1, 1])
            assert not first.assignment() & second.assignment()
            produce(server, topic, 10, first=20)
            got: list[int] = []
            until_s = time.monotonic() + WITHIN_S
            while len(got) < 10 and time.monotonic() < until_s:
                for one in both:
                    got += [int(record.value) for record in await one.poll(0.1)]
            assert sorted(got) == list(range(20, 30)), "the first one's commit was not used"
        await polls_until(first, lambda: len(first.assignment()) == 2)
    moved = next(event for event in events if event[:2] == ("a", "revoke"))
    assert events.index(moved) < events.index(("b", "assign", moved[2]))


async def test_a_static_member_has_its_partitions_again_after_a_restart(
    server: str, topic: str, group: str, consumer: Callable[..., Consumer]
) -> None:
    async with consumer(group_instance_id="web-1") as first:
        await polls_until(first, lambda: len(first.assignment()) == 2)
        epoch = first.explain().member_epoch
    async with consumer(group_instance_id="web-1") as second:
        await polls_until(second, lambda: len(second.assignment()) == 2)
        assert second.explain().member_epoch == epoch


async def test_topics_are_found_by_expression(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 4)
    async with consumer() as reader:
        await reader.subscribe(regex=f"{topic[:-2]}.*")
        assert sorted(await read(reader, 4)) == [0, 1, 2, 3]


async def test_unsubscribing_leaves_and_subscribing_joins_again(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 4)
    async with consumer() as reader:
        await read(reader, 4)
        await reader.unsubscribe()
        assert reader.assignment() == set()
        assert await reader.poll(0.2) == []
        await reader.subscribe([topic])
        produce(server, topic, 4, first=4)
        assert sorted(await read(reader, 4)) == [4, 5, 6, 7]


async def test_a_member_that_does_not_poll_in_time_loses_its_partitions_and_comes_back(
    consumer: Callable[..., Consumer],
) -> None:
    lost: list[int] = []
    settings = {"max_poll_interval_ms": 1_000, "on_lost": lambda _, partitions: lost.append(len(partitions))}
    async with consumer(**settings) as reader:
        await polls_until(reader, lambda: len(reader.assignment()) == 2)
        await until(lambda: reader.explain().state.name == "STALE")
        await polls_until(reader, lambda: bool(lost) and len(reader.assignment()) == 2)
    assert lost == [2]


async def test_close_while_another_task_iterates_ends_the_iteration(
    consumer: Callable[..., Consumer],
) -> None:
    has_partitions = asyncio.Event()
    reader = consumer(on_assign=lambda *_: has_partitions.set())

    async def iterate() -> list[Any]:
        return [record async for record in reader]

    task = asyncio.create_task(iterate())
    await asyncio.wait_for(has_partitions.wait(), WITHIN_S)
    await reader.close()
    assert await asyncio.wait_for(task, WITHIN_S) == []


async def test_calls_and_close_end_in_time_when_no_server_answers() -> None:
    reader = Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="g")
    assert await reader.poll(0.2) == []
    with pytest.raises(TimedOut):
        await reader.committed([part("orders", 0)], timeout=0.3)
    begun_s = time.monotonic()
    await reader.close(timeout=0.5)
    assert time.monotonic() - begun_s < 2.0


# The flavour for threads.


def test_the_flavour_for_threads_has_confluent_kafkas_calls(server: str, topic: str, group: str) -> None:
    produce(server, topic, 20)
    zero = ConfluentPartition(topic, 0)
    settings = {"bootstrap.servers": server, "group.id": group, "auto.offset.reset": "earliest"}

    def begin_at_eight(consumer: SyncConsumer, partitions: list[ConfluentPartition]) -> None:
        for each in partitions:
            each.offset = 8
        consumer.assign(partitions)

    with SyncConsumer(settings) as consumer:
        consumer.subscribe([topic], on_assign=begin_at_eight)
        messages = consumer.consume(4, timeout=WITHIN_S)
        assert sorted(message.offset() for message in messages) == [8, 8, 9, 9]
        assert consumer.position([zero])[0].offset == 10
        assert consumer.get_watermark_offsets(zero) == (0, 10)
        assert consumer.commit(message=messages[0], asynchronous=False)[0].offset == messages[0].offset() + 1
        assert consumer.committed([zero])[0].offset in (9, 10, -1001)
        (found,) = consumer.offsets_for_times([ConfluentPartition(topic, 0, 1_700_000_000_005)])
        assert found.offset == 3
        consumer.pause([zero])
        consumer.seek(ConfluentPartition(topic, 0, 0))
        assert consumer.consume(1, timeout=0.3) == []
        consumer.resume([zero])
        assert [message.offset() for message in consumer.consume(10, timeout=WITHIN_S)] == list(range(10))
        assert sorted(each.partition for each in consumer.assignment()) == [0, 1]
        assert consumer.memberid()
        assert topic in consumer.list_topics(topic).topics
        consumer.unsubscribe()
        assert consumer.assignment() == []
