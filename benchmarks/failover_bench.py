"""Duration of a failover: `python -m benchmarks.failover_bench [--kills N] [--commits N]`.

A raw member of one group sends heartbeats; the leader of its shard is killed with -9 while other clients
commit; the outage lasts until the next leader accepts a heartbeat. Beside it a confluent-kafka consumer
commits in a loop; its gap is the longest time between two of its acknowledgements around the kill. The same
is measured for a requested hand-over, and once more with a long log, which must not make it longer.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import consumer, figures, load
from benchmarks.committing import committing
from benchmarks.diaries import read_diary
from benchmarks.figures import percentile
from benchmarks.raw import RawGroup, RawMember
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client
from quorate.commands.cluster import ask_leader
from records import shard_of

TOPIC = "bench"
GROUP = "bench-consumer"
PER_REQUEST = 100
PIPELINED = 64
NUM_SHARDS = 4
SETTLE_S = 1.0
"""Seconds between two faults, so that their gaps are separate."""

SETTINGS = {"group.consumer.session.timeout.ms": "30000", "group.consumer.heartbeat.interval.ms": "500"}


def report(what: str, seconds: list[float], target: str, kafka: str) -> None:
    low, middle, high = min(seconds), percentile(seconds, 0.5), max(seconds)
    figures.report(what, f"{low:.2f} / {middle:.2f} / {high:.2f} s (n={len(seconds)})", target, kafka)


class Watched:
    """The cluster, a raw member and a consumer, both in the shard of `GROUP`."""

    def __init__(self, cluster: ClusterProcess, diary: Path) -> None:
        self.cluster = cluster
        self.diary = diary
        self.addresses = [(node.host, node.port) for node in cluster.nodes]
        shard = shard_of(GROUP, NUM_SHARDS)
        names = (f"bench-member-{number}" for number in range(1_000))
        self.group = RawGroup(self.addresses, next(n for n in names if shard_of(n, NUM_SHARDS) == shard))
        self.shard = shard
        self.member = RawMember(self.group, "raw", [TOPIC])
        self.member.settle()

    @contextmanager
    def consumer(self) -> Iterator[None]:
        command = [
            sys.executable,
            "-P",
            consumer.__file__,
            self.cluster.bootstrap,
            GROUP,
            TOPIC,
            str(self.diary),
        ]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
            try:
                while not read_diary(self.diary).acked_s:
                    if child.poll() is not None:
                        raise RuntimeError(f"the consumer ended with {child.returncode}")
                    time.sleep(0.05)
                yield
            finally:
                child.kill()

    def leader(self) -> NodeProcess:
        address = self.group.until_accepted(self.group.find)
        return next(node for node in self.cluster.nodes if (node.host, node.port) == address)

    def outage_s(self, fault: Callable[[NodeProcess], None]) -> tuple[float, float]:
        """(seconds until another leader accepts a heartbeat, time of the fault)."""
        leader = self.leader()
        self.group.until_accepted(self.member.beat)
        at_s = time.monotonic()
        fault(leader)
        self.group.nodes = [address for address in self.addresses if address != (leader.host, leader.port)]
        self.group.coordinator = None
        self.group.until_accepted(self.member.beat)
        took_s = time.monotonic() - at_s
        self.group.nodes = self.addresses
        return took_s, at_s

    def gaps_s(self, faults_s: list[float]) -> list[float]:
        diary = read_diary(self.diary)
        return [diary.longest_gap_s(at_s, at_s + SETTLE_S) for at_s in faults_s]


def kills(watched: Watched, count: int) -> tuple[list[float], list[float]]:
    """(outages of the raw member, gaps of the consumer)."""
    outages, moments = [], []
    for _ in range(count):
        killed: list[NodeProcess] = []

        def kill(node: NodeProcess, killed: list[NodeProcess] = killed) -> None:
            killed.append(node)
            node.kill()

        took_s, at_s = watched.outage_s(kill)
        outages.append(took_s)
        moments.append(at_s)
        time.sleep(SETTLE_S)
        killed[0].start()
    return outages, watched.gaps_s(moments)


def hand_overs(watched: Watched, count: int) -> tuple[list[float], list[float]]:
    outages, moments = [], []
    for _ in range(count):
        took_s, at_s = watched.outage_s(lambda node: _transfer(node, watched.shard))
        outages.append(took_s)
        moments.append(at_s)
        time.sleep(SETTLE_S)
    return outages, watched.gaps_s(moments)


def _transfer(node: NodeProcess, shard: int) -> None:
    ask_leader(node.url, f"/v1/shards/{shard}/transfer", {}, 5.0)


def fill(watched: Watched, commits: int) -> None:
    """Commit this many offsets in the group's shard, a hundred per request.

    Starts again if leadership, and with it the connection, has moved back to the preferred node.
    """
    names = (f"fill-{number}" for number in range(10_000))
    group_id = next(name for name in names if shard_of(name, NUM_SHARDS) == watched.shard)
    frame = load.commit_frame(group_id, TOPIC, PER_REQUEST)
    left = commits // PER_REQUEST // PIPELINED
    group = RawGroup(watched.addresses, group_id)
    while left:
        group.until_accepted(group.commit, TOPIC, {0: 1})
        assert group.coordinator is not None
        with contextlib.suppress(OSError), load.peers(group.coordinator, 1) as (peer,):
            while left:
                peer.socket.sendall(frame * PIPELINED)
                for _ in range(PIPELINED):
                    peer.skip(int.from_bytes(peer.exactly(4), "big"))
                left -= 1
    group.until_accepted(group.commit, TOPIC, {0: 1})
    group.close()
    watched.member.epoch = 0  # filling may take longer than a session
    watched.member.settle()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of the leader (default 50)")
    parser.add_argument("--commits", type=int, default=1_000_000, help="of the long log (default 1,000,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3, settings=SETTINGS)
        try:
            with Client(cluster.bootstrap) as client:
                client.create_topic(TOPIC, PER_REQUEST)
            watched = Watched(cluster, Path(directory) / "consumer.jsonl")
            with watched.consumer(), committing(cluster.bootstrap, TOPIC):
                outages, gaps = kills(watched, options.kills)
                report(
                    "kill -9 to a heartbeat accepted",
                    outages,
                    "p50 <= 0.4, max < 1",
                    "9.4-11.1 s; 2.0-4.1 tuned",
                )
                report("the same, a consumer's gap", gaps, "p50 <= 0.9", "11.3 s; 2.1 s tuned")
                outages, gaps = hand_overs(watched, max(5, options.kills // 5))
                report("hand-over to a heartbeat accepted", outages, "-", "0.79 s")
                report("the same, a consumer's gap", gaps, "<= 0.3", "0.42 s")
            few = max(5, options.kills // 5)
            report("no load, kill -9, a short log", kills(watched, few)[0], "-", "1.5 s")
            fill(watched, options.commits)
            report(
                f"no load, kill -9, {options.commits:,} commits", kills(watched, few)[0], "the same", "2.9 s"
            )
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
