"""Producing numbered messages, and reading them with `quorate.Consumer`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from quorate import Consumer, TopicPartition

WITHIN_S = 15.0


def produce(
    server: str, topic: str, count: int, *, first: int = 0, partition: int | None = None, **settings: Any
) -> None:
    """Produce messages 0, 1, ... with keys and headers, in turn to both partitions."""
    producer = Producer(
        {"bootstrap.servers": server, "linger.ms": 50, "enable.idempotence": True, "log_level": 0, **settings}
    )
    for number in range(first, first + count):
        producer.produce(
            topic,
            str(number).encode(),
            f"key-{number}".encode(),
            number % 2 if partition is None else partition,
            headers=[("number", str(number).encode()), ("none", None)],
            timestamp=1_700_000_000_000 + number,
        )
    assert producer.flush(WITHIN_S) == 0


async def read(consumer: Consumer, count: int) -> list[int]:
    """Read so many messages. Returns their numbers."""
    numbers: list[int] = []
    until_s = time.monotonic() + WITHIN_S
    while len(numbers) < count:
        assert time.monotonic() < until_s, f"{len(numbers)} of {count}; {consumer.explain()}"
        numbers += [int(record.value) for record in await consumer.poll(0.5)]
    return numbers


async def polls_until(consumer: Consumer, holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s, str(consumer.explain())
        await consumer.poll(0.1)


def part(topic: str, number: int) -> TopicPartition:
    return TopicPartition(topic, number)
