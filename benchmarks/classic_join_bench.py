"""Ten consumers of the classic protocol join: `python -m benchmarks.classic_join_bench [--runs N]`.

Ten confluent-kafka consumers of the classic protocol, otherwise with default settings, are created at once,
each with a thread of one process. Measured is the time from the creation of the last one until all own their
partitions evenly and none twice. One node and, in turns in the same run, one broker of Apache Kafka 4.3: both
with `group.initial.rebalance.delay.ms` = 0, also for one consumer alone, and both with their defaults (100
and 3,000 ms).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.apache import java_is_missing, launch_kafka
from benchmarks.figures import report
from benchmarks.fleet import Fleet
from cluster.launching.launcher import launch_node

MEMBERS, PARTITIONS = 10, 100
ADMIN_S = 30.0
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
CASES: tuple[tuple[str, dict[str, str], tuple[int, ...]], ...] = (
    ("no initial delay", NO_DELAY, (MEMBERS, 1)),
    ("defaults", {}, (MEMBERS,)),
)


def join_s(bootstrap: str, name: str, members: int) -> float:
    """Seconds until this many new members of a new group are stable."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)], operation_timeout=ADMIN_S)[name].result(ADMIN_S)
    fleet = Fleet(bootstrap, name, name, **{"group.protocol": "classic"})
    try:
        fleet.add(members)
        created_s = time.monotonic()
        took_s = fleet.wait_for(lambda: fleet.is_balanced(members, PARTITIONS), "balance") - created_s
    finally:
        fleet.close()
    if fleet.twice:
        sys.exit(f"partitions {sorted(set(fleet.twice))[:10]} had two owners")
    return took_s


def measure(servers: dict[str, str], members: int, runs: int) -> dict[str, list[float]]:
    """Seconds of each group by server, one group on each in turns."""
    taken: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(runs + 1):
        for name, bootstrap in servers.items():
            seconds = join_s(bootstrap, f"classic-{members}-{number}", members)
            if number:  # the first one also loads and compiles
                taken[name].append(seconds)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="groups on each server (default 7)")
    options = parser.parse_args()
    why = java_is_missing()
    if why is not None:
        print("without Apache Kafka:", why)
    for what, settings, sizes in CASES:
        with contextlib.ExitStack() as stack:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-bench-")))
            node = launch_node(work / "node", settings=settings)
            stack.callback(node.stop)
            servers = {"one node": f"{node.host}:{node.port}"}
            if why is None:
                kafka = stack.enter_context(launch_kafka(work / "kafka", settings=settings))
                servers["Apache Kafka 4.3"] = kafka.bootstrap
            for members in sizes:
                show(what, members, measure(servers, members, options.runs))


def show(what: str, members: int, taken: dict[str, list[float]]) -> None:
    """Report the figures of one case, and how they compare."""
    for name, found in taken.items():
        figure = f"{min(found):.3f} / {statistics.median(found):.3f} / {max(found):.3f} s"
        report(f"{members} classic consumers join, {what}, {name}", figure)
    if len(taken) > 1:
        ours, theirs = map(statistics.median, taken.values())
        report("ratio of the medians", f"{ours / theirs:.2f}", "<= 0.7" if members > 1 else "")


if __name__ == "__main__":
    main()
