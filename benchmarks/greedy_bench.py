"""A modest client beside greedy ones: `python -m benchmarks.greedy_bench [--connections N …] [--seconds S]`.

Greedy connections pipeline Metadata requests for all topics, two thousand at a time, to every node of a
cluster of three. Some read nothing; the others read as fast as they can, so that they always have more to
ask. The modest client commits for one group of each shard in turn, and waits for each answer. Printed are its
times alone and beside each number of greedy connections, all in one run on one cluster, and how often a shard
elected a leader meanwhile. Exits with 1 if beside any of them the p99 is above 100 ms or there was an
election.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import resource
import selectors
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from benchmarks.figures import percentile
from benchmarks.load import CLIENT_ID
from benchmarks.raw import Address, RawGroup
from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from records import shard_of
from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest
from wire.protocol import encode_request

ALLOWED_P99_MS: Final = 100.0
TOPIC, PARTITIONS = "orders", 10
PIPELINED: Final = 2_000
READ_BYTES: Final = 1 << 16
SETTLE_S: Final = 2.0
BEGUN_S: Final = 30.0
DESCRIPTORS_SPARE: Final = 64


def _flood(addresses: list[Address], connections: int, is_read: bool, begun: Event, ended: Event) -> None:
    """The greedy connections, in a process of their own apart from the measuring interpreter."""
    many = encode_request(ApiKey.METADATA, 12, 1, CLIENT_ID, MetadataRequest(topics=None)) * PIPELINED
    selector = selectors.DefaultSelector()
    left = dict.fromkeys(range(connections), b"")
    for number in range(connections):
        peer = socket.create_connection(addresses[number % len(addresses)])
        peer.setblocking(False)
        events = selectors.EVENT_WRITE | (selectors.EVENT_READ if is_read else 0)
        selector.register(peer, events, number)
    begun.set()
    while not ended.is_set():
        for key, events in selector.select(0.1):
            assert isinstance(key.fileobj, socket.socket)
            try:
                if events & selectors.EVENT_READ and not key.fileobj.recv(READ_BYTES):
                    selector.unregister(key.fileobj)
                    continue
                if events & selectors.EVENT_WRITE:
                    rest = left[key.data] or many
                    left[key.data] = rest[key.fileobj.send(rest) :]
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(key.fileobj)


@contextlib.contextmanager
def greedy(addresses: list[Address], connections: int, *, is_read: bool) -> Iterator[None]:
    """Run that many greedy connections, from their first requests until the end of the block."""
    context = multiprocessing.get_context("spawn")
    begun, ended = context.Event(), context.Event()
    process = context.Process(
        target=_flood, args=(addresses, connections, is_read, begun, ended), daemon=True
    )
    process.start()
    try:
        if not begun.wait(BEGUN_S):
            raise RuntimeError("the greedy connections do not stand")
        yield
    finally:
        ended.set()
        process.join()


def groups_of_all_shards(addresses: list[Address], num_shards: int) -> list[RawGroup]:
    """One group in each group shard."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < num_shards:
        names.setdefault(shard_of(f"modest-{number}", num_shards), f"modest-{number}")
        number += 1
    return [RawGroup(addresses, name) for name in names.values()]


def commit_times_ms(groups: list[RawGroup], seconds: float) -> list[float]:
    """Sorted times of acknowledged commits, including refusals and coordinator lookups on the way."""
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        for group in groups:
            begun_s = time.perf_counter()
            group.until_accepted(group.commit, TOPIC, {0: len(times)})
            times.append((time.perf_counter() - begun_s) * 1e3)
    return sorted(times)


def terms(cluster: ClusterProcess) -> dict[str, int]:
    """The highest term of each shard that any node reports; an election raises it."""
    highest: dict[str, int] = {}
    for node in cluster.nodes:
        with urllib.request.urlopen(f"{node.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for shard, term in re.findall(r'^quorate_shard_term\{shard="([^"]+)"\} (\d+)', text, re.MULTILINE):
            highest[shard] = max(highest.get(shard, 0), int(term))
    assert highest, "no node tells its terms"
    return highest


def elections(before: dict[str, int], after: dict[str, int]) -> int:
    return sum(after[shard] - term for shard, term in before.items())


def report(what: str, times: list[float], idle_p99_ms: float, num_elections: int) -> bool:
    """Print the figures; returns whether they meet the target."""
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    figures = f"p50 {p50:6.1f}   p99 {p99:7.1f}   max {max(times):7.1f} ms"
    ratio = f"p99 {p99 / idle_p99_ms:5.1f} x that alone"
    print(f"{what:<36} {figures}   {ratio}   {len(times)} commits   {num_elections} elections", flush=True)
    return p99 <= ALLOWED_P99_MS and not num_elections


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, nargs="+", default=[60, 500])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each (default 8)")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(hard, max(options.connections) + DESCRIPTORS_SPARE), hard)
    )
    is_good = True
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        cluster = launch_cluster(Path(directory) / "cluster", 3)
        addresses = [(node.host, node.port) for node in cluster.nodes]
        try:
            with Client(cluster.bootstrap) as client:
                client.create_topic(TOPIC, PARTITIONS)
            groups = groups_of_all_shards(addresses, 4)
            commit_times_ms(groups, SETTLE_S)
            idle = commit_times_ms(groups, options.seconds)
            idle_p99_ms = percentile(idle, 0.99)
            report("alone", idle, idle_p99_ms, 0)
            for connections in options.connections:
                for is_read in (False, True):
                    before = terms(cluster)
                    with greedy(addresses, connections, is_read=is_read):
                        times = commit_times_ms(groups, options.seconds)
                    what = f"{connections} that pipeline, {'reading' if is_read else 'not reading'}"
                    is_good &= report(what, times, idle_p99_ms, elections(before, terms(cluster)))
        finally:
            cluster.stop()
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
