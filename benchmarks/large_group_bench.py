"""One group of thousands of members on three nodes: `python -m benchmarks.large_group_bench [--members N]`.

Raw members on a few connections, each heartbeating at the interval in its responses: all join as fast as they
are admitted, acknowledge their assignments, and continue for a while after all own a fair share at one epoch.
From then on nothing may change: no epoch, no assignment, no refusal. CPU is that of all three nodes.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import load
from benchmarks.figures import report
from benchmarks.raw import coordinator_of
from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.protocol import decode_response, encode_request

GROUP, TOPIC = "large", "orders"
CONNECTIONS = 20
AT_ONCE = 100
"""Heartbeats in flight on one connection."""
SETTLE_S = 180.0
STEADY_S = 30.0


class SwarmMember:
    """One member's state; it shares its connection with others."""

    def __init__(self, peer: load.Peer, number: int) -> None:
        self.peer = peer
        self.member_id = f"member-{number:05}"
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        self.has_news = True

    def frame(self) -> bytes:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.subscribed_topic_names = [TOPIC]
            request.rebalance_timeout_ms = 60_000
        request.topic_partitions = self.owned if self.has_news else None
        return encode_request(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, load.HEARTBEAT_VERSION, 0, load.CLIENT_ID, request
        )

    def hear(self, payload: bytes) -> float:
        """Process a response; returns seconds until the next heartbeat, 0 to acknowledge at once."""
        _, answer = decode_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, load.HEARTBEAT_VERSION, payload)
        if answer.error_code:
            sys.exit(f"{self.member_id}: error {answer.error_code} {answer.error_message}")
        moved = answer.member_epoch != self.epoch
        self.epoch, self.has_news = answer.member_epoch, False
        if answer.assignment is not None:
            given = [
                TopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
                for topic in answer.assignment.topic_partitions
            ]
            self.has_news = given != self.owned
            self.owned = given
        self.is_calm = not moved and not self.has_news
        return 0.0 if self.has_news else answer.heartbeat_interval_ms / 1000

    is_calm = False

    @property
    def size(self) -> int:
        return sum(len(topic.partitions) for topic in self.owned)


class Swarm:
    """All members, each on its own schedule."""

    def __init__(self, peers: list[load.Peer], count: int) -> None:
        self.members = [SwarmMember(peers[number % len(peers)], number) for number in range(count)]
        self._due = [(0.0, number) for number in range(count)]
        self.heartbeats = 0
        self.longest_s = 0.0

    def step(self) -> None:
        """Send the heartbeats that are due, a batch on every connection, and process the responses."""
        now_s = time.monotonic()
        batches: dict[load.Peer, list[int]] = {}
        left: list[tuple[float, int]] = []
        while self._due and self._due[0][0] <= now_s:
            due = heapq.heappop(self._due)
            batch = batches.setdefault(self.members[due[1]].peer, [])
            if len(batch) < AT_ONCE:
                batch.append(due[1])
            else:
                left.append(due)
        for due in left:
            heapq.heappush(self._due, due)
        for peer, numbers in batches.items():
            peer.socket.sendall(b"".join(self.members[number].frame() for number in numbers))
        for peer, numbers in batches.items():
            for number in numbers:
                pause_s = self.members[number].hear(peer.exactly(int.from_bytes(peer.exactly(4), "big")))
                heapq.heappush(self._due, (time.monotonic() + pause_s, number))
            self.heartbeats += len(numbers)
        self.longest_s = max(self.longest_s, time.monotonic() - now_s)
        if not batches:
            time.sleep(max(0.0, min(0.01, self._due[0][0] - now_s)))

    def is_settled(self, num_partitions: int) -> bool:
        members = self.members
        if len({member.epoch for member in members}) != 1 or not all(member.is_calm for member in members):
            return False
        sizes = [member.size for member in members]
        return sum(sizes) == num_partitions and max(sizes) - min(sizes) <= 1


def bench(cluster: ClusterProcess, num_members: int, num_partitions: int) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, num_partitions)
    coordinator = coordinator_of(cluster.nodes, GROUP)
    pids = [node.pid for node in cluster.nodes]
    with load.peers(coordinator, CONNECTIONS) as peers:
        swarm = Swarm(peers, num_members)
        begin_s, cpu_s = time.monotonic(), load.cpu_seconds(*pids)
        joined_s = 0.0
        while not swarm.is_settled(num_partitions):
            swarm.step()
            if not joined_s and all(member.epoch for member in swarm.members):
                joined_s = time.monotonic() - begin_s
                report(f"{num_members:,} members joined", f"{joined_s:.1f} s")
            if time.monotonic() - begin_s > SETTLE_S:
                sys.exit(f"not settled within {SETTLE_S:.0f} s")
        taken_s = time.monotonic() - begin_s
        report(
            f"each a fair share of {num_partitions:,} partitions, at epoch {swarm.members[0].epoch}",
            f"{taken_s:.1f} s, CPU {load.cpu_seconds(*pids) - cpu_s:.1f} s",
        )
        epoch, before = swarm.members[0].epoch, swarm.heartbeats
        begin_s, cpu_s, swarm.longest_s = time.monotonic(), load.cpu_seconds(*pids), 0.0
        while time.monotonic() - begin_s < STEADY_S:
            swarm.step()
            if any(member.epoch != epoch for member in swarm.members):
                sys.exit("the group moved after it had settled")
        taken_s, cpu_s = time.monotonic() - begin_s, load.cpu_seconds(*pids) - cpu_s
        rate = (swarm.heartbeats - before) / taken_s
        report(
            f"stays so for {STEADY_S:.0f} s at {rate:,.0f} heartbeats a second",
            f"CPU {100 * cpu_s / taken_s:.1f} % of a core",
        )
        report("longest wait for a batch of answers meanwhile", f"{swarm.longest_s * 1000:.0f} ms")
        resident = ", ".join(f"{load.resident_bytes(pid) / 1e6:.0f}" for pid in pids)
        report("RSS of the three", f"{resident} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=5_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3)
        try:
            bench(cluster, options.members, options.partitions)
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
