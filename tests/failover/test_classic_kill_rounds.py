"""kill -9 of the coordinator under a group of three client libraries: nothing acknowledged is lost.

Four members each of aiokafka, kafka-python and confluent-kafka share one group and commit what they consume;
or three each, and three of confluent-kafka with the consumer protocol: a group of both protocols. A round
kills the node that coordinates the group. A member is back when a commit that it began after the kill is
acknowledged. At the end every commit that a client was told of is in the log of every node.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import pytest

from benchmarks.raw import coordinator_of
from cluster.launching.launcher import ClusterProcess
from history.checking.commits import missing_commits
from history.checking.verify import report_text, verify
from quorate.client import Client
from tests.report import count_fault
from tests.support.kafka_python import FROM_KAFKA_PYTHON
from tests.support.python_clients import (
    MEMBERS,
    Feed,
    PolledMember,
)
from tests.support.real_cluster import leader_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.filterwarnings(FROM_KAFKA_PYTHON)

GROUP, TOPIC = "mixed-clients", "orders"
CLASSIC = ("aiokafka", "kafka-python", "confluent-kafka, classic")
KINDS = {"classic": CLASSIC, "mixed": (*CLASSIC, "confluent-kafka, consumer")}
"""The kinds of members, by the kind of group."""
PARTITIONS = 12
ROUNDS, ROUNDS_OF_CHAOS = 2, 20
START_S = 30.0
BACK_S = 3.0
"""Every client consumes again so soon after the kill."""


@pytest.fixture
def settings() -> dict[str, str]:
    return {
        "scratch.log.enable": "true",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "500",
    }


@pytest.fixture
def members(group: str, cluster: ClusterProcess) -> Iterator[list[PolledMember]]:
    """The members, each with its partition."""
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
    started = [
        MEMBERS[kind](cluster.bootstrap, GROUP, TOPIC, f"{kind}-{number}")
        for number in range(PARTITIONS // len(KINDS[group]))
        for kind in KINDS[group]
    ]
    try:
        wait_for(
            lambda: [len(member.assigned) for member in started] == [1] * PARTITIONS,
            lambda: f"a partition for each: {[(one.assigned, one.errors[-1:]) for one in started]}",
            START_S,
        )
        yield started
    finally:
        close(started)


def close(members: list[PolledMember]) -> None:
    """End all members at once."""
    for member in members:
        member.end()
    for member in members:
        member.close()


def back_after_s(members: list[PolledMember], cluster: ClusterProcess) -> dict[PolledMember, float]:
    """Kill the group's coordinator; return when each member was back, in seconds after the kill."""
    killed = leader_of(cluster.nodes, GROUP)
    killed.kill()
    killed_s = time.monotonic()
    count_fault("failover", "kill -9 of the coordinator of a classic group")

    def first_after(member: PolledMember) -> float | None:
        return next((one.done_s for one in list(member.commits) if one.began_s > killed_s), None)

    try:
        wait_for(
            lambda: None not in map(first_after, members),
            lambda: (
                f"commits of {[(one.name, one.errors[-1:]) for one in members if first_after(one) is None]}"
            ),
            START_S,
        )
    finally:
        killed.start()
    for node in cluster.nodes:
        coordinator_of([node], GROUP)  # the cluster is whole again
    return {member: (first_after(member) or 0.0) - killed_s for member in members}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", KINDS)
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
def test_no_commit_is_lost_and_every_client_is_soon_back(
    group: str,
    rounds: int,
    members: list[PolledMember],
    cluster: ClusterProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    back_s: dict[str, list[float]] = defaultdict(list)
    with Feed(cluster.bootstrap, TOPIC, PARTITIONS):
        for _ in range(rounds):
            for member, after_s in back_after_s(members, cluster).items():
                back_s[member.name.rpartition("-")[0]].append(after_s)
    close(members)
    acknowledged = [
        ((GROUP, TOPIC, one.partition), one.offset) for member in members for one in member.commits
    ]
    cluster.stop()
    for node in cluster.nodes:
        assert missing_commits(str(node.data), acknowledged) == [], f"node {node.node_id}"
        report = verify(str(node.data))
        assert report.ok, "\n".join(report_text(report))
    with capsys.disabled():
        for name, all_s in sorted(back_s.items()):
            print(f"\n{group} group, {name}: back {median(all_s):.2f} s after the kill (median), ", end="")
            print(f"{max(all_s):.2f} s (max)", end="")
        print(f"\n{len(acknowledged)} commits acknowledged")
    late = {name: max(all_s) for name, all_s in back_s.items() if max(all_s) > BACK_S}
    assert not late, f"seconds until every member consumes again: {late}"
