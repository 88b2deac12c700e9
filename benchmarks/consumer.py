"""A confluent-kafka consumer with a diary: `python -P consumer.py BOOTSTRAP GROUP TOPIC FILE [PAUSE_S]`.

It writes one JSON line per event, flushed at once, with times in seconds of the machine's monotonic clock,
which all processes share: `assigned` when its callback ends, `revoked` and `lost` when theirs begin, `acked`
with the offset of each partition in an acknowledged synchronous commit, `failed` with the error of another.
It commits rising offsets for whatever it owns, in a loop with a pause, and leaves the group on SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.01


class Member:
    """The consumer, its offsets and its diary."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, file: str, pause_s: float | str = POLL_S
    ) -> None:
        self._out = open(file, "a", encoding="utf-8")  # noqa: SIM115  # open for the life of the process
        self._topic = topic
        self._pause_s = float(pause_s)
        self._offsets: dict[int, int] = {}
        self._stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        while not self._stopping:
            self._consumer.poll(self._pause_s)
            if self._offsets:
                self._commit()
        self._consumer.close()
        self._note("closed")

    def _commit(self) -> None:
        self._offsets = {partition: offset + 1 for partition, offset in self._offsets.items()}
        parts = [TopicPartition(self._topic, partition, at) for partition, at in self._offsets.items()]
        try:
            self._consumer.commit(offsets=parts, asynchronous=False)
        except KafkaException as error:
            self._note("failed", error=error.args[0].name())
        else:
            self._note("acked", offsets=self._offsets)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = consumer.committed(partitions, timeout=30)
        self._offsets |= {one.partition: max(0, one.offset) for one in found}
        self._note("assigned", partitions=[one.partition for one in partitions])

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._gone("revoked", partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def _gone(self, event: str, partitions: list[TopicPartition]) -> None:
        self._note(event, partitions=[one.partition for one in partitions])
        for one in partitions:
            self._offsets.pop(one.partition, None)

    def _note(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"at_s": time.monotonic(), "event": event, **fields}) + "\n")
        self._out.flush()

    def _stop(self, *_: object) -> None:
        self._stopping = True


if __name__ == "__main__":
    Member(*sys.argv[1:]).run()
