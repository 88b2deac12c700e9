"""Clients of a simulated cluster: tools that commit, readers, and the base of members written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from cluster.simulator import Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles
from tests.simulated.chronicle import Chronicle, Ownership, Write
from tests.simulated.talking import MOVED, RETRY_MS, Caller, Connection
from tests.support.requests import commit_request, join_request
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

HEARTBEAT_MS: Final = 500.0
COMMIT_MS: Final = 250.0
READ_MS: Final = 400.0

REJOIN: Final = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}


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

        def send(connection: Connection) -> None:
            write = self.chronicle.begin((self.group_id, topic, partition), self.world.now_ms)
            request = commit_request(self.group_id, {partition: write.offset}, topic=topic, **member)
            connection.ask(ApiKey.OFFSET_COMMIT, 9, request, lambda answer: self._committed(write, answer))

        self.caller.with_coordinator(send)

    def _committed(self, write: Write, answer: Any) -> None:
        code = None if answer is None else answer.topics[0].partitions[0].error_code
        if code == 0:
            write.acked_ms = self.world.now_ms
        elif code is None or code in MOVED:
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
        def send(connection: Connection) -> None:
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
        elif code is None or code in MOVED:
            self.caller.moved()


class Member(Actor):
    """A consumer that joins, acknowledges assignments, commits, and considers itself fenced when it must.

    It is written by hand, as a base of clients that differ from the product's own (`consumers`): those that
    apply assignments late, as librdkafka does, and those that speak the classic protocol at times."""

    api: tuple[ApiKey, int] = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)

    def start(self, topics: dict[str, bytes], session_ms: float) -> None:
        """Start the member; `topics` maps names to ids."""
        self.topics = topics
        self.names = {topic_id: name for name, topic_id in topics.items()}
        self.session_ms = session_ms
        self.lives = 0
        self._begin()
        self._is_asking = False
        self.every(HEARTBEAT_MS, self.beat)
        self.every(COMMIT_MS, self._commit_one)

    def _begin(self) -> None:
        """Begin as a new consumer under its own id, so that requests still in flight cannot affect it."""
        self.lives += 1
        self.member_id = f"{self.name}.{self.lives}"
        self.epoch = 0
        self.must_say_all = True
        self.owned: set[tuple[bytes, int]] = set()
        self.ownership = Ownership(self.chronicle, self.group_id, self.member_id, self.session_ms)

    def beat(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self.caller.with_coordinator(self._send)

    def leave(self) -> None:
        """Leave the group; another consumer takes its place."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1
        )
        self._own(set())
        self._begin()
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, lambda _: None)
        )

    def _send(self, connection: Connection) -> None:
        """Send a heartbeat as Kafka's clients do: a full one after one without an answer."""
        sent_ms, member_id = self.world.now_ms, self.member_id
        request = self._heartbeat(says_all=self.must_say_all or not self.epoch)
        self.must_say_all = True
        connection.ask(*self.api, request, lambda answer: self._told(sent_ms, member_id, answer))

    def _heartbeat(self, says_all: bool) -> Any:
        request = join_request(self.group_id, self.member_id, *self.topics)
        request.member_epoch = self.epoch
        request.topic_partitions = by_topic(self.owned)
        if not says_all:
            request.rebalance_timeout_ms = -1
            request.subscribed_topic_names = None
        return request

    def _told(self, sent_ms: float, member_id: str, answer: Any) -> None:
        self._is_asking = False
        code = None if answer is None else answer.error_code
        if code is None or code in MOVED:
            self.caller.moved()
        elif member_id != self.member_id:
            return  # it has left meanwhile
        elif code:
            self._refused(code)
        else:
            self.epoch = answer.member_epoch
            self.must_say_all = False
            self.ownership.accepted(sent_ms, self.world.now_ms)
            if answer.assignment is not None:
                given = self._given(answer)
                self._take({(one.topic_id, partition) for one in given for partition in one.partitions})
            self._accepted(answer)

    def _refused(self, code: int) -> None:
        if code in REJOIN:
            self._own(set())
            self.epoch = 0
        elif code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.chronicle.unexpected[type(self).__name__, code] += 1

    def _given(self, answer: Any) -> Iterable[Any]:
        given: list[TopicPartitions] = answer.assignment.topic_partitions
        return given

    def _take(self, given: set[tuple[bytes, int]]) -> None:
        """Own these partitions from now on, and report them soon."""
        self._own(given)
        self.host.call_later(RETRY_MS * self.host.rng.random(), self.beat)

    def _accepted(self, answer: Any) -> None:
        """Handle the other fields of an accepted heartbeat's reply."""

    def _own(self, owned: set[tuple[bytes, int]]) -> None:
        self.owned = owned
        self.ownership.assigned(owned, self.world.now_ms)

    def _commit_one(self) -> None:
        if self.owned and self.epoch > 0:
            topic_id, partition = self.host.rng.choice(sorted(self.owned))
            self.commit(self.names[topic_id], partition, member_id=self.member_id, epoch=self.epoch)


def by_topic(owned: set[tuple[bytes, int]]) -> list[TopicPartitions]:
    """Return partitions as requests carry them."""
    parts: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(owned):
        parts.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in parts.items()]
