"""Three nodes of the unmodified library on one virtual clock, over links that never reorder.

The links are as kind as TCP: in order, nothing doubled. A link can be held (the peer is slow) and a node can
crash (what it had not sent is gone). Every defect shown on this harness needs no more than that.
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
"""How often every node ticks; a tenth of the library's own heartbeat."""


class Clock:
    """The library's clock; it goes on when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class NoPoller:
    def subscribe(self, *_: object) -> None:
        """Nothing to watch."""

    def unsubscribe(self, *_: object) -> None:
        """Nothing was watched."""

    def poll(self, _timeout_s: float) -> None:
        """Messages come from the links."""


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
        """Nothing to close."""


class StockNode(SyncObj):  # type: ignore[misc]
    """A state machine that remembers in which order values came."""

    def __init__(self, cluster: StockCluster, name: str, **conf: Any) -> None:
        transport = self.transport = MemoryTransport(cluster, name)
        self.name = name
        settings = {"autoTick": False, "logCompactionMinEntries": 10**8, "logCompactionMinTime": 10**7}
        others = list(transport.peers.values())
        super().__init__(Node(name), others, SyncObjConf(**(settings | conf)), transport=transport)
        self._poller = NoPoller()
        self.applied: list[Any] = []  # made after the library has noted what is its own: this is in dumps
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
        """(index, term) of every entry."""
        return [(index, term) for _, index, term in self._SyncObj__raftLog[:]]

    @property
    def last_index(self) -> int:
        return self.log[-1][0]


class StockCluster:
    """`conf(name)` are the settings of one node."""

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
        """Every process ends; files stay as they are."""
        for node in self.nodes.values():
            node._doDestroy()

    def deliver(self, source: str, target: str, count: int | None = None) -> None:
        """The next messages of one link arrive: all of them unless `count` says how many."""
        link, node = self.links[source, target], self.nodes[target]
        for _ in range(len(link) if count is None else count):
            message = link.popleft()
            if target not in self.dead:
                node.transport._onMessageReceived(node.transport.peers[source], message)

    def deliver_all(self) -> None:
        """Everything on links that are not held arrives, and what is sent because of it."""
        for _ in range(50):
            ways = [way for way in permutations(NAMES, 2) if way not in self.held and self.links[way]]
            if not ways:
                return
            for way in ways:
                self.deliver(*way)

    def tick(self, name: str, after_s: float = 0.0) -> None:
        """One node looks at its clock."""
        self.clock.now_s += after_s
        self.nodes[name].doTick(0)

    def run(self, duration_s: float, step_s: float = STEP_S) -> None:
        """Every living node ticks, every link that is not held delivers."""
        for _ in range(round(duration_s / step_s)):
            self.clock.now_s += step_s
            for name in NAMES:
                if name not in self.dead:
                    self.nodes[name].doTick(0)
            self.deliver_all()

    def elect(self, name: str) -> StockNode:
        """Lets one node campaign before all others and win."""
        self.nodes[name]._SyncObj__raftElectionDeadline = 0
        self.run(0.3)
        assert self.nodes[name]._isLeader()
        return self.nodes[name]

    def hold(self, name: str) -> None:
        """One node's links deliver nothing, either way."""
        self.held |= {way for way in permutations(NAMES, 2) if name in way}

    def crash(self, name: str) -> None:
        """kill -9: what was on its links is lost with it, and its peers notice."""
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
    """The library as it was published: its own journals, and a clock and chance that repeat."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syncobj, "monotonicTime", clock)
        patch.setattr(syncobj, "createJournal", journal.createJournal)
        patch.setattr(syncobj, "random", random.Random(seed))
        yield clock
