"""`QuorateCluster.advance`: what would expire later expires now, as stock clients see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, Producer, TopicPartition

from quorate.testing import QuorateCluster
from tests.support.waiting import wait_for

SESSION_S = 45.0
"""The default, as in Kafka."""

BEATS = {"group.consumer.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("advance") / "cluster", settings=BEATS) as cluster:
        cluster.create_topic("orders", 2)
        yield cluster


class Member:
    """A consumer and what its callbacks were told."""

    def __init__(self, cluster: QuorateCluster, group: str, **settings: object) -> None:
        self.owned: set[int] = set()
        self.num_lost = 0
        self.consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "group.protocol": "consumer"}
            | settings
        )
        self.consumer.subscribe(["orders"], on_assign=self._take, on_revoke=self._give, on_lost=self._lose)

    def _take(self, _: Consumer, given: list[TopicPartition]) -> None:
        self.owned |= {each.partition for each in given}

    def _give(self, _: Consumer, taken: list[TopicPartition]) -> None:
        self.owned -= {each.partition for each in taken}

    def _lose(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self.num_lost += 1
        self._give(consumer, lost)

    def poll(self) -> Message | None:
        return self.consumer.poll(0.05)


def owns(members: list[Member], *wanted: set[int]) -> None:
    """Poll until each member owns that many partitions."""

    def do_all() -> bool:
        for member in members:
            member.poll()
        return sorted(len(member.owned) for member in members) == sorted(map(len, wanted))

    wait_for(do_all, f"the shares {wanted}", within_s=15)


def test_only_the_silent_member_expires_if_the_clock_stops_a_little_before(cluster: QuorateCluster) -> None:
    silent, alive = Member(cluster, "one-silent"), Member(cluster, "one-silent")
    try:
        owns([silent, alive], {0}, {1})
        refused = {"member": silent.consumer.memberid(), "error": "COORDINATOR_LOAD_IN_PROGRESS"}
        fault = cluster.add_fault("error", **refused)
        cluster.advance(SESSION_S - 2)
        owns([alive], {0, 1})
        assert alive.num_lost == 0
        assert "session" in cluster.explain("one-silent")
        cluster.clear_fault(fault)
    finally:
        silent.consumer.close()
        alive.consumer.close()


def test_all_sessions_are_over_and_the_living_join_again(cluster: QuorateCluster) -> None:
    member = Member(cluster, "all")
    try:
        owns([member], {0, 1})
        cluster.advance(SESSION_S + 1)

        def lost() -> bool:
            member.poll()
            return member.num_lost == 1

        wait_for(lost, "the member to hear that it was removed")
        owns([member], {0, 1})
    finally:
        member.consumer.close()


def test_a_transaction_times_out(cluster: QuorateCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"never", partition=0)
    producer.flush(10)
    cluster.advance(61)
    with pytest.raises(KafkaException, match=r"fenced|FENCED|[Ee]poch"):
        producer.commit_transaction(10)


def test_offsets_of_an_idle_group_expire(cluster: QuorateCluster) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "idle"})
    try:
        at = TopicPartition("orders", 0, 1)
        consumer.commit(offsets=[at], asynchronous=False)
        cluster.advance(6 * 86_400)
        assert consumer.committed([at])[0].offset == 1
        cluster.advance(2 * 86_400)
        wait_for(lambda: consumer.committed([at])[0].offset == OFFSET_INVALID, "the offset to expire")
    finally:
        consumer.close()


@pytest.mark.failover
def test_three_nodes_are_advanced_without_an_election(tmp_path: Path) -> None:
    with QuorateCluster(tmp_path / "cluster", 3, BEATS) as cluster:
        cluster.create_topic("orders", 2)
        member = Member(cluster, "moved")
        try:
            owns([member], {0, 1})
            leader = cluster.leader("moved")
            cluster.advance(SESSION_S + 1)
            wait_for(
                lambda: member.poll() is None and member.num_lost == 1, "the session to end", within_s=15
            )
            assert cluster.leader("moved") is leader  # elections keep the real time
        finally:
            member.consumer.close()
