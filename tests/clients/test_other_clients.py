"""kafka-python and aiokafka speak no KIP-848; with assign() they still keep their offsets here.

"Group-less" is Kafka's word for it: a commit under a group id by a client that is no member of the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import pytest

from quorate.client import Client
from tests.support.kafka_python import FROM_KAFKA_PYTHON, kafka

pytestmark = pytest.mark.filterwarnings(FROM_KAFKA_PYTHON)


def test_kafka_python_assigns_itself_commits_and_fetches(
    bootstrap: str, group: str, new_topic: Callable[[int], str], client: Client
) -> None:
    topic = new_topic(3)
    parts = [kafka.TopicPartition(topic, number) for number in range(3)]

    def consumer() -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)

    first = consumer()
    try:
        first.assign(parts)
        assert first.poll(timeout_ms=200) == {}
        first.commit({part: kafka.OffsetAndMetadata(40 + part.partition, "seen", -1) for part in parts})
    finally:
        first.close()
    assert client.offsets(group) == {topic: {0: 40, 1: 41, 2: 42}}
    second = consumer()
    try:
        second.assign(parts)
        assert [second.committed(part) for part in parts] == [40, 41, 42]
        assert second.partitions_for_topic(topic) == {0, 1, 2}
    finally:
        second.close()


async def test_aiokafka_assigns_itself_commits_and_fetches(
    bootstrap: str, group: str, new_topic: Callable[[int], str]
) -> None:
    topic = await asyncio.to_thread(new_topic, 3)
    parts = [aiokafka.TopicPartition(topic, number) for number in range(3)]
    for expected in ([None, None, None], [40, 41, 42]):
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign(parts)
            assert [await consumer.committed(part) for part in parts] == expected
            assert await consumer.getmany(timeout_ms=100) == {}
            await consumer.commit({part: 40 + part.partition for part in parts})
        finally:
            await consumer.stop()


def test_a_groupless_group_is_listed_and_can_be_deleted(
    bootstrap: str, group: str, new_topic: Callable[[int], str], client: Client
) -> None:
    topic = new_topic(1)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.commit({kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(5, "", -1)})
    finally:
        consumer.close()
    assert group in [found.group_id for found in client.groups()]
    client.delete_group(group)
    assert group not in [found.group_id for found in client.groups()]
