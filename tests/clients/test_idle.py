"""The cost of idle clients: an answer that a client does not understand can make it spin.

librdkafka once sent fetches to this node as fast as a core allows, because Produce was not advertised and
Fetch therefore counted as too old. Nothing failed; only the CPU time of the client's process showed it. So
each stock client idles in a process of its own, all at the same time, and prints the CPU time it used.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from cluster.launching.launcher import NodeProcess, launch_node
from quorate.client import Client
from tests.clients.conftest import SETTINGS

IDLE_S = 3.0
CORES_MAX = 0.2
"""Share of one core. Measured: 0.001 to 0.013, and 0.9 when librdkafka spins."""

NUM_PARTITIONS = 12
START_S = 30.0

MEASURE = """
import os, sys, time
bootstrap, group, topic, num_partitions, idle_s = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])

def spent_s():
    times = os.times()
    return times.user + times.system

class Idle:
    def __enter__(self):
        self.before_s, self.started_s = spent_s(), time.monotonic()
        return self
    def goes_on(self):
        return time.monotonic() < self.started_s + idle_s
    def __exit__(self, *_):
        print((spent_s() - self.before_s) / (time.monotonic() - self.started_s), flush=True)
"""

SCRIPTS = {
    "confluent-kafka group member": """
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
consumer.subscribe([topic])
while len(consumer.assignment()) < num_partitions:
    consumer.poll(0.1)
with Idle() as idle:
    while idle.goes_on():
        assert consumer.poll(0.5) is None
consumer.close()
""",
    "confluent-kafka with assign()": """
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group + "-assigned"})
consumer.assign([TopicPartition(topic, number) for number in range(num_partitions)])
consumer.poll(1)
with Idle() as idle:
    while idle.goes_on():
        assert consumer.poll(0.5) is None
consumer.close()
""",
    "confluent-kafka AdminClient": """
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": bootstrap})
assert topic in admin.list_topics(timeout=10).topics
with Idle():
    time.sleep(idle_s)
""",
    "confluent-kafka Producer": """
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": bootstrap})
assert topic in producer.list_topics(timeout=10).topics
with Idle():
    time.sleep(idle_s)
""",
    "kafka-python with assign()": """
from kafka import KafkaConsumer, TopicPartition
consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group + "-python")
consumer.assign([TopicPartition(topic, number) for number in range(num_partitions)])
consumer.poll(timeout_ms=1000)
with Idle() as idle:
    while idle.goes_on():
        assert not consumer.poll(timeout_ms=500)
consumer.close()
""",
    "aiokafka with assign()": """
import asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition

async def main():
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group + "-aio")
    await consumer.start()
    consumer.assign([TopicPartition(topic, number) for number in range(num_partitions)])
    await consumer.getmany(timeout_ms=1000)
    with Idle() as idle:
        while idle.goes_on():
            assert not await consumer.getmany(timeout_ms=500)
    await consumer.stop()

asyncio.run(main())
""",
}


@pytest.fixture(scope="module", params=["without messages", "with a scratch log"])
def idle_node(
    request: pytest.FixtureRequest, node: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeProcess]:
    if request.param == "without messages":
        yield node
        return
    settings = SETTINGS | {"scratch.log.enable": "true"}
    other = launch_node(tmp_path_factory.mktemp("idle") / "node", settings=settings)
    yield other
    other.kill()


@pytest.fixture(scope="module")
def idlers(idle_node: NodeProcess) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start every client at once: they idle, so they do not disturb each other."""
    address = idle_node.bootstrap
    with Client(address) as client:
        client.create_topic("idle", NUM_PARTITIONS)
    words = [address, "idle", "idle", str(NUM_PARTITIONS), str(IDLE_S)]
    started = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", MEASURE + script, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, script in SCRIPTS.items()
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_idle_client_rests_and_has_nothing_to_complain_of(
    idlers: dict[str, subprocess.Popen[str]], name: str
) -> None:
    said, complaints = idlers[name].communicate(timeout=START_S + IDLE_S)
    assert (idlers[name].returncode, complaints) == (0, "")
    assert float(said) < CORES_MAX
