"""Clients of a simulated cluster: their base, tools that commit, and readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from client.core.member.states import COORDINATOR_MOVED
from cluster.simulator import Network, VirtualHost, World
from cluster.simulator.talking import CallbackConnection, Caller
from raftlog.env.simulated_files import SimFiles
from tests.simulated.chronicle import Chronicle, Write
from tests.support.requests import commit_request
from wire.apis import ApiKey
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

HEARTBEAT_MS: Final = 500.0
COMMIT_MS: Final = 250.0
READ_MS: Final = 400.0


class Actor:
    """A client machine that does one thing repeatedly."""

    def __init__(
        self,
        world: World,
        network: Network,
        chronicle: Chronicle,
        name: str,
        group_id: str,
        bootstrap: list[tuple[str, int]],
    ) -> None:
        self.world = world
        self.chronicle = chronicle
        self.name = name
        self.group_id = group_id
        self.host = VirtualHost(world, network, SimFiles(), name=name)
        self.caller = Caller(self.host, name, group_id, bootstrap)
        self.is_stopped = False

    def every(self, period_ms: float, step: Callable[[], None]) -> None:
        """Take a step about every `period_ms`, until stopped."""

        def again() -> None:
            if not self.is_stopped:
                step()
                self.host.call_later(period_ms * self.host.rng.uniform(0.8, 1.2), again)

        self.host.call_later(period_ms * self.host.rng.random(), again)

    def stop(self) -> None:
        self.is_stopped = True

    def commit(self, topic: str, partition: int, **member: Any) -> None:
        """Commit once; an attempt without an answer is not repeated."""

        def send(connection: CallbackConnection) -> None:
            write = self.chronicle.begin((self.group_id, topic, partition), self.world.now_ms)
            request = commit_request(self.group_id, {partition: write.offset}, topic=topic, **member)
            connection.ask(ApiKey.OFFSET_COMMIT, 9, request, lambda answer: self._committed(write, answer))

        self.caller.with_coordinator(send)

    def _committed(self, write: Write, answer: Any) -> None:
        code = None if answer is None else answer.topics[0].partitions[0].error_code
        if code == 0:
            write.acked_ms = self.world.now_ms
        elif code is None or code in COORDINATOR_MOVED:
            self.caller.moved()


class Tool(Actor):
    """Commits to a group without members, one partition after another, faster than members do."""

    def start(self, topic: str, num_partitions: int, period_ms: float = COMMIT_MS / 2) -> None:
        def step() -> None:
            self.commit(topic, self.host.rng.randrange(num_partitions))

        self.every(period_ms, step)


class Reader(Actor):
    """Fetches all offsets of a group."""

    def start(self) -> None:
        self.every(READ_MS, self.read)

    def read(self) -> None:
        def send(connection: CallbackConnection) -> None:
            sent_ms = self.world.now_ms
            wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=None)])
            connection.ask(ApiKey.OFFSET_FETCH, 9, wanted, lambda answer: self._read(sent_ms, answer))

        self.caller.with_coordinator(send)

    def _read(self, sent_ms: float, answer: Any) -> None:
        code = None if answer is None else answer.groups[0].error_code
        if code == 0:
            found = {
                (self.group_id, topic.name, part.partition_index): part.committed_offset
                for topic in answer.groups[0].topics
                for part in topic.partitions
            }
            self.chronicle.read(self.group_id, sent_ms, self.world.now_ms, found)
        elif code is None or code in COORDINATOR_MOVED:
            self.caller.moved()
