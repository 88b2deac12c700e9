"""Three nodes under load: `python -m benchmarks.replication_bench [--seconds N] [--runs N]`.

Every connection goes to the node that leads its group's shard. Rates per CPU-second count the CPU of all
three nodes. Latencies are measured alternately, a hundred each, with the lower bound for a replicated write
on this machine (`floor`), because the speed of its disk drifts by more than the difference between them.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import load
from benchmarks.figures import percentile, report
from benchmarks.floor import floor
from benchmarks.raw import coordinator_of
from benchmarks.replicas import replicas
from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client

CONNECTIONS = 50
TOPIC = "bench"
PARTITIONS = 100
TURNS, PER_TURN = 20, 100


def heartbeats(cluster: ClusterProcess, seconds: float, runs: int) -> None:
    pids = [node.pid for node in cluster.nodes]
    for in_flight, target, kafka in ((16, ">= 70,000", "25,500"), (1, ">= 40,000", "19,900")):
        rates = []
        for run in range(runs):
            group_id = f"bench-{in_flight}-{run}"
            rates.append(
                load.steady_heartbeats(
                    coordinator_of(cluster.nodes, group_id),
                    *pids,
                    connections=CONNECTIONS,
                    in_flight=in_flight,
                    duration_s=seconds,
                    topic=TOPIC,
                    group_id=group_id,
                )
            )
        rate = load.median_rate(rates)
        figure = f"{rate.per_cpu_s:,.0f} ({rate.per_s:,.0f}/s)"
        report(f"steady heartbeats per CPU-s, {CONNECTIONS} x {in_flight}", figure, target, kafka)


def commits(cluster: ClusterProcess, seconds: float, runs: int) -> None:
    pids = [node.pid for node in cluster.nodes]
    for partitions, in_flight, target, kafka in (
        (1, 16, ">= 12,000/s, 6,000/CPU-s", "11,100; 5,900"),
        (100, 4, ">= 60,000/s, aim 100,000", "43,000"),
    ):
        rate = load.median_rate(
            [_commits(cluster, pids, partitions, in_flight, seconds) for _ in range(runs)]
        )
        figure = f"{rate.per_s * partitions:,.0f}/s ({rate.per_cpu_s * partitions:,.0f}/CPU-s)"
        report(f"commits of {partitions} partition(s), {CONNECTIONS} x {in_flight}", figure, target, kafka)


def _commits(
    cluster: ClusterProcess, pids: list[int], partitions: int, in_flight: int, seconds: float
) -> load.Rate:
    groups = [f"bench-{number}" for number in range(CONNECTIONS)]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(load.peers(coordinator_of(cluster.nodes, group), 1))[0] for group in groups
        ]
        frames = [load.commit_frame(group, TOPIC, partitions) for group in groups]
        for peer, frame in zip(opened, frames, strict=True):
            load.check_commit(peer, frame)
        rate = load.sliding_window(opened, frames, in_flight, seconds, *pids)
        for peer, frame in zip(opened, frames, strict=True):
            load.check_commit(peer, frame)
        return rate


def latency(cluster: ClusterProcess, directory: Path) -> None:
    group = "bench-sequential"
    least: list[float] = []
    proposals: list[float] = []
    times: list[float] = []
    with (
        floor(directory) as bare,
        replicas(directory) as alone,
        load.peers(coordinator_of(cluster.nodes, group), 1) as (peer,),
    ):
        frame = load.commit_frame(group, TOPIC, 1)
        load.check_commit(peer, frame)
        alone.propose_ms(PER_TURN)
        for _ in range(TURNS):
            least += [bare.write_ms() for _ in range(PER_TURN)]
            proposals += alone.propose_ms(PER_TURN)
            times += load.timed_ms(lambda: peer.exchange(frame), PER_TURN)
    for each in (least, proposals, times):
        each.sort()
    floor_ms = percentile(least, 0.5)
    report("floor: TCP and fdatasync on a quorum, p50 / p99", _of(least), "-")
    for what, each, target, kafka in (
        ("propose to committed, p50 / p99", proposals, "<= 2.5 x floor", ""),
        ("sequential commit over the wire, p50 / p99", times, "<= 4 x floor", "0.5-0.8 ms (no fsync)"),
    ):
        report(what, f"{_of(each)} ({percentile(each, 0.5) / floor_ms:.1f} x)", target, kafka)


def _of(times: list[float]) -> str:
    return f"{percentile(times, 0.5):.3f} / {percentile(times, 0.99):.3f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run (default 5)")
    parser.add_argument("--runs", type=int, default=3, help="of which the median is shown (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3)
        try:
            with Client(cluster.bootstrap) as client:
                client.create_topic(TOPIC, PARTITIONS)
            latency(cluster, Path(directory))
            heartbeats(cluster, options.seconds, options.runs)
            commits(cluster, options.seconds, options.runs)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
