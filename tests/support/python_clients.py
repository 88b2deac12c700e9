"""Python's stock clients as users write them: members that poll in a thread, and a producer that feeds them.

A member commits what it has consumed. Its callbacks are the client's own; `while_revoking` runs inside the
one for partitions that it must give up. As a process:
`python -m tests.support.python_clients KIND BOOTSTRAP GROUP TOPIC NAME [SETTING=VALUE ...]`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import aiokafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from tests.support.kafka_python import kafka

POLL_S = 0.05
LONG_POLL_MS, JOIN_POLL_MS = 1_000, 5_000
"""In kafka-python, a poll that ends while its member waits for SyncGroup may lose the assignment
(docs/clients.md), which a long one makes unlikely. The second is for a member without partitions: among many
clients that start at once, a join takes more than a second."""

END_S = 20.0
SESSION_MS, HEARTBEAT_MS = 6_000, 300
SETTINGS: dict[str, Any] = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
OF_THE_CLASSIC_PROTOCOL = ("session.timeout.ms", "heartbeat.interval.ms")
"""Settings that a consumer of the other protocol may not have: its coordinator decides them."""


class Commit(NamedTuple):
    """A commit that was acknowledged, with monotonic times in seconds."""

    partition: int
    offset: int
    began_s: float
    done_s: float


class PolledMember(ABC):
    """One consumer that subscribes to a topic and commits the position of each partition it read from."""

    def __init__(self, bootstrap: str, group: str, topic: str, name: str, **settings: Any) -> None:
        self.topic, self.name = topic, name
        self.settings = SETTINGS | {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            **settings,
        }
        self.assigned: frozenset[int] = frozenset()
        self.values: list[bytes] = []
        """The messages that it has consumed."""
        self.acknowledged: dict[int, int] = {}
        """The newest offset of each partition whose commit succeeded."""
        self.commits: list[Commit] = []
        """Every commit that succeeded."""
        self.errors: list[str] = []
        """The errors that polls and commits raised or reported."""
        self.lost: list[frozenset[int]] = []
        """Partitions that it was told to have lost, by a client that tells that apart."""
        self.while_revoking: Callable[[], None] = lambda: None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Begin to leave the group."""
        self._ends.set()

    def close(self) -> None:
        """Leave the group."""
        self.end()
        self._thread.join(END_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    @abstractmethod
    def _run(self) -> None:
        """Poll and commit until the end, then leave."""

    def _settings_with_underscores(self) -> dict[str, Any]:
        settings = {name.replace(".", "_"): value for name, value in self.settings.items()}
        settings["bootstrap_servers"] = settings["bootstrap_servers"].split(",")
        return settings

    def _revokes(self, partitions: Iterable[Any]) -> None:
        if list(partitions):
            self.while_revoking()

    def _acknowledged(self, partition: int, offset: int, began_s: float) -> None:
        """Note a commit that succeeded, and when it began (monotonic time)."""
        self.acknowledged[partition] = offset
        self.commits.append(Commit(partition, offset, began_s, time.monotonic()))

    def _failed(self, error: object) -> None:
        self.errors.append(repr(error))
        self._ends.wait(POLL_S)  # some report an error again at once


class ConfluentMember(PolledMember):
    def _run(self) -> None:
        consumer = Consumer({**self.settings, "log_level": 0})
        consumer.subscribe([self.topic], on_revoke=lambda _, parts: self._revokes(parts), on_lost=self._loses)
        while not self._ends.is_set():
            message = consumer.poll(POLL_S)
            self.assigned = frozenset(part.partition for part in consumer.assignment())
            if message is None:
                continue
            if message.error():
                self._failed(message.error())
                continue
            self.values.append(message.value())
            part = ConfluentPartition(self.topic, message.partition(), message.offset() + 1)
            began_s = time.monotonic()
            try:
                consumer.commit(offsets=[part], asynchronous=False)
            except KafkaException as error:
                self._failed(error)
            else:
                self._acknowledged(part.partition, part.offset, began_s)
        consumer.close()

    def _loses(self, _: Consumer, parts: list[ConfluentPartition]) -> None:
        self.lost.append(frozenset(part.partition for part in parts))


class ConfluentMemberOfConsumerGroup(ConfluentMember):
    def __init__(self, *words: str, **settings: Any) -> None:
        super().__init__(*words, **settings, **{"group.protocol": "consumer"})

    def _run(self) -> None:
        for name in OF_THE_CLASSIC_PROTOCOL:
            del self.settings[name]
        super()._run()


class KafkaPythonMember(PolledMember, kafka.ConsumerRebalanceListener):
    def _run(self) -> None:
        consumer = kafka.KafkaConsumer(**self._settings_with_underscores())
        consumer.subscribe([self.topic], listener=self)
        while not self._ends.is_set():
            try:
                batches = consumer.poll(timeout_ms=LONG_POLL_MS if self.assigned else JOIN_POLL_MS)
                self.assigned = frozenset(part.partition for part in consumer.assignment())
                for part, messages in batches.items():
                    self.values += [message.value for message in messages]
                    position = messages[-1].offset + 1
                    began_s = time.monotonic()
                    consumer.commit({part: kafka.OffsetAndMetadata(position, "", -1)})
                    self._acknowledged(part.partition, position, began_s)
            except Exception as error:
                self._failed(error)
        consumer.close()

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._revokes(revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Nothing but this is sure to run before the next poll returns."""
        self.assigned = frozenset(part.partition for part in assigned)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self.lost.append(frozenset(part.partition for part in lost))


class AiokafkaMember(PolledMember, aiokafka.ConsumerRebalanceListener):
    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer: Any = aiokafka.AIOKafkaConsumer(**self._settings_with_underscores())
        consumer.subscribe([self.topic], listener=self)
        await consumer.start()
        while not self._ends.is_set():
            try:
                batches = await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
                self.assigned = frozenset(part.partition for part in consumer.assignment())
                for part, messages in batches.items():
                    self.values += [message.value for message in messages]
                    position = messages[-1].offset + 1
                    began_s = time.monotonic()
                    await consumer.commit({part: position})
                    self._acknowledged(part.partition, position, began_s)
            except Exception as error:
                self.errors.append(repr(error))
                await asyncio.sleep(POLL_S)
        await consumer.stop()

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        if revoked:
            await asyncio.to_thread(self.while_revoking)

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Nothing to do."""


MEMBERS: dict[str, type[PolledMember]] = {
    "confluent-kafka, classic": ConfluentMember,
    "confluent-kafka, consumer": ConfluentMemberOfConsumerGroup,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}
"""The clients by name; confluent-kafka knows both protocols of groups."""


@contextmanager
def running(*members: PolledMember) -> Iterator[None]:
    """Close the members at the end."""
    try:
        yield
    finally:
        for member in members:
            member.close()


# Producers. Each returns the offsets that it got for its messages.

FLUSH_S = 30.0


def produce_with_confluent(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> list[int]:
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0} | config)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(FLUSH_S) == 0
    return offsets


def produce_with_kafka_python(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> list[int]:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), **config)
    try:
        sent = [producer.send(topic, value, partition=0) for value in values]
        return [one.get(FLUSH_S).offset for one in sent]
    finally:
        producer.close()


