"""The background side, played by a test: it gets the application's events and sends its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from client.core.application import Application
from client.core.effects import CallAnswer, Effect, NewsWait, Steps, UserCall
from client.core.env import Environment
from client.core.errors import TimedOut
from client.core.events import (
    AckPartitionAssignedEvent,
    ApplicationEvent,
    AssignPartitionsEvent,
    BackgroundEvent,
    FetchResponseEvent,
    LeaveGroupEvent,
    LosePartitionsEvent,
    PollEvent,
    PositionsEvent,
    RevokePartitionsEvent,
)
from client.core.rebalance import RebalanceCallbacks
from client.core.settings import read_settings
from client.core.types import ConsumerRecord, Position, TopicPartition

T = TypeVar("T")
Event = TypeVar("Event", bound=ApplicationEvent)
FOREVER_MS = 3_600_000.0


def part(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


class DecodedData:
    """Stands in for the fetch handler: its data are records."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self.paused: set[TopicPartition] = set()
        self.records: list[ConsumerRecord] = []

    def add(self, event: FetchResponseEvent) -> None:
        self.records += [record for record in event.data if _of(record) in self.positions]

    def begin(self, positions: Mapping[TopicPartition, Position]) -> None:
        self.end(positions)
        self.positions.update(positions)

    def end(self, partitions: Collection[TopicPartition]) -> None:
        self.records = [record for record in self.records if _of(record) not in partitions]
        for partition in partitions:
            self.positions.pop(partition, None)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.difference_update(partitions)

    def take(self, most: int) -> list[ConsumerRecord]:
        taken = [record for record in self.records if _of(record) not in self.paused][:most]
        for record in taken:
            self.records.remove(record)
            position = self.positions[_of(record)]
            self.positions[_of(record)] = position._replace(offset=record.offset + 1)
        return taken

    def lag(self, partition: TopicPartition) -> int | None:
        return sum(1 for record in self.records if _of(record) == partition)


def _of(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


class BackgroundScript:
    """Drives an application side, and plays its background side."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0.0
        env = Environment(lambda: self.now_ms, lambda: int(self.now_ms), lambda: 0.5, lambda: "id")
        self.settings = read_settings({"bootstrap_servers": "a:1", "group_id": "g"} | settings)
        self.sent: list[ApplicationEvent] = []
        self.events: deque[BackgroundEvent] = deque()
        self.fetched = DecodedData()
        self.calls: list[tuple[str, list[int]]] = []
        """The callbacks that ran, with the numbers of their partitions."""
        self.on_wait: Callable[[Effect], None] = lambda effect: None
        """Called when the application side waits."""
        self.app = Application(self.settings, env, self.fetched, self.events, self.sent.append)
        self.leaving: LeaveGroupEvent
        """The event of the member that leaves."""
        self._round = 0

    def run(self, steps: Steps[T]) -> T:
        """Drive a call to its end. Waits pass in no time: first `on_wait`, then the time limit."""
        result: Any = None
        error: Exception | None = None
        while True:
            try:
                effect = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result, error = None, None
            try:
                result = self._perform(effect)
            except Exception as raised:
                error = raised

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, UserCall):
            return effect.function(*effect.arguments)
        self.on_wait(effect)
        if isinstance(effect, NewsWait):
            if not self.events:
                self.now_ms = max(self.now_ms, effect.until_ms)
            return None
        assert isinstance(effect, CallAnswer)
        if not effect.future.done():
            self.now_ms = max(self.now_ms, effect.deadline_ms)
            raise TimedOut("nobody answered")
        return effect.future.result()

    def callbacks(self) -> RebalanceCallbacks:
        """Return callbacks that are noted in `calls`."""

        def note(name: str) -> Callable[[Iterable[TopicPartition]], None]:
            return lambda partitions: self.calls.append((name, [each.partition for each in partitions]))

        return RebalanceCallbacks(note("assign"), note("revoke"), note("lost"))

    def subscribe(self) -> None:
        self.run(self.app.subscribe(["orders"], None, self.callbacks()))

    def poll(self, timeout_ms: float = 0.0, most: int = 500) -> list[int]:
        """Poll. Returns the records' offsets."""
        return [record.offset for record in self.run(self.app.poll(most, timeout_ms))]

    def take_sent(self, kind: type[Event]) -> list[Event]:
        """Return the events of a type that were sent since the last call."""
        found = [event for event in self.sent if isinstance(event, kind)]
        self.sent[:] = [event for event in self.sent if not isinstance(event, kind)]
        return found

    def kinds(self) -> list[str]:
        """Return the names of the events sent, without POLL, and forget them."""
        kinds = [event.type.name for event in self.sent if not isinstance(event, PollEvent)]
        self.sent.clear()
        return kinds

    # What the background side sends.

    def assign(self, *numbers: int) -> int:
        self._round += 1
        self.events.append(AssignPartitionsEvent(partitions=frozenset(map(part, numbers)), round=self._round))
        return self._round

    def revoke(self, *numbers: int, deadline_ms: float = FOREVER_MS) -> int:
        self._round += 1
        partitions = frozenset(map(part, numbers))
        self.events.append(
            RevokePartitionsEvent(partitions=partitions, round=self._round, deadline_ms=deadline_ms)
        )
        return self._round

    def lose(self, *numbers: int) -> int:
        self._round += 1
        self.events.append(LosePartitionsEvent(partitions=frozenset(map(part, numbers)), round=self._round))
        return self._round

    def begin(self, *numbers: int, offset: int = 0, version: int | None = None) -> None:
        """Send the positions that partitions begin at, by default of the version that was asked for last."""
        if version is None:
            version = max(
                getattr(event, "version", 0)
                for event in self.sent
                if isinstance(event, AckPartitionAssignedEvent) or hasattr(event, "version")
            )
        position = Position(offset, 3, version)
        self.events.append(PositionsEvent(positions={part(number): position for number in numbers}))

    def fetch(self, number: int, *offsets: int, value: bytes = b"v") -> None:
        records = [ConsumerRecord("orders", number, at, 0, 0, b"k", value, (), 3) for at in offsets]
        self.events.append(FetchResponseEvent(data=records))

    def own(self, *numbers: int, offset: int = 0) -> None:
        """Bring the application side to own partitions whose positions are known."""
        self.subscribe()
        self.assign(*numbers)
        self.poll()
        self.begin(*numbers, offset=offset)
        self.poll()
        self.sent.clear()
        self.calls.clear()
