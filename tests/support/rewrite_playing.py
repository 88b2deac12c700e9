"""A group of seed 000 in virtual time: coordinators, consumers, a network, over its bytes.

Everything random comes from the caller's generator, so a run is repeated by its seed. The log is the
caller's: `append` gets each entry and applies it, and `groups` are the records as applied. A node that is
killed takes down its connections and what its coordinator kept in memory; the next one is elected later.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from uuid import NAMESPACE_OID, uuid5

from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.consumer import RewriteConsumerCore, RewriteConsumerSettings, Send
from lineage.rewrite.coordinator import RewriteCoordinator
from lineage.rewrite.groups import Now, RewriteOrigin, RewriteResult
from lineage.rewrite.machines import DESIGN_CONSUMER, THREAD_CONSUMER, ConsumerTable
from lineage.rewrite.messages import (
    RewriteBroker,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from lineage.rewrite.strategies import Assignment, Partition, StrategyJob
from lineage.rewrite.variants import DesignCoordinator, ThreadCoordinator
from lineage.shard import OtherGroups, Topic
from records import Cause, RawRecord
from wire.schema import Message

Tap = Callable[[str, Message, bytes], None]
"""Is told of each message as it is sent: the consumer's name, the message, its frame."""
VARIANTS: dict[str, tuple[type[RewriteCoordinator], ConsumerTable]] = {
    "design": (DesignCoordinator, DESIGN_CONSUMER),
    "thread": (ThreadCoordinator, THREAD_CONSUMER),
}
Ask = Callable[[StrategyJob], tuple[float, Assignment | None, str | None]]
"""A user's strategy: how many ms a job takes, and its answer or error."""
LENGTH_BYTES = 4
WALL_MS = 1_700_000_000_000


class Random(Protocol):
    """The part of `random.Random` that is used."""

    def uniform(self, a: float, b: float) -> float: ...
    def random(self) -> float: ...


class PlayLog(Protocol):
    """The shard's log and its projection."""

    groups: Mapping[Any, Any]

    def append(self, cause: Cause, records: tuple[RawRecord, ...]) -> None: ...


@dataclass(slots=True, eq=False)
class PlayProcess:
    """A consumer's process: while it is paused it neither sends nor reads, but goes on consuming."""

    name: str
    consumer: RewriteConsumerCore
    paused_until_ms: float = 0.0
    is_over: bool = False
    inbox: list[Callable[[], None]] = field(default_factory=list)
    """The events that arrived while it was paused."""
    sent: int = 0
    """The request that its connection carries; one from before is answered on a closed connection."""
    connections: int = 0
    """The number of connections to a coordinator that have ended; one of them cannot be closed again."""


