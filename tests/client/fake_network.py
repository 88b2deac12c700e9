"""A network of scripted nodes in virtual time: the `ConnectionBackend` of the tests of the client's core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from client.core.background import Background
from client.core.coordinator import CoordinatorManager
from client.core.env import Environment
from client.core.events import ApplicationEvent, ApplicationEventType, BackgroundEvent, ErrorEvent
from client.core.metadata import MetadataManager
from client.core.network.delegate import NetworkDelegate
from client.core.requests import (
    ClientResponse,
    Destination,
    PollResult,
    RequestFailure,
    RequestManager,
    UnsentRequest,
)
from client.core.settings import ConsumerSettings
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.framing import Framer
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from wire.messages.fetch import FetchRequest
from wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from wire.messages.list_offsets import ListOffsetsRequest
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.protocol import decode_request, encode_response
from wire.schema import Message

Answer = Message | bytes | None
"""A body to answer with, a whole frame, or no answer."""

PASSES_MAX = 10_000
"""Most passes without progress of time: more are a busy loop."""


@dataclass
class ReceivedRequest:
    """A request that a node received."""

    at_ms: float
    node: int
    connection: int
    api: ApiKey
    version: int
    body: Any
    correlation_id: int


@dataclass
class FakeBroker:
    """A node that answers by a table of functions, at once and in order."""

    id: int
    answers: dict[ApiKey, Callable[[ReceivedRequest], Answer]] = field(default_factory=dict)
    is_up: bool = True
    """Whether it can be connected to."""
    is_silent: bool = False
    """Whether it does not answer, nor take connections: as one that hangs."""


class FakeNetwork:
    """Nodes 1 to n at n1:9092 and so on, and the time."""

    def __init__(self, nodes: int = 3) -> None:
        self.now_ms = 0.0
        self.nodes = {node_id: FakeBroker(node_id) for node_id in range(1, nodes + 1)}
        self.asked: list[ReceivedRequest] = []
        self.events: NetworkDelegate
        self.connections: dict[int, FakeBroker] = {}
        self.coordinator: int | None = 1
        """The node that FindCoordinator names; None: COORDINATOR_NOT_AVAILABLE."""
        self.members = list(self.nodes)
        """The nodes that Metadata names."""
        self.topics: dict[str, MetadataResponseTopic] = {}
        self._framers: dict[int, Framer] = {}
        self._happenings: deque[Callable[[], None]] = deque()
        for node in self.nodes.values():
            node.answers = {
                ApiKey.API_VERSIONS: lambda asked: served(),
                ApiKey.METADATA: self.metadata,
                ApiKey.FIND_COORDINATOR: self.find_coordinator,
            }

    # The backend.

    def connect(self, number: int, host: str, port: int) -> None:
        node = self.nodes[int(host[1:])] if host.startswith("n") else None
        self._happenings.append(lambda: self._connect(number, node))

    def write(self, number: int, data: bytes) -> None:
        for frame in self._framers[number].feed(data):
            self._happenings.append(lambda frame=frame: self._receive(number, frame))

    def close(self, number: int) -> None:
        self.connections.pop(number, None)

    def _connect(self, number: int, node: FakeBroker | None) -> None:
        if node is None or not node.is_up:
            self.events.lost(number, ConnectionRefusedError("refused"))
        elif not node.is_silent:
            self.connections[number] = node
            self._framers[number] = Framer(1 << 24)
            self.events.connected(number)

    def _receive(self, number: int, frame: bytes) -> None:
        node = self.connections.get(number)
        if node is None or node.is_silent:
            return
        header, body = decode_request(frame)
        api = ApiKey(header.api_key)
        asked = ReceivedRequest(
            self.now_ms, node.id, number, api, header.api_version, body, header.correlation_id
        )
        self.asked.append(asked)
        answer = node.answers[api](asked) if api in node.answers else None
        if answer is not None:
            self.reply(asked, answer)

    # What tests do.

    def reply(self, asked: ReceivedRequest, answer: Message | bytes) -> None:
        """Answer a request, now or later."""
        if isinstance(answer, Message):
            version = asked.version
            if isinstance(answer, ApiVersionsResponse) and answer.error_code:
                version = 0
            answer = encode_response(asked.api, version, asked.correlation_id, answer)
        if asked.connection in self.connections:
            self.events.received(asked.connection, answer)

    def kill(self, node_id: int) -> None:
        """End all connections of a node, and refuse new ones."""
        node = self.nodes[node_id]
        node.is_up = False
        for number in [number for number, one in self.connections.items() if one is node]:
            self.cut(number)

    def cut(self, number: int) -> None:
        """End a connection, if it has not ended yet."""
        if self.connections.pop(number, None) is not None:
            self.events.lost(number, ConnectionResetError("reset"))

    def step(self) -> bool:
        """Let everything that is on its way arrive. Returns whether there was something."""
        has_some = bool(self._happenings)
        while self._happenings:
            self._happenings.popleft()()
        return has_some

    def asked_for(self, api: ApiKey) -> list[ReceivedRequest]:
        """The requests of an API, in order."""
        return [one for one in self.asked if one.api is api]

    # The nodes' usual answers.

    def metadata(self, asked: ReceivedRequest) -> MetadataResponse:
        """All nodes, and the topics that were asked for."""
        wanted = asked.body.topics
        topics = [
            one
            for one in self.topics.values()
            if wanted is None or any(one.name == w.name or one.topic_id == w.topic_id for w in wanted)
        ]
        for one in wanted or ():
            if one.name is not None and one.name not in self.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(MetadataResponseTopic(name=one.name, error_code=code))
        brokers = [MetadataResponseBroker(node_id=n, host=f"n{n}", port=9092) for n in self.members]
        return MetadataResponse(brokers=brokers, topics=topics, cluster_id="c", controller_id=1)

    def find_coordinator(self, asked: ReceivedRequest) -> FindCoordinatorResponse:
        """The coordinator of these tests."""
        key, node = asked.body.coordinator_keys[0], self.coordinator
        code = ErrorCode.NONE if node is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
        one = Coordinator(key=key, node_id=node or -1, host=f"n{node}", port=9092, error_code=code)
        return FindCoordinatorResponse(coordinators=[one])

    def answer(self, api: ApiKey, how: Callable[[ReceivedRequest], Answer]) -> None:
        """Have all nodes answer an API in another way."""
        for node in self.nodes.values():
            node.answers[api] = how

    def answer_heartbeats(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Have all nodes answer heartbeats with a code."""
        response = ConsumerGroupHeartbeatResponse(error_code=code, heartbeat_interval_ms=5_000)
        self.answer(ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda asked: response)

    def limit(self, **ranges: tuple[int, int]) -> None:
        """Have all nodes serve other versions of some APIs."""
        self.answer(ApiKey.API_VERSIONS, lambda asked: served(**ranges))

    def add_topic(self, name: str, topic_id: bytes, leaders: Sequence[int], leader_epoch: int = 0) -> None:
        """Let the nodes know a topic."""
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=leader_epoch)
            for index, leader in enumerate(leaders)
        ]
        self.topics[name] = MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)


