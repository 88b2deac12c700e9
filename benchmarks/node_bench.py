"""One node under load: `python -m benchmarks.node_bench [--seconds N] [--runs N]`.

Each line is the median of the runs, with the target and the figure of Apache Kafka 4.3 with one node on two
cores (it does not sync on commit). Rates per CPU-second count the CPU of the node only; the load generator
has the other core.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import load
from benchmarks.figures import percentile, report
from cluster.launching.launcher import NodeProcess, launch_node

CONNECTIONS = 50
JOIN_RETRY_S = 0.005
MIB = 1 << 20


def median(runs: int, measure: Callable[[int], load.Rate]) -> load.Rate:
    return load.median_rate([measure(run) for run in range(runs)])


def heartbeats(node: NodeProcess, seconds: float, runs: int) -> None:
    address = (node.host, node.port)
    with load.peers(address, 1) as (peer,):
        load.create_topic(peer, "bench", CONNECTIONS)
    for in_flight, target, kafka in ((16, "80,000", "51,700"), (1, "45,000", "41,400")):
        rate = median(
            runs,
            lambda run, in_flight=in_flight: load.steady_heartbeats(  # type: ignore[misc]
                address,
                node.pid,
                connections=CONNECTIONS,
                in_flight=in_flight,
                duration_s=seconds,
                group_id=f"bench-{in_flight}-{run}",
            ),
        )
        what = f"steady heartbeats per CPU-s, {CONNECTIONS} x {in_flight}"
        report(what, f"{rate.per_cpu_s:,.0f} ({rate.per_s:,.0f}/s)", f">= {target}", kafka)


def commits(node: NodeProcess, seconds: float, runs: int) -> None:
    address = (node.host, node.port)
    for partitions, in_flight, target, kafka in (
        (1, 16, "15,000 commits/s", "60,000 (no fsync)"),
        (100, 4, "120,000 partitions/s", "115,000-164,000"),
    ):
        rate = median(
            runs,
            lambda run, partitions=partitions, in_flight=in_flight: load.commits(  # type: ignore[misc]
                address,
                node.pid,
                connections=CONNECTIONS,
                in_flight=in_flight,
                partitions=partitions,
                duration_s=seconds,
            ),
        )
        what = f"commits of {partitions} partition(s), {CONNECTIONS} x {in_flight}"
        figure = f"{rate.per_s * partitions:,.0f}/s ({rate.per_cpu_s * partitions:,.0f}/CPU-s)"
        report(what, figure, f">= {target}", kafka)


def latency(node: NodeProcess) -> None:
    times, disk = load.commits_beside_fdatasync_ms((node.host, node.port), node.data)
    disk_ms, p50, p99 = percentile(disk, 0.5), percentile(times, 0.5), percentile(times, 0.99)
    report(f"fdatasync of {load.PROBE_BYTES} bytes, p50", f"{disk_ms:.3f} ms", "-")
    bound_ms = 1.5 * disk_ms + 0.2
    report(
        "sequential commit, p50 / p99", f"{p50:.3f} / {p99:.3f} ms", f"<= {bound_ms:.3f} ms", "0.15 / 0.3 ms"
    )


def start_to_join(node: NodeProcess) -> None:
    """Time from the start of the process until a member is admitted, with an existing topic."""
    node.stop()
    starting = threading.Thread(target=node.start)
    start = time.perf_counter()
    starting.start()
    while not joined(node):
        time.sleep(JOIN_RETRY_S)
    elapsed_s = time.perf_counter() - start
    starting.join()
    report("process start to first join accepted", f"{elapsed_s:.2f} s", "<= 0.8 s", "2.6 s")


def joined(node: NodeProcess) -> bool:
    """Whether a member was admitted; False while no one listens or the log is being read."""
    try:
        with load.peers((node.host, node.port), 1) as (peer,):
            load.Member(peer, "bench-start", "first", ["bench"]).beat()
    except (ConnectionError, RuntimeError):
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run (default 5)")
    parser.add_argument("--runs", type=int, default=3, help="of which the median is shown (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        node = launch_node(Path(directory) / "node")
        try:
            heartbeats(node, options.seconds, options.runs)
            resident = load.resident_bytes(node.pid) / MIB
            report(f"RSS with {CONNECTIONS} members", f"{resident:.0f} MiB", "<= 80 MB", "384 MiB")
            start_to_join(node)
            latency(node)
            commits(node, options.seconds, options.runs)
            report("RSS after the commits", f"{load.resident_bytes(node.pid) / MIB:.0f} MiB", "-")
        finally:
            node.stop()


if __name__ == "__main__":
    main()
