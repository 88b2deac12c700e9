"""A small node for HTTP: real projections, a log in a list, and a commit index that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp

from cluster.host.host_asyncio import AsyncioHost
from cluster.http import HttpListener
from cluster.kafka import KafkaListener
from cluster.node_info import NodeInfo
from cluster.settings import Settings
from coordinator.assignors import BUILT_IN
from coordinator.catalog.shard import CatalogShard
from coordinator.limits import Limits, SameForAll
from coordinator.shard import GroupShard
from raftlog.storage.evidence import Refusal
from raftlog.storage.frames import encode_frame
from records import (
    METADATA_SHARD,
    Cause,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    LeadershipKey,
    LeadershipValue,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    TopicKey,
    TopicValue,
    Trigger,
    encode_entry,
    encode_record,
    iter_records,
    shard_of,
)
from tests.support.listener_rig import INFO, PEER

NUM_SHARDS = 2


@dataclass
class Log:
    """Committed entries, read as from a replica."""

    bodies: list[bytes] = field(default_factory=list)
    first_index: int = 1

    live_from: int = 1
    file: bytes = b""
    """The bytes of the snapshot file."""

    @property
    def log(self) -> Log:
        """The log itself, as a replica has this attribute."""
        return self

    def read(self, from_index: int, bytes_max: int) -> bytes:
        if from_index < self.first_index:
            raise KeyError(from_index)
        found = b""
        for index in range(from_index, self.first_index + len(self.bodies)):
            body = self.bodies[index - self.first_index]
            found += encode_frame(index, 3, index - 1, 1_000 + index, len(iter_records(body)), body)
            if len(found) >= bytes_max:
                break
        return found

    def archive(self) -> Any:
        return SimpleNamespace(frames=self.read, close=lambda: None)

    def first_kept(self) -> int:
        return self.first_index

    def snapshot(self) -> Any:
        if not self.file:
            raise FileNotFoundError
        return SimpleNamespace(
            size=len(self.file), chunk=lambda at, size: self.file[at : at + size], close=lambda: None
        )


class Waiter:
    def __init__(self, index: int, fn: Callable[[], None]) -> None:
        self.index, self.fn = index, fn

    def cancel(self) -> None:
        self.fn = lambda: None


class Shard:
    def __init__(self, number: int, machine: Any) -> None:
        self.shard = number
        self.machine = machine
        self.replica = Log()
        self.is_ready = True
        self.is_readable = True
        self.followers: list[dict[str, Any]] = []
        self.duties = SimpleNamespace()
        self.proofs: list[Callable[[object], None]] = []
        self.commit_index = 0
        self.counters = SimpleNamespace(rebalances=6, as_dict=lambda: {"requests": 3, "commits": 4})
        self.load_ms = 20.0 + number
        self.requests = SimpleNamespace(num_unfinished=1, when_consistent=self.proofs.append)
        self.waiters: list[Waiter] = []

    @property
    def serving(self) -> str:
        return "active" if self.is_ready else "loading"

    def status(self) -> dict[str, Any]:
        state = "Ready" if self.is_ready else "CatchUp"
        return {"shard": self.shard, "state": state, "log": self.log_status()}

    def log_status(self) -> dict[str, Any]:
        return {
            "term": 3,
            "commit_index": self.commit_index,
            "snapshot_index": self.replica.log.live_from - 1,
            "rebuilds": 2,
            "is_disk_full": False,
            "leader_since_ms": None,
            "followers": self.followers,
        }

    def when_committed(self, index: int, fn: Callable[[], None]) -> Waiter:
        self.waiters.append(Waiter(index, fn))
        return self.waiters[-1]

    def append(self, *records: Record, committed: bool = True) -> None:
        raws: list[RawRecord] = [encode_record(record) for record in records]
        self.replica.bodies.append(encode_entry(Cause(trigger=Trigger.OFFSETS_COMMITTED), raws))
        index = self.replica.first_index + len(self.replica.bodies) - 1
        for raw in raws:
            self.machine.apply(raw, index)
        if committed:
            self.commit(index)

    def commit(self, index: int) -> None:
        self.commit_index = index
        due = [waiter for waiter in self.waiters if waiter.index <= index]
        self.waiters = [waiter for waiter in self.waiters if waiter.index > index]
        for waiter in due:
            waiter.fn()


class Links:
    """One peer in contact, one refused."""

    def __init__(self) -> None:
        self.peers = {9: SimpleNamespace(release="1.2.3", incarnation="inc-9", boot_id="boot-9")}
        self.trouble = "node 8 has another secret: give all nodes the same cluster.secret.file"

    def status(self) -> list[dict[str, Any]]:
        up = {"node_id": 9, "state": "up", "for_ms": 5, "trouble": None, "clock_skew_ms": 1.5}
        down = {"node_id": 8, "state": "down", "for_ms": 9, "trouble": self.trouble}
        return [{**row, "bytes_out": 10, "bytes_in": 20} for row in (down, up)]


def can_lead(node_id: int, **other: Any) -> dict[str, Any]:
    """Return the row of a follower that can take over, but for what is given."""
    row = {"node_id": node_id, "in_contact": True, "is_joining": False, "cannot_serve": None}
    return row | {"last_ack_ago_ms": 1.0, "mode": "replicating", "lag": 0} | other


class HttpFakeNode:
    """The part of a node that the HTTP listener uses. It leads every shard that `leaders` does not name."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.info = INFO
        self.nodes = (INFO, PEER)
        self.known_nodes = self.nodes
        self.voters = (7, 8, 9)
        self.links: Links | None = Links()
        self.leaders: dict[int, NodeInfo | None] = {}
        self.format_level = 1
        self.is_level_awaited = False
        self.changes: list[tuple[Any, ...]] = []
        self.refusal: str | None = None
        self.metadata_term = 3
        self.is_catalog_current = True
        self.host = SimpleNamespace(
            monotonic_ms=lambda: 5_000.0,
            wall_ms=lambda: 1_700_000_000_000,
            busy_ms=lambda: 0.0,
            call_later=lambda delay_ms, fn: SimpleNamespace(cancel=lambda: None),
        )
        self.refusals: list[Refusal] = []
        self.noted: list[bytes] = [b"", b""]
        self.evidence = SimpleNamespace(
            refusals=lambda group_id: self.refusals, flush=lambda: None, contents=lambda: self.noted
        )
        self.group_settings = SameForAll()
        self.metadata = Shard(METADATA_SHARD, CatalogShard(Limits()))
        self.metadata.duties = SimpleNamespace(ask_leadership=self._ask_leadership)
        self.shards = [Shard(number, GroupShard(number, Limits(), BUILT_IN)) for number in range(NUM_SHARDS)]

    @property
    def catalog(self) -> Any:
        return self.metadata.machine.view

    def status(self) -> dict[str, Any]:
        return {"incarnation": "inc-7", "boot_id": "boot-7", "uptime_ms": 12}

    def leader_of(self, shard: int) -> NodeInfo | None:
        return self.leaders.get(shard, self.info)

    @property
    def controller(self) -> NodeInfo | None:
        return self.leader_of(METADATA_SHARD)

    @property
    def metadata_lead(self) -> tuple[int, int] | None:
        return (self.metadata_term, 1) if self.controller is self.info else None

    def advance(self, ms: int) -> None:
        self.changes.append(("advance", ms))

    def transfer(self, shard: int, to: int | None, done: Callable[[str | None], None]) -> None:
        self.changes.append(("transfer", shard, to))
        if self.refusal is None:
            self.leaders[shard] = PEER
        done(self.refusal)

    def _ask_leadership(
        self, asked: LeadershipValue, detail: str, done: Callable[[str | None], None]
    ) -> None:
        """Write the request down, and let nodes that can lead follow it at once."""
        self.changes.append((detail,))
        if self.refusal is None:
            self.metadata.append(Record(LeadershipKey(), asked))
            infos = {info.node_id: info for info in self.nodes}
            self.leaders |= {one.shard: infos[one.node_id] for one in asked.asked if one.node_id in infos}
        done(self.refusal)

    def upgrade(self, done: Callable[[str | None], None]) -> None:
        self.changes.append(("upgrade",))
        self.format_level += self.refusal is None
        done(self.refusal)

    @property
    def all_shards(self) -> list[Shard]:
        return [self.metadata, *self.shards]

    def shard_for(self, group_id: str) -> Shard:
        return self.shards[shard_of(group_id, NUM_SHARDS)]

    def wall_ms(self) -> int:
        return 1_735_689_600_000

    def observe_clock(self, now_ms: float) -> None: ...

    def submit(self, *asked: object) -> None:
        raise AssertionError(f"HTTP asks shards, not Kafka's way: {asked}")

    submit_run = submit

    def fast_entry(self, group_id: str, member_id: str) -> None:
        return None

    def add_topic(self, name: str, num_partitions: int) -> None:
        value = TopicValue(topic_id=name.encode().ljust(16, b"!"), num_partitions=num_partitions)
        self.metadata.append(Record(TopicKey(name=name), value))

    def add_group(self, group_id: str, epoch: int = 1, *, committed: bool = True) -> None:
        record = Record(ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch))
        self.shard_for(group_id).append(record, committed=committed)

    def add_offset(self, group_id: str, offset: int) -> None:
        value = OffsetCommitValue(offset=offset, commit_timestamp_ms=1)
        key = OffsetCommitKey(group_id=group_id, topic="orders", partition=0)
        self.shard_for(group_id).append(Record(key, value))


