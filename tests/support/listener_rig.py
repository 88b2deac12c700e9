"""A listener in virtual time over a small fake node, and clients that send any bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cluster.kafka import KafkaListener
from cluster.kafka.node_view import WallClock
from cluster.node_info import ClientInfo, NodeInfo
from cluster.settings import Settings
from cluster.simulator import Network, VirtualHost, World
from coordinator.offsets.commits import is_in_parts
from coordinator.state.pendingoffsets import PendingOffsets
from coordinator.topics import CatalogTopic, CatalogView
from raftlog.env.simulated_files import SimFiles
from records import METADATA_SHARD
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from wire.protocol import decode_response, encode_request

CLIENT_ID = "test-client"
ORDERS = CatalogTopic(name="orders", topic_id=b"orders-topic-id!", num_partitions=3)
CLICKS = CatalogTopic(name="clicks", topic_id=b"clicks-topic-id!", num_partitions=1)
INFO = NodeInfo(
    node_id=7,
    cluster_id="test-cluster",
    kafka_host="kafka.example",
    kafka_port=19092,
    http_host="h",
    http_port=8,
)
PEER = NodeInfo(node_id=9, cluster_id="test-cluster", kafka_host="kafka2.example", kafka_port=29092)


class CountingEntry:
    """A FastEntry that counts."""

    def __init__(self) -> None:
        self.valid = True
        self.touched: list[tuple[float, int]] = []

    def is_valid(self) -> bool:
        return self.valid

    def touch(self, monotonic_ms: float, wall_ms: int) -> None:
        self.touched.append((monotonic_ms, wall_ms))


class NotedFaults:
    """The part of `Evidence` that a listener uses."""

    def __init__(self) -> None:
        self.noted: list[dict[str, Any]] = []

    def fault(self, **fields: Any) -> None:
        self.noted.append(fields)


@dataclass
class FakeNode:
    """Answers heartbeats and commits at once, or when `release` is called; remembers what it was asked.

    It leads every shard, except those that `leaders` names another leader for, or none.
    """

    settings: Settings
    info: NodeInfo = INFO
    nodes: tuple[NodeInfo, ...] = (INFO, PEER)
    lost: tuple[NodeInfo, ...] = ()
    catalog: CatalogView = field(default_factory=lambda: CatalogView([CLICKS, ORDERS], version=5))
    voters: tuple[int, ...] = (7, 9)
    metadata_term: int = 4
    term_start: int = 2
    is_catalog_current: bool = True
    leaders: dict[int, NodeInfo | None] = field(default_factory=dict)
    holding: bool = False
    asked: list[tuple[int, int, Any, ClientInfo]] = field(default_factory=list)
    pending_groups: set[str] = field(default_factory=set)
    """Groups whose commits and joins may take several decisions."""
    held: list[tuple[Callable[[object], None], object]] = field(default_factory=list)
    entries: dict[tuple[str, str], CountingEntry] = field(default_factory=dict)
    epoch: int = 3
    padding: str = ""
    transaction: ErrorCode = ErrorCode.NONE
    evidence: NotedFaults = field(default_factory=NotedFaults)
    observed_ms: float = 0.0

    def leader_of(self, shard: int) -> NodeInfo | None:
        return self.leaders.get(shard, self.info)

    has_met_all = True

    @property
    def listed_nodes(self) -> tuple[NodeInfo, ...]:
        return (*self.nodes, *self.lost)

    @property
    def controller(self) -> NodeInfo | None:
        return self.leader_of(METADATA_SHARD)

    @property
    def metadata_lead(self) -> tuple[int, int] | None:
        return (self.metadata_term, self.term_start) if self.controller == self.info else None

    @property
    def clock(self) -> WallClock:
        return self

    def wall_at(self, now_ms: float) -> int:
        return 1_735_689_600_000

    def observe_clock(self, now_ms: float) -> None:
        self.observed_ms = now_ms

    def transaction_error(self, *_: object) -> ErrorCode:
        return self.transaction

    def joins_in_turns(self, group_id: str) -> bool:
        return group_id in self.pending_groups

    def is_in_parts(self, commit: OffsetCommitRequest, num_bytes: int) -> bool:
        return commit.group_id in self.pending_groups or is_in_parts(PendingOffsets(), commit, num_bytes)

    def submit(
        self,
        api_key: int,
        api_version: int,
        body: object,
        client: ClientInfo,
        reply: Callable[[object], None],
    ) -> None:
        self.asked.append((api_key, api_version, body, client))
        answer = self.answer(body)
        if self.holding:
            self.held.append((reply, answer))
        else:
            reply(answer)

    def submit_run(
        self,
        api_key: int,
        api_version: int,
        bodies: list[Any],
        client: ClientInfo,
        reply: Callable[[object], None],
    ) -> None:
        self.asked += [(api_key, api_version, body, client) for body in bodies]
        answers = [self.answer(body) for body in bodies]
        if self.holding:
            self.held.append((reply, answers))
        else:
            reply(answers)

    def answer(self, body: object) -> object:
        if isinstance(body, ConsumerGroupHeartbeatRequest):
            if body.group_id == "explode":
                raise RuntimeError("on purpose")
            return ConsumerGroupHeartbeatResponse(
                member_id=body.member_id + self.padding, member_epoch=self.epoch, heartbeat_interval_ms=1000
            )
        if isinstance(body, OffsetFetchRequest):
            return OffsetFetchResponse()
        return OffsetCommitResponse(topics=[])

    def release(self, position: int = 0) -> None:
        reply, answer = self.held.pop(position)
        reply(answer)

    def fast_entry(self, group_id: str, member_id: str) -> CountingEntry | None:
        return self.entries.get((group_id, member_id))


class RawClient:
    """A client of the simulated network: sends bytes, collects reply frames unless it stops reading."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.frames: list[bytes] = []
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            (length,) = struct.unpack_from(">i", self.received)
            if len(self.received) < 4 + length:
                break
            self.frames.append(bytes(self.received[4 : 4 + length]))
            del self.received[: 4 + length]

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    @property
    def correlation_ids(self) -> list[int]:
        return [struct.unpack_from(">i", frame)[0] for frame in self.frames]


