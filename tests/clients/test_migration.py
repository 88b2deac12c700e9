"""Stock clients move to the consumer protocol and back, one process at a time, and no commit is lost."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cluster.launching.launcher import ClusterProcess
from quorate.client import Client
from tests.support.kafka_python import FROM_KAFKA_PYTHON
from tests.support.python_clients import MEMBERS, Feed, PolledMember, running
from tests.support.waiting import wait_for

SETTINGS = {
    "scratch.log.enable": "true",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "1500",
}
PARTITIONS = 6
ALL = frozenset(range(PARTITIONS))
WITHIN_S = 30.0
EAGER = ("aiokafka", "kafka-python", "confluent-kafka, classic")
COOPERATIVE = ("confluent-kafka, classic",) * 2
CONSUMER = "confluent-kafka, consumer"

pytestmark = [pytest.mark.filterwarnings(FROM_KAFKA_PYTHON), pytest.mark.timeout(180)]


def wait_until_shared_and_committing(members: list[PolledMember]) -> None:
    """Wait until every partition has one owner, every member has some, and all of them commit."""

    def are_shared() -> bool:
        owned = [member.assigned for member in members]
        return all(owned) and sum(map(len, owned)) == PARTITIONS and frozenset().union(*owned) == ALL

    def told() -> str:
        return str([(one.name, sorted(one.assigned), one.errors[-3:]) for one in members])

    wait_for(are_shared, lambda: f"shared: {told()}", WITHIN_S)
    before = [len(member.commits) for member in members]
    wait_for(
        lambda: all(len(one.commits) > old for one, old in zip(members, before, strict=True)),
        lambda: f"committing: {told()}",
        WITHIN_S,
    )


def group_type(cluster: ClusterProcess, group: str) -> str:
    with Client(cluster.bootstrap) as client:
        return next((one.group_type for one in client.groups() if one.group_id == group), "")


def num_members(admin: AdminClient, group: str) -> int:
    try:
        return len(admin.describe_consumer_groups([group])[group].result(WITHIN_S).members)
    except KafkaException:  # nobody has joined yet
        return 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("classic", "settings"),
    [(EAGER, {}), (COOPERATIVE, {"partition.assignment.strategy": "cooperative-sticky"})],
    ids=["eager", "cooperative"],
)
def test_members_move_one_by_one_and_back(
    cluster: ClusterProcess, group: str, classic: tuple[str, ...], settings: dict[str, str]
) -> None:
    topic = f"of-{group}"
    with Client(cluster.bootstrap) as client:
        client.create_topic(topic, PARTITIONS)
    everyone: list[PolledMember] = []

    def start(kind: str) -> PolledMember:
        more = {} if kind == CONSUMER else settings
        member = MEMBERS[kind](cluster.bootstrap, group, topic, f"{kind} {len(everyone)}", **more)
        everyone.append(member)
        return member

    with Feed(cluster.bootstrap, topic, PARTITIONS):
        members = [start(kind) for kind in classic]
        try:
            wait_until_shared_and_committing(members)
            assert group_type(cluster, group) == "classic"
            for kinds, type_then in (((CONSUMER,) * len(classic), "consumer"), (classic, "classic")):
                for kind in kinds:  # each process joins before another one leaves
                    members.append(start(kind))
                    wait_until_shared_and_committing(members)
                    assert group_type(cluster, group) == "consumer"
                    members.pop(0).close()
                    wait_until_shared_and_committing(members)
                assert group_type(cluster, group) == type_then
        finally:
            with running(*members):
                pass
    with Client(cluster.bootstrap) as client:
        (offsets,) = client.offsets(group).values()
    for member in everyone:
        assert not member.lost, f"{member.name} lost {member.lost}: {member.errors}"
        for partition, offset in member.acknowledged.items():
            assert offsets[partition] >= offset, f"a commit of {member.name} is lost"
    consumed = Counter(int(value) for one in everyone for value in one.values)
    complete = range(min(offsets.values()))
    assert all(consumed[number] >= PARTITIONS for number in complete), "messages were skipped"


def test_a_group_moves_while_its_first_members_wait_for_others(cluster: ClusterProcess, group: str) -> None:
    """Their JoinGroup waits for the initial delay when a consumer joins, and every client tries again."""
    topic = f"of-{group}"
    with Client(cluster.bootstrap) as client:
        client.create_topic(topic, PARTITIONS)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        members = [MEMBERS[kind](cluster.bootstrap, group, topic, kind) for kind in EAGER]
        with Feed(cluster.bootstrap, topic, PARTITIONS), running(*members):
            wait_for(lambda: num_members(admin, group) == len(members), "all of them wait")
            last = MEMBERS[CONSUMER](cluster.bootstrap, group, topic, CONSUMER)
            with running(last):
                wait_until_shared_and_committing([*members, last])
