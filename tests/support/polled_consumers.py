"""confluent-kafka consumers that are polled in the background, so that a test can wait for what they see.

The callbacks are the client's own; `owned` is what a consumer holds after them. Ownership is checked over
all consumers of a `Crowd` whenever one of them is given a partition: two owners at once fail the test that
sees it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, TopicPartition

WAIT_S = 20.0


class Crowd:
    """Consumers of one group on one topic; `close` ends them all."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._config = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
        self._config |= {"enable.auto.commit": False, "log_level": 0}
        self.topic = topic
        self.group = group
        self.changed = threading.Condition()
        self.members: list[PolledConsumer] = []
        self.overlaps: list[str] = []

    def join(self, works_s: float = 0.0, **config: Any) -> PolledConsumer:
        """One more member; `works_s`: its program works that long between polls, once it owns something."""
        member = PolledConsumer(self, {**self._config, **config}, self.topic, works_s)
        self.members.append(member)
        return member

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait for what callbacks change, or (looked at every 0.1 s) for anything else."""
        deadline_s = time.monotonic() + WAIT_S
        with self.changed:
            while not ready():
                if time.monotonic() > deadline_s:
                    owned = [sorted(member.owned) for member in self.members]
                    errors = [member.errors for member in self.members]
                    raise AssertionError(f"{what} did not happen; owned: {owned}, errors: {errors}")
                self.changed.wait(0.1)

    def wait_balanced(self, num_partitions: int) -> None:
        """Every partition owned once, shares differ by at most one."""
        open_members = [member for member in self.members if not member.closed]

        def balanced() -> bool:
            sizes = [len(member.owned) for member in open_members]
            return sum(sizes) == num_partitions and max(sizes) - min(sizes) <= 1

        self.wait(f"a balance of {num_partitions} partitions over {len(open_members)} members", balanced)

    def close(self) -> None:
        for member in self.members:
            member.close()
        assert not self.overlaps, self.overlaps


class PolledConsumer:
    """One consumer and the thread that polls it."""

    def __init__(self, crowd: Crowd, config: dict[str, Any], topic: str, works_s: float = 0.0) -> None:
        self._crowd = crowd
        self._works_s = works_s
        self.owned: set[int] = set()
        self.lost: list[list[int]] = []
        self.errors: list[str] = []
        self.closed = False
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self._stopping = threading.Event()
        self._todo: queue.SimpleQueue[tuple[Future[Any], Callable[[Consumer], Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    @property
    def member_id(self) -> str:
        return str(self.consumer.memberid())

    def do(self, call: Callable[[Consumer], Any]) -> Any:
        """Call the consumer in the thread that polls it; beside a poll its own calls wait for ever."""
        future: Future[Any] = Future()
        self._todo.put((future, call))
        return future.result(WAIT_S)

    def commit(self, offsets: dict[int, int]) -> None:
        """Commit synchronously."""
        parts = [TopicPartition(self._crowd.topic, p, offset, f"m{p}") for p, offset in offsets.items()]
        self.do(lambda consumer: consumer.commit(offsets=parts, asynchronous=False))

    def committed(self, partitions: Iterable[int]) -> dict[int, tuple[int, str | None]]:
        """Fetch: offset and metadata by partition."""
        parts = [TopicPartition(self._crowd.topic, partition) for partition in partitions]
        found = self.do(lambda consumer: consumer.committed(parts, timeout=5))
        return {one.partition: (one.offset, one.metadata) for one in found}

    def close(self) -> None:
        """Leave the group."""
        if not self.closed:
            self.closed = True
            self._stopping.set()
            self._thread.join(WAIT_S)
            self.consumer.close()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            while not self._todo.empty():
                future, call = self._todo.get()
                try:
                    future.set_result(call(self.consumer))
                except Exception as error:
                    future.set_exception(error)
            if self._works_s and self.owned:
                self._stopping.wait(self._works_s)
            message = self.consumer.poll(0.05)
            if message is not None and message.error():
                with self._crowd.changed:
                    self.errors.append(str(message.error()))
                    self._crowd.changed.notify_all()
                self._stopping.wait(0.05)  # an error is reported again at once

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        given = {partition.partition for partition in partitions}
        with self._crowd.changed:
            for other in self._crowd.members:
                if other is not self and given & other.owned:
                    self._crowd.overlaps.append(f"{sorted(given & other.owned)} had two owners")
            self.owned |= given
            self._crowd.changed.notify_all()

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        with self._crowd.changed:
            self.owned -= {partition.partition for partition in partitions}
            self._crowd.changed.notify_all()

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost.append(sorted(partition.partition for partition in partitions))
        self._drop(partitions)