class PlayTopics(Mapping[str, Topic]):
    """The catalog: `counts` is topic → number of partitions, `lives` how often a topic was created again."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.lives: dict[str, int] = {}

    def __getitem__(self, name: str) -> Topic:
        life = self.lives.get(name, 0)
        return uuid5(NAMESPACE_OID, f"{name} {life}").bytes, self.counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)


class Play:
    """One story: see `run`, `join`, `leave`, `pause`, `cut`, `kill`, `grow`, `recreate`.

    `watch` is called after every event, `tap` for every message, `ask` for every job. A job that a failover
    makes needless goes on, and its answer comes late."""

    def __init__(
        self,
        variant: str,
        log: PlayLog,
        random: Random,
        counts: dict[str, int],
        *,
        settings: RewriteSettings | None = None,
        others: OtherGroups | None = None,
        delay_ms: tuple[float, float] = (1.0, 10.0),
        watch: Callable[[], None] = lambda: None,
        tap: Tap = lambda name, message, frame: None,
        ask: Ask = lambda job: (0.0, None, f"no strategy {job.strategy} is installed"),
    ) -> None:
        make, self._consumer_table = VARIANTS[variant]
        self._log, self._random, self.topics, self._delay_ms = log, random, PlayTopics(counts), delay_ms
        self._watch, self._tap, self._ask = watch, tap, ask
        self.now_ms, self._order, self._ids = 0.0, 0, 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.processes: dict[str, PlayProcess] = {}
        self.term = 1
        self.deaf: set[str] = set()
        """Consumers whose answers get lost until the next `kill`, as if the node died before it sent them."""
        self.coordinator = make(log.groups, self.topics, self._fresh_id, self._locate, settings, others)
        self.coordinator.elected()
        self.coordinator.loaded(self.now)
        self._arm()

    @property
    def counts(self) -> dict[str, int]:
        return self.topics.counts

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + int(self.now_ms))

    # What happens to the group.

    def join(
        self, name: str, settings: RewriteConsumerSettings, topics: Iterable[str], **others: Any
    ) -> RewriteConsumerCore:
        """Start a consumer."""
        consumer = RewriteConsumerCore(self._consumer_table, settings, topics, **others)
        process = self.processes[name] = PlayProcess(name, consumer)
        consumer.start(self.now_ms)
        self._work(process)
        return consumer

    def leave(self, name: str) -> None:
        """End a consumer's process; the protocol has no request for it."""
        self.processes.pop(name).is_over = True

    def pause(self, name: str, for_ms: float) -> None:
        process = self.processes[name]
        process.paused_until_ms = self.now_ms + for_ms
        self.at(for_ms, partial(self._work, process))

    def resume(self, name: str) -> None:
        """End a pause early."""
        process = self.processes[name]
        process.paused_until_ms = self.now_ms
        self._work(process)

    def cut(self, name: str) -> None:
        """Close a consumer's connection to the coordinator: what it waits for is not answered."""
        self._hang_up(self.processes[name])

    def kill(self, *, down_ms: float = 500.0, loading_ms: float = 50.0) -> None:
        """The coordinator's node dies; another is elected after `down_ms` and loads for `loading_ms`."""
        self.term += 1
        term = self.term
        self.deaf.clear()
        self.coordinator.demoted()
        for process in self.processes.values():
            self._hang_up(process)
        self.at(down_ms, lambda: self._elected(term, loading_ms))

    def grow(self, topic: str, count: int) -> None:
        """Change the number of partitions of a topic, or create it."""
        self.counts[topic] = count
        self._saw_change()

    def recreate(self, topic: str, count: int) -> None:
        """Delete a topic and create it again, so fast that nobody sees it missing."""
        self.topics.lives[topic] = self.topics.lives.get(topic, 0) + 1
        self.grow(topic, count)

    def _saw_change(self) -> None:
        if self.coordinator.state.value == "Ready":
            self._decided(self.coordinator.topics_changed(self.now))
        for process in self.processes.values():
            process.consumer.saw_topics(self.counts)
            self._work(process)

    def run(self, for_ms: float) -> None:
        """Let virtual time pass."""
        until_ms = self.now_ms + for_ms
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
            self._watch()
        self.now_ms = until_ms

    def at(self, in_ms: float, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now_ms + in_ms, self._order, event))

    def owners(self) -> dict[Partition, list[str]]:
        """The consumers that work on each partition at this moment."""
        owners: dict[Partition, list[str]] = {}
        for name, process in self.processes.items():
            for one in process.consumer.consuming:
                owners.setdefault(one, []).append(name)
        return owners

    # The network.

    def _work(self, process: PlayProcess) -> None:
        """Let a consumer do what is due."""
        if process.is_over or process.paused_until_ms > self.now_ms:
            return
        while process.inbox:
            process.inbox.pop(0)()
        send = process.consumer.poll(self.now_ms)
        if send is not None:
            self._send(process, send)
        deadline_ms = process.consumer.next_deadline_ms
        if deadline_ms is not None:
            self.at(max(deadline_ms - self.now_ms, 0.0), partial(self._due, process, deadline_ms))

    def _due(self, process: PlayProcess, deadline_ms: float) -> None:
        if process.consumer.next_deadline_ms == deadline_ms:
            self._work(process)

    def _send(self, process: PlayProcess, send: Send) -> None:
        process.sent = send.number
        process.connections += send.to is None
        frame = encode_request(send.number, process.name, send.request)
        self._tap(process.name, send.request, frame)
        self._later(lambda: self._arrives(process, send, frame))

    def _arrives(self, process: PlayProcess, send: Send, frame: bytes) -> None:
        is_there = send.to is None or (send.to == self.term and self.coordinator.state.value != "Down")
        if process.is_over or process.sent != send.number:
            return
        if not is_there:
            self._later(lambda: self._receives(process, send, None))
            return
        header, request = decode_request(frame[LENGTH_BYTES:])
        origin = RewriteOrigin((process, send, process.connections), header, "/127.0.0.1")
        self._decided(self.coordinator.handle(request, origin, self.now))

    def _decided(self, results: list[RewriteResult]) -> None:
        for result in results:
            if result.cause is not None:
                self._log.append(result.cause, result.records)
            for connection in result.closes:
                assert isinstance(connection, tuple)
                process, _, number = connection
                if process.connections == number:
                    self._hang_up(process)
            for origin, response in result.answers:
                assert isinstance(origin.connection, tuple)
                process, send, _ = origin.connection
                if process.name not in self.deaf and process.sent == send.number:
                    frame = encode_response(origin.header, response)
                    self._tap(process.name, response, frame)
                    self._later(partial(self._receives, process, send, frame[LENGTH_BYTES:]))
            if result.job is not None:
                self._start(result.job)
        self._arm()

    def _start(self, job: StrategyJob) -> None:
        took_ms, answer, error = self._ask(job)
        if took_ms > job.deadline_ms:
            took_ms, answer, error = job.deadline_ms, None, f"it took over {job.deadline_ms} ms"
        self.at(took_ms, partial(self._ended, job, answer, error))

    def _ended(self, job: StrategyJob, answer: Assignment | None, error: str | None) -> None:
        self._decided(self.coordinator.strategy_ended(job.group_id, job.number, answer, error, self.now))

    def _receives(self, process: PlayProcess, send: Send, frame: bytes | None) -> None:
        if process.is_over or process.sent != send.number:
            return
        if process.paused_until_ms > self.now_ms:
            process.inbox.append(lambda: self._receives(process, send, frame))
            return
        if frame is None:
            process.consumer.lost(send.number, self.now_ms)
        else:
            _, response = decode_response(send.request, frame)
            process.consumer.answered(send.number, response, self.now_ms)
        self._work(process)

    def _hang_up(self, process: PlayProcess) -> None:
        """Close a consumer's connection to the coordinator."""
        number, process.sent = process.sent, -1
        process.connections += 1
        self._later(lambda: self._hung_up(process, number))

    def _hung_up(self, process: PlayProcess, number: int) -> None:
        if process.is_over:
            return
        if process.paused_until_ms > self.now_ms:
            process.inbox.append(lambda: self._hung_up(process, number))
            return
        if process.sent == -1:
            process.consumer.lost(number, self.now_ms)
            process.consumer.disconnected(self.now_ms)
            self._work(process)

    def _later(self, event: Callable[[], None]) -> None:
        self.at(self._random.uniform(*self._delay_ms), event)

    # The coordinator's node.

    def _elected(self, term: int, loading_ms: float) -> None:
        if term == self.term:
            self.coordinator.elected()
            self.at(loading_ms, lambda: self._loaded(term))

    def _loaded(self, term: int) -> None:
        if term == self.term:
            self.coordinator.loaded(self.now)
            self._arm()

    def _arm(self) -> None:
        deadline_ms = self.coordinator.next_deadline_ms
        if deadline_ms is not None:
            term = self.term
            self.at(max(deadline_ms - self.now_ms, 0.0), lambda: self._ticks(term, deadline_ms))

    def _ticks(self, term: int, deadline_ms: float) -> None:
        if term == self.term and self.coordinator.next_deadline_ms == deadline_ms:
            self._decided(self.coordinator.tick(self.now))

    def _locate(self, group_id: str) -> RewriteBroker | None:
        if self.coordinator.state.value == "Down":
            return None
        return RewriteBroker(node_id=self.term, host="127.0.0.1", port=9_092)

    def _fresh_id(self) -> str:
        self._ids += 1
        return f"{self._ids:08x}"
