"""Exactly-once loops of confluent-kafka whose coordinators are killed, and producers that are fenced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from records import METADATA_SHARD
from tests.support.python_clients import FLUSH_S
from tests.support.real_cluster import group_apart, kill_leader, start_killed
from tests.support.waiting import wait_for

SETTINGS = {"scratch.log.enable": "true", "leader.balance.delay.ms": "600000"}

CALL_S = 20.0
"""Longest time for one call of a transaction, as an application would allow."""

NUM_MESSAGES = 200
BATCH = 8


@pytest.fixture(autouse=True)
def _killed_nodes_start_again(cluster: ClusterProcess) -> Iterator[None]:
    yield
    start_killed(cluster)


@pytest.fixture
def topics(cluster: ClusterProcess, request: pytest.FixtureRequest) -> tuple[str, str]:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Client(cluster.bootstrap) as client:
        client.create_topic(f"{name}-in", 2)
        client.create_topic(f"{name}-out", 2)
    return f"{name}-in", f"{name}-out"


def fill(cluster: ClusterProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(NUM_MESSAGES):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(FLUSH_S) == 0


def read_committed(cluster: ClusterProcess, topic: str, number: int) -> Counter[bytes]:
    """The messages of committed transactions; waits until there are that many, and for the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: Counter[bytes] = Counter()
    ended: set[int] = set()

    def at_end() -> bool:
        message = consumer.poll(0.1)
        if message is None:
            return False
        error = message.error()
        if error is None:
            ended.discard(message.partition())
            found[message.value()] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        return len(ended) == 2 and found.total() >= number

    wait_for(at_end, lambda: f"{number} messages: {found.total()}")
    consumer.close()
    return found


class ExactlyOnce:
    """A loop with confluent-kafka as its documentation has it.

    An error ends the transaction, and the consumer goes back to what was committed."""

    def __init__(
        self, cluster: ClusterProcess, topics: tuple[str, str], group_id: str, protocol: str
    ) -> None:
        self.bootstrap, (self.source, self.sink) = cluster.bootstrap, topics
        self.group_id, self.protocol = group_id, protocol
        self.num_aborted = self.num_batches = 0
        self.producer = self.new_producer()
        self.consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group_id,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([self.source])

    def new_producer(self) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.group_id, "log_level": 0}
        )
        self.retry(producer.init_transactions)
        return producer

    @staticmethod
    def retry(call: Callable[..., Any], *args: Any) -> None:
        for _ in range(20):
            try:
                call(*args, CALL_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return
        raise AssertionError("it is retriable for ever")

    def positions(self) -> dict[int, int]:
        wanted = [TopicPartition(self.source, partition) for partition in range(2)]
        for _ in range(20):
            try:
                return {one.partition: max(one.offset, 0) for one in self.consumer.committed(wanted, CALL_S)}
            except KafkaException:
                continue
        raise AssertionError("the committed offsets cannot be read")

    def run(self, *, between: dict[int, Callable[[], None]], aborts_every: int = 5) -> None:
        """Until everything is committed; `between` is what happens in the middle of the n-th transaction."""
        while sum(self.positions().values()) < NUM_MESSAGES:
            messages = [one for one in self.consumer.consume(BATCH, 2.0) if one.error() is None]
            if messages:
                self.one_transaction(messages, between.pop(self.num_batches, None), aborts_every)
        assert not between

    def one_transaction(
        self, messages: list[Any], in_the_middle: Callable[[], None] | None, aborts_every: int
    ) -> None:
        self.num_batches += 1
        try:
            self.producer.begin_transaction()
            for message in messages:
                self.producer.produce(self.sink, message.value(), partition=message.partition())
            if in_the_middle is not None:
                in_the_middle()
            ends = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [TopicPartition(self.source, partition, end) for partition, end in ends.items()]
            metadata = self.consumer.consumer_group_metadata()
            self.retry(self.producer.send_offsets_to_transaction, offsets, metadata)
            if self.num_batches % aborts_every:
                self.retry(self.producer.commit_transaction)
                return
        except KafkaException as error:
            if error.args[0].fatal():
                self.producer = self.new_producer()
            elif not error.args[0].txn_requires_abort():
                raise
        self.num_aborted += 1
        self.retry(self.producer.abort_transaction)
        for partition, offset in self.positions().items():
            if any(one.partition == partition for one in self.consumer.assignment()):
                self.consumer.seek(TopicPartition(self.source, partition, offset))

    def close(self) -> None:
        self.consumer.close()


@pytest.mark.failover
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_counts_exactly_once_while_the_coordinator_of_its_group_is_killed(
    cluster: ClusterProcess, topics: tuple[str, str], protocol: str
) -> None:
    group_id = group_apart(cluster, f"eos-{protocol}")
    fill(cluster, topics[0])
    loop = ExactlyOnce(cluster, topics, group_id, protocol)
    loop.run(between={8: lambda: kill_leader(cluster, 0)})
    loop.close()
    found = read_committed(cluster, topics[1], NUM_MESSAGES)
    assert found == {str(number).encode(): 1 for number in range(NUM_MESSAGES)}
    assert loop.num_aborted >= loop.num_batches // 5


@pytest.mark.failover
def test_confluent_goes_on_when_the_coordinator_of_its_transaction_is_killed(
    cluster: ClusterProcess, topics: tuple[str, str], group: str
) -> None:
    """Messages are lost with that node, as they are not durable; what the transactions committed is not."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": group, "log_level": 0})
    ExactlyOnce.retry(producer.init_transactions)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    where = TopicPartition(topics[0], 0)

    def transaction(offset: int, *, commits: bool, is_killed: bool = False) -> None:
        producer.begin_transaction()
        where.offset = offset
        metadata = consumer.consumer_group_metadata()
        ExactlyOnce.retry(producer.send_offsets_to_transaction, [where], metadata)
        if is_killed:
            kill_leader(cluster, METADATA_SHARD)
        ExactlyOnce.retry(producer.commit_transaction if commits else producer.abort_transaction)

    transaction(10, commits=True)
    transaction(20, commits=True, is_killed=True)
    assert consumer.committed([where], CALL_S)[0].offset == 20
    transaction(30, commits=False)
    assert consumer.committed([where], CALL_S)[0].offset == 20
    transaction(40, commits=True)
    assert consumer.committed([where], CALL_S)[0].offset == 40
    consumer.close()


def test_confluent_is_fenced_by_the_next_producer_of_its_id(
    cluster: ClusterProcess, topics: tuple[str, str], group: str
) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": group, "log_level": 0}
    first, second = Producer(settings), Producer(settings)
    ExactlyOnce.retry(first.init_transactions)
    first.begin_transaction()
    first.produce(topics[1], b"lost", partition=0)
    assert first.flush(FLUSH_S) == 0
    ExactlyOnce.retry(second.init_transactions)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(CALL_S)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    second.begin_transaction()
    second.produce(topics[1], b"kept", partition=0)
    second.commit_transaction(CALL_S)
    assert read_committed(cluster, topics[1], 1) == {b"kept": 1}
