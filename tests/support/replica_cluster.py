"""Replicas of one shard on virtual time: simulated disks, links in memory, faults on request.

`ReplicaCluster` is the clock and the queue of events; a `ClusterHost` is a node's share of it. Whatever
is run, the cluster checks: no term has two leaders, no two nodes commit different entries at one index, and
what was acknowledged once is never replaced.
"""

from __future__ import annotations

import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from raftlog.consensus.core import RaftCore
from raftlog.env.host import Done, Timer
from raftlog.env.settings import LogSettings
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.replica.replica import Replica
from raftlog.storage.directory import NodeIdentity, format_node, open_node
from tests.report import count_fault
from tests.support.manual_host import ManualHost, Stopped
from tests.support.single_replica import SETTINGS, KeyValues, entry

SHARD = 0
PATH = "/data/node"


class _Event:
    """A callback of one node's loop; also the timer that can take it back."""

    __slots__ = ("args", "cancelled", "fn", "host")

    def __init__(self, host: ClusterHost | None, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        self.host, self.fn, self.args, self.cancelled = host, fn, args, False

    def cancel(self) -> None:
        self.cancelled = True


class ReplicaCluster:
    """Clock, events and network of all nodes."""

    def __init__(
        self,
        num_nodes: int = 3,
        *,
        seed: int = 0,
        settings: LogSettings = SETTINGS,
        engine: type[RaftCore] = RaftCore,
        delay_ms: float = 0.2,
    ) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.engine = engine
        self.now_ms = 1000.0
        self.delay_ms = delay_ms
        self._events: list[tuple[float, int, _Event]] = []
        self._count = 0
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.dropped: Callable[[int, int, bytes], bool] = lambda source, target, payload: False
        self.voters = tuple(range(1, num_nodes + 1))
        self.nodes = {number: ClusterNode(self, number) for number in self.voters}
        self.up: set[frozenset[int]] = set()
        self.epoch: dict[frozenset[int], int] = {}

    # Time

    def push(
        self, at_ms: float, host: ClusterHost | None, fn: Callable[..., object], *args: object
    ) -> _Event:
        event = _Event(host, fn, args)
        self._count += 1
        heapq.heappush(self._events, (max(at_ms, self.now_ms), self._count, event))
        return event

    def step(self) -> None:
        """Run the next event."""
        self.now_ms, _, event = heapq.heappop(self._events)
        host = event.host
        if event.cancelled or (host is not None and host.is_dead):
            return
        if host is not None and host.is_paused:
            host.held.append(event)
            return
        with contextlib.suppress(Stopped):
            event.fn(*event.args)

    def advance(self, ms: float) -> None:
        """Let time pass."""
        until_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= until_ms:
            self.step()
        self.now_ms = until_ms

    def until(self, condition: Callable[[], object], limit_ms: float = 10_000) -> float:
        """Run until `condition` holds; how long it took."""
        started_ms = self.now_ms
        while not condition():
            assert self._events, "nothing will ever happen again"
            if self._events[0][0] > started_ms + limit_ms:
                states = {node.number: node.replica.status() for node in self.nodes.values() if node.is_up}
                raise AssertionError(f"not within {limit_ms} ms: {states}")
            self.step()
        return self.now_ms - started_ms

    # Nodes

    def start(self, *numbers: int) -> ReplicaCluster:
        """Start nodes, all by default; their links come up a little later."""
        for number in numbers or self.voters:
            self.nodes[number].start()
        return self

    @property
    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_up]

    @property
    def leader(self) -> ClusterNode | None:
        """The node that is Ready in the highest term."""
        ready = [node for node in self.running if node.replica.is_ready and not node.host.is_paused]
        return max(ready, key=lambda node: node.replica.term, default=None)

    def elect(self) -> ClusterNode:
        """Run until somebody serves."""
        self.until(lambda: self.leader is not None)
        leader = self.leader
        assert leader is not None
        return leader

    def followers(self) -> list[ClusterNode]:
        return [node for node in self.running if node is not self.leader]

    def settle(self) -> None:
        """Run until every running node has applied everything that the leader has."""

        def level() -> bool:
            leader = self.leader
            if leader is None:
                return False
            last = leader.replica.last_index
            return all(
                node.replica.commit_index == last == node.replica.log.chain_index
                and not node.replica.is_rebuilding
                for node in self.running
                if not node.host.is_paused
            )

        self.until(level)

    def assert_equal(self) -> None:
        """All running nodes hold the same history and the same state."""
        self.settle()
        nodes = self.running
        assert len({node.replica.log.chain_hash for node in nodes}) == 1
        assert len({node.machine.state_hash() for node in nodes}) == 1

    # Network

    def link(self, one: int, other: int) -> None:
        """Connect two nodes, as far as both run and nothing is cut between them."""
        pair = frozenset((one, other))
        nodes = self.nodes[one], self.nodes[other]
        cut = (one, other) in self.cut or (other, one) in self.cut
        if pair in self.up or cut or not all(node.is_up for node in nodes):
            return
        self.up.add(pair)
        self.epoch[pair] = self.epoch.get(pair, 0) + 1
        for node, peer in ((nodes[0], other), (nodes[1], one)):
            self.push(self.now_ms + self.delay_ms, node.host, node.replica.peer_up, peer)  # behind an end

    def unlink(self, one: int, other: int, *, again_ms: float | None = 100.0) -> None:
        """Both ends see the connection break; it is dialled again later."""
        pair = frozenset((one, other))
        if pair not in self.up:
            return
        self.up.discard(pair)
        for number, peer in ((one, other), (other, one)):
            node = self.nodes[number]
            if node.is_up:
                self.push(self.now_ms + self.delay_ms, node.host, node.replica.peer_down, peer)
        if again_ms is not None:
            self.push(self.now_ms + again_ms, None, self.link, one, other)

    def isolate(self, number: int) -> None:
        """Cut a node off: its connections break and do not come back."""
        count_fault("raftlog", "node cut off")
        for other in self.voters:
            if other != number:
                self.cut |= {(number, other), (other, number)}
                self.unlink(number, other, again_ms=None)

    def heal(self) -> None:
        """Nothing is cut any more."""
        self.cut.clear()
        for one in self.voters:
            for other in self.voters:
                if one < other:
                    self.link(one, other)

    def send(self, source: int, target: int, payload: bytes) -> bool:
        pair = frozenset((source, target))
        if pair not in self.up:
            return False
        if (source, target) in self.cut or self.dropped(source, target, payload):
            return True
        self.push(self.now_ms + self.delay_ms, None, self._deliver, source, target, payload, self.epoch[pair])
        return True

    def _deliver(self, source: int, target: int, payload: bytes, epoch: int) -> None:
        pair = frozenset((source, target))
        node = self.nodes[target]
        if pair in self.up and self.epoch[pair] == epoch and node.is_up:
            self.push(self.now_ms, node.host, node.replica.peer_message, source, payload)

    # What must be true

    def leads(self, number: int, term: int) -> None:
        assert self.leaders.setdefault(term, number) == number, f"term {term} has two leaders"

    def commits(self, number: int, index: int, term: int, body: bytes) -> None:
        first = self.committed.setdefault(index, (term, body))
        assert first == (term, body), f"node {number} commits another entry {index}"


