"""Rebalance and failover of quorate.SyncConsumer beside confluent-kafka's, both with KIP-848's protocol.

Run `python -m benchmarks.client_groups_bench [--rounds N] [--kills N] [--server kafka|quorate]`. Every member
is a process of its own with default settings, and a producer writes to every partition all the time.

A rebalance: a member joins two others, and leaves them again. Each is measured from the call (subscribe(),
close()) until the last partition that moves has been read by its new owner. The libraries take turns.

A failover, on three Quorate nodes: one consumer of each library commits in a loop, in groups of one shard,
whose leader is killed with -9 and started again. The gap is the longest time between two of its commits.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from benchmarks import classic_failover_bench, group_member
from benchmarks.apache import java_is_missing, launch_kafka
from benchmarks.diaries import read_diary
from benchmarks.figures import percentile, report
from cluster.launching.launcher import launch_cluster, launch_node
from quorate.client import Client

LIBRARIES: Final = {"quorate": "quorate.confluent", "confluent-kafka": "confluent_kafka"}
SCRATCH: Final = {"scratch.log.enable": "true"}
TOPIC: Final = "orders"
STAYING: Final = 2
"""Members that stay, beside the one that joins and leaves."""
PARTITIONS: Final = 12
PRODUCE_S: Final = 0.01
"""The time between two messages of a partition."""
LOOK_S: Final = 0.02
WAIT_S_MAX: Final = 60.0


@contextmanager
def member(home: Path, library: str, work: str, bootstrap: str, group: str) -> Iterator[Member]:
    """Run a member during the body."""
    file = home / f"{group}-{time.monotonic_ns()}.jsonl"
    command = [sys.executable, "-P", group_member.__file__, LIBRARIES[library], work]
    with subprocess.Popen([*command, bootstrap, group, TOPIC, str(file)], stderr=subprocess.DEVNULL) as child:
        try:
            yield Member(child, file)
        finally:
            child.kill()


class Member:
    """A process of `group_member.py`."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path) -> None:
        self.process = process
        self.file = file

    def read_since(self, at_s: float = 0.0) -> dict[int, float]:
        """The time of the first read of each partition that it got since then and read."""
        events = read_diary(self.file).of("first")
        return {event["partition"]: event["at_s"] for event in events if event["at_s"] >= at_s}

    def at_s(self, event: str) -> float:
        """The time of something that happens once."""
        return read_diary(self.file).of(event)[0]["at_s"]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {WAIT_S_MAX:.0f} s")
        time.sleep(LOOK_S)


def join_and_leave(home: Path, library: str, bootstrap: str, group: str) -> tuple[float, float]:
    """Return the seconds until all is read again after a member joined, and after it left."""
    with contextlib.ExitStack() as stack:
        staying = [
            stack.enter_context(member(home, library, "read", bootstrap, group)) for _ in range(STAYING)
        ]
        wait_for(lambda: len({at for one in staying for at in one.read_since()}) == PARTITIONS, "the group")
        time.sleep(1.0)  # whoever came first has given up the partitions of the second, and is at rest
        third = stack.enter_context(member(home, library, "read", bootstrap, group))
        share = PARTITIONS // (STAYING + 1)
        wait_for(lambda: len(third.read_since()) == share, f"{library}: a member's join")
        joined_s = max(third.read_since().values()) - third.at_s("joining")
        moved = third.read_since().keys()
        time.sleep(1.0)
        asked_s = time.monotonic()
        third.process.send_signal(signal.SIGTERM)

        def read_again() -> dict[int, float]:
            found = [one.read_since(asked_s) for one in staying]
            return {at: at_s for one in found for at, at_s in one.items() if at in moved}

        wait_for(lambda: len(read_again()) == len(moved), f"{library}: a member's leave")
        return joined_s, max(read_again().values()) - third.at_s("leaving")


@contextmanager
def producing(bootstrap: str) -> Iterator[None]:
    """Write to every partition during the body."""
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def produce() -> None:
        while not is_over.wait(PRODUCE_S):
            for partition in range(PARTITIONS):
                with contextlib.suppress(BufferError):
                    producer.produce(TOPIC, b"x" * 100, partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def served(name: str, home: Path) -> Iterator[str]:
    """The bootstrap address of a fresh server with the topic."""
    with contextlib.ExitStack() as stack:
        if name == "quorate":
            node = launch_node(home / name, settings=SCRATCH)
            stack.callback(node.kill)
            bootstrap = node.bootstrap
        else:
            bootstrap = stack.enter_context(launch_kafka(home / name)).bootstrap
        with Client(bootstrap) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        yield bootstrap


def figure(seconds: list[float]) -> str:
    low, middle, high = min(seconds), percentile(seconds, 0.5), max(seconds)
    return f"{low:.2f} / {middle:.2f} / {high:.2f} s (n={len(seconds)})"


def rebalances(name: str, home: Path, rounds: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {library: [] for library in LIBRARIES}
    with served(name, home) as bootstrap, producing(bootstrap):
        for number in range(rounds):
            for library in LIBRARIES:
                found[library].append(join_and_leave(home, library, bootstrap, f"{library}-{number}"))
    for library, pairs in found.items():
        joined_s, left_s = zip(*pairs, strict=True)
        report(f"{name}: a member joins, {library}", figure(list(joined_s)))
        report(f"{name}: a member leaves, {library}", figure(list(left_s)))


def failovers(home: Path, count: int) -> None:
    settings = {"cluster.shards": str(classic_failover_bench.NUM_SHARDS)}
    with contextlib.ExitStack() as stack:
        cluster = launch_cluster(home / "cluster", num_nodes=3, settings=settings)
        stack.callback(cluster.kill)
        with Client(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, 1)
        groups = classic_failover_bench.groups(len(LIBRARIES))
        members = {
            library: stack.enter_context(member(home, library, "commit", cluster.bootstrap, group))
            for library, group in zip(LIBRARIES, groups, strict=True)
        }
        diaries = [one.file for one in members.values()]
        moments = classic_failover_bench.kills(cluster, groups[0], diaries, count)
        classic_failover_bench.wait_for_commits(diaries, time.monotonic())
        for library, one in members.items():
            diary = read_diary(one.file)
            gaps = [diary.longest_gap_s(at_s, at_s + classic_failover_bench.AFTER_S) for at_s in moments]
            report(f"kill -9 of the coordinator, longest gap of commits, {library}", figure(gaps))
            errors = Counter(event["error"] for event in diary.of("failed"))
            print(f"    failed commits: {dict(errors.most_common(4))}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_groups_bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="joins and leaves on each server (%(default)s)")
    parser.add_argument("--kills", type=int, default=10, help="of the coordinator (%(default)s)")
    parser.add_argument("--server", choices=["kafka", "quorate"], action="append")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        home = Path(directory)
        for name in (asked.server or ["quorate", "kafka"]) if asked.rounds else []:
            if name == "kafka" and (missing := java_is_missing()):
                print(f"server kafka: left out: {missing}")
            else:
                rebalances(name, home, asked.rounds)
        if asked.kills:
            failovers(home, asked.kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
