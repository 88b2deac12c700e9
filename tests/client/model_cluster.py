"""A cluster for whole consumers in virtual time: nodes with logs in memory, and the real coordinator.

Every request and every answer passes the wire's encoding. Metadata, Fetch and ListOffsets are answered from
memory, what belongs to the group by the coordinator of tests/support/world.py. The network fails as TCP can
fail: a connection is cut, or goes silent, before the node has handled a request or after it; an answer is
late, or comes twice. A node handles requests in the order in which they were sent: the protocol counts on it,
as heartbeats have no numbers.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from client.core.network.delegate import NetworkDelegate
from client.core.types import TopicPartition
from coordinator.limits import GroupSettings
from tests.client.logs import LEADER_EPOCH, FakeLogs
from tests.client.member_host import Agenda
from tests.support.world import World
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentResponse
from wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentResponse
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatResponse
from wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from wire.protocol import decode_request, encode_response
from wire.schema import Message

WAY_MS: Final = 10.0
"""The longest way of a request or an answer that is on time."""
LATE_MS: Final = 4_000.0
"""The delay that an answer may have: longer than the clients wait for it."""
GROUP: Final = "g"
SESSION_MS: Final = 6_000
INTERVAL_MS: Final = 2_000
NODES: Final = (1, 2, 3)

HEARTBEATS: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT)
GROUP_APIS: Final = (
    *HEARTBEATS,
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT,
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
APIS: Final = (
    *GROUP_APIS,
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
)
SERVED: Final = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=api, min_version=API_VERSIONS[api][0], max_version=API_VERSIONS[api][1])
        for api in APIS
    ]
)


@dataclass(frozen=True)
class NetworkFaults:
    """The probability, from 0 to 1, that a request meets each fault."""

    cut: float = 0.0
    """The connection ends before the node has the request."""
    silent: float = 0.0
    """Nothing passes any more, in either direction, and nobody is told."""
    unanswered: float = 0.0
    """The request is handled, and the connection ends instead of the answer."""
    unheard: float = 0.0
    """The request is handled, and then nothing passes any more."""
    late: float = 0.0
    doubled: float = 0.0
    """The answer comes twice."""


NO_FAULTS: Final = NetworkFaults()
KINDS: Final = tuple(NetworkFaults.__dataclass_fields__)


class Link:
    """One connection, as the network and its node see it."""

    def __init__(self, ends: Connections, number: int, node: int) -> None:
        self.ends = ends
        self.number = number
        self.node = node
        self.is_open = True
        self.is_silent = False
        self.waiting: deque[tuple[bytes, str]] = deque()
        """Requests behind one that is not answered yet, with their faults."""
        self.is_busy = False
        self.free_ms = 0.0
        """The time at which the last answer has arrived; answers do not overtake each other."""


@dataclass
class ParkedFetch:
    """A Fetch that waits for records."""

    link: Link
    header: Any
    body: Any
    fault: str
    is_over: bool = False


@dataclass(eq=False)
class Connections:
    """The `ConnectionBackend` of one consumer. `arrive` brings something to its process."""

    cluster: ModelCluster
    arrive: Callable[..., None]
    delegate: NetworkDelegate | None = None
    wake: Callable[[], None] = lambda: None
    links: dict[int, Link] = field(default_factory=dict)

    def connect(self, number: int, host: str, port: int) -> None:
        link = self.links[number] = Link(self, number, int(host[1:]))
        self.cluster.dial(link)

    def write(self, number: int, data: bytes) -> None:
        self.cluster.send(self.links[number], data[4:])

    def close(self, number: int) -> None:
        if (link := self.links.pop(number, None)) is not None:
            link.is_open = False

    def connected(self, link: Link) -> None:
        if link.is_open:
            self._delegate.connected(link.number)
            self.wake()

    def received(self, link: Link, data: bytes) -> None:
        if link.is_open and not link.is_silent:
            self._delegate.received(link.number, data)
            self.wake()

    def lost(self, link: Link) -> None:
        """The connection was reset."""
        if link.is_open:
            link.is_open = False
            self.links.pop(link.number)
            self._delegate.lost(link.number, ConnectionResetError("reset"))
            self.wake()

    @property
    def _delegate(self) -> NetworkDelegate:
        assert self.delegate is not None
        return self.delegate


class ModelCluster:
    """Nodes, logs, the group's coordinator, and the network between them and their clients."""

    def __init__(self, seed: int = 0, faults: NetworkFaults = NO_FAULTS) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.agenda = Agenda()
        self.world = World(GroupSettings(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=INTERVAL_MS))
        self.world.now_ms = self.agenda.now_ms
        self.logs = FakeLogs()
        self.topics: dict[str, bytes] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.coordinator: int | None = 1
        """The node that has the group; None while there is none."""
        self.down: set[int] = set()
        self.met: Counter[str] = Counter()
        """NetworkFaults that were injected, and errors that the coordinator answered."""
        self.log: list[str] = []
        """The requests to the coordinator, for a person who reads a failure."""
        self.after_request: list[Callable[[], None]] = []
        """Called when the coordinator has handled a request, or time has passed for it."""
        self.on_farewell: Callable[[str], None] = lambda member_id: None
        """Called with the id of a member that leaves."""
        self.before: dict[ApiKey, Callable[[], None]] = {}
        """Called when a request of an API arrives at a node."""
        self._arrives_ms: dict[int, float] = {}
        self._links: dict[int, dict[Link, None]] = {node: {} for node in NODES}
        self._parked: list[ParkedFetch] = []

    # Topics and nodes.

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = self.world.create_topic(name, partitions)
        self._lead(name, partitions)

    def grow_topic(self, name: str) -> None:
        count = len(self.partitions(name)) + 1
        self.world.grow_topic(name, count)
        self._lead(name, count)

    def _lead(self, name: str, count: int) -> None:
        for number in range(count):
            at = TopicPartition(name, number)
            self.leaders.setdefault(at, NODES[number % 2])
            self.epochs.setdefault(at, LEADER_EPOCH)

    def partitions(self, name: str) -> list[TopicPartition]:
        return [at for at in self.leaders if at.topic == name]

    def produce(self, at: TopicPartition, count: int = 1) -> None:
        """Append messages, and wake the fetches that wait for them."""
        self.logs[at].append(*[b"v"] * count)
        for one in [*self._parked]:
            self._try_again(one, waits=True)

    def kill(self, node: int) -> None:
        """End a node. Its partitions get another leader; the group's coordinator moves later."""
        self.down.add(node)
        for link in [*self._links[node]]:
            self._cut(link)
        alive = [one for one in NODES if one not in self.down]
        for at, leader in self.leaders.items():
            if leader == node:
                self.leaders[at] = self.rng.choice(alive)
                self.epochs[at] += 1
        if self.coordinator == node:
            self.move_coordinator(self.rng.choice(alive), after_ms=self.rng.choice([0.0, 300.0, 2_000.0]))

    def boot(self, node: int) -> None:
        self.down.discard(node)

    def move_coordinator(self, to: int, after_ms: float = 0.0) -> None:
        """Give the group to another node, which has the log and nothing else. There is none before."""
        self.coordinator = None

        def lead() -> None:
            if self.coordinator is None and to not in self.down:
                self.tick()
                self.world.failover()
                self.coordinator = to
            elif self.coordinator is None:
                self.agenda.after(100.0, self.move_coordinator, next(n for n in NODES if n not in self.down))

        if after_ms:
            self.agenda.after(after_ms, lead)
        else:
            lead()

    def tick(self) -> None:
        """Let the coordinator's time catch up."""
        self.world.sleep(self.agenda.now_ms - self.world.now_ms)

    def run(self, ms: float, step_ms: float = 250.0) -> None:
        """Let time pass for everyone."""
        end_ms = self.agenda.now_ms + ms
        while self.agenda.now_ms < end_ms:
            self.agenda.run(min(step_ms, end_ms - self.agenda.now_ms))
            self.tick()
            self._notify()

    def _notify(self) -> None:
        for call in self.after_request:
            call()

    # The network.

    def _way(self) -> float:
        return 1 + self.rng.random() * WAY_MS

    def _fault(self) -> str:
        if self.faults is NO_FAULTS:
            return ""
        draw = self.rng.random()
        for name in KINDS:
            draw -= getattr(self.faults, name)
            if draw < 0:
                self.met[name] += 1
                return name
        return ""

    def dial(self, link: Link) -> None:
        if link.node in self.down:
            self.agenda.after(self._way(), link.ends.arrive, link.ends.lost, link)
        else:
            self._links[link.node][link] = None
            self.agenda.after(self._way(), link.ends.arrive, link.ends.connected, link)

    def send(self, link: Link, frame: bytes) -> None:
        """Bring a request to its node, or fail to."""
        fault = self._fault()
        if fault == "cut":
            self.agenda.after(self._way(), self._cut, link)
            return
        if fault == "silent":
            link.is_silent = True
        if link.is_silent:
            return
        at_ms = max(self._arrives_ms.get(link.node, 0.0), self.agenda.now_ms + self._way())
        self._arrives_ms[link.node] = at_ms
        self.agenda.at(at_ms, self._receive, link, frame, fault)

    def _cut(self, link: Link) -> None:
        self._links[link.node].pop(link, None)
        link.ends.arrive(link.ends.lost, link)

    def _receive(self, link: Link, frame: bytes, fault: str) -> None:
        if link.node in self.down or link not in self._links[link.node]:
            return
        if link.is_busy:
            link.waiting.append((frame, fault))
            return
        link.is_busy = True
        header, body = decode_request(frame)
        if (hook := self.before.pop(ApiKey(header.api_key), None)) is not None:
            hook()
        if header.api_key == ApiKey.FETCH:
            parked = ParkedFetch(link, header, body, fault)
            self._parked.append(parked)
            if not self._try_again(parked, waits=True):
                self.agenda.after(body.max_wait_ms, self._try_again, parked)
            return
        self._reply(link, header, self._answer(link.node, header, body), fault)

    def _try_again(self, parked: ParkedFetch, *, waits: bool = False) -> bool:
        """Answer a Fetch, unless it waits for records. Returns whether it is over."""
        if parked.is_over:
            return True
        names = {topic_id: name for name, topic_id in self.topics.items()}
        node = parked.link.node
        answer = self.logs.fetch(
            parked.body,
            names,
            lambda at: 0 if self.leaders[at] == node else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            waits=waits,
        )
        if answer is None:
            return False
        parked.is_over = True
        self._parked.remove(parked)
        self._reply(parked.link, parked.header, answer, parked.fault)
        return True

    def _reply(self, link: Link, header: Any, answer: Message, fault: str) -> None:
        link.is_busy = False
        if fault == "unanswered":
            self._cut(link)
        elif fault == "unheard":
            link.is_silent = True
        elif link.node not in self.down:
            data = encode_response(header.api_key, header.api_version, header.correlation_id, answer)
            late_ms = LATE_MS * self.rng.random() if fault == "late" else 0.0
            link.free_ms = max(link.free_ms, self.agenda.now_ms + self._way() + late_ms)
            self.agenda.at(link.free_ms, link.ends.arrive, link.ends.received, link, data)
            if fault == "doubled":
                self.agenda.at(link.free_ms, link.ends.arrive, link.ends.received, link, data)
        if link.waiting:
            self._receive(link, *link.waiting.popleft())

    # The nodes.

    def _answer(self, node: int, header: Any, body: Any) -> Message:
        api = ApiKey(header.api_key)
        match api:
            case ApiKey.API_VERSIONS:
                return SERVED
            case ApiKey.METADATA:
                return self._metadata(body)
            case ApiKey.FIND_COORDINATOR:
                return self._find_coordinator(body)
            case ApiKey.LIST_OFFSETS:
                return self.logs.list_offsets(
                    body, lambda at: 0 if self.leaders[at] == node else ErrorCode.NOT_LEADER_OR_FOLLOWER
                )
        if node != self.coordinator:
            return self._not_coordinator(api, body)
        self.tick()
        handle = self.world.beat if api in HEARTBEATS else self.world.handle
        answer: Message = handle(api, header.api_version, body)
        self.log.append(f"{self.agenda.now_ms:.0f} {body} -> {answer}")
        if api in HEARTBEATS:
            if body.member_epoch < 0:
                self.on_farewell(body.member_id)
            self.met[ErrorCode(answer.error_code).name] += 1  # type: ignore[attr-defined]
        elif api is ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT:
            self.met[f"install: {ErrorCode(answer.error_code).name}"] += 1  # type: ignore[attr-defined]
        self._notify()
        return answer

    def _metadata(self, body: Any) -> MetadataResponse:
        wanted = body.topics
        topics = [
            MetadataResponseTopic(name=name, topic_id=topic_id, partitions=self._partitions_of(name))
            for name, topic_id in self.topics.items()
            if wanted is None or any(name == one.name or topic_id == one.topic_id for one in wanted)
        ]
        brokers = [
            MetadataResponseBroker(node_id=node, host=f"n{node}", port=9092)
            for node in NODES
            if node not in self.down
        ]
        return MetadataResponse(brokers=brokers, topics=topics, cluster_id="c", controller_id=1)

    def _partitions_of(self, name: str) -> list[MetadataResponsePartition]:
        return [
            MetadataResponsePartition(
                partition_index=at.partition, leader_id=self.leaders[at], leader_epoch=self.epochs[at]
            )
            for at in self.partitions(name)
        ]

    def _find_coordinator(self, body: Any) -> FindCoordinatorResponse:
        node = self.coordinator
        code = ErrorCode.NONE if node is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
        one = Coordinator(
            key=body.coordinator_keys[0],
            node_id=-1 if node is None else node,
            host=f"n{node}",
            port=9092,
            error_code=code,
        )
        return FindCoordinatorResponse(coordinators=[one])

    def _not_coordinator(self, api: ApiKey, body: Any) -> Message:
        code = ErrorCode.NOT_COORDINATOR
        self.met[code.name] += 1
        match api:
            case ApiKey.CONSUMER_GROUP_HEARTBEAT:
                return ConsumerGroupHeartbeatResponse(error_code=code)
            case ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT:
                return ExtendedConsumerGroupHeartbeatResponse(error_code=code)
            case ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT:
                return ConsumerGroupPrepareAssignmentResponse(error_code=code)
            case ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT:
                return ConsumerGroupInstallAssignmentResponse(error_code=code)
            case ApiKey.OFFSET_FETCH:
                group = body.groups[0]
                return OffsetFetchResponse(
                    groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)]
                )
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
