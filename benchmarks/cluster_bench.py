"""A cluster as run by `quorate up --nodes 3`: `python -m benchmarks.cluster_bench [--runs N] [--seconds S]`.

A start is timed from before the launcher's process is created, on a new directory and on a used one, until a
member's first heartbeat is accepted; it is sent repeatedly to the current coordinator of the group. As after
an installation, all modules are compiled: the first start, which compiles them, is not measured. Memory and
CPU are those of the three nodes; a start's CPU is that of all four processes, until they have stopped again.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import load
from benchmarks.figures import report
from benchmarks.raw import RawGroup, RawMember, coordinator_of
from cluster.launching.launcher import launch_cluster
from quorate.client import Client

HOST = "127.0.0.1"
FIRST_PORT = 21_000
GROUP, TOPIC, PARTITIONS, MEMBERS = "bench", "orders", 100, 50
SETTLED_S = 3.0
"""Seconds after the start before anything is measured, when loading and importing are over."""

MB = 1e6


# Starts


def compiled_in(directory: str) -> dict[str, str]:
    """The environment of processes that keep their compiled modules in `directory`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": directory}


def children_cpu_s() -> float:
    """CPU seconds of all ended child processes and their descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start_once(data: Path, compiled: dict[str, str]) -> tuple[float, float]:
    """One `quorate up`: seconds to the first accepted heartbeat, and CPU seconds of all its processes."""
    before_s = children_cpu_s()
    joined_s = seconds_to_join(data, compiled)
    return joined_s, children_cpu_s() - before_s


def seconds_to_join(data: Path, compiled: dict[str, str]) -> float:
    """Seconds from before the launcher's process to the first accepted heartbeat."""
    kafka_port, http_port = free_ports()
    command = [sys.executable, "-P", "-m", "quorate", "up", "--nodes", "3", "--data", str(data), "--json"]
    command += ["--port", str(kafka_port), "--http-port", str(http_port)]
    group = RawGroup([(HOST, kafka_port + number) for number in range(3)], f"{GROUP}-first")
    begin_s = time.perf_counter()
    with (
        data.with_name("up.log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=compiled) as process,
    ):
        try:
            group.until_accepted(RawMember(group, "first", [TOPIC]).beat)
            joined_s = time.perf_counter() - begin_s
            assert process.stdout is not None
            process.stdout.readline()  # the ready line: only then is it interrupted
        except TimeoutError:
            print(data.with_name("up.log").read_text(), file=sys.stderr)
            raise
        finally:
            group.close()
            process.send_signal(signal.SIGTERM)
    return joined_s


def bench_start(runs: int) -> None:
    fresh, again = [], []
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        compiled = compiled_in(directory + "/modules")
        start_once(Path(directory) / "unmeasured", compiled)
        for number in range(runs):
            data = Path(directory) / f"cluster-{number}"
            fresh.append(start_once(data, compiled))
            again.append(start_once(data, compiled))
    for what, starts in (("on a new directory", fresh), ("again", again)):
        joined_s, cpu_s = zip(*starts, strict=True)
        figure = f"p50 {statistics.median(joined_s):.2f} s, max {max(joined_s):.2f} s"
        report(f"quorate up --nodes 3 to first join, {what} ({runs})", figure, "<= 1.5 s", "9.0 s")
        report("    CPU of all four processes, until they stopped", f"p50 {statistics.median(cpu_s):.2f} s")


def free_ports() -> tuple[int, int]:
    """Two runs of three free ports each, below the system's ephemeral range."""
    for first in range(FIRST_PORT, FIRST_PORT + 1000, 6):
        with ExitStack() as probes:
            try:
                for port in range(first, first + 6):
                    probe = probes.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((HOST, port))
            except OSError:
                continue
            return first, first + 3
    raise RuntimeError("no six free ports in a row")


# At rest


def bench_rest(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", 3)
        try:
            pids = [node.pid for node in cluster.nodes]
            time.sleep(SETTLED_S)
            figure = cpu_share(pids, lambda: time.sleep(seconds))
            report("CPU of all three, no client", figure, "<= 9 %", "16 %")
            report("RSS of all three, empty", resident(pids))
            with Client(cluster.bootstrap) as client:
                client.create_topic(TOPIC, PARTITIONS)
            with load.peers(coordinator_of(cluster.nodes, GROUP), MEMBERS) as opened:
                members = load.settled_members(opened, GROUP, [TOPIC])
                report(f"RSS of all three, {MEMBERS} members", resident(pids), "<= 240 MB", "1,170 MB")
                figure = cpu_share(pids, lambda: beat_each_second(members, seconds))
                report(f"CPU of all three, {MEMBERS} members with a heartbeat per second", figure)
        finally:
            cluster.kill()


def beat_each_second(members: list[load.Member], seconds: float) -> None:
    """Send every member's heartbeat once a second, spread evenly."""
    begin_s = time.perf_counter()
    for number in range(round(seconds * len(members))):
        time.sleep(max(0.0, begin_s + number / len(members) - time.perf_counter()))
        members[number % len(members)].beat()


def cpu_share(pids: list[int], meanwhile: Callable[[], None]) -> str:
    begin_s, cpu_s = time.perf_counter(), load.cpu_seconds(*pids)
    meanwhile()
    taken_s, cpu_s = time.perf_counter() - begin_s, load.cpu_seconds(*pids) - cpu_s
    return f"{100 * cpu_s / taken_s:.1f} %"


def resident(pids: list[int]) -> str:
    return f"{sum(map(load.resident_bytes, pids)) / MB:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="starts of each kind")
    parser.add_argument("--seconds", type=float, default=20.0, help="of CPU at rest")
    parser.add_argument("--only", choices=["start", "rest"])
    options = parser.parse_args()
    if options.only != "rest":
        bench_start(options.runs)
    if options.only != "start":
        bench_rest(options.seconds)


if __name__ == "__main__":
    main()
