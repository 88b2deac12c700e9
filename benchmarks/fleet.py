"""Confluent consumers in threads of one process, with their combined ownership at every callback.

A fleet's view of a group comes from its clients, not from the coordinator: a partition counts as owned from
the end of `on_assign` to the start of `on_revoke`. `wait_for` returns at the callback that made its condition
true, so that only the rebalance and the client's own thread are measured.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, TopicPartition

POLL_S = 0.01
WAIT_S = 120.0
CLOSE_S = 30.0


class FleetMember:
    """One consumer and its thread."""

    def __init__(self, fleet: Fleet, config: Mapping[str, object]) -> None:
        self.fleet = fleet
        self.owned: set[int] = set()
        self._stopping = threading.Event()
        self._consumer = Consumer(dict(config))
        self._is_eager = config["group.protocol"] == "classic"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group; returns when the client has closed."""
        self._stopping.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"a consumer did not close within {CLOSE_S:.0f} s")

    def _run(self) -> None:
        self._consumer.subscribe(
            [self.fleet.topic], on_assign=self._gained, on_revoke=self._gave, on_lost=self._gave
        )
        while not self._stopping.is_set():
            self._consumer.poll(POLL_S)
        self._consumer.close()
        self.fleet.left(self)

    def _gained(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_eager:
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)
        consumer.pause(partitions)  # there is nothing to fetch
        self.fleet.changed(self, add={one.partition for one in partitions})

    def _gave(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.fleet.changed(self, remove={one.partition for one in partitions})
        if self._is_eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)


class Fleet:
    """The consumers of one group."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, **config: object) -> None:
        self.topic = topic
        self.members: list[FleetMember] = []
        self.twice: list[int] = []
        """Partitions that a member gained while another one still had them."""
        self._changed = threading.Condition()
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        } | config

    def add(self, count: int = 1) -> None:
        self.members += [FleetMember(self, self._config) for _ in range(count)]

    def close_one(self) -> None:
        """Close one member, which leaves the group."""
        self.members[-1].close()

    def close(self) -> None:
        for member in list(self.members):
            member._stopping.set()
        for member in list(self.members):
            member.close()

    def changed(
        self,
        member: FleetMember,
        add: frozenset[int] | set[int] = frozenset(),
        remove: set[int] | None = None,
    ) -> None:
        with self._changed:
            if add:
                held = Counter(number for one in self.members if one is not member for number in one.owned)
                self.twice += [number for number in add if held[number]]
            member.owned = (member.owned | add) - (remove or set())
            self._changed.notify_all()

    def left(self, member: FleetMember) -> None:
        with self._changed:
            self.members.remove(member)
            self._changed.notify_all()

    def is_balanced(self, num_members: int, num_partitions: int) -> bool:
        """Whether this many members own all partitions, each once, evenly."""
        sizes = [len(member.owned) for member in self.members]
        return (
            len(sizes) == num_members
            and sum(sizes) == num_partitions
            and len(set().union(*(member.owned for member in self.members))) == num_partitions
            and max(sizes) - min(sizes) <= 1
        )

    def wait_for(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until the condition holds; returns the monotonic time at which it did."""
        with self._changed:
            if not self._changed.wait_for(condition, WAIT_S):
                sizes = sorted(len(member.owned) for member in self.members)
                raise TimeoutError(f"{what}: not within {WAIT_S:.0f} s; the members own {sizes}")
            return time.monotonic()
