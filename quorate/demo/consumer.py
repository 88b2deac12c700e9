"""One consumer of the demo: an ordinary confluent-kafka program in a process of its own.

It is a stock client on purpose; nothing in it knows Quorate. It subscribes, and for each partition that it
owns it counts offsets up and commits them synchronously, like a consumer that has just processed a record.
Everything it learns goes to a file of its own, one JSON object per line, flushed at once, so that a `kill -9`
loses nothing that was known:

    {"at_ms": ..., "event": "assigned" | "revoked" | "lost", "partitions": [0, 1]}
    {"at_ms": ..., "event": "sent", "offsets": {"0": 17, "1": 40}}        before a commit is sent
    {"at_ms": ..., "event": "acknowledged", "offsets": {"0": 17, ...}}   once it is acknowledged
    {"at_ms": ..., "event": "failed", "error": "..."}                    a commit whose outcome is unknown

SIGTERM ends it cleanly: it leaves the group. The file is the evidence that the demo's claims are checked
against.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.02
COMMIT_PAUSE_S = 0.02
COMMITTED_TIMEOUT_S = 5.0


class EventJournal:
    """The consumer's own record of events, one JSON object per line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, event: str, **fields: object) -> None:
        line = json.dumps({"at_ms": round(time.time() * 1000), "event": event, **fields})
        self._file.write(line + "\n")
        self._file.flush()


class CommittingConsumer:
    """Subscribes to one topic and commits increasing offsets for the partitions that it owns."""

    def __init__(self, config: dict[str, Any], topic: str, journal: EventJournal) -> None:
        self._consumer = Consumer(config)
        self._topic = topic
        self._journal = journal
        self._next_offset: dict[int, int] = {}
        self._stopping = False

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._stopping = True

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that this consumer owns now."""
        return frozenset(self._next_offset)

    def run(self) -> None:
        """Consume until SIGTERM, then leave the group."""
        self.subscribe()
        while not self._stopping:
            self.poll()
            if self._next_offset:
                self._commit()
                time.sleep(COMMIT_PAUSE_S)
        self.close()

    def subscribe(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def poll(self) -> None:
        """Let the client run its callbacks."""
        self._consumer.poll(POLL_S)

    def close(self) -> None:
        """Leave the group."""
        self._stopping = True
        self._consumer.close()
        self._journal.write("closed")

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Continue from the group's committed offsets.

        An assignment that arrives while the consumer closes is ignored: librdkafka then no longer answers
        `committed`, and waiting for it would delay the leave until the session expires.
        """
        if self._stopping:
            return
        for found in consumer.committed(partitions, timeout=COMMITTED_TIMEOUT_S):
            self._next_offset[found.partition] = max(found.offset, 0) + 1
        self._journal.write("assigned", partitions=sorted(p.partition for p in partitions))

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._gone("revoked", partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def _gone(self, event: str, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._next_offset.pop(partition.partition, None)
        self._journal.write(event, partitions=sorted(p.partition for p in partitions))

    def _commit(self) -> None:
        sent = dict(self._next_offset)
        named = {str(partition): offset for partition, offset in sent.items()}
        self._journal.write("sent", offsets=named)
        try:
            results = self._consumer.commit(
                offsets=[TopicPartition(self._topic, p, offset) for p, offset in sent.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            self._journal.write("failed", error=str(error.args[0]))
            return
        for result in results or []:
            if result.error is not None:
                self._journal.write("failed", error=str(result.error), partition=result.partition)
                named.pop(str(result.partition), None)
        self._journal.write("acknowledged", offsets=named)
        for partition, offset in sent.items():
            if partition in self._next_offset:
                self._next_offset[partition] = offset + 1


def main() -> int:
    parser = argparse.ArgumentParser(description="A consumer that commits offsets it counts up by itself.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    arguments = parser.parse_args()
    config = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "group.protocol": "consumer",
        "client.id": arguments.name,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    with arguments.journal.open("a", encoding="utf-8") as file:
        consumer = CommittingConsumer(config, arguments.topic, EventJournal(file))
        signal.signal(signal.SIGTERM, consumer.stop)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C reaches the whole process group; the demo stops us
        consumer.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
