"""The error of each client with its default, the classic protocol, on a node that does not serve it.

docs/clients.md quotes these lines with the remedy; this test keeps it accurate.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import launch_node
from quorate.client import Client

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
SETTINGS = {"group.coordinator.rebalance.protocols": "consumer"}
TOPIC = "orders"
RUN_S = 1.5

CONFLUENT = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
deadline = time.monotonic() + float(sys.argv[4])
while time.monotonic() < deadline:
    message = consumer.poll(0.2)
    if message is not None and message.error():
        print(message.error(), flush=True)
"""
KAFKA_PYTHON = """
import sys, time
from kafka import KafkaConsumer
consumer = KafkaConsumer(sys.argv[3], bootstrap_servers=sys.argv[1], group_id=sys.argv[2])
deadline = time.monotonic() + float(sys.argv[4])
while time.monotonic() < deadline:
    consumer.poll(timeout_ms=200)
"""
AIOKAFKA = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer(sys.argv[3], bootstrap_servers=sys.argv[1], group_id=sys.argv[2])
    await consumer.start()
    await asyncio.sleep(float(sys.argv[4]))
asyncio.run(asyncio.wait_for(main(), float(sys.argv[4])))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node that serves the consumer protocol alone."""
    node = launch_node(tmp_path_factory.mktemp("consumer-only") / "node", settings=SETTINGS)
    with Client(f"{node.host}:{node.port}") as client:
        client.create_topic(TOPIC, 1)
    yield f"{node.host}:{node.port}"
    assert node.stop() == 0


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            CONFLUENT,
            (
                'KafkaError{code=_UNSUPPORTED_FEATURE,val=-165,str="JoinGroup failed: '
                'Local: Required feature not supported by broker"}'
            ),
        ),
        (
            KAFKA_PYTHON,
            (
                "kafka.errors.IncompatibleBrokerVersion: [Error 35] IncompatibleBrokerVersion: "
                "Kafka broker does not support the 'JoinGroupRequest' Kafka protocol."
            ),
        ),
        (
            AIOKAFKA,
            (
                "Error sending JoinGroupRequest to node 1 [IncompatibleBrokerVersion: JoinGroupRequest "
                "cannot be used if the API version is unknown] -- marking coordinator dead"
            ),
        ),
    ],
    ids=["confluent-kafka", "kafka-python", "aiokafka"],
)
def test_a_classic_consumer_is_told(script: str, says: str, address: str, group: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script, address, group, TOPIC, str(RUN_S)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert says in said
    assert says in DOCUMENT.read_text(encoding="utf-8")
