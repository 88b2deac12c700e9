"""The scratch log under load: `python -m benchmarks scratch`.

One confluent-kafka producer and one consumer, each in a process of its own, write and read one partition of
one node at once: first at a fixed rate, which both must hold, then as fast as the producer can. It is faster
than the consumer then, which loses what the bound of the log drops. Both begin at the same second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import load
from benchmarks.figures import peak_mib, report
from cluster.launching.launcher import NodeProcess, launch_node
from quorate.client import Client

RECORD_BYTES = 1_000
SETTINGS = {"scratch.log.enable": "true"}
PRODUCER = {"linger.ms": 5, "queue.buffering.max.kbytes": 65_536, "log_level": 0}
CONSUMER = {"group.id": "bench", "auto.offset.reset": "earliest", "log_level": 0}
BATCH = 500
"""Messages that a client sends or takes at once."""

STEADY = 60_000
"""Records per second of the fixed rate: a little above the target."""

START_S = 2.0
"""Seconds in which both clients start."""


def produce(bootstrap: str, topic: str, start_s: float, seconds: float) -> None:
    """Write until the time is over, and print how many records were acknowledged."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap} | PRODUCER)
    value, num_sent, num_acknowledged = b"x" * RECORD_BYTES, 0, 0

    def delivered(error: object, _: object) -> None:
        nonlocal num_acknowledged
        num_acknowledged += error is None

    producer.list_topics(topic)
    time.sleep(max(0.0, start_s - time.time()))
    while (passed_s := time.time() - start_s) < seconds:
        if topic == "steady" and num_sent >= passed_s * STEADY:
            producer.poll(0.001)
            continue
        for _ in range(BATCH):
            try:
                producer.produce(topic, value, partition=0, on_delivery=delivered)
            except BufferError:
                producer.poll(0.001)
                break
            num_sent += 1
        producer.poll(0)
    print(num_acknowledged)
    producer.purge()
    producer.flush(1)


def consume(bootstrap: str, topic: str, start_s: float, seconds: float) -> None:
    """Read until the time is over, and print how many records were read."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap} | CONSUMER)
    consumer.assign([TopicPartition(topic, 0, 0)])
    num_read = 0
    while time.time() < start_s + seconds:
        messages = consumer.consume(BATCH, timeout=0.05)
        if errors := [error for message in messages if (error := message.error())]:
            sys.exit(f"the consumer got {errors[0]}")
        num_read += len(messages)
    print(num_read)
    consumer.close()


def both(node: NodeProcess, topic: str, seconds: float) -> None:
    """Run both at once, and report their rates, and the node's CPU and memory."""
    with Client(node.bootstrap) as client:
        client.create_topic(topic, 1)
    before_s = load.cpu_seconds(node.pid)
    call = [node.bootstrap, topic, str(time.time() + START_S), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.scratch_bench", "--as"]
    clients = [
        subprocess.Popen([*command, role, *call], stdout=subprocess.PIPE, text=True)
        for role in ("consumer", "producer")
    ]
    num_read, num_written = (int(client.communicate()[0]) for client in clients)
    cpu_s = load.cpu_seconds(node.pid) - before_s
    report(f"{topic}: records of 1 kB written, per s", f"{num_written / seconds:,.0f}", ">= 50,000")
    report("    read at the same time, per s", f"{num_read / seconds:,.0f}", ">= 50,000")
    report("    CPU of the node", f"{100 * cpu_s / seconds:.0f} %")
    report("    records in and out per CPU-s of the node", f"{(num_read + num_written) / cpu_s:,.0f}")
    report("    largest memory of the node", f"{peak_mib(node.pid):.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scratch", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--as", dest="call", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call is not None:
        role, bootstrap, topic, start_s, seconds = options.call
        (produce if role == "producer" else consume)(bootstrap, topic, float(start_s), float(seconds))
        return
    with tempfile.TemporaryDirectory() as directory:
        node = launch_node(Path(directory) / "node", settings=SETTINGS)
        try:
            for topic in ("steady", "full-speed"):
                both(node, topic, options.seconds)
        finally:
            node.kill()


if __name__ == "__main__":
    main()
