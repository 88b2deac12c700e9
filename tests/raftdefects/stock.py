"""Three nodes of the unmodified library on one virtual clock, over links that never reorder.

Like TCP, the links deliver in order and without duplicates. A link can be held (the peer is slow) and a node
can crash (its unsent messages are lost). No defect shown on this harness needs more than that.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from typing import Any, Final

import pytest
from pysyncobj import SyncObj, SyncObjConf, journal, replicated, syncobj
from pysyncobj.node import Node
from pysyncobj.transport import Transport

NAMES: Final = ("A", "B", "C")
SUCCESS: Final = 0
STEP_S: Final = 0.01
"""Seconds between two ticks of every node; a tenth of the library's own heartbeat interval."""


class Clock:
    """The library's clock; it advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class NoPoller:
    def subscribe(self, *_: object) -> None:
        """Do nothing: there are no sockets."""

    def unsubscribe(self, *_: object) -> None:
        """Do nothing: there are no sockets."""

    def poll(self, _timeout_s: float) -> None:
        """Do nothing: messages come from the links."""


class MemoryTransport(Transport):  # type: ignore[misc]
    def __init__(self, cluster: StockCluster, name: str) -> None:
        super().__init__(None, None, [])
        self.cluster = cluster
        self.name = name
        self.peers = {other: Node(other) for other in NAMES if other != name}

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: Node, message: Any) -> bool:
        if node.id in self.cluster.dead:
            return False
        self.cluster.links[self.name, node.id].append(copy.deepcopy(message))
        return True

    def destroy(self) -> None:
        """Do nothing: there is nothing to close."""


class StockNode(SyncObj):  # type: ignore[misc]
    """A state machine that remembers the order in which values were applied."""

    def __init__(self, cluster: StockCluster, name: str, **conf: Any) -> None:
        transport = self.transport = MemoryTransport(cluster, name)
        self.name = name
        settings = {"autoTick": False, "logCompactionMinEntries": 10**8, "logCompactionMinTime": 10**7}
        others = list(transport.peers.values())
        super().__init__(Node(name), others, SyncObjConf(**(settings | conf)), transport=transport)
        self._poller = NoPoller()
        self.applied: list[Any] = []  # set after the library has listed its own attributes, so it is in dumps
        for peer in others:
            transport._onNodeConnected(peer)

    @replicated
    def put(self, value: Any) -> None:
        self.applied.append(value)

    @replicated
    def poison(self, value: Any) -> None:
        self.applied.append(value)
        raise RuntimeError("a bug in the state machine")

    @property
    def log(self) -> list[tuple[int, int]]:
        """Return (index, term) of every entry."""
        return [(index, term) for _, index, term in self._SyncObj__raftLog[:]]

    @property
    def last_index(self) -> int:
        return self.log[-1][0]


class StockCluster:
    """Three stock nodes on one clock; `conf(name)` returns the settings of a node."""

    node_class: type[StockNode] = StockNode

    def __init__(self, clock: Clock, conf: Callable[[str], dict[str, Any]] = lambda _name: {}) -> None:
        self.clock = clock
        self.links: defaultdict[tuple[str, str], deque[Any]] = defaultdict(deque)
        self.held: set[tuple[str, str]] = set()
        self.dead: set[str] = set()
        self.nodes = {name: self.node_class(self, name, **conf(name)) for name in NAMES}

    def __getitem__(self, name: str) -> StockNode:
        return self.nodes[name]

    def close(self) -> None:
        """End every process; files stay as they are."""
        for node in self.nodes.values():
            node._doDestroy()

    def deliver(self, source: str, target: str, count: int | None = None) -> None:
        """Deliver the next `count` messages of one link, or all of them."""
        link, node = self.links[source, target], self.nodes[target]
        for _ in range(len(link) if count is None else count):
            message = link.popleft()
            if target not in self.dead:
                node.transport._onMessageReceived(node.transport.peers[source], message)

    def deliver_all(self) -> None:
        """Deliver all messages on links that are not held, and those sent in response."""
        for _ in range(50):
            ways = [way for way in permutations(NAMES, 2) if way not in self.held and self.links[way]]
            if not ways:
                return
            for way in ways:
                self.deliver(*way)

    def tick(self, name: str, after_s: float = 0.0) -> None:
        """Advance the clock by `after_s`, and let one node tick."""
        self.clock.now_s += after_s
        self.nodes[name].doTick(0)

    def run(self, duration_s: float, step_s: float = STEP_S) -> None:
        """Let every living node tick and every link that is not held deliver, for `duration_s`."""
        for _ in range(round(duration_s / step_s)):
            self.clock.now_s += step_s
            for name in NAMES:
                if name not in self.dead:
                    self.nodes[name].doTick(0)
            self.deliver_all()

    def elect(self, name: str) -> StockNode:
        """Let one node campaign before all others and win."""
        self.nodes[name]._SyncObj__raftElectionDeadline = 0
        self.run(0.3)
        assert self.nodes[name]._isLeader()
        return self.nodes[name]

    def hold(self, name: str) -> None:
        """Hold one node's links in both directions."""
        self.held |= {way for way in permutations(NAMES, 2) if name in way}

    def crash(self, name: str) -> None:
        """Kill a node as kill -9 does: messages on its links are lost, and its peers notice."""
        self.dead.add(name)
        for way in permutations(NAMES, 2):
            if name in way:
                self.links[way].clear()
        for other in NAMES:
            self.nodes[other].transport._onNodeDisconnected(Node(name))

    def leaders(self) -> list[str]:
        return [name for name in NAMES if name not in self.dead and self.nodes[name]._isLeader()]


@contextmanager
def stock_library(seed: int = 1) -> Iterator[Clock]:
    """Restore the library as published, with its own journals, a virtual clock and a seeded generator."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syncobj, "monotonicTime", clock)
        patch.setattr(syncobj, "createJournal", journal.createJournal)
        patch.setattr(syncobj, "random", random.Random(seed))
        yield clock
