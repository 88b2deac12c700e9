"""Ten confluent consumers rebalance: `python -m benchmarks.rebalance_bench [--runs N] [--without-kafka]`.

Four rebalances of one group, on three nodes with default settings and, in the same run, on Apache Kafka 4.3
(one broker) with its defaults and with its heartbeat interval at 0.5 s. Each is measured from its cause (the
last consumer is created, the reply to CreatePartitions, the new consumer is created, close() is called) until
the clients own all partitions, evenly, none of them twice.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.apache import java_is_missing, launch_kafka
from benchmarks.fleet import Fleet
from cluster.launching.launcher import launch_cluster

MEMBERS, FEW, MANY = 10, 100, 1_000
ADMIN_S = 30.0
REBALANCES = {
    "first join of ten": "<= 2 s",
    f"{FEW} to {MANY:,} partitions": "<= 1.5 s",
    "one consumer more": "<= 1.2 s",
    "one close": "<= 0.6 s",
}
"""The measured rebalances, with the targets for three nodes with default settings."""

EAGER_KAFKA = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}

Timings = dict[str, list[float]]


@contextmanager
def quorate() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", num_nodes=3)
        try:
            yield cluster.bootstrap
        finally:
            cluster.kill()


@contextmanager
def kafka(settings: dict[str, str]) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="kafka-bench-") as directory,
        launch_kafka(Path(directory), settings=settings) as broker,
    ):
        yield broker.bootstrap


def measure(bootstrap: str, runs: int) -> Timings:
    """Seconds of each rebalance, one group after another."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    timings: Timings = {what: [] for what in REBALANCES}
    for number in range(runs + 1):
        taken = rebalances(admin, bootstrap, f"bench-{number}")
        if number:  # the first one also loads and compiles
            for what, seconds in taken.items():
                timings[what].append(seconds)
    return timings


def rebalances(admin: AdminClient, bootstrap: str, name: str) -> dict[str, float]:
    create = admin.create_topics([NewTopic(name, FEW, 1)], operation_timeout=ADMIN_S)
    create[name].result(ADMIN_S)
    fleet = Fleet(bootstrap, name, name)
    first, grown, more, closed = REBALANCES
    try:
        taken = {first: seconds(fleet, lambda: fleet.add(MEMBERS), MEMBERS, FEW)}
        taken[grown] = seconds(fleet, lambda: grow(admin, name), MEMBERS, MANY)
        taken[more] = seconds(fleet, fleet.add, MEMBERS + 1, MANY)
        taken[closed] = seconds(fleet, fleet.close_one, MEMBERS, MANY, since_begin=True)
    finally:
        fleet.close()
    if fleet.twice:
        sys.exit(f"partitions {sorted(set(fleet.twice))[:10]} had two owners")
    return taken


def grow(admin: AdminClient, name: str) -> None:
    admin.create_partitions([NewPartitions(name, MANY)], operation_timeout=ADMIN_S)[name].result(ADMIN_S)


def seconds(
    fleet: Fleet, cause: Callable[[], None], members: int, partitions: int, *, since_begin: bool = False
) -> float:
    """Seconds from the end of the cause, or its beginning, to balance."""
    begin_s = time.monotonic()
    cause()
    caused_s = begin_s if since_begin else time.monotonic()
    return fleet.wait_for(lambda: fleet.is_balanced(members, partitions), "balance") - caused_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="groups on each server")
    parser.add_argument("--without-kafka", action="store_true", help="measure three nodes only")
    options = parser.parse_args()
    servers = {"three nodes, defaults": quorate}
    if options.without_kafka or (why := java_is_missing()) is not None:
        print("without Apache Kafka:", "not asked for" if options.without_kafka else why)
    else:
        servers["Kafka 4.3, defaults"] = lambda: kafka({})
        servers["Kafka 4.3, heartbeat 0.5 s"] = lambda: kafka(EAGER_KAFKA)
    for server, launch in servers.items():
        with launch() as bootstrap:
            for what, taken in measure(bootstrap, options.runs).items():
                figure = f"{min(taken):.2f} / {statistics.median(taken):.2f} / {max(taken):.2f} s"
                target = REBALANCES[what] if launch is quorate else "-"
                print(f"{server:<28} {what:<24} {figure:>22}   target {target}", flush=True)


if __name__ == "__main__":
    main()
