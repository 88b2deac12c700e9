"""Kafka's own Java consumers on three nodes: one is killed, one is static, one subscribes by an expression,
the leader is killed."""

from __future__ import annotations

from benchmarks.raw import RawGroup
from cluster.launching.launcher import ClusterProcess
from tests.java.consumers import Fleet
from tests.java.toolbox import TOPICS, Tools

PARTITIONS = 6


def test_partitions_of_a_killed_consumer_go_to_the_others(fleet: Fleet) -> None:
    fleet.start(3)
    fleet.await_assigned(PARTITIONS)
    fleet.take_out().kill()
    fleet.await_assigned(PARTITIONS)


def test_a_topic_that_grows_is_spread_again(tools: Tools, topic: str, fleet: Fleet) -> None:
    fleet.start(2)
    fleet.await_assigned(PARTITIONS)
    tools.run(TOPICS, "--alter", "--topic", topic, "--partitions", "12")
    fleet.await_assigned(12)


def test_a_static_member_that_restarts_gets_what_it_had(fleet: Fleet) -> None:
    first = fleet.start(1, "--group-instance-id", "one")[0]
    other = fleet.start(1, "--group-instance-id", "two")[0]
    fleet.await_assigned(PARTITIONS)
    had, kept, seen = set(first.assigned), set(other.assigned), len(other.events)
    fleet.take_out(0).stop()
    fleet.start(1, "--group-instance-id", "one")
    fleet.await_assigned(PARTITIONS)
    assert fleet.consumers[-1].assigned == had
    assert other.assigned == kept
    assert "partitions_revoked" not in other.events[seen:]


def test_topics_that_an_expression_means_come_as_they_are_made(
    tools: Tools, topic: str, fleet: Fleet
) -> None:
    tools.run(TOPICS, "--create", "--topic", f"x{topic}", "--partitions", "1")
    (consumer,) = fleet.start_by_pattern(f"{topic}(-more)?")
    expected = {(topic, number) for number in range(PARTITIONS)}
    fleet.until(lambda: consumer.parts == expected)
    tools.run(TOPICS, "--create", "--topic", f"{topic}-more", "--partitions", "2")
    fleet.until(lambda: consumer.parts == expected | {(f"{topic}-more", 0), (f"{topic}-more", 1)})


def test_no_member_loses_a_partition_when_the_leader_is_killed(
    cluster: ClusterProcess, fleet: Fleet, group: str
) -> None:
    fleet.start(2)
    fleet.await_assigned(PARTITIONS)
    seen = [len(consumer.events) for consumer in fleet.consumers]
    raw = RawGroup([(node.host, node.port) for node in cluster.nodes], group)
    _, port = raw.until_accepted(raw.find)
    raw.close()
    (leader,) = (node for node in cluster.nodes if node.port == port)
    leader.kill()
    try:
        fleet.start(1)
        fleet.await_assigned(PARTITIONS)
    finally:
        leader.start()
    for consumer, before in zip(fleet.consumers, seen, strict=False):
        assert "partitions_lost" not in consumer.events[before:]
