"""Shard runtimes over fake replicas, which commit, lead and fail only when the test says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from cluster.node_info import ClientInfo
from cluster.runtime.catalog_duties import CatalogDuties
from cluster.runtime.group_duties import GroupDuties
from cluster.runtime.job_slots import JobSlots
from cluster.runtime.pending_replies import PendingReply
from cluster.runtime.shard_context import RuntimeSettings, TurnCounter
from cluster.runtime.shard_runtime import AnyShardRuntime, ShardRuntime
from cluster.runtime.slices import Slices
from cluster.simulator import Network, World
from cluster.simulator.host import VirtualHost
from coordinator.api import JobKind
from coordinator.catalog.shard import CatalogShard
from coordinator.limits import SameForAll
from coordinator.shard import GroupShard
from coordinator.topics import CatalogView
from raftlog.env.simulated_files import SimFiles
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.clock import AgreedClock
from raftlog.replica.replica_state import ReplicaEvent, ReplicaState, ReplicaStatus
from raftlog.storage.directory import NodeDirectory, NodeIdentity, format_node, open_node
from raftlog.storage.evidence import Evidence
from records import METADATA_SHARD, LeadershipValue, RawRecord, TransactionValue, iter_records
from wire.apis import ApiKey

Told = Callable[[str | None], None]
PEERS = (1, 2, 3)


class FakeReplica:
    """`raftlog.replica.replica.Replica` as the runtime sees it. Proposed entries wait for `commit`."""

    def __init__(
        self,
        host: Any,
        directory: NodeDirectory,
        shard: int,
        machine: Any,
        settings: Any,
        links: Any,
        clock: AgreedClock,
    ) -> None:
        self.clock = clock
        self.machine = machine
        self.shard = shard
        self.node_id = directory.identity.node_id
        self.bodies: list[bytes] = []
        self.leader_id: int | None = None
        self.halted_reason: str | None = None
        self.replica_status = ReplicaStatus(host.wall_ms)
        self.is_alone = links is None
        self.term = 0
        self.is_leader = self.is_current = self.is_disk_full = self.is_handing_over = False
        self.is_rebuilding = False
        self.leadership = self.disk_room = self
        self.can_append = True
        self.has_room = True
        self.lease = True
        self.proofs_asked = 0
        self.everywhere: list[tuple[int, Callable[[], None]]] = []
        self.transfers: list[tuple[int | None, Told]] = []

    @property
    def state(self) -> ReplicaState:
        return self.replica_status.state

    def start(self) -> None:
        self.clock.loaded(0)
        self.replica_status.on(ReplicaEvent.STARTS)
        if not self.is_alone:
            self.replica_status.on(ReplicaEvent.LOADED)

    def time_at(self, now_ms: float) -> int:
        return self.clock.wall_ms()

    def past_ms(self) -> int:
        return self.clock.past_ms()

    def stop(self, done: Callable[[], None]) -> None:
        done()

    @property
    def last_index(self) -> int:
        return len(self.bodies)

    @property
    def next_index(self) -> int:
        return self.last_index + 1

    def propose(self, body: bytes, record_count: int, timestamp_ms: int) -> int:
        assert self.is_leader
        self.bodies.append(body)
        return self.last_index

    def observe(self, now_ms: float) -> None:
        """Look at no disk: the test sets `can_append` and `is_disk_full`."""

    def ask_proof(self) -> None:
        self.proofs_asked += 1

    def has_lease(self, now_ms: float) -> bool:
        return self.lease

    @property
    def horizon(self) -> tuple[float, int]:
        return (math.inf if self.is_current else -math.inf), 0

    @property
    def applied_everywhere(self) -> int:
        return self.last_index

    def when_everywhere(self, index: int, timeout_ms: float, fn: Callable[[], None]) -> None:
        self.everywhere.append((index, fn))

    def transfer(self, target: int | None, done: Told) -> None:
        self.transfers.append((target, done))

    def status(self) -> dict[str, Any]:
        return {}

    # Called by tests.

    def lead(self, *, until_ready: bool = True) -> None:
        self.term += 1
        self.is_leader, self.leader_id = True, self.node_id
        self.replica_status.on(ReplicaEvent.CAMPAIGNS)
        self.replica_status.on(ReplicaEvent.ELECTED)
        self.machine.leading(self.term)
        self.machine.followed(self.node_id)
        if until_ready:
            self.ready()

    def ready(self) -> None:
        self.is_current = True
        self.commit()
        self.replica_status.on(ReplicaEvent.CAUGHT_UP)
        self.machine.ready(self.term)

    def commit(self, index: int | None = None) -> None:
        self.machine.committed(self.last_index if index is None else index)

    def lose(self, reason: str = "term 9 began", leader_id: int | None = 2) -> None:
        self.is_leader, self.leader_id = False, None
        self.replica_status.on(ReplicaEvent.DEPOSED)
        self.machine.deposed(reason)
        if leader_id is not None:
            self.follow(leader_id)

    def follow(self, leader_id: int | None, *, is_current: bool = True) -> None:
        self.leader_id, self.is_current = leader_id, is_current
        self.machine.followed(leader_id)

    def receive(self, *bodies: bytes) -> None:
        """Receive committed entries, as a follower does."""
        for body in bodies:
            self.bodies.append(body)
            self.machine.apply_frame(self.last_index, self.term, 0, body)
        self.commit()

    def rebuild(self, bodies: Sequence[bytes]) -> None:
        """Replace the log by one with these entries."""
        self.machine.reset()
        self.bodies = []
        for body in bodies:
            self.receive(body)

    def install(self, records: list[RawRecord], last_index: int) -> None:
        """Replace the log by a leader's snapshot."""
        for _ in self.installing(records, last_index, len(records)):
            pass

    def installing(self, records: list[RawRecord], last_index: int, chunk: int) -> Iterator[None]:
        """Install a snapshot in steps, one for each chunk of records."""
        self.is_rebuilding = True
        self.machine.reset()
        self.bodies = [b""] * last_index
        header = SnapshotHeader(
            cluster_id="c", shard=self.shard, num_shards=1, last_index=last_index, last_term=1,
            last_timestamp_ms=0, chain_hash=b"", state_hash=0, catalog_version=0, record_count=len(records),
        )  # fmt: skip
        for begin in range(0, len(records), chunk):
            self.machine.restore(records[begin : begin + chunk], header)
            yield
        self.is_rebuilding = False
        self.commit()


