"""Effect of reading a whole log over HTTP on others: `python -m benchmarks.livelog_bench [--entries N]`.

Three nodes, one shard with a long log, partly archived. A member of another group sends paced heartbeats to
the node that is read from, and each reply is timed, in alternating phases of some seconds: no reader, or one
or four that read the whole log from that node repeatedly; from the leader of the long shard and from a
follower. The readers only run when nothing else would, since they belong on another machine. In one kind of
phase the reader reads files instead, which shows the load on the processors without that on the node's loop.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import load
from benchmarks.figures import percentile
from benchmarks.takeover_bench import NUM_SHARDS, leader, names_in
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client

TOPIC, LONG_SHARD = "orders", 1
IN_FLIGHT = 200
TURN_S = 4.0
PACE_S = 0.004
"""Seconds between two heartbeats of the timed member: 250 a second."""

READER = """
import os, sys, time
from history.reading.opening import open_node
from quorate.livelog import open_live
from raftlog.storage.frames import Frame
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
where, shard = sys.argv[1], int(sys.argv[2])
while True:
    began = time.perf_counter()
    log = open_live(where) if where.startswith("http") else open_node(where)
    reader = log.reader(shard)
    if where.startswith("http"):
        reader._nodes.urls = [where]
    size = sum(frame.size for frame in reader.frames())
    print(size, time.perf_counter() - began, flush=True)
"""


def fill(cluster: ClusterProcess, num_entries: int) -> None:
    """Commit one partition at a time in the long shard."""
    names = names_in(LONG_SHARD, 50)
    node = leader(cluster, names[0])
    with load.peers((node.host, node.port), 1) as (peer,):
        for done in range(0, num_entries, IN_FLIGHT):
            frames = [
                load.commit_frame(names[(done + number) % len(names)], TOPIC, 1, done + number)
                for number in range(IN_FLIGHT)
            ]
            peer.socket.sendall(b"".join(frames))
            for _ in frames:
                peer.skip(int.from_bytes(peer.exactly(4), "big"))


@contextmanager
def readers(where: str, count: int, read: list[tuple[float, float]]) -> Iterator[None]:
    """Run readers that read the log repeatedly; ``read`` gets (bytes, seconds) of each complete read."""
    command = [sys.executable, "-c", READER, where, str(LONG_SHARD)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        time.sleep(1.0 if running else 0.0)  # for the readers to start
        yield
        if ended := [process.returncode for process in running if process.poll() is not None]:
            raise RuntimeError(f"readers ended before they were stopped, with {ended}")
    finally:
        for process in running:
            process.kill()
            out, _ = process.communicate()
            for line in out.splitlines():
                size, seconds = line.split()
                read.append((float(size), float(seconds)))


def beats_ms(peer: load.Peer, frame: bytes) -> list[float]:
    """Response times in ms of one phase, at a steady pace."""
    found = []
    begin_s = next_s = time.perf_counter()
    while next_s < begin_s + TURN_S:
        time.sleep(max(0.0, next_s - time.perf_counter()))
        asked_s = time.perf_counter()
        peer.exchange(frame)
        found.append((time.perf_counter() - asked_s) * 1000)
        next_s = max(next_s + PACE_S, time.perf_counter())
    return found


def compare(what: str, node: NodeProcess, group_id: str, rounds: int) -> None:
    """All phases for one node, round after round, so that changes of the machine affect all alike."""
    kinds = {
        "nobody reads": ("", 0),
        "one reads its files": (str(node.data), 1),
        "one reads over HTTP": (node.url, 1),
        "four read over HTTP": (node.url, 4),
    }
    times: dict[str, list[list[float]]] = defaultdict(list)
    read: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with load.peers((node.host, node.port), 1) as (peer,):
        frame = load.settled_members([peer], group_id, [TOPIC])[0].steady_frame()
        beats_ms(peer, frame)
        for _ in range(rounds):
            for kind, (where, count) in kinds.items():
                with readers(where, count, read[kind]):
                    times[kind].append(sorted(beats_ms(peer, frame)))
    idle = statistics.median(percentile(turn, 0.99) for turn in times["nobody reads"])
    for kind, turns in times.items():
        half, most = (statistics.median(percentile(turn, part) for turn in turns) for part in (0.5, 0.99))
        rate = [size / seconds / 1e6 for size, seconds in read[kind]]
        speed = f"{statistics.median(rate):5.1f} MB/s each, {len(rate)} whole reads" if rate else ""
        worst = max(turn[-1] for turn in turns)
        print(
            f"{what:<9} {kind:<22} p50 {half:5.2f} ms  p99 {most:6.2f} ms ({most / idle:4.2f} x idle)"
            f"  max {worst:6.1f} ms  {speed}",
            flush=True,
        )


def main() -> None:
    """Print one line per node and kind of phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    settings = {"snapshot.tail.records": "60000", "log.segment.bytes": str(4 << 20)}
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        cluster = launch_cluster(Path(home) / "cluster", num_nodes=3, settings=settings)
        stack.callback(cluster.kill)
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, 100)
        fill(cluster, chosen.entries)
        time.sleep(5.0)  # for due snapshots to be made
        leading = leader(cluster, names_in(LONG_SHARD, 1)[0])
        leads = {
            shard: leader(cluster, names_in(shard, 1)[0])
            for shard in range(NUM_SHARDS)
            if shard != LONG_SHARD
        }
        follower = next(node for node in leads.values() if node is not leading)
        other = next(shard for shard, node in leads.items() if node is follower)
        compare("leader", leading, names_in(LONG_SHARD, 51)[50], chosen.rounds)
        compare("follower", follower, names_in(other, 51)[50], chosen.rounds)


if __name__ == "__main__":
    main()
