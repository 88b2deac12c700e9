"""Messages of other kinds with `quorate.Consumer`: transactions, deleted ones, large ones, many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from quorate import Consumer, PositionOutOfRange, TopicPartition
from tests.clients.consumer.reading import WITHIN_S, part, polls_until, produce, read


@pytest.fixture
def deleted(server: str, topic: str) -> TopicPartition:
    """Partition 0 with the messages 0 to 9, of which the first four are deleted."""
    produce(server, topic, 10, partition=0)
    admin = AdminClient({"bootstrap.servers": server})
    (done,) = admin.delete_records([ConfluentPartition(topic, 0, 4)]).values()
    done.result(WITHIN_S)
    return part(topic, 0)


async def test_read_committed_hides_what_was_aborted_and_waits_for_what_is_open(
    server: str, topic: str, group: str, consumer: Callable[..., Consumer]
) -> None:
    producer = Producer({"bootstrap.servers": server, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(WITHIN_S)

    def send(*numbers: int) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, str(number).encode(), partition=0)
        assert producer.flush(WITHIN_S) == 0

    zero = part(topic, 0)
    send(0, 1)
    producer.commit_transaction(WITHIN_S)
    send(2, 3)
    producer.abort_transaction(WITHIN_S)
    produce(server, topic, 1, first=4, partition=0)
    send(5)
    async with consumer(isolation_level="read_committed") as reader:
        assert await read(reader, 3) == [0, 1, 4]
        assert await reader.poll(0.2) == []
        stable = (await reader.end_offsets([zero]))[zero]
        assert (stable, await reader.position(zero), reader.lag(zero)) == (7, 7, 0)
        async with consumer(group_id=f"{group}-all") as everything:
            assert await read(everything, 6) == [0, 1, 2, 3, 4, 5]
            assert (await everything.end_offsets([zero]))[zero] == 8
        producer.commit_transaction(WITHIN_S)
        assert await read(reader, 1) == [5]
        await reader.commit()
        found = (await reader.committed([zero]))[zero]
        assert found is not None
        assert found.offset in (8, 9), "with or without the marker of the end"


async def test_deleted_messages_are_passed_over_by_a_reset(
    server: str, deleted: TopicPartition, consumer: Callable[..., Consumer]
) -> None:
    async with consumer() as reader:
        assert await reader.beginning_offsets([deleted]) == {deleted: 4}
        await polls_until(reader, lambda: deleted in reader.assignment())
        reader.seek(deleted, 2)
        assert await read(reader, 6) == [4, 5, 6, 7, 8, 9]
    async with Consumer(bootstrap_servers=server, auto_offset_reset="latest") as reader:
        await reader.assign({deleted: 1000})
        assert await reader.poll(0.5) == []
        produce(server, deleted.topic, 1, first=10, partition=0)
        assert await read(reader, 1) == [10]


async def test_a_position_that_does_not_exist_is_an_error_without_a_reset(
    server: str, deleted: TopicPartition
) -> None:
    async with Consumer(bootstrap_servers=server, auto_offset_reset="none") as reader:
        await reader.assign({deleted: 2})
        with pytest.raises(PositionOutOfRange, match=deleted.topic):
            await polls_until(reader, lambda: False)
        reader.seek(deleted, 8)
        assert await read(reader, 2) == [8, 9]


async def test_a_message_larger_than_all_fetch_limits_arrives(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    producer = Producer({"bootstrap.servers": server})
    for size in (10, 300_000, 10):
        producer.produce(topic, bytes(size), partition=0)
        assert producer.flush(WITHIN_S) == 0
    sizes: list[int] = []
    async with consumer(fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000) as reader:
        async for record in reader:
            sizes.append(len(record.value))
            if len(sizes) == 3:
                break
    assert sizes == [10, 300_000, 10]


async def test_many_messages_of_two_partitions_arrive_in_order_through_small_fetches(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 4_000, **{"batch.size": 10_000})
    limits = {"fetch_max_bytes": 30_000, "max_partition_fetch_bytes": 20_000, "max_poll_records": 150}
    async with consumer(**limits) as reader:
        numbers = await read(reader, 4_000)
    assert [each for each in numbers if each % 2] == list(range(1, 4_000, 2))
    assert [each for each in numbers if not each % 2] == list(range(0, 4_000, 2))
