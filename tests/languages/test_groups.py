"""Stock clients in other languages produce, consume, rebalance, commit and leave, also while nodes die."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.languages.asking import listed, new_topic, stored
from tests.languages.members import (
    KCAT_SLOW,
    KEYS,
    MESSAGES,
    PARTITIONS,
    client,
    newest,
    produce,
    wait_until_each_commits,
    wait_until_shared,
    wait_while_running,
)
from tests.report import count_fault
from tests.support.real_cluster import is_joining, leader_of, metadata_leader
from tests.support.stock_clients import CLIENTS
from tests.support.verifiable import VerifiableConsumer
from tests.support.waiting import wait_for

AWAY_MS_MAX = 30_000
"""Session timeout of a member that restarts: a JVM on a busy machine takes longer than the usual 6 s."""

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("name", KCAT_SLOW)
def test_members_consume_what_is_produced_share_it_and_leave(
    name: str, one_node: ClusterProcess, group: str, running: ExitStack
) -> None:
    stock, where = client(name), (one_node.bootstrap, new_topic(one_node, PARTITIONS))
    produce(stock.producer(*where, "--max-messages", str(MESSAGES), "--value-prefix", "1", *KEYS))
    first = running.enter_context(stock.consumer(*where, group, client_id="first"))
    wait_while_running(lambda: sum(first.committed.values()) == MESSAGES, first)
    assert sorted(first.values) == sorted(f"1.{number}" for number in range(MESSAGES))

    second = running.enter_context(stock.consumer(*where, group, client_id="second"))
    wait_until_shared(first, second)
    produce(stock.producer(*where, "--max-messages", str(MESSAGES), "--value-prefix", "2", *KEYS))
    wait_while_running(lambda: sum(newest(first, second).values()) == 2 * MESSAGES, first, second)
    assert {*first.values, *second.values} >= {f"2.{number}" for number in range(MESSAGES)}

    second.stop()
    assert second.events[-1] == "shutdown_complete"
    wait_until_shared(first)
    assert stored(one_node, group) == newest(first, second)
    assert not first.commit_errors


@pytest.mark.parametrize("name", KCAT_SLOW)
def test_the_next_member_goes_on_where_the_last_one_committed(
    name: str, one_node: ClusterProcess, group: str, running: ExitStack
) -> None:
    stock, where = client(name), (one_node.bootstrap, new_topic(one_node, PARTITIONS))
    for run in (1, 2):
        produce(stock.producer(*where, "--max-messages", str(MESSAGES), "--value-prefix", str(run), *KEYS))
        consumer = running.enter_context(stock.consumer(*where, group))
        until = run * MESSAGES
        wait_while_running(lambda one=consumer, until=until: sum(one.committed.values()) == until, consumer)
        consumer.stop()
        assert sorted(consumer.values) == sorted(f"{run}.{number}" for number in range(MESSAGES))
        assert listed(one_node, group).state == "Empty"


@pytest.mark.parametrize("name", ["java-classic", "java-consumer", "franz-go"])
def test_a_static_member_that_restarts_gets_what_it_had(
    name: str, one_node: ClusterProcess, group: str, running: ExitStack
) -> None:
    topic = new_topic(one_node, PARTITIONS)
    with Client(one_node.bootstrap) as admin:
        admin.configure_group(group, {"consumer.session.timeout.ms": str(AWAY_MS_MAX)})

    def start(instance: str) -> VerifiableConsumer:
        options = ["--group-instance-id", instance]
        if name != "java-consumer":  # its session is the group's
            options += ["--session-timeout", str(AWAY_MS_MAX)]
        return running.enter_context(client(name).consumer(one_node.bootstrap, topic, group, *options))

    one, two = start("one"), start("two")
    wait_until_shared(one, two)
    had, revoked = set(one.assigned), len(two.revoked)
    one.stop()
    one = start("one")
    wait_until_shared(one, two)
    assert one.assigned == had
    assert two.revoked[revoked:] == []


def test_java_and_go_divide_a_group_cooperatively(
    one_node: ClusterProcess, group: str, running: ExitStack
) -> None:
    """Each understands what the other one's assignor says of the partitions that a member owns."""
    cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    java, go = client("java-classic"), client("franz-go")
    where = (one_node.bootstrap, new_topic(one_node, PARTITIONS), group)
    first = running.enter_context(java.consumer(*where, "--assignment-strategy", cooperative))
    wait_until_shared(first)
    second = running.enter_context(go.consumer(*where))
    wait_until_shared(first, second)
    third = running.enter_context(go.consumer(*where))
    wait_until_shared(first, second, third)
    assert len(first.revoked) == PARTITIONS - len(first.assigned)
    assert len(second.revoked) == 1
    first.stop()
    wait_until_shared(second, third)
    assert len(second.revoked) == 1
    assert third.revoked == []


