"""Members of the classic protocol as users write them: each polls in a thread and commits all the time."""

from __future__ import annotations

import asyncio
import threading
import warnings
from abc import ABC, abstractmethod
from itertools import count
from typing import Any

import aiokafka
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

with warnings.catch_warnings():
    # kafka-python reads its message schemas, now and at first use, by a call that Python deprecates.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated")
    import kafka
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

SESSION_MS, HEARTBEAT_MS = 6_000, 300
OFFSETS = count(1)
"""One sequence for all members: whoever owns a partition later commits a higher offset."""
POLL_S = 0.05


class PolledMember(ABC):
    """One consumer that subscribes to a topic. It commits a growing offset for each partition it has."""

    def __init__(self, bootstrap: str, group: str, topic: str, name: str) -> None:
        self.bootstrap, self.group, self.topic, self.name = bootstrap, group, topic, name
        self.assigned: frozenset[int] = frozenset()
        self.acknowledged: dict[int, int] = {}
        """The newest offset of each partition whose commit succeeded."""
        self.errors: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group."""
        self._ends.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    @abstractmethod
    def _run(self) -> None:
        """Poll and commit until the end, then leave."""

    def _offsets(self) -> dict[int, int]:
        return dict.fromkeys(self.assigned, next(OFFSETS))


class ConfluentMember(PolledMember):
    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": self.name,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        while not self._ends.is_set():
            consumer.poll(POLL_S)
            self.assigned = frozenset(part.partition for part in consumer.assignment())
            if offsets := self._offsets():
                parts = [ConfluentPartition(self.topic, number, at) for number, at in offsets.items()]
                try:
                    consumer.commit(offsets=parts, asynchronous=False)
                except KafkaException as error:
                    self.errors.append(str(error))
                else:
                    self.acknowledged |= offsets
        consumer.close()


class KafkaPythonMember(PolledMember):
    def _run(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
        )
        while not self._ends.is_set():
            consumer.poll(timeout_ms=int(POLL_S * 1_000))
            self.assigned = frozenset(part.partition for part in consumer.assignment())
            if offsets := self._offsets():
                parts = {
                    kafka.TopicPartition(self.topic, number): OffsetAndMetadata(at, "", -1)
                    for number, at in offsets.items()
                }
                try:
                    consumer.commit(parts)
                except KafkaError as error:
                    self.errors.append(repr(error))
                else:
                    self.acknowledged |= offsets
        consumer.close()


class AiokafkaMember(PolledMember):
    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer: Any = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
        )
        await consumer.start()
        while not self._ends.is_set():
            await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
            self.assigned = frozenset(part.partition for part in consumer.assignment())
            if offsets := self._offsets():
                try:
                    await consumer.commit(
                        {aiokafka.TopicPartition(self.topic, number): at for number, at in offsets.items()}
                    )
                except aiokafka.errors.KafkaError as error:
                    self.errors.append(repr(error))
                else:
                    self.acknowledged |= offsets
        await consumer.stop()


MEMBERS: dict[str, type[PolledMember]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}
