"""The scratch log with stock clients: what one produces each of them reads, also through a failover."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.support.kafka_python import FROM_KAFKA_PYTHON, kafka
from tests.support.python_clients import (
    FLUSH_S,
    PRODUCERS,
    produce_with_confluent,
)
from tests.support.real_cluster import metadata_leader
from tests.support.waiting import wait_for

pytestmark = pytest.mark.filterwarnings(FROM_KAFKA_PYTHON)

SETTINGS = {"scratch.log.enable": "true", "leader.balance.delay.ms": "600000"}

Messages = list[tuple[int, bytes]]
"""Offset and value of each message, as a consumer got them."""


@pytest.fixture
def topic(cluster: ClusterProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Client(cluster.bootstrap) as client:
        client.create_topic(name, 1)
    return str(name)


# Consumers. None of them has an offset reset: what is out of range would be an error.


class Reading:
    """A consumer in a thread of its own that reads partition 0 from the beginning."""

    def __init__(self, consume: Callable[[Reading], None]) -> None:
        self.messages: Messages = []
        self.errors: list[str] = []
        self.position = -1
        self.is_stopped = False
        self._thread = threading.Thread(target=consume, args=(self,), daemon=True)
        self._thread.start()

    @property
    def values(self) -> list[bytes]:
        return [value for _, value in self.messages]

    def stop(self) -> None:
        self.is_stopped = True
        self._thread.join()


ALL, COMMITTED = "read_uncommitted", "read_committed"
"""Isolation levels."""


def with_confluent(bootstrap: str, topic: str, isolation: str = ALL) -> Callable[[Reading], None]:
    def consume(reading: Reading) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not reading.is_stopped:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) and error.code() == KafkaError._PARTITION_EOF:
                reading.position = message.offset()
            elif error:
                reading.errors.append(str(error))
            else:
                reading.messages.append((message.offset(), message.value()))
        consumer.close()

    return consume


def with_kafka_python(bootstrap: str, topic: str, isolation: str = ALL) -> Callable[[Reading], None]:
    def consume(reading: Reading) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            auto_offset_reset="none",
            isolation_level=isolation,
            group_id=None,
        )
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while not reading.is_stopped:
            try:
                for some in consumer.poll(timeout_ms=100).values():
                    reading.messages += [(one.offset, one.value) for one in some]
                reading.position = consumer.position(partition)
            except Exception as error:
                reading.errors.append(repr(error))
        consumer.close()

    return consume


def with_aiokafka(bootstrap: str, topic: str, isolation: str = ALL) -> Callable[[Reading], None]:
    async def read(reading: Reading) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="none", isolation_level=isolation
        )
        await consumer.start()
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while not reading.is_stopped:
            try:
                for some in (await consumer.getmany(timeout_ms=100)).values():
                    reading.messages += [(one.offset, one.value) for one in some]
                reading.position = await consumer.position(partition)
            except Exception as error:
                reading.errors.append(repr(error))
        await consumer.stop()

    return lambda reading: asyncio.run(read(reading))


CONSUMERS = {"confluent": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


@contextmanager
def every_client_reads(cluster: ClusterProcess, topic: str) -> Iterator[dict[str, Reading]]:
    readings = {name: Reading(make(cluster.bootstrap, topic)) for name, make in CONSUMERS.items()}
    try:
        yield readings
    finally:
        for reading in readings.values():
            reading.stop()
    assert [(name, reading.errors) for name, reading in readings.items() if reading.errors] == []


@pytest.mark.parametrize("name", PRODUCERS)
def test_what_one_client_produces_every_client_reads(cluster: ClusterProcess, topic: str, name: str) -> None:
    values = [b"value %d" % number for number in range(200)]
    with every_client_reads(cluster, topic) as readings:
        assert PRODUCERS[name](cluster.bootstrap, topic, values) == list(range(200))
        for reader, reading in readings.items():
            wait_for(lambda reading=reading: len(reading.messages) >= 200, reader)
            assert reading.messages == list(enumerate(values))


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_producer_creates_its_topic(cluster: ClusterProcess, name: str) -> None:
    topic = f"made-for-{name}"
    assert PRODUCERS[name](cluster.bootstrap, topic, [b"a", b"b"]) == [0, 1]
    reading = Reading(with_confluent(cluster.bootstrap, topic))
    wait_for(lambda: reading.values == [b"a", b"b"], name)
    reading.stop()


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_a_consumer_creates_its_topic(cluster: ClusterProcess, name: str) -> None:
    """These allow it by default, as Java's consumer does; librdkafka's consumer does not."""
    topic = f"made-for-reading-with-{name}"
    reading = Reading(CONSUMERS[name](cluster.bootstrap, topic))
    with Client(cluster.bootstrap) as client:
        wait_for(lambda: client.topic(topic) is not None, name)
    assert produce_with_confluent(cluster.bootstrap, topic, [b"a"]) == [0]
    wait_for(lambda: reading.values == [b"a"], name)
    reading.stop()
    assert reading.errors == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_passes_through(cluster: ClusterProcess, topic: str, codec: str) -> None:
    values = [b"value " * 50] * 300
    produce_with_confluent(cluster.bootstrap, topic, values, **{"compression.type": codec, "linger.ms": 50})
    reading = Reading(with_confluent(cluster.bootstrap, topic))
    wait_for(lambda: len(reading.messages) == 300, codec)
    reading.stop()
    assert reading.messages == list(enumerate(values))


@pytest.mark.parametrize("name", CONSUMERS)
def test_who_asks_for_committed_messages_gets_no_others(
    cluster: ClusterProcess, topic: str, name: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(FLUSH_S)
    everything, committed = (
        Reading(CONSUMERS[name](cluster.bootstrap, topic, isolation)) for isolation in (ALL, COMMITTED)
    )
    for value, end in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(FLUSH_S)
        end(FLUSH_S)
    producer.begin_transaction()
    producer.produce(topic, b"c", partition=0)
    producer.flush(FLUSH_S)
    produce_with_confluent(cluster.bootstrap, topic, [b"d"])
    _wait_for_last({name: everything}, b"d")
    wait_for(lambda: committed.position == 4, f"{name} is at the open transaction")
    assert committed.values == [b"a"]
    producer.commit_transaction(FLUSH_S)
    _wait_for_last({name: committed}, b"d")
    for reading in (everything, committed):
        reading.stop()
        assert reading.errors == []
    assert everything.messages == [(0, b"a"), (2, b"b"), (4, b"c"), (5, b"d")]
    assert committed.messages == [(0, b"a"), (4, b"c"), (5, b"d")]


def test_an_administrator_lists_and_deletes(cluster: ClusterProcess, topic: str) -> None:
    before_ms = int(time.time() * 1_000)
    produce_with_confluent(cluster.bootstrap, topic, [b"x"] * 10)
    admin, partition = AdminClient({"bootstrap.servers": cluster.bootstrap}), TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({partition: spec})[partition].result(FLUSH_S).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 10)
    assert 0 <= offset(OffsetSpec.max_timestamp()) <= 9  # the first of those with the greatest timestamp
    assert offset(OffsetSpec.for_timestamp(before_ms)) == 0
    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
    assert next(iter(deleted.values())).result(FLUSH_S).low_watermark == 4
    assert offset(OffsetSpec.earliest()) == 4


@pytest.mark.failover
def test_a_failover_in_mid_stream_is_no_error_for_any_client(cluster: ClusterProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    with every_client_reads(cluster, topic) as readings:
        _produce(producer, topic, 0, 50)
        _wait_for_last(readings, b"49")
        leader = metadata_leader(cluster.nodes)
        leader.kill()
        # Nothing is produced yet: the consumers find the new leader's log empty, and where it ends.
        for name, reading in readings.items():
            wait_for(lambda reading=reading: reading.position >= 1 << 40, f"{name} is at the new end")
        _produce(producer, topic, 50, 100)
        _wait_for_last(readings, b"99")
        leader.start()
    for reading in readings.values():
        assert reading.values == [b"%d" % number for number in range(100)]
        assert [offset for offset, _ in reading.messages[:50]] == list(range(50))
        first = reading.messages[50][0]
        assert first % (1 << 40) == 0 < first


def _produce(producer: Producer, topic: str, begin: int, end: int) -> None:
    for number in range(begin, end):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(FLUSH_S) == 0


def _wait_for_last(readings: dict[str, Reading], value: bytes) -> None:
    for name, reading in readings.items():
        wait_for(lambda reading=reading: reading.values[-1:] == [value], f"{name} reads {value!r}")
