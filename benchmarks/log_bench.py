"""The log alone: cost of a durable entry compared with a bare fdatasync, throughput, and loading time.

The state machine above the replica does nothing, so that only the log is measured.  Ratios come from one run
that alternates on the same disk: `python -m benchmarks log` writes below the current directory's `build/`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.host.host_asyncio import AsyncioHost, new_event_loop
from raftlog.env.files import OsFiles
from raftlog.env.settings import LogSettings
from raftlog.replica.replica import Replica
from raftlog.storage import merge
from raftlog.storage.directory import NodeIdentity, format_node, open_node
from records import Cause, RawRecord, Trigger, encode_entry, encode_offset_commit, offset_commit_key

PLACE = Path("build/log-bench")
SEQUENTIAL = 1500
PIPELINED = 60_000
IN_FLIGHT = 1000
SNAPSHOT_RECORDS = 100_000
TAIL_RECORDS = 400_000
MERGED_RECORDS = 200_000
IDENTITY = NodeIdentity(cluster_id="bench", node_id=1, incarnation="bench", num_shards=1)
CAUSE = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id="consumer-7", member_epoch=3)


def commit_record(number: int, keys: int) -> RawRecord:
    """A commit of one partition, cycling through `keys` different ones."""
    place = number % keys
    key = offset_commit_key(f"group-{place // 100}", "orders", place % 100)
    return encode_offset_commit(key, number, -1, "", 1_700_000_000_000, -1, bytes(16))


class Machine:
    """A state machine that counts and keeps nothing."""

    def __init__(self) -> None:
        self.applied = 0
        self.records = 0
        self.on_committed: Callable[[int], None] = lambda index: None
        self.on_ready: Callable[[], None] = lambda: None

    def restore(self, records: list[RawRecord], header: Any) -> None:
        self.records += len(records)
        self.applied = header.last_index

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        self.applied = index

    def committed(self, index: int) -> None:
        self.on_committed(index)

    def ready(self, term: int) -> None:
        self.on_ready()

    def deposed(self, reason: str) -> None:
        raise AssertionError(reason)

    def state_hash(self) -> int:
        return 0

    def applied_index(self) -> int:
        return self.applied

    def catalog_version(self) -> int:
        return 0


class Bench:
    """A replica on a real loop and disk."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.loop = new_event_loop()
        self.host = AsyncioHost(self.loop)
        self.machine = Machine()
        self.directory = open_node(self.host.files, str(PLACE), self.host.fresh_id)
        self.replica = Replica(self.host, self.directory, 0, self.machine, settings or LogSettings())

    def start(self) -> float:
        """Start the replica; returns seconds until Ready."""
        ready = self.loop.create_future()
        self.machine.on_ready = lambda: ready.set_result(None)
        started = time.perf_counter()
        self.loop.call_soon(self.replica.start)
        self.loop.run_until_complete(ready)
        return time.perf_counter() - started

    def propose(self, body: bytes, count: int) -> int:
        """Propose as a runtime does: apply, then propose."""
        self.machine.applied = self.replica.next_index
        return self.replica.propose(body, count, 0)

    def close(self) -> None:
        """Stop cleanly."""
        stopped = self.loop.create_future()
        self.replica.stop(lambda: stopped.set_result(None))
        self.loop.run_until_complete(stopped)
        self.directory.close()
        self.host.close()
        self.loop.close()


def fresh(settings: LogSettings | None = None) -> Bench:
    """A ready replica on a new directory."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    format_node(OsFiles(), str(PLACE), IDENTITY)
    bench = Bench(settings)
    bench.start()
    return bench


async def sequential(bench: Bench, body: bytes, count: int, took_ms: list[float]) -> None:
    """One entry at a time, from propose to committed."""
    done = asyncio.Event()
    bench.machine.on_committed = lambda index: done.set()
    for _ in range(count):
        started = time.perf_counter()
        bench.propose(body, 1)
        await done.wait()
        took_ms.append((time.perf_counter() - started) * 1000)
        done.clear()


def bare(path: Path, body: bytes, count: int, took_ms: list[float]) -> None:
    """The machine's own time for a write at the end of a file and an fdatasync."""
    file = OsFiles().open(str(path), "w")
    at = file.size()
    for _ in range(count):
        started = time.perf_counter()
        file.pwrite(body, at)
        file.fdatasync()
        took_ms.append((time.perf_counter() - started) * 1000)
        at += len(body)
    file.close()