@pytest.mark.parametrize("name", CLIENTS)
def test_no_commit_is_lost_when_the_coordinator_is_killed(
    name: str, cluster: ClusterProcess, group: str, running: ExitStack
) -> None:
    stock, where = client(name), (cluster.bootstrap, new_topic(cluster, PARTITIONS))
    consumers = [
        running.enter_context(stock.consumer(*where, group, client_id=one)) for one in ("first", "second")
    ]
    wait_until_shared(*consumers)
    running.enter_context(stock.producer(*where, "--throughput", "100", *KEYS))
    wait_until_each_commits(*consumers)
    killed = leader_of(cluster.nodes, group)
    killed.kill()
    count_fault("languages", "coordinator killed")
    try:
        wait_for(lambda: leader_of(cluster.nodes, group) is not killed, "another coordinator")
        wait_until_each_commits(*consumers)
        wait_until_shared(*consumers)
    finally:
        killed.start()
    for consumer in consumers:
        consumer.stop()
    offsets = stored(cluster, group)
    assert {number for number, offset in newest(*consumers).items() if offsets[number] < offset} == set()


@pytest.mark.parametrize("name", KCAT_SLOW)
def test_producer_and_consumer_go_on_at_the_end_when_the_messages_are_lost(
    name: str, cluster: ClusterProcess, group: str, running: ExitStack
) -> None:
    """The leader of the metadata shard is killed, which alone had the messages."""
    stock, where = client(name), (cluster.bootstrap, new_topic(cluster, PARTITIONS))
    consumer = running.enter_context(stock.consumer(*where, group))
    producer = running.enter_context(stock.producer(*where, "--throughput", "100", *KEYS))
    wait_until_shared(consumer)
    wait_until_each_commits(consumer)
    highest = max(newest(consumer).values())
    killed = metadata_leader(cluster.nodes)
    killed.kill()
    count_fault("languages", "metadata leader killed")
    try:
        wait_while_running(lambda: min(newest(consumer).values()) > highest + (1 << 39), consumer)
    finally:
        killed.start()
    assert producer.is_running


@pytest.fixture(scope="module")
def rolled(cluster: ClusterProcess) -> dict[str, str]:
    """Restart every node in turn under a member of each client, and return what went wrong with it."""
    topic = new_topic(cluster, PARTITIONS)
    clients = {name: stock for name, stock in CLIENTS.items() if stock.missing() is None}
    wrong = dict.fromkeys(clients, "")
    if not clients:
        return wrong
    with ExitStack() as running:
        consumers = {
            name: running.enter_context(stock.consumer(cluster.bootstrap, topic, f"rolled-{name}"))
            for name, stock in clients.items()
        }
        for stock in [*clients.values()][:1]:
            running.enter_context(stock.producer(cluster.bootstrap, topic, "--throughput", "100", *KEYS))
        for consumer in consumers.values():
            wait_until_shared(consumer)
        for node in cluster.nodes:
            node.stop()
            node.start()
            count_fault("languages", "node restarted")
            wait_for(lambda node=node: not is_joining(node), "the node to be back")
            for name, consumer in consumers.items():
                try:
                    wait_until_each_commits(consumer)
                except AssertionError as error:
                    wrong[name] += f"after the restart of node {node.node_id}: {error}"
        for name, consumer in consumers.items():
            consumer.stop()
            offsets = stored(cluster, f"rolled-{name}")
            lost = {number: at for number, at in newest(consumer).items() if offsets[number] < at}
            wrong[name] += f"lost: {lost}" if lost else ""
    return wrong


@pytest.mark.parametrize("name", CLIENTS)
def test_it_goes_on_through_a_rolling_restart(name: str, rolled: dict[str, str]) -> None:
    client(name)
    assert rolled[name] == ""
