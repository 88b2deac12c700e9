"""Exactly-once loops of stock clients in other languages: copies and offsets in one transaction."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from cluster.launching.launcher import ClusterProcess
from quorate.retrying_client import NotInTime
from tests.languages.asking import new_topic, stored
from tests.support.stock_clients import CLIENTS
from tests.support.waiting import wait_for

MESSAGES = 500
WITHIN_S = 60.0
JAVA_CONSUMER = pytest.param("java-consumer", marks=pytest.mark.slow)


def committed(cluster: ClusterProcess, group: str) -> int:
    """Return the offset, or -1 while a transaction is open that may change it."""
    try:
        return stored(cluster, group).get(0, 0)
    except NotInTime:
        return -1


def values(cluster: ClusterProcess, topic: str, isolation: str) -> list[str]:
    """Return the values in partition 0 of a topic, in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reads-by-itself",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while (message := consumer.poll(10.0)) is not None:
        if (error := message.error()) is None:
            found.append(message.value().decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
    consumer.close()
    return found


@pytest.mark.parametrize("name", ["java-classic", JAVA_CONSUMER, "franz-go", "kafkajs"])
def test_a_loop_that_aborts_and_is_killed_copies_each_message_once(
    name: str, one_node: ClusterProcess, group: str
) -> None:
    stock = CLIENTS[name]
    if reason := stock.missing():
        pytest.skip(reason)
    source, target = new_topic(one_node, 1), new_topic(one_node, 1)
    with stock.producer(one_node.bootstrap, source, "--max-messages", str(MESSAGES)) as producer:
        producer.wait()
    with stock.copier(one_node.bootstrap, source, target, group) as copier:
        wait_for(lambda: committed(one_node, group) > 0, lambda: copier.other_lines, WITHIN_S)
        copier.kill()
    with stock.copier(one_node.bootstrap, source, target, group) as copier:
        wait_for(lambda: committed(one_node, group) == MESSAGES, lambda: copier.other_lines, WITHIN_S)
        expected = [str(number) for number in range(MESSAGES)]
        wait_for(
            lambda: values(one_node, target, "read_committed") == expected,
            lambda: values(one_node, target, "read_committed"),
        )
        assert len(values(one_node, target, "read_uncommitted")) > MESSAGES, "nothing was aborted"