def served(**changed: tuple[int, int]) -> ApiVersionsResponse:
    """All versions that are known here, or others by the API's name."""
    ranges = {api.name: versions for api, versions in API_VERSIONS.items()} | changed
    keys = [
        ApiVersion(api_key=ApiKey[name], min_version=low, max_version=high)
        for name, (low, high) in ranges.items()
        if high >= 0
    ]
    return ApiVersionsResponse(api_keys=keys)


@dataclass
class Answers:
    """The answers to the requests of a test."""

    all: list[ClientResponse] = field(default_factory=list)

    def __call__(self, response: ClientResponse) -> None:
        self.all.append(response)

    @property
    def last(self) -> ClientResponse:
        return self.all[-1]

    @property
    def failures(self) -> list[RequestFailure | None]:
        return [one.failure for one in self.all]


def heartbeat(then: Answers, timeout_ms: float = 30_000) -> UnsentRequest:
    """A heartbeat to the coordinator."""
    return UnsentRequest(
        api=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        build=lambda version: ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"),
        to=Destination.COORDINATOR,
        then=then,
        timeout_ms=timeout_ms,
    )


def fetch(then: Answers, to: int | Destination, timeout_ms: float = 30_000) -> UnsentRequest:
    """A Fetch, which the nodes do not answer by themselves."""
    return UnsentRequest(
        api=ApiKey.FETCH, build=lambda version: FetchRequest(), to=to, then=then, timeout_ms=timeout_ms
    )


def list_offsets(then: Answers, to: int | Destination, timeout_ms: float = 30_000) -> UnsentRequest:
    """A request to a node or to any node, which they do not answer by themselves."""
    return UnsentRequest(
        api=ApiKey.LIST_OFFSETS,
        build=lambda version: ListOffsetsRequest(),
        to=to,
        then=then,
        timeout_ms=timeout_ms,
    )


class ManualRequests:
    """A request manager that sends what a test gives it."""

    def __init__(self) -> None:
        self.requests: list[UnsentRequest] = []

    def poll(self, now_ms: float) -> PollResult:
        requests, self.requests = self.requests, []
        return PollResult(requests, float("inf"))


class ClientRig:
    """The background side of a consumer, with network parts only, on a fake network."""

    def __init__(self, network: FakeNetwork | None = None, *, chance: float = 0.5, **settings: Any) -> None:
        self.network = network or FakeNetwork()
        values: dict[str, Any] = {
            "bootstrap_servers": tuple((f"n{node_id}", 9092) for node_id in self.network.nodes),
            "group_id": "g",
        }
        self.settings = ConsumerSettings(**(values | settings))
        self.env = Environment(lambda: self.network.now_ms, lambda: 0, lambda: chance, lambda: "A" * 22)
        self.events: deque[BackgroundEvent] = deque()
        self.delegate = NetworkDelegate(self.settings, self.env, self.network, self.events.append)
        self.network.events = self.delegate
        self.coordinator = CoordinatorManager(self.settings, self.env, self.delegate, self.events.append)
        self.metadata = MetadataManager(self.settings, self.env, self.delegate, self.events.append)
        self.manual = ManualRequests()
        managers: list[RequestManager] = [self.coordinator, self.metadata, self.manual]
        handlers = {ApplicationEventType.UPDATE_METADATA: self.metadata.update_metadata}
        self.background = Background(managers, handlers, self.delegate, self.events)
        self.passes = 0

    def tell(self, event: ApplicationEvent) -> None:
        """Put an event of the application into the queue."""
        self.background.application_events.append(event)

    def send(self, request: UnsentRequest) -> None:
        """Have a request sent on the next pass."""
        self.manual.requests.append(request)

    def run(self, ms: float = 0.0) -> None:
        """Let time pass, with as many passes as the background side wants."""
        network, end_ms = self.network, self.network.now_ms + ms
        for _ in range(PASSES_MAX):
            self.passes += 1
            wait_ms = self.background.run_once(network.now_ms)
            if network.step() or wait_ms <= 0:
                continue
            if network.now_ms + wait_ms > end_ms:
                network.now_ms = end_ms
                return
            network.now_ms += wait_ms
        raise AssertionError(f"a busy loop at {network.now_ms} ms")

    def errors(self) -> list[str]:
        """The errors that the application would be told."""
        return [str(event.error) for event in self.events if isinstance(event, ErrorEvent)]