class FakeLinks:
    """Links that carry nothing: the replicas are fakes as well."""

    def attach(self, shard: int, user: object) -> None:
        """Ignore the user: nothing is ever sent."""


class Bench:
    """The runtimes of a node, a metadata shard and group shards, of which `groups` is the first, over fake
    replicas."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        is_alone: bool = False,
        clock_step_ms: float = 0.0,
        num_shards: int = 1,
    ) -> None:
        monkeypatch.setattr("cluster.runtime.shard_runtime.Replica", FakeReplica)
        self.world = World(1)
        files = SimFiles(1)
        self.host = VirtualHost(
            self.world, Network(self.world), files, name="bench", clock_step_ms=clock_step_ms
        )
        voters = () if is_alone else PEERS
        identity = NodeIdentity(
            cluster_id="c", node_id=1, incarnation="i", num_shards=num_shards, voters=voters
        )
        format_node(files, "/data", identity)
        directory = open_node(files, "/data", self.host.fresh_id)
        self.clock = AgreedClock(self.host, num_logs=num_shards + 1)
        self.links: Any = None if is_alone else FakeLinks()
        self.evidence = Evidence(self.host, directory.path, 1 << 20)
        self.turns = TurnCounter(self.host)
        self.slices = Slices(self.host)
        self.job_slots = {kind: JobSlots(self.host) for kind in JobKind}
        self.group_settings = SameForAll()
        self.runtime_settings = RuntimeSettings()
        self.moves: list[str] = []
        self.given_away: list[int] = []
        self.catalog_misses: list[int] = []
        self.catalog_changes: list[tuple[list[str], bool]] = []
        self.leaderships: list[LeadershipValue] = []
        self.metadata = ShardRuntime(self, directory, METADATA_SHARD, CatalogShard, CatalogDuties)
        self.shards = [
            ShardRuntime(self, directory, number, partial(GroupShard, number), GroupDuties)
            for number in range(num_shards)
        ]
        self.groups = self.shards[0]
        runtimes: list[Any] = [self.metadata, *self.shards]
        for runtime in runtimes:
            runtime.start()
        for group_shard in self.shards:
            group_shard.duties.start()

    # Called by the runtimes.

    @property
    def catalog(self) -> CatalogView:
        return self.metadata.duties.committed.view

    def is_catalog_usable(self, version: int) -> bool:
        return self.metadata.replica.is_current and self.catalog.version >= version

    def report_missing_catalog(self, version: int) -> None:
        self.catalog_misses.append(version)

    def is_catalog_fresh(self, now_ms: float) -> bool:
        return self.metadata.duties.committed.is_fresh(now_ms)

    def catalog_changed(self, topic_names: Sequence[str], *, is_complete: bool) -> None:
        self.catalog_changes.append((list(topic_names), is_complete))
        for runtime in self.shards:
            runtime.duties.on_catalog_changed(topic_names, is_complete=is_complete)

    def transactions_changed(self, changes: Sequence[tuple[str, TransactionValue]]) -> None:
        for runtime in self.shards:
            runtime.duties.on_transactions_changed(changes)
        self.metadata.duties.on_transactions_changed(changes)

    def decisions_followed(self, shard: int, decided: int) -> None:
        self.metadata.duties.on_decisions_followed(shard, decided)

    def followed_decisions(self) -> list[tuple[int, int]]:
        return [(runtime.shard, runtime.duties.listener.decided) for runtime in self.shards]

    def leadership_asked(self, leadership: LeadershipValue) -> None:
        self.leaderships.append(leadership)

    def configs_changed(self, group_ids: Sequence[str]) -> None:
        for runtime in self.shards:
            runtime.duties.on_configs_changed(group_ids)

    def catalog_moved(self) -> None:
        for runtime in self.shards:
            runtime.check_ready()

    def observe_clock(self, now_ms: float) -> None:
        """Ignore the time: the test clock has no gaps."""

    def quiet_ms(self, now_ms: float) -> float:
        return 0.0

    def shard_moved(self, shard: int) -> None:
        runtime = self.metadata if shard == METADATA_SHARD else self.shards[shard]
        move = f"{runtime.name} {runtime.state.value}"
        if not self.moves or self.moves[-1] != move:
            self.moves.append(move)

    def shard_given_away(self, shard: int) -> None:
        self.given_away.append(shard)

    # Called by tests.

    def log(self, runtime: AnyShardRuntime) -> FakeReplica:
        replica = runtime.replica
        assert isinstance(replica, FakeReplica)
        return replica

    def ask(self, request: Any, api_key: int, version: int, *, shard: int = 0) -> list[Any]:
        """Submit a request in a turn of its own; the returned list receives the answers."""
        answers: list[Any] = []
        if shard == METADATA_SHARD:
            submit = self.metadata.duties.submit
            self.host.call_soon(submit, api_key, version, request, ClientInfo(), answers.append)
        else:
            pending = PendingReply(api_key, version, request, answers.append)
            self.host.call_soon(self.shards[shard].requests.submit, pending, ClientInfo())
        self.world.run_for(0.001)
        return answers

    def heartbeat(self, request: Any, *, shard: int = 0) -> list[Any]:
        return self.ask(request, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, shard=shard)

    def later(self, ms: float) -> None:
        self.world.run_for(ms)


def records_of(*bodies: bytes) -> list[RawRecord]:
    return [raw for body in bodies for raw in iter_records(body)]
