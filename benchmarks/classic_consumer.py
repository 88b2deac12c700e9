"""A consumer of the classic protocol with a diary: `classic_consumer.py KIND BOOTSTRAP GROUP TOPIC FILE`.

KIND is aiokafka, kafka-python or confluent-kafka, each with its default settings. It subscribes, and commits
rising offsets of one partition in a loop. One JSON line per acknowledged commit (`acked`), or failed one
(`failed`, with its error), as `consumer.py` writes them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

PAUSE_S = 0.01
ASSIGN_S = 30.0


class Diary:
    """The file, and the offset to be committed next."""

    def __init__(self, file: str) -> None:
        self._out = open(file, "a", encoding="utf-8")  # noqa: SIM115  # open for the life of the process
        self.offset = 0

    def acked(self) -> None:
        self._note("acked", offsets={0: self.offset})

    def failed(self, error: Exception) -> None:
        self._note("failed", error=repr(error)[:200])

    def _note(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"at_s": time.monotonic(), "event": event, **fields}) + "\n")
        self._out.flush()


def confluent(bootstrap: str, group: str, topic: str, diary: Diary) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    consumer.subscribe([topic])
    while True:
        consumer.poll(PAUSE_S)
        if not consumer.assignment():
            continue
        diary.offset += 1
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, diary.offset)], asynchronous=False)
        except Exception as error:
            diary.failed(error)
        else:
            diary.acked()


def kafka_python(bootstrap: str, group: str, topic: str, diary: Diary) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=group, enable_auto_commit=False
    )
    while True:
        try:
            consumer.poll(timeout_ms=int(PAUSE_S * 1_000))
            if not consumer.assignment():
                continue
            diary.offset += 1
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(diary.offset, "", -1)})
        except Exception as error:
            diary.failed(error)
        else:
            diary.acked()


async def _aiokafka(bootstrap: str, group: str, topic: str, diary: Diary) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    while True:
        try:
            await consumer.getmany(timeout_ms=int(PAUSE_S * 1_000))
            if not consumer.assignment():
                continue
            diary.offset += 1
            await consumer.commit({TopicPartition(topic, 0): diary.offset})
        except Exception as error:
            diary.failed(error)
            await asyncio.sleep(PAUSE_S)
        else:
            diary.acked()


def aiokafka(bootstrap: str, group: str, topic: str, diary: Diary) -> None:
    asyncio.run(_aiokafka(bootstrap, group, topic, diary))


KINDS = {"aiokafka": aiokafka, "kafka-python": kafka_python, "confluent-kafka": confluent}

if __name__ == "__main__":
    kind, *words, file = sys.argv[1:]
    KINDS[kind](*words, Diary(file))  # type: ignore[arg-type,call-arg]