class ClusterMachine(KeyValues):
    """Reports to the cluster what it commits and leads."""

    def __init__(self, cluster: ReplicaCluster, number: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._number = number
        self.log: dict[int, tuple[int, bytes]] = {}
        self.deposed_reasons: list[str] = []
        self.known_leaders: list[int | None] = []
        self.proofs: list[float] = []
        self.resets = 0
        self.skew = 0

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        super().apply_frame(index, term, timestamp_ms, body)
        self.log[index] = (term, body)

    def proposed(self, index: int, term: int, body: bytes) -> None:
        self.take(index, body)
        self.log[index] = (term, body)

    def committed(self, index: int) -> None:
        before = self.committed_index
        super().committed(index)
        for one in range(before + 1, index + 1):
            if one in self.log:
                self._cluster.commits(self._number, one, *self.log[one])

    def leading(self, term: int) -> None:
        self._cluster.leads(self._number, term)

    def deposed(self, reason: str) -> None:
        self.deposed_reasons.append(reason)

    def followed(self, leader_id: int | None) -> None:
        self.known_leaders.append(leader_id)

    def proven(self, proven_ms: float) -> None:
        self.proofs.append(proven_ms)

    def reset(self) -> None:
        self.resets += 1
        self.values.clear()
        self.frames.clear()
        self.log.clear()
        self.applied = 0

    def state_hash(self) -> int:
        return super().state_hash() ^ self.skew


class ClusterHost(ManualHost):
    """One node's loop, on the cluster's clock."""

    def __init__(self, node: ClusterNode, files: SimFiles, seed: int) -> None:
        super().__init__(files, seed)
        self.node = node
        self._cluster = node.cluster
        self.is_dead = False
        self.is_paused = False
        self.held: deque[_Event] = deque()
        self.disk_ms = 0.0
        self._disk_free_ms = 0.0

    def monotonic_ms(self) -> float:
        return self._cluster.now_ms

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self._cluster.now_ms)

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        self._cluster.push(self._cluster.now_ms, self, fn, *args)

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> Timer:
        return self._cluster.push(self._cluster.now_ms + delay_ms, self, fn, *args)

    def run_on_disk(self, fn: Callable[[], object], done: Done) -> None:
        self.disk.append((fn, done))
        if not self.hold_disk:
            now_ms = self._cluster.now_ms
            self._disk_free_ms = max(self._disk_free_ms, now_ms) + self.disk_ms if self.disk_ms else now_ms
            self._cluster.push(self._disk_free_ms, self, self.do_disk)

    def fatal(self, message: str) -> None:
        self.fatal_message = message
        self.node.died()
        raise Stopped(message)

    def resume(self) -> None:
        """Everything that came due meanwhile runs, in its order."""
        self.is_paused = False
        held, self.held = self.held, deque()
        for event in held:
            if not event.cancelled:
                self._cluster.push(self._cluster.now_ms, self, event.fn, *event.args)