class Rig:
    """One world: a listener, a fake node, any number of clients."""

    def __init__(self, seed: int = 1, clock_step_ms: float = 0.0, **settings: Any) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.host = VirtualHost(
            self.world, self.network, SimFiles(), name="node", clock_step_ms=clock_step_ms
        )
        self.far = VirtualHost(self.world, self.network, SimFiles(), name="clients")
        self.settings = Settings(**settings)
        self.node = FakeNode(self.settings)
        self.listener = KafkaListener(self.host, self.node, self.settings)
        errors: list[BaseException | None] = []
        self.listener.start(errors.append)
        self.world.run_for(1)
        assert errors == [None]

    def run(self, duration_ms: float = 20) -> None:
        self.world.run_for(duration_ms)

    def connect(self) -> RawClient:
        client = RawClient()
        self.far.connect(*self.listener.address, lambda: client, lambda transport, error: None)
        self.run(5)
        return client

    def ask(
        self, client: RawClient, api_key: ApiKey, version: int, body: Any, *, within_ms: float = 1_000
    ) -> Any:
        """One request and its decoded response."""
        before = len(client.frames)
        client.send(encode_request(api_key, version, 77, CLIENT_ID, body))
        assert self.world.run_until(lambda: len(client.frames) > before, within_ms=within_ms), "no answer"
        correlation_id, response = decode_response(api_key, version, client.frames[-1])
        assert correlation_id == 77
        return response


def heartbeat(
    correlation_id: int, *, group: str = "g", member: str = "m", epoch: int = 3, client_id: str = CLIENT_ID
) -> bytes:
    """A steady heartbeat, as librdkafka sends it."""
    body = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rebalance_timeout_ms=-1
    )
    return encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, correlation_id, client_id, body)


@contextmanager
def log_lines(caplog: Any) -> Iterator[Callable[[], list[str]]]:
    """The lines that the listener wrote meanwhile."""
    with caplog.at_level("DEBUG", logger="quorate.kafka"):
        caplog.clear()
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "quorate.kafka"]