def produce_with_aiokafka(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> list[int]:
    async def produce() -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, **({"enable_idempotence": True} | config)
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, value, partition=0) for value in values]
            return [(await one).offset for one in sent]
        finally:
            await producer.stop()

    return asyncio.run(produce())


PRODUCERS = {
    "confluent": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
}


class Feed:
    """A producer that writes a message to every partition of a topic again and again."""

    def __init__(self, bootstrap: str, topic: str, num_partitions: int, every_s: float = 0.02) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._topic, self._num_partitions, self._every_s = topic, num_partitions, every_s
        self.produced = 0
        """Messages in each partition so far."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.flush(FLUSH_S)

    def _run(self) -> None:
        for number in count():
            self.produced = number + 1
            for partition in range(self._num_partitions):
                self._producer.produce(self._topic, b"%d" % number, partition=partition)
            self._producer.poll(0)
            if self._ends.wait(self._every_s):
                return


def main() -> None:
    """Be a member until this process is ended, and tell of it in lines (`tests.support.verifiable`)."""
    kind, bootstrap, group, topic, name, *settings = sys.argv[1:]
    member = MEMBERS[kind](bootstrap, group, topic, name, **dict(one.split("=", 1) for one in settings))
    assigned: frozenset[int] = frozenset()
    while not threading.Event().wait(POLL_S):
        now = member.assigned
        for name, parts in (("partitions_revoked", assigned - now), ("partitions_assigned", now - assigned)):
            if parts:
                numbers = [{"topic": topic, "partition": number} for number in sorted(parts)]
                print(json.dumps({"name": name, "partitions": numbers}), flush=True)
        assigned = now


if __name__ == "__main__":
    main()
