"""Stock producers: they are refused at once and for good, as nothing is stored here, and never retry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import pytest
from aiokafka.errors import PolicyViolationError as AiokafkaPolicyViolation
from confluent_kafka import Producer

from cluster.launching.launcher import NodeProcess
from tests.support.kafka_python import FROM_KAFKA_PYTHON, kafka
from tests.support.waiting import wait_for

pytestmark = pytest.mark.filterwarnings(FROM_KAFKA_PYTHON)

QUICKLY_S = 3.0
"""Far below every client's timeout: librdkafka retries for 5 minutes, the others for 30 s and more."""


def test_a_delivery_report_carries_the_refusal(bootstrap: str, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(3)
    reports: list[tuple[str, bool]] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    started_s = time.monotonic()
    for number in range(30):
        producer.produce(
            topic,
            f"message {number}".encode(),
            partition=number % 3,
            on_delivery=lambda error, _: reports.append((error.name(), error.retriable())),
        )
    assert producer.flush(10 * QUICKLY_S) == 0
    assert time.monotonic() - started_s < QUICKLY_S
    assert reports == [("POLICY_VIOLATION", False)] * 30


def test_without_acks_the_connection_is_closed_and_the_log_says_why(
    bootstrap: str, node: NodeProcess, new_topic: Callable[[int], str], group: str
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 0, "client.id": group, "log_level": 0})
    producer.produce(topic, b"lost, and meant to be")
    assert producer.flush(QUICKLY_S) == 0
    line = f"client id '{group}': it produces with acks=0; topics here"
    log = Path(node.data) / "node.log"
    wait_for(lambda: line in log.read_text(encoding="utf-8"), "a line about it", QUICKLY_S)


def test_kafka_python_raises_the_refusal(bootstrap: str, new_topic: Callable[[int], str]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    try:
        sent = producer.send(new_topic(1), b"message")
        with pytest.raises(kafka.errors.PolicyViolationError):
            sent.get(QUICKLY_S)
    finally:
        producer.close()


async def test_aiokafka_raises_the_refusal(bootstrap: str, new_topic: Callable[[int], str]) -> None:
    topic = await asyncio.to_thread(new_topic, 1)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        with pytest.raises(AiokafkaPolicyViolation):
            await asyncio.wait_for(producer.send_and_wait(topic, b"message"), QUICKLY_S)
    finally:
        await producer.stop()
