"""The cost of open pages to a node with a busy group: CPU and bytes, with and without five of them.

Three nodes, one group of 200 raw members on 1,000 partitions. They commit up to 200 times a second, and every
ten seconds one leaves and joins again, so that the group has two more epochs. A page asks for what the page
in a browser asks for: the feed of the group from its leader, every 5 s the cluster from every node and the
first hundred groups, and every 10 s the offsets of all partitions, here from the same node. Turns with and
without pages alternate.
"""

from __future__ import annotations

import http.client
import itertools
import statistics
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import load
from benchmarks.figures import report
from benchmarks.large_group_bench import GROUP, TOPIC, Swarm, SwarmMember
from benchmarks.raw import coordinator_of
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.protocol import encode_request

MEMBERS, PARTITIONS, CONNECTIONS = 200, 1_000, 20
PAGES = 5
TURN_S = 25.0
TURNS = 3
CHURN_S = 10.0
CLUSTER_S = 5.0
"""Interval of the page's looks at the cluster."""

OFFSETS_EACH = 2
"""With so many partitions the page asks for their offsets at every second look."""

COMMIT_VERSION = 9  # the last with topic names
OPENING_S = 12.0
"""A page first reads the past of its group, which is measured apart."""


class Page:
    """A reader that asks for all that a page asks for, in two threads, and counts the bytes that it gets."""

    def __init__(self, leader: NodeProcess, nodes: list[NodeProcess]) -> None:
        self.num_bytes = 0
        self._has_closed = threading.Event()
        self._leader, self._nodes = leader, nodes
        self._feed = http.client.HTTPConnection(leader.host, leader.http_port, timeout=30)
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._follow, self._look)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._has_closed.set()
        for thread in self._threads:
            thread.join()

    def _follow(self) -> None:
        self._feed.request("GET", f"/v1/groups/{GROUP}/events")
        answer = self._feed.getresponse()
        while not self._has_closed.is_set():
            self.num_bytes += len(answer.read1(1 << 16))
        self._feed.close()

    def _look(self) -> None:
        looks = itertools.count()
        while not self._has_closed.wait(CLUSTER_S):
            for node in self._nodes:
                self._ask(node, "/v1/cluster")
            self._ask(self._leader, "/v1/groups?limit=100&after=")
            if next(looks) % OFFSETS_EACH == 0:
                self._ask(self._leader, f"/v1/groups/{GROUP}/offsets")

    def _ask(self, node: NodeProcess, path: str) -> None:
        asked = http.client.HTTPConnection(node.host, node.http_port, timeout=10)
        asked.request("GET", path)
        self.num_bytes += len(asked.getresponse().read())
        asked.close()


class BusyGroup:
    """Members that heartbeat, commit, and one after the other leave and join again."""

    def __init__(self, peers: list[load.Peer]) -> None:
        self.swarm = Swarm(peers, MEMBERS)
        self._commits_at_s = self._churns_at_s = time.monotonic()
        self._next = self._num_commits = 0

    def run(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            self.swarm.step()
            now_s = time.monotonic()
            if now_s >= self._commits_at_s + 1 / MEMBERS:
                self._commits_at_s = now_s
                self._next = (self._next + 1) % MEMBERS
                self._num_commits += 1
                _commit(self.swarm.members[self._next], self._num_commits % PARTITIONS)
            if now_s >= self._churns_at_s + CHURN_S:
                self._churns_at_s = now_s
                _leave(self.swarm.members[self._next])

    def settle(self) -> None:
        while not self.swarm.is_settled(PARTITIONS):
            self.swarm.step()


def _leave(member: SwarmMember) -> None:
    """Leave; the next heartbeat joins."""
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member.member_id, member_epoch=-1)
    member.peer.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, load.HEARTBEAT_VERSION, request)
    member.epoch, member.owned, member.has_news = 0, [], True


def _commit(member: SwarmMember, number: int) -> None:
    """Commit an offset for one partition; a member that is moving may be refused."""
    partition = OffsetCommitRequestPartition(
        partition_index=number, committed_offset=1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    member.peer.exchange(encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 0, load.CLIENT_ID, request))


def bench(cluster: ClusterProcess) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
    address = coordinator_of(cluster.nodes, GROUP)
    leader = next(node for node in cluster.nodes if (node.host, node.port) == address)
    opening: dict[int, list[float]] = {0: [], PAGES: []}
    costs: dict[int, list[float]] = {0: [], PAGES: []}
    rates: list[float] = []
    with load.peers(address, CONNECTIONS) as peers:
        group = BusyGroup(peers)
        group.settle()
        for num_pages in [0, PAGES] * TURNS:
            pages = [Page(leader, cluster.nodes) for _ in range(num_pages)]
            opening[num_pages].append(_cpu_s(group, leader, OPENING_S))
            before = _bytes(pages)
            costs[num_pages].append(_cpu_s(group, leader, TURN_S) / TURN_S * 100)
            rates += [(_bytes(pages) - before) / num_pages / TURN_S / 1_000] if pages else []
            for page in pages:
                page.close()
    for num_pages, found in costs.items():
        report(f"CPU of the leader with {num_pages} pages", f"{_shown(found)} % of a core")
    report(f"for {PAGES} pages", f"{_shown(_more(costs))} % of a core", "≤ 3 %")
    report("bytes for each page", f"{_shown(rates)} kB/s")
    report("to open one page", f"{_shown([more_s / PAGES for more_s in _more(opening)])} CPU-s")


def _cpu_s(group: BusyGroup, node: NodeProcess, for_s: float) -> float:
    """Let the group go on; return the CPU seconds of the node meanwhile."""
    before_s = load.cpu_seconds(node.pid)
    group.run(time.monotonic() + for_s)
    return load.cpu_seconds(node.pid) - before_s


def _more(costs: dict[int, list[float]]) -> list[float]:
    """Return how much more each turn with pages cost than the one before it without."""
    return [with_ - without for without, with_ in zip(costs[0], costs[PAGES], strict=True)]


def _bytes(pages: list[Page]) -> int:
    return sum(page.num_bytes for page in pages)


def _shown(figures: list[float]) -> str:
    return f"{statistics.median(figures):.1f} ({min(figures):.1f}–{max(figures):.1f})"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3)
        try:
            bench(cluster)
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
