"""The consumer beside aiokafka and confluent-kafka: joining, reading, CPU, memory, import; on both servers.

Run `python -m benchmarks.client_bench [--messages N] [--rounds N] [--server kafka|quorate]`. Each client is a
process of its own, which imports its library, joins a group of its own, and reads the same topic from its
beginning: messages of 1 kB, uncompressed, in four partitions. The clients take turns in every round, so that
other work on the machine affects all of them. Printed are medians, and the median of the ratios to aiokafka
in the same round. `loop` reads one record after another (`async for`; confluent-kafka's `poll`), `batch` up
to 500 with a call. Rates and CPU, which is that of the whole process, leave out the first fifth of the
records: some were fetched before the first one was read. The server runs beside it on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VALUE_BYTES: Final = 1_000
PARTITIONS: Final = 4
BATCH: Final = 500
TOPIC: Final = "orders"
SCRATCH: Final = {
    "scratch.log.enable": "true",
    "scratch.log.partition.max.bytes": str(1 << 28),
    "scratch.log.max.bytes": str(1 << 30),
}
READ_S_MAX: Final = 120

Figures = dict[str, float]


class Stopwatch:
    """Time and CPU of reading, without the first fifth of the records."""

    def __init__(self, wanted: int) -> None:
        self.is_done = False
        self.figures: Figures = {}
        self._wanted, self._count, self._warm_at = wanted, 0, 0
        self._began_s = self._first_s = self._warm_s = time.perf_counter()
        self._warm_cpu_s = 0.0

    def saw(self, records: int) -> None:
        if records and not self._count:
            self._first_s = time.perf_counter()
        self._count += records
        if not self._warm_at and self._count >= self._wanted // 5:
            self._warm_at = self._count
            self._warm_s, self._warm_cpu_s = time.perf_counter(), time.process_time()
        if self._count >= self._wanted and not self.is_done:
            self.is_done = True
            read = self._count - self._warm_at
            self.figures = {
                "join_s": self._first_s - self._began_s,
                "per_s": read / (time.perf_counter() - self._warm_s),
                "cpu_ms": 1e6 * (time.process_time() - self._warm_cpu_s) / read,
                "memory_mb": peak_memory_mb(),
            }


def peak_memory_mb() -> float:
    """The peak of this program alone: getrusage would begin with that of its parent."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) / 1024


def quorate(bootstrap: str, wanted: int, *, in_batches: bool) -> Figures:
    from client.aio.consumer import Consumer

    async def read() -> Figures:
        watch = Stopwatch(wanted)
        settings = {"bootstrap_servers": bootstrap, "group_id": uuid.uuid4().hex}
        async with Consumer(TOPIC, **settings, auto_offset_reset="earliest") as consumer:
            while in_batches and not watch.is_done:
                watch.saw(len(await consumer.poll(1.0, max_records=BATCH)))
            while not watch.is_done:
                async for _ in consumer:
                    watch.saw(1)
                    if watch.is_done:
                        break
        return watch.figures

    return asyncio.run(read())


def aiokafka(bootstrap: str, wanted: int, *, in_batches: bool) -> Figures:
    from aiokafka import AIOKafkaConsumer

    async def read() -> Figures:
        watch = Stopwatch(wanted)
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            while in_batches and not watch.is_done:
                found = await consumer.getmany(timeout_ms=1_000, max_records=BATCH)
                watch.saw(sum(map(len, found.values())))
            while not watch.is_done:
                async for _ in consumer:
                    watch.saw(1)
                    if watch.is_done:
                        break
        finally:
            await consumer.stop()
        return watch.figures

    return asyncio.run(read())


def confluent(bootstrap: str, wanted: int, *, in_batches: bool) -> Figures:
    from confluent_kafka import Consumer

    watch = Stopwatch(wanted)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    while not watch.is_done:
        if in_batches:
            found = consumer.consume(BATCH, 1.0)
            for message in found:
                message.value()
            watch.saw(len(found))
        elif (message := consumer.poll(1.0)) is not None:
            message.value()
            watch.saw(1)
    consumer.close()
    return watch.figures


CLIENTS: Final = {"quorate": quorate, "aiokafka": aiokafka, "confluent": confluent}
MODULES: Final = {"quorate": "client.aio.consumer", "aiokafka": "aiokafka", "confluent": "confluent_kafka"}


def run_child(client: str, way: str, bootstrap: str, wanted: int) -> Figures:
    command = [
        sys.executable,
        "-m",
        "benchmarks.client_bench",
        "--child",
        client,
        way,
        bootstrap,
        str(wanted),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_S_MAX, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def import_s(module: str) -> float:
    program = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)


@contextmanager
def server(name: str, home: Path) -> Iterator[str]:
    """The bootstrap address of a fresh server."""
    if name == "quorate":
        from cluster.launching.launcher import launch_node

        node = launch_node(home / name, settings=SCRATCH)
        try:
            yield node.bootstrap
        finally:
            node.kill()
    else:
        from benchmarks.apache import launch_kafka

        kafka = launch_kafka(home / name)
        try:
            yield ",".join(f"{host}:{port}" for host, port in kafka.addresses)
        finally:
            kafka.stop()


def produce(bootstrap: str, count: int) -> None:
    from confluent_kafka import Producer

    from quorate.client import Client

    with Client(bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value = bytes(VALUE_BYTES)
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def compare(name: str, bootstrap: str, wanted: int, rounds: int) -> None:
    print(f"server {name}: {wanted:,} messages of {VALUE_BYTES} bytes, {rounds} rounds")
    heads = ("records/s", "× aiokafka", "CPU ms/1000", "first record", "memory")
    print(f"{'client':<20}" + "".join(f"{head:>14}" for head in heads))
    for way in ("batch", "loop"):
        found: dict[str, list[Figures]] = {client: [] for client in CLIENTS}
        for _ in range(rounds):
            for client in CLIENTS:
                found[client].append(run_child(client, way, bootstrap, wanted))
        for client, runs in found.items():
            pairs = zip(runs, found["aiokafka"], strict=True)
            ratio = statistics.median(one["per_s"] / other["per_s"] for one, other in pairs)
            middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            print(
                f"{client + ' ' + way:<20}{middle['per_s']:>14,.0f}{ratio:>14.2f}{middle['cpu_ms']:>14.1f}"
                f"{middle['join_s']:>12.3f} s{middle['memory_mb']:>11.0f} MB",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_bench", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", choices=["kafka", "quorate"], action="append")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        client, way, bootstrap, wanted = asked.child
        figures = CLIENTS[client](bootstrap, int(wanted), in_batches=way == "batch")
        print(json.dumps(figures))
        return 0
    from benchmarks.apache import java_is_missing

    for client, module in MODULES.items():
        print(f"import {client}: {statistics.median(import_s(module) for _ in range(5)):.3f} s")
    with tempfile.TemporaryDirectory() as home:
        for name in asked.server or ["quorate", "kafka"]:
            if name == "kafka" and (missing := java_is_missing()):
                print(f"server kafka: left out: {missing}")
                continue
            with server(name, Path(home)) as bootstrap:
                produce(bootstrap, asked.messages)
                compare(name, bootstrap, asked.messages, asked.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
