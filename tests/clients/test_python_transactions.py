"""Exactly-once loops of Python's stock clients, and their administrators: rows of docs/clients.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from records import METADATA_SHARD
from tests.support.kafka_python import FROM_KAFKA_PYTHON, kafka
from tests.support.python_clients import (
    FLUSH_S,
    MEMBERS,
    PRODUCERS,
    produce_with_confluent,
    running,
)
from tests.support.python_groups import OF_NODES
from tests.support.real_cluster import group_apart, kill_leader, start_killed
from tests.support.waiting import wait_for

SETTINGS = OF_NODES

MESSAGES = [b"%d" % number for number in range(40)]
AT_ONCE = 10
WITHIN_S = 30.0

pytestmark = [pytest.mark.filterwarnings(FROM_KAFKA_PYTHON), pytest.mark.timeout(120)]

Kills = Callable[[int, int], None]
"""Called with an offset and a shard: the moment at which the shard's leader may be killed."""

Loop = Callable[[str, str, str, str], None]
"""Given the bootstrap servers, the group, the topic to consume and the topic to produce to: copy `MESSAGES`,
some at once in a transaction with their offsets; each is aborted once before it is committed."""


def copy_with_confluent(protocol: str) -> Loop:
    def copy(bootstrap: str, group: str, source: str, sink: str) -> None:
        servers = {"bootstrap.servers": bootstrap, "log_level": 0}
        producer = Producer(servers | {"transactional.id": group})
        of_group = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        with closing(Consumer(servers | of_group | {"enable.auto.commit": False})) as consumer:
            producer.init_transactions(FLUSH_S)
            consumer.subscribe([source])
            left = len(MESSAGES)
            while left:
                messages = consumer.consume(min(left, AT_ONCE), timeout=1)
                if not messages:
                    continue
                left -= len(messages)
                end = ConfluentPartition(source, 0, messages[-1].offset() + 1)
                for ends in (producer.abort_transaction, producer.commit_transaction):
                    producer.begin_transaction()
                    for message in messages:
                        producer.produce(sink, message.value())
                    producer.send_offsets_to_transaction([end], consumer.consumer_group_metadata(), FLUSH_S)
                    ends(FLUSH_S)

    return copy


def copy_with_kafka_python(bootstrap: str, group: str, source: str, sink: str) -> None:
    servers = bootstrap.split(",")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=group)
    of_group = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = kafka.KafkaConsumer(source, bootstrap_servers=servers, max_poll_records=AT_ONCE, **of_group)
    with closing(producer), closing(consumer):
        producer.init_transactions()
        left = len(MESSAGES)
        while left:
            for partition, messages in consumer.poll(timeout_ms=1_000).items():
                left -= len(messages)
                end = {partition: kafka.OffsetAndMetadata(messages[-1].offset + 1, "", -1)}
                for ends in (producer.abort_transaction, producer.commit_transaction):
                    producer.begin_transaction()
                    for message in messages:
                        producer.send(sink, message.value)
                    producer.send_offsets_to_transaction(end, consumer.group_metadata())
                    ends()


def copy_with_aiokafka(bootstrap: str, group: str, source: str, sink: str) -> None:
    async def copy() -> None:
        of_group = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with (
            aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer,
            aiokafka.AIOKafkaConsumer(source, bootstrap_servers=bootstrap, **of_group) as consumer,
        ):
            left = len(MESSAGES)
            while left:
                batches = await consumer.getmany(timeout_ms=1_000, max_records=AT_ONCE)
                for partition, messages in batches.items():
                    left -= len(messages)
                    end = {partition: messages[-1].offset + 1}
                    for ends in (producer.abort_transaction, producer.commit_transaction):
                        await producer.begin_transaction()
                        for message in messages:
                            await producer.send(sink, message.value)
                        await producer.send_offsets_to_transaction(end, group)
                        await ends()

    asyncio.run(copy())


