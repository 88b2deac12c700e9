"""The error of each client with its default, the classic protocol, which this node does not serve.

The README quotes these lines with the remedy; this test keeps it accurate.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
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
def test_a_classic_consumer_is_told(
    script: str, says: str, bootstrap: str, group: str, new_topic: Callable[[int], str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script, bootstrap, group, new_topic(1), str(RUN_S)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert says in said
    assert says in README.read_text(encoding="utf-8")