def sequential_bench() -> None:
    bench = fresh()
    body = encode_entry(CAUSE, [commit_record(1, 1)])
    floor_ms: list[float] = []
    took_ms: list[float] = []
    for _ in range(10):  # alternating, so that both see the same disk
        bare(PLACE / "bare", bytes(len(body) + 48), SEQUENTIAL // 10, floor_ms)
        bench.loop.run_until_complete(sequential(bench, body, SEQUENTIAL // 10, took_ms))
    floor, took = statistics.median(floor_ms), statistics.median(took_ms)
    print(
        f"sequential entry p50 {took:.3f} ms, bare write + fdatasync {floor:.3f} ms, ratio {took / floor:.2f}"
    )
    bench.close()


async def pipelined(bench: Bench, body: bytes, count: int, in_flight: int) -> float:
    """Seconds for `count` entries with `in_flight` of them unacknowledged."""
    done = bench.loop.create_future()
    sent = 0
    first = bench.replica.last_index

    def more(index: int) -> None:
        nonlocal sent
        while sent < count and sent - (index - first) < in_flight:
            bench.propose(body, 1)
            sent += 1
        if index - first >= count and not done.done():
            done.set_result(None)

    bench.machine.on_committed = more
    started = time.perf_counter()
    more(first)
    await done
    return time.perf_counter() - started


def pipelined_bench() -> None:
    for in_flight in (16, IN_FLIGHT):
        bench = fresh()
        body = encode_entry(CAUSE, [commit_record(1, 1)])
        count = PIPELINED if in_flight == IN_FLIGHT else PIPELINED // 4
        cpu = time.process_time()
        took = bench.loop.run_until_complete(pipelined(bench, body, count, in_flight))
        cpu = time.process_time() - cpu
        rate, per_cpu = count / took, count / cpu
        print(f"{in_flight} in flight: {rate:,.0f} entries/s, {per_cpu:,.0f} per CPU-second")
        bench.close()


def load_bench() -> None:
    settings = dataclasses.replace(LogSettings(), snapshot_tail_records=SNAPSHOT_RECORDS)
    for per_entry in (1, 100):
        bench = fresh(settings)
        _write(bench, SNAPSHOT_RECORDS + 64 * per_entry, per_entry)
        bench.loop.run_until_complete(_snapshot_made(bench))
        bench.close()
        bench = Bench()
        bench.start()
        _write(bench, TAIL_RECORDS, per_entry)
        bench.close()
        bench = Bench()
        cpu = time.process_time()
        took = bench.start()
        cpu = time.process_time() - cpu
        status = bench.replica.status()
        print(
            f"load of {bench.machine.records:,} snapshot + {status['tail_records']:,} tail records, "
            f"{per_entry} per entry: {took:.3f} s, {cpu:.3f} s CPU, without applying them"
        )
        bench.close()


def _write(bench: Bench, count: int, per_entry: int) -> None:
    bodies = []
    for start in range(0, count, per_entry):
        records = [commit_record(start + i, SNAPSHOT_RECORDS) for i in range(per_entry)]
        bodies.append(encode_entry(CAUSE, records))

    async def go() -> None:
        for place, body in enumerate(bodies):
            bench.propose(body, per_entry)
            if place % 2000 == 0:
                await asyncio.sleep(0)
        while bench.replica.commit_index < bench.replica.last_index:
            await asyncio.sleep(0.001)

    bench.machine.on_committed = lambda index: None
    bench.loop.run_until_complete(go())


async def _snapshot_made(bench: Bench) -> None:
    while bench.replica.status()["snapshots_made"] == 0:
        await asyncio.sleep(0.02)


def merge_bench(count: int = MERGED_RECORDS) -> None:
    bench = fresh()
    _write(bench, count, 1)
    shard = PLACE / "shard-0"
    bench.close()
    firsts = sorted(int(path.stem) for path in shard.glob("*.log"))
    snapshot = {
        "cluster_id": "bench",
        "shard": 0,
        "num_shards": 1,
        "last_index": count + 1,
        "last_term": 1,
        "last_timestamp_ms": 0,
        "state_hash": 0,
        "catalog_version": 0,
        "delete_retention_ms": 0,
        "now_ms": 0,
    }
    request = merge.request_of(str(shard), "bench", firsts, bytes(16), snapshot)
    cpu = time.process_time()
    made = merge.check_result(merge.run(request, OsFiles()))["records"]
    print(f"merge of {count:,} records into {made:,}: {time.process_time() - cpu:.2f} s CPU")


if __name__ == "__main__":
    sequential_bench()
    pipelined_bench()
    load_bench()
    merge_bench()
    shutil.rmtree(PLACE, ignore_errors=True)