LOOPS: dict[str, Loop] = {
    "confluent-kafka, classic": copy_with_confluent("classic"),
    "confluent-kafka, consumer": copy_with_confluent("consumer"),
    "kafka-python": copy_with_kafka_python,
    "aiokafka": copy_with_aiokafka,
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_it_copies_each_message_once(kind: str, cluster: ClusterProcess, group: str) -> None:
    source, sink = f"{group}-in", f"{group}-out"
    with Client(cluster.bootstrap) as client:
        client.create_topic(source, 1)
        client.create_topic(sink, 1)
    produce_with_confluent(cluster.bootstrap, source, MESSAGES)
    LOOPS[kind](cluster.bootstrap, group, source, sink)
    with Client(cluster.bootstrap) as client:
        assert client.offsets(group) == {source: {0: len(MESSAGES)}}
    reader = MEMBERS[kind](
        cluster.bootstrap, f"{group}-reader", sink, "reader", **{"isolation.level": "read_committed"}
    )
    with running(reader):
        wait_for(lambda: len(reader.values) >= len(MESSAGES), lambda: f"{reader.values}", WITHIN_S)
    assert reader.values == MESSAGES
    assert not reader.errors


# Transactions of offsets alone, while a coordinator is killed: messages would be lost with their node.


def commit_with_aiokafka(bootstrap: str, group: str, topic: str, kills: Kills) -> None:
    async def commit() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer:
            for offset in OFFSETS:
                await producer.begin_transaction()
                kills(offset, 0)
                await producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): offset}, group)
                kills(offset, METADATA_SHARD)
                await producer.commit_transaction()

    asyncio.run(commit())


OFFSETS = (10, 20, 30)


@pytest.mark.failover
@pytest.mark.parametrize("shard", [0, METADATA_SHARD], ids=["of its group", "of its transaction"])
def test_aiokafka_commits_in_transactions_while_a_coordinator_is_killed(
    shard: int, cluster: ClusterProcess, group: str
) -> None:
    group_id, topic = group_apart(cluster, group), f"of-{group}"
    with Client(cluster.bootstrap) as client:
        client.create_topic(topic, 1)
    killed: list[int] = []

    def kills(offset: int, of_shard: int) -> None:
        if (offset, of_shard) == (OFFSETS[1], shard):
            kill_leader(cluster, shard)
            killed.append(shard)

    commit_with_aiokafka(cluster.bootstrap, group_id, topic, kills)
    with Client(cluster.bootstrap) as client:
        assert client.offsets(group_id) == {topic: {0: OFFSETS[-1]}}
    assert killed == [shard]
    start_killed(cluster)


# Administrators. Each creates a topic, grows it, and lists, describes and deletes a group without members.


def administer_with_confluent(bootstrap: str, topic: str, group: str) -> tuple[Any, Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([ConfluentTopic(topic, 2)]).values():
        made.result(FLUSH_S)
    listed = {one.group_id for one in admin.list_consumer_groups().result(FLUSH_S).valid}
    partitions = len(admin.list_topics(topic, timeout=FLUSH_S).topics[topic].partitions)
    admin.delete_consumer_groups([group])[group].result(FLUSH_S)
    return partitions, group in listed


def administer_with_kafka_python(bootstrap: str, topic: str, group: str) -> tuple[Any, Any]:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap.split(","))) as admin:
        admin.create_topics([kafka.admin.NewTopic(name=topic, num_partitions=2, replication_factor=-1)])
        listed = str(admin.list_groups())
        (described,) = admin.describe_topics([topic])
        admin.delete_groups([group])
        return len(described["partitions"]), group in listed


def administer_with_aiokafka(bootstrap: str, topic: str, group: str) -> tuple[Any, Any]:
    async def administer() -> tuple[Any, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AiokafkaTopic(name=topic, num_partitions=2, replication_factor=1)])
            listed = [one[0] for one in await admin.list_consumer_groups()]
            (described,) = await admin.describe_topics([topic])
            return len(described["partitions"]), group in listed
        finally:
            await admin.close()

    return asyncio.run(administer())


ADMINS = {
    "confluent": administer_with_confluent,
    "kafka-python": administer_with_kafka_python,
    "aiokafka": administer_with_aiokafka,
}


@pytest.mark.parametrize("kind", PRODUCERS)
def test_it_administers_topics_and_groups(kind: str, cluster: ClusterProcess, group: str) -> None:
    topic = f"of-{group}"
    with Client(cluster.bootstrap) as client:
        client.create_topic(f"{topic}-before", 1)
    member = MEMBERS["aiokafka"](cluster.bootstrap, group, f"{topic}-before", "m")
    with running(member):
        wait_for(lambda: member.assigned, "a member", WITHIN_S)
    assert ADMINS[kind](cluster.bootstrap, topic, group) == (2, True)
    with Client(cluster.bootstrap) as client:
        found = client.topic(topic)
        assert found is not None
        assert found.num_partitions == 2
