"""A long log changes hands: `python -m benchmarks.takeover_bench [--offsets N] [--rounds N]`.

All offsets are in one shard. Its leadership moves back and forth between two nodes while a client sends one
heartbeat after the other in a shard that the next leader leads already: the client's wait shows how long the
loop of a node is blocked when it becomes the leader. The same client is also measured while nothing happens,
because the machine contributes to both. Then a follower is killed, misses a quarter as many offsets, and
comes back.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import load
from benchmarks.figures import report
from benchmarks.raw import coordinator_of
from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client
from quorate.commands.cluster import ask_leader
from quorate.http_client import ask_json
from records import shard_of

TOPIC, PER_REQUEST, PIPELINED = "orders", 100, 50
NUM_SHARDS, LONG_SHARD = 4, 1
CALM_S = 3.0
"""Seconds before and after a hand-over."""
ANSWER_S = 5.0
REST_S = 0.002
SETTLED_S = 8.0
"""Seconds after which the snapshots caused by filling are done."""


def names_in(shard: int, count: int) -> list[str]:
    """Group ids of one shard."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if shard_of(f"group-{number}", NUM_SHARDS) == shard:
            found.append(f"group-{number}")
        number += 1
    return found


def leader(cluster: ClusterProcess, group_id: str) -> NodeProcess:
    running = [node for node in cluster.nodes if node.is_running]
    address = coordinator_of(running, group_id)
    return next(node for node in running if (node.host, node.port) == address)


def commit_all(cluster: ClusterProcess, names: list[str], offset: int) -> float:
    """Commit a hundred offsets of each group; returns seconds. Continues if leadership moves meanwhile."""
    begin_s, done = time.perf_counter(), 0
    while done < len(names):
        node = leader(cluster, names[0])
        with contextlib.suppress(OSError), load.peers((node.host, node.port), 1) as (peer,):
            while done < len(names):
                frames = [
                    load.commit_frame(name, TOPIC, PER_REQUEST, offset)
                    for name in names[done : done + PIPELINED]
                ]
                peer.socket.sendall(b"".join(frames))
                for _ in frames:
                    peer.skip(int.from_bytes(peer.exactly(4), "big"))
                done += PIPELINED
    return time.perf_counter() - begin_s


class Beating(threading.Thread):
    """A member of a group of its own, with its longest wait in ms since `longest_ms` was reset."""

    def __init__(self, node: NodeProcess, group_id: str) -> None:
        super().__init__(daemon=True)
        self.longest_ms = 0.0
        self._peer = load.Peer((node.host, node.port))
        self._frame = load.settled_members([self._peer], group_id, [TOPIC])[0].steady_frame()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(REST_S):
            begin_s = time.perf_counter()
            self._peer.exchange(self._frame)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - begin_s) * 1000)

    def stop(self) -> None:
        self._end.set()
        self.join()
        self._peer.close()


def hand_overs(cluster: ClusterProcess, names: list[str], rounds: int) -> None:
    waits_ms, calm_ms = [], []
    watched = {shard: names_in(shard, 1)[0] for shard in range(NUM_SHARDS) if shard != LONG_SHARD}
    for _ in range(rounds):
        giving = leader(cluster, names[0])
        leads = {group: leader(cluster, group) for group in watched.values()}
        group, taking = next((group, node) for group, node in leads.items() if node is not giving)
        beating = Beating(taking, group)
        beating.start()
        time.sleep(CALM_S)
        calm_ms.append(beating.longest_ms)
        beating.longest_ms = 0.0
        ask_leader(giving.url, f"/v1/shards/{LONG_SHARD}/transfer", {"to": taking.node_id}, ANSWER_S)
        while leader(cluster, names[0]) is giving:
            time.sleep(0.01)
        time.sleep(CALM_S)
        waits_ms.append(beating.longest_ms)
        beating.stop()
    figure = f"{min(waits_ms):.0f}-{max(waits_ms):.0f} ms"
    report(f"longest wait at a node that becomes the leader ({rounds})", figure, "< 50 ms")
    report("the same client while nothing happens", f"{min(calm_ms):.0f}-{max(calm_ms):.0f} ms")


def catching_up(cluster: ClusterProcess, names: list[str]) -> None:
    leading = leader(cluster, names[0])
    away = next(node for node in cluster.nodes if node is not leading)
    away.kill()
    commit_all(cluster, names[: len(names) // 4], 2)
    others = [node.pid for node in cluster.nodes if node is not away]
    cpu_s, begin_s = load.cpu_seconds(*others), time.perf_counter()
    away.start()
    while not is_level(cluster, names[0]):
        time.sleep(0.05)
    figure = f"{time.perf_counter() - begin_s:.1f} s, CPU {load.cpu_seconds(away.pid):.1f} s"
    missed = len(names) // 4 * PER_REQUEST
    report(f"a node that missed {missed:,} offsets: start to level", figure)
    report("CPU of the two others meanwhile", f"{load.cpu_seconds(*others) - cpu_s:.1f} s")


def is_level(cluster: ClusterProcess, group_id: str) -> bool:
    shards = ask_json(leader(cluster, group_id).url + "/v1/cluster", ANSWER_S)["shards"]
    found = next(one for one in shards if one["shard"] == LONG_SHARD)
    return all(one["in_contact"] and one["lag"] == 0 for one in found["log"]["followers"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offsets", type=int, default=1_000_000, help="distinct, in one shard")
    parser.add_argument("--rounds", type=int, default=4, help="hand-overs")
    options = parser.parse_args()
    names = names_in(LONG_SHARD, options.offsets // PER_REQUEST)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3)
        try:
            with Client(cluster.bootstrap) as client:
                client.create_topic(TOPIC, PER_REQUEST)
            pids = [node.pid for node in cluster.nodes]
            cpu_s, taken_s = load.cpu_seconds(*pids), commit_all(cluster, names, 1)
            per_offset_us = (load.cpu_seconds(*pids) - cpu_s) / options.offsets * 1e6
            figure = f"{taken_s:.0f} s, CPU of all three {per_offset_us:.1f} us per offset"
            report(f"{options.offsets:,} offsets written on one connection", figure)
            resident = ", ".join(f"{load.resident_bytes(pid) / 1e6:.0f}" for pid in pids)
            report("RSS of the three", f"{resident} MB")
            time.sleep(SETTLED_S)
            hand_overs(cluster, names, options.rounds)
            catching_up(cluster, names)
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
