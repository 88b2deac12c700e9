"""Calls that only ask the cluster something: an event with a future, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any

from client.core.effects import CallAnswer, Steps
from client.core.env import Environment
from client.core.events import ApplicationEvent, FetchCommittedEvent, ListOffsetsEvent, UpdateMetadataEvent
from client.core.settings import ConsumerSettings
from client.core.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class Inquiries:
    """The inquiries of one consumer. Each raises `ConsumerError`, `TimedOut` after its time limit."""

    def __init__(
        self, settings: ConsumerSettings, env: Environment, send: Callable[[ApplicationEvent], None]
    ) -> None:
        self._default_ms = settings.default_api_timeout_ms
        self._now_ms = env.now_ms
        self._send = send

    def deadline_ms(self, timeout_ms: float | None) -> float:
        """The end of a call's time limit; None stands for default.api.timeout.ms."""
        return self._now_ms() + (self._default_ms if timeout_ms is None else timeout_ms)

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return the group's committed offsets, None where there is none."""
        found: dict[TopicPartition, OffsetAndMetadata | None]
        waits = self._waits(timeout_ms)
        found = yield from self._ask(FetchCommittedEvent(partitions=frozenset(partitions), **waits))
        return found

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Return offsets by Unix time in ms; −2 asks for the first one, −1 for the end."""
        found: dict[TopicPartition, OffsetAndTimestamp | None]
        waits = self._waits(timeout_ms)
        found = yield from self._ask(ListOffsetsEvent(timestamps=dict(timestamps), **waits))
        return found

    def cluster(self, topics: Collection[str] | None, timeout_ms: float | None) -> Steps[Any]:
        """Return a `ClusterView` with these topics, with all if None."""
        wanted = None if topics is None else frozenset(topics)
        return (yield from self._ask(UpdateMetadataEvent(topics=wanted, **self._waits(timeout_ms))))

    def _waits(self, timeout_ms: float | None) -> dict[str, Any]:
        return {"future": Future(), "deadline_ms": self.deadline_ms(timeout_ms)}

    def _ask(self, event: ApplicationEvent) -> Steps[Any]:
        assert event.future is not None
        assert event.deadline_ms is not None
        self._send(event)
        return (yield CallAnswer(event.future, event.deadline_ms))
