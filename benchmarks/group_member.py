"""A consumer of KIP-848's protocol with a diary: `group_member.py LIBRARY WORK BOOTSTRAP GROUP TOPIC FILE`.

LIBRARY is confluent_kafka or quorate.confluent, which has the same names, each with its default settings.
WORK is `read` or `commit`. A reader commits automatically and notes the first message of each partition since
it got it. A committer commits rising offsets of what it owns, one commit after the other. One JSON line per
event, as `consumer.py` writes them; it leaves the group on SIGTERM.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
from typing import Any

POLL_S = 0.01


class GroupMember:
    """The consumer and its diary."""

    def __init__(self, library: str, work: str, bootstrap: str, group: str, topic: str, file: str) -> None:
        self._library = importlib.import_module(library)
        self._out = open(file, "a", encoding="utf-8")  # noqa: SIM115  # open for the life of the process
        self._topic = topic
        self._commits = work == "commit"
        self._unread: set[int] = set()
        """Partitions that it got, and read nothing of since."""
        self._offset = 0
        self._is_leaving = False
        self._consumer = self._library.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "enable.auto.commit": not self._commits,
                "auto.offset.reset": "earliest",
            }
        )

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._leave)
        self._note("joining")
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        while not self._is_leaving:
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is None and message.partition() in self._unread:
                self._unread.discard(message.partition())
                self._note("first", partition=message.partition())
            if self._commits and self._consumer.assignment():
                self._commit()
        self._note("leaving")
        self._consumer.close()
        self._note("closed")

    def _commit(self) -> None:
        self._offset += 1
        parts = [
            self._library.TopicPartition(self._topic, one.partition, self._offset)
            for one in self._consumer.assignment()
        ]
        try:
            self._consumer.commit(offsets=parts, asynchronous=False)
        except self._library.KafkaException as error:
            self._note("failed", error=error.args[0].name())
        else:
            self._note("acked", offsets={one.partition: one.offset for one in parts})

    def _assigned(self, _consumer: Any, partitions: list[Any]) -> None:
        self._unread |= {one.partition for one in partitions}
        self._note("assigned", partitions=[one.partition for one in partitions])

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        self._unread -= {one.partition for one in partitions}
        self._note("revoked", partitions=[one.partition for one in partitions])

    def _note(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"at_s": time.monotonic(), "event": event, **fields}) + "\n")
        self._out.flush()

    def _leave(self, *_: object) -> None:
        self._is_leaving = True


if __name__ == "__main__":
    GroupMember(*sys.argv[1:]).run()
