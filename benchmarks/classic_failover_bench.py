"""Failover as clients of the classic protocol see it: `python -m benchmarks.classic_failover_bench`.

Three nodes, and one consumer each of aiokafka, kafka-python and confluent-kafka with default settings, every
one in a group and a process of its own, all in one shard. Each commits in a loop. The leader of the shard is
killed with -9 and started again; the gap is the longest time between two acknowledged commits of a client
around a kill.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks import classic_consumer
from benchmarks.diaries import read_diary
from benchmarks.figures import percentile, report
from benchmarks.raw import coordinator_of
from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from records import shard_of

TOPIC = "bench"
NUM_SHARDS = 4
STARTED_S = 60.0
AFTER_S = 4.0
"""Seconds from a kill to the restart of the killed node, and from that to the next kill."""


def groups(num: int) -> list[str]:
    """Names of groups of one shard."""
    names = [f"classic-{number}" for number in range(1_000)]
    return [name for name in names if shard_of(name, NUM_SHARDS) == 0][:num]


def wait_for_commits(diaries: list[Path], since_s: float) -> None:
    deadline_s = time.monotonic() + STARTED_S
    while not all((read_diary(file).acked_s or [0.0])[-1] > since_s for file in diaries):
        if time.monotonic() > deadline_s:
            raise TimeoutError("a client does not commit")
        time.sleep(0.1)


def kills(cluster: ClusterProcess, group: str, diaries: list[Path], count: int) -> list[float]:
    """Kill the leader again and again; return the times."""
    moments = []
    for _ in range(count):
        wait_for_commits(diaries, time.monotonic())
        host, port = coordinator_of(cluster.nodes, group)
        leader = next(node for node in cluster.nodes if (node.host, node.port) == (host, port))
        moments.append(time.monotonic())
        leader.kill()
        time.sleep(AFTER_S)
        leader.start()
        time.sleep(AFTER_S)
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="of the leader (default 10)")
    options = parser.parse_args()
    names = list(classic_consumer.KINDS)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory, contextlib.ExitStack() as stack:
        settings = {"cluster.shards": str(NUM_SHARDS)}
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3, settings=settings)
        stack.callback(cluster.kill)
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, 1)
        diaries = [Path(directory) / f"{name}.jsonl" for name in names]
        for name, group, file in zip(names, groups(len(names)), diaries, strict=True):
            script = [sys.executable, "-P", classic_consumer.__file__, name]
            child = subprocess.Popen(
                [*script, cluster.bootstrap, group, TOPIC, str(file)], stderr=subprocess.DEVNULL
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
        moments = kills(cluster, groups(1)[0], diaries, options.kills)
        wait_for_commits(diaries, time.monotonic())
        for name, file in zip(names, diaries, strict=True):
            diary = read_diary(file)
            gaps = [diary.longest_gap_s(at_s, at_s + AFTER_S) for at_s in moments]
            figure = f"{min(gaps):.2f} / {percentile(gaps, 0.5):.2f} / {max(gaps):.2f} s (n={len(gaps)})"
            report(f"kill -9 of the leader, longest gap of commits, {name}", figure, "<= 1 s")
            errors = Counter(event["error"].split("(")[0] for event in diary.of("failed"))
            print(f"    failed commits: {dict(errors.most_common(4))}", flush=True)


if __name__ == "__main__":
    main()