class MemoryLinks:
    """A node's links, in memory."""

    def __init__(self, cluster: ReplicaCluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self.blocked: set[int] = set()

    def send(self, node_id: int, shard: int, payload: bytes) -> bool:
        return self._cluster.send(self._number, node_id, payload)

    def can_send(self, node_id: int) -> bool:
        return node_id not in self.blocked and frozenset((self._number, node_id)) in self._cluster.up

    def flush(self) -> None:
        """Everything leaves at once here."""


class ClusterNode:
    """One node: its disk outlives its lives."""

    def __init__(self, cluster: ReplicaCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.files = SimFiles(number)
        self.boots = 0
        self.is_up = False
        self.fatal_message: str | None = None
        self.host: ClusterHost
        self.machine: ClusterMachine
        self.replica: Replica
        self.links: MemoryLinks
        self._format("first", is_replacement=False)

    def _format(self, incarnation: str, *, is_replacement: bool) -> None:
        identity = NodeIdentity(
            cluster_id="cluster-a",
            node_id=self.number,
            incarnation=incarnation,
            num_shards=1,
            voters=self.cluster.voters,
            is_replacement=is_replacement,
        )
        format_node(self.files, PATH, identity)

    def start(self) -> None:
        self.boots += 1
        seed = self.cluster.rng.getrandbits(32)
        self.host = ClusterHost(self, self.files, seed)
        self.machine = ClusterMachine(self.cluster, self.number)
        self.links = MemoryLinks(self.cluster, self.number)
        self.directory = open_node(self.files, PATH, self.host.fresh_id)
        engine = self.cluster.engine
        kind = type("TestedReplica", (Replica,), {"core": engine})
        self.replica = kind(self.host, self.directory, SHARD, self.machine, self.cluster.settings, self.links)
        self.is_up = True
        self.replica.start()
        for other in self.cluster.voters:
            if other != self.number:
                delay_ms = self.cluster.rng.uniform(1, 20)
                self.cluster.push(self.cluster.now_ms + delay_ms, None, self.cluster.link, self.number, other)

    def kill(self, crash: Crash = Crash.KEPT) -> None:
        """The process is gone, or (LOST, TORN) the power."""
        count_fault("raftlog", "node killed" if crash is Crash.KEPT else "power lost")
        self._gone()
        self.files = self.files.crash(crash)

    def died(self) -> None:
        """It stopped itself."""
        self.fatal_message = self.host.fatal_message
        self._gone()

    def _gone(self) -> None:
        self.is_up = False
        self.host.is_dead = True
        for other in self.cluster.voters:
            self.cluster.unlink(self.number, other, again_ms=None)

    def restart(self, crash: Crash = Crash.KEPT) -> None:
        self.kill(crash)
        self.start()

    def wipe(self) -> None:
        """A new disk, formatted to take the old one's place."""
        count_fault("raftlog", "disk replaced")
        if self.is_up:
            self.kill()
        self.files = SimFiles(self.number + 100)
        self._format(f"replaced-{self.boots}", is_replacement=True)

    def pause(self) -> None:
        count_fault("raftlog", "node stopped for a while")
        self.host.is_paused = True

    def put(self, *pairs: tuple[str, str | None]) -> int:
        """Apply and propose one entry, as a runtime does."""
        body = entry(*pairs)
        index = self.replica.next_index
        self.machine.proposed(index, self.replica.term, body)
        assert self.replica.propose(body, len(pairs), self.host.wall_ms()) == index
        return index

    def put_many(self, count: int, prefix: str = "k") -> int:
        """Several entries in one turn; the last index."""
        index = 0
        for number in range(count):
            index = self.put((f"{prefix}{number}", str(number)))
        return index

    def put_committed(self, *pairs: tuple[str, str | None]) -> int:
        """`put`, and run until this node knows it committed."""
        index = self.put(*pairs)
        self.cluster.until(lambda: self.machine.committed_index >= index)
        return index

    def log_terms(self) -> Sequence[Any]:
        """The term of every entry in the live log."""
        return self.replica._journal.terms
