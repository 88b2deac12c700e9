"""Stock consumers that subscribe by regular expression, on three nodes: the coordinator resolves it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.clients.conftest import HEARTBEAT_INTERVAL_MS
from tests.report import count_fault
from tests.support.waiting import wait_for

pytestmark = pytest.mark.failover  # nodes of real clusters are killed

WAIT_S = 20.0
SETTINGS = {
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
KAFKA_S = 10.0
"""Seconds that Apache Kafka takes to pick up a new topic."""


@pytest.fixture
def bootstrap(cluster: ClusterProcess) -> str:
    return cluster.bootstrap


class Subscriber:
    """A consumer and the thread that polls it; `owned` holds (topic, partition)."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        self.owned: set[tuple[str, int]] = set()
        self.lost: list[list[TopicPartition]] = []
        self.errors: list[str] = []
        config = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
        self._consumer = Consumer({**config, "enable.auto.commit": False, "log_level": 0})
        self._consumer.subscribe(
            topics,
            on_assign=lambda _, given: self.owned.update(map(_pair, given)),
            on_revoke=lambda _, taken: self.owned.difference_update(map(_pair, taken)),
            on_lost=lambda _, taken: self.lost.append(taken),
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.02)
            if message is not None and message.error():
                self.errors.append(str(message.error()))

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        self._consumer.close()


def _pair(part: TopicPartition) -> tuple[str, int]:
    return part.topic, part.partition


class Shared:
    """Subscribers of one group that share what their expressions match."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap, self.group = bootstrap, group
        self.subscribers: list[Subscriber] = []

    def start(self, *topics: str) -> Subscriber:
        self.subscribers.append(Subscriber(self.bootstrap, self.group, list(topics)))
        return self.subscribers[-1]

    def wait_for(self, wanted: dict[str, int]) -> float:
        """Wait until exactly the partitions of these topics are owned, each once; return the seconds."""
        pairs = sorted((topic, number) for topic, count in wanted.items() for number in range(count))
        return wait_for(
            lambda: sorted(pair for one in self.subscribers for pair in one.owned) == pairs,
            lambda: [(sorted(one.owned), one.errors) for one in self.subscribers],
            WAIT_S,
        )


@pytest.fixture
def shared(bootstrap: str, group: str) -> Iterator[Shared]:
    shared = Shared(bootstrap, group)
    yield shared
    for subscriber in shared.subscribers:
        subscriber.close()


def test_topics_that_match_come_and_go(shared: Shared, client: Client, group: str) -> None:
    """Two consumers share one expression; they are assigned a new topic within a heartbeat or two."""
    client.create_topic(f"{group}-orders-1", 4)
    client.create_topic(f"{group}-bills", 4)
    shared.start(f"^{group}-orders-.*")
    shared.start(f"^{group}-orders-.*")
    shared.wait_for({f"{group}-orders-1": 4})
    client.create_topic(f"{group}-orders-2", 3)
    took_s = shared.wait_for({f"{group}-orders-1": 4, f"{group}-orders-2": 3})
    assert took_s < KAFKA_S / 2
    print(f"a new topic was picked up after {took_s:.2f} s")
    client.delete_topic(f"{group}-orders-1")
    shared.wait_for({f"{group}-orders-2": 3})


def test_names_and_an_expression_together(shared: Shared, client: Client, group: str) -> None:
    """Two members of one group, one by name and one by expression, get only topics that they subscribe to."""
    client.create_topic(f"{group}-orders", 2)
    client.create_topic(f"{group}-bills", 2)
    by_name = shared.start(f"{group}-bills")
    by_regex = shared.start(f"^{group}-or.*")
    shared.wait_for({f"{group}-orders": 2, f"{group}-bills": 2})
    assert {topic for topic, _ in by_name.owned} == {f"{group}-bills"}
    assert {topic for topic, _ in by_regex.owned} == {f"{group}-orders"}


def test_an_invalid_expression_is_told(shared: Shared, group: str) -> None:
    """librdkafka's own check accepts this expression."""
    subscriber = shared.start(f"^{group}-a**+")
    wait_for(lambda: subscriber.errors, "an error", WAIT_S)
    assert "The regular expression is not valid" in subscriber.errors[0]


def test_a_failover_between_two_topics(
    shared: Shared, cluster: ClusterProcess, client: Client, bootstrap: str, group: str
) -> None:
    """The leader is killed and a topic is created: the next leader resolves, and no partition is lost."""
    client.create_topic(f"{group}-1", 4)
    shared.start(f"^{group}-.*")
    shared.start(f"^{group}-.*")
    shared.wait_for({f"{group}-1": 4})
    raw = RawGroup([(node.host, node.port) for node in cluster.nodes], group)
    _, port = raw.until_accepted(raw.find)
    raw.close()
    leader = next(node for node in cluster.nodes if node.port == port)
    leader.kill()
    count_fault("clients", "kill -9 of a leader of groups with expressions")
    survivors = ",".join(node.bootstrap for node in cluster.nodes if node is not leader)
    with Client(survivors) as other:
        other.create_topic(f"{group}-2", 3)
        shared.wait_for({f"{group}-1": 4, f"{group}-2": 3})
    assert [one.lost for one in shared.subscribers] == [[], []]
    leader.start()
