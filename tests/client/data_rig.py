"""The parts of a consumer that move data, with nodes that hold logs, in virtual time.

Requests and answers pass the wire's encoding, so that versions and ids count.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from client.core.cluster_view import BrokerNode, ClusterView, PartitionView, TopicView
from client.core.commits import CommitManager
from client.core.committed import CommittedManager
from client.core.env import Environment
from client.core.events import (
    ApplicationEvent,
    AssignEvent,
    BackgroundEvent,
    CommitEvent,
    ErrorEvent,
    FetchCommittedEvent,
    FetchConsumedEvent,
    FetchResponseEvent,
    ListOffsetsEvent,
    PauseEvent,
    PositionsEvent,
    SeekEvent,
)
from client.core.fetch.handler import FetchHandler
from client.core.fetch.sender import FetchSender
from client.core.list_offsets import ListOffsetsManager
from client.core.positions import FetchPositions, PositionManager
from client.core.requests import ClientResponse, Destination, RequestFailure, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.client.logs import FakeLogs
from tests.support.record_batches import NOW_MS
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from wire.messages.list_offsets import ListOffsetsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from wire.protocol import decode_request, decode_response, encode_request, encode_response
from wire.schema import Message

COORDINATOR = 9
LATENCY_MS = 1.0
PASSES_MAX = 1_000
"""Most passes without progress of time: more are a busy loop."""


@dataclass
class FakeIdentity:
    group_id: str = "payments"
    member_id: str = "m"
    member_epoch: int = 5
    group_instance_id: str | None = None
    is_subscribed: bool = True
    tenures: dict[TopicPartition, int] = field(default_factory=dict)

    def tenure(self, partition: TopicPartition) -> int | None:
        return self.tenures.get(partition)


class FakeCoordinator:
    """A coordinator that notes the nodes that are said to be lost."""

    def __init__(self) -> None:
        self.fatal = None
        self.lost_nodes: list[int] = []

    def lost(self, node_id: int, why: str, now_ms: float) -> None:
        self.lost_nodes.append(node_id)


class FakeMetadata:
    """A view that the test sets."""

    def __init__(self) -> None:
        self.view = ClusterView(None, {}, {}, {})
        self.wanted: set[str] = set()
        self.refreshes: list[str] = []

    def lead(
        self, topic: str, leaders: Mapping[int, int], topic_id: bytes | None = None, epoch: int = 3
    ) -> None:
        """Set the leader of each partition of a topic."""
        topic_id = topic_id if topic_id is not None else topic.encode().ljust(16, b"\1")
        parts = {number: PartitionView(leader, epoch) for number, leader in leaders.items()}
        nodes = dict(self.view.nodes) | {
            node: BrokerNode(node, "h", 1) for node in leaders.values() if node >= 0
        }
        topics = dict(self.view.topics) | {topic: TopicView(topic, topic_id, 0, False, parts)}
        self.view = ClusterView("c", nodes, topics, {one.topic_id: name for name, one in topics.items()})

    def want_topics(self, names: Iterable[str]) -> None:
        self.wanted.update(names)

    def refresh(self, now_ms: float, why: str) -> None:
        self.refreshes.append(why)

    def update_leader(self, partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        known = self.view.partition(partition)
        if known is None or leader_epoch <= known.leader_epoch:
            return False
        others = self.view.topics[partition.topic].partitions
        leaders = {number: one.leader_id for number, one in others.items()}
        self.lead(partition.topic, leaders | {partition.partition: leader_id}, epoch=leader_epoch)
        return True


@dataclass
class SentRequest:
    """A request as a node received it."""

    at_ms: float
    to: int
    api: ApiKey
    version: int
    body: Any
    unsent: UnsentRequest


Script = Callable[[SentRequest], Message | RequestFailure | None]
"""Answers a request, or leaves it to the logs (None)."""


class DataRig:
    """A consumer's data managers, its handler, and the nodes."""

    def __init__(self, *, versions: Mapping[ApiKey, int] | None = None, **settings: Any) -> None:
        self.now_ms = 1_000.0
        settings = {"group_id": "payments", "auto_offset_reset": "earliest"} | settings
        self.settings = ConsumerSettings(**settings)
        env = Environment(lambda: self.now_ms, lambda: NOW_MS, lambda: 0.5, lambda: "id")
        self.metadata, self.coordinator, self.identity = FakeMetadata(), FakeCoordinator(), FakeIdentity()
        self.logs = FakeLogs()
        self.committed_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.scripts: dict[ApiKey, Script] = {}
        self.sent: list[SentRequest] = []
        self.told: list[BackgroundEvent] = []
        self.versions = dict(versions or {})
        self._answers: list[tuple[float, int, SentRequest, Message | RequestFailure]] = []
        self._waiting: list[SentRequest] = []
        self._number = count()
        self._version = 0
        self._news: deque[BackgroundEvent] = deque()
        self.is_busy = False
        """Whether many events wait for the application."""
        args = (self.settings, env)
        identity = self.identity if self.settings.group_id else None
        self.positions = FetchPositions(*args, self._news.append, self.metadata.want_topics)
        self.committed = CommittedManager(*args, identity, self.coordinator, self.metadata)
        self.commits = CommitManager(*args, identity, self.coordinator, self.metadata)
        self.offsets = ListOffsetsManager(*args, self.metadata)
        self.sender = FetchSender(
            *args, self.metadata, self.positions, self._news.append, lambda: self.is_busy
        )
        self.starts = PositionManager(
            *args, self.positions, self.committed if identity else None, self.offsets, self._news.append
        )
        self.handler = FetchHandler(self.settings, self.send)
        self._managers = (self.commits, self.starts, self.committed, self.offsets, self.sender)

    # The application.

    def send(self, event: ApplicationEvent) -> None:
        """Bring an application event to its handler at once."""
        handlers: dict[type[ApplicationEvent], Callable[[Any, float], None]] = {
            AssignEvent: self.positions.assign,
            SeekEvent: self.positions.seek,
            PauseEvent: self.positions.pause,
            FetchConsumedEvent: self.sender.consumed,
            CommitEvent: self.commits.commit,
            FetchCommittedEvent: self.committed.fetch_committed,
            ListOffsetsEvent: self.offsets.list_offsets,
        }
        handlers[type(event)](event, self.now_ms)

    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self._version += 1
        self.handler.end(list(self.handler.positions))
        self.send(AssignEvent(partitions=partitions, version=self._version))

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        self._version += 1
        self.handler.end(positions.keys())
        self.send(SeekEvent(positions=positions, version=self._version))

    def pause(self, partitions: Collection[TopicPartition], *, resumes: bool = False) -> None:
        (self.handler.resume if resumes else self.handler.pause)(partitions)
        self.send(PauseEvent(partitions=frozenset(partitions), resumes=resumes))

    def commit(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: float = 5_000, **how: Any
    ) -> Future[Any]:
        future: Future[Any] = Future()
        full = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        self.send(CommitEvent(offsets=full, future=future, deadline_ms=self.now_ms + timeout_ms, **how))
        return future

    def ask_committed(self, *partitions: TopicPartition, timeout_ms: float = 5_000) -> Future[Any]:
        future: Future[Any] = Future()
        deadline_ms = self.now_ms + timeout_ms
        self.send(
            FetchCommittedEvent(partitions=frozenset(partitions), future=future, deadline_ms=deadline_ms)
        )
        return future

    def ask_offsets(self, timestamps: Mapping[TopicPartition, int], timeout_ms: float = 5_000) -> Future[Any]:
        future: Future[Any] = Future()
        self.send(
            ListOffsetsEvent(timestamps=timestamps, future=future, deadline_ms=self.now_ms + timeout_ms)
        )
        return future

    def take(self, most: int = 500, within_ms: float = 2_000) -> list[ConsumerRecord]:
        """Poll until there are records, or for `within_ms`."""
        until_ms = self.now_ms + within_ms
        while True:
            self.run(0)
            records = self.handler.take(most)
            if records or self.now_ms >= until_ms:
                return records
            self._step(until_ms)

    @property
    def errors(self) -> list[Exception]:
        return [event.error for event in self.told if isinstance(event, ErrorEvent)]

    def requests(self, api: ApiKey) -> list[SentRequest]:
        return [one for one in self.sent if one.api is api]

    # Time.

    def run(self, for_ms: float) -> None:
        """Make passes until nothing is left to do for this long."""
        until_ms = self.now_ms + for_ms
        passes = 0
        while self._step(until_ms):
            passes = passes + 1 if self.now_ms < until_ms or for_ms == 0 else 0
            assert passes < PASSES_MAX, "a busy loop"

    def _step(self, until_ms: float) -> bool:
        """Make a pass, and go to the next event. Returns whether there is more to do before `until_ms`."""
        wait_ms = min(self._poll(manager) for manager in self._managers)
        self._take_news()
        self._wake_fetches()
        next_ms = min(self.now_ms + wait_ms, self._answers[0][0] if self._answers else float("inf"))
        waits = [one.at_ms + one.body.max_wait_ms for one in self._waiting]
        next_ms = min([next_ms, *waits])
        if next_ms > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms = max(self.now_ms, next_ms)
        while self._answers and self._answers[0][0] <= self.now_ms:
            _, _, request, answer = heapq.heappop(self._answers)
            self._deliver(request, answer)
        self._take_news()
        return True

    def _poll(self, manager: Any) -> float:
        result = manager.poll(self.now_ms)
        for request in result.requests:
            self._receive(request)
        return result.wait_ms

    def _take_news(self) -> None:
        while self._news:
            event = self._news.popleft()
            self.told.append(event)
            if isinstance(event, FetchResponseEvent):
                self.handler.add(event)
            elif isinstance(event, PositionsEvent):
                self.handler.begin(event.positions)

    # The nodes.

    def _receive(self, request: UnsentRequest) -> None:
        last = min(API_VERSIONS[request.api][1], self.versions.get(request.api, 99))
        first, most = request.versions or (0, last)
        version = min(last, most)
        assert version >= first
        to = COORDINATOR if request.to is Destination.COORDINATOR else request.to
        assert isinstance(to, int)
        frame = encode_request(request.api, version, 1, "c", request.build(version))
        sent = SentRequest(self.now_ms, to, request.api, version, decode_request(frame[4:])[1], request)
        self.sent.append(sent)
        answer = self.scripts.get(request.api, lambda _: None)(sent)
        if answer is None:
            answer = self._serve(sent)
        if answer is None:
            self._waiting.append(sent)
        else:
            self._answer(sent, answer)

    def _answer(self, request: SentRequest, answer: Message | RequestFailure) -> None:
        heapq.heappush(self._answers, (self.now_ms + LATENCY_MS, next(self._number), request, answer))

    def _deliver(self, request: SentRequest, answer: Message | RequestFailure) -> None:
        if isinstance(answer, RequestFailure):
            body, failure = None, answer
        else:
            frame = encode_response(request.api, request.version, 1, answer)
            body, failure = decode_response(request.api, request.version, frame[4:])[1], None
        request.unsent.then(ClientResponse(body, failure, request.version, request.to, self.now_ms))

    def _wake_fetches(self) -> None:
        for request in list(self._waiting):
            is_over = self.now_ms >= request.at_ms + request.body.max_wait_ms
            answer = self._fetch(request, waits=not is_over)
            if answer is not None:
                self._waiting.remove(request)
                self._answer(request, answer)

    def _serve(self, request: SentRequest) -> Message | None:
        match request.body:
            case FetchRequest():
                return self._fetch(request, waits=True)
            case ListOffsetsRequest():
                return self.logs.list_offsets(request.body)
            case OffsetFetchRequest():
                return self._offset_fetch(request)
            case OffsetCommitRequest():
                return self._offset_commit(request)
        raise AssertionError(request.api)

    def _topic(self, request: SentRequest, name: str, topic_id: bytes) -> str:
        return name or self.metadata.view.names[topic_id]

    def _fetch(self, request: SentRequest, *, waits: bool) -> FetchResponse | None:
        return self.logs.fetch(request.body, self.metadata.view.names, waits=waits)

    def _offset_fetch(self, request: SentRequest) -> OffsetFetchResponse:
        (group,) = request.body.groups
        topics = []
        for topic in group.topics:
            name = self._topic(request, topic.name, topic.topic_id)
            known = [
                (index, self.committed_offsets.get(TopicPartition(name, index), OffsetAndMetadata(-1)))
                for index in topic.partition_indexes
            ]
            parts = [
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=one.offset, metadata=one.metadata,
                    committed_leader_epoch=one.leader_epoch,
                )
                for index, one in known
            ]  # fmt: skip
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=parts))
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])

    def _offset_commit(self, request: SentRequest) -> OffsetCommitResponse:
        answer = commit_answer(request, ErrorCode.NONE)
        for topic in request.body.topics:
            name = self._topic(request, topic.name, topic.topic_id)
            for one in topic.partitions:
                self.committed_offsets[TopicPartition(name, one.partition_index)] = OffsetAndMetadata(
                    one.committed_offset, one.committed_metadata, one.committed_leader_epoch
                )
        return answer


def commit_answer(
    request: SentRequest, code: int, only: Collection[int] | None = None
) -> OffsetCommitResponse:
    """Answer a commit with an error for all partitions, or some."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=code if only is None or one.partition_index in only else 0,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
    )


def fetch_answer(request: SentRequest, **fields: Any) -> FetchResponse:
    """Answer a Fetch with the same fields for all its partitions."""
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=one.partition, **fields) for one in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
    )