@dataclass
class HttpRig:
    node: HttpFakeNode
    kafka: KafkaListener
    listener: HttpListener
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        host, port = self.listener.address
        return f"http://{host}:{port}"

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, document: Any = None, **given: Any) -> tuple[int, Any]:
        """POST a JSON document, or with other arguments for aiohttp."""
        if not given:
            given = {"json": {} if document is None else document}
        async with self.session.post(self.url + path, **given) as answer:
            return answer.status, await answer.json()

    async def status(self, path: str) -> int:
        async with self.session.get(self.url + path) as answer:
            return answer.status

    def served_paths(self) -> set[str]:
        """Return the router's paths, written as in an OpenAPI document."""
        assert self.listener._runner is not None
        routes = self.listener._runner.app.router.resources()
        return {resource.canonical for resource in routes}

    async def text(self, path: str) -> str:
        async with self.session.get(self.url + path) as answer:
            assert answer.status == 200
            return await answer.text()


@asynccontextmanager
async def http_rig(**settings: Any) -> AsyncIterator[HttpRig]:
    """A listener on a free port, its node, and a client session."""
    chosen = Settings(http_port=0, kafka_port=0, **settings)
    node = HttpFakeNode(chosen)
    host = AsyncioHost(asyncio.get_running_loop())
    kafka = KafkaListener(host, node, chosen)
    listener = HttpListener(node, chosen, kafka)
    await listener.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield HttpRig(node, kafka, listener, session)
    finally:
        await listener.stop()
        host.close()
