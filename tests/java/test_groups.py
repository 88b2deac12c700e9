"""kafka-consumer-groups, kafka-groups and kafka-configs: the administration of groups.

The members are Kafka's own Java consumers (kafka-verifiable-consumer), one process each.
"""

from __future__ import annotations

import re
import time

from cluster.launching.launcher import ClusterProcess
from tests.java.consumers import Fleet
from tests.java.toolbox import CONFIGS, CONSUMER_GROUPS, GROUPS, Tools, rows

PARTITIONS = 6
KNOWN_EVERYWHERE_S_MAX = 10.0


def committed(tools: Tools, topic: str, group: str) -> None:
    """Commit offsets for a group without members by resetting it to the topic's beginning."""
    tools.run(
        CONSUMER_GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )


def test_members_and_their_assignments_are_described(tools: Tools, fleet: Fleet, group: str) -> None:
    fleet.start(3)
    fleet.await_assigned(PARTITIONS)

    listed = rows(tools.run(CONSUMER_GROUPS, "--list", "--state"))
    assert [row["STATE"] for row in listed if row["GROUP"] == group] == ["Stable"]
    (listed_as,) = (row for row in rows(tools.run(GROUPS, "--list")) if row["GROUP"] == group)
    assert (listed_as["TYPE"], listed_as["PROTOCOL"]) == ("Consumer", "consumer")

    (state,) = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--state"))
    assert (state["STATE"], state["#MEMBERS"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "3", "uniform")

    members = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--members", "--verbose"))
    assert len(members) == 3
    assert {row["CURRENT-EPOCH"] for row in members} == {row["TARGET-EPOCH"] for row in members}
    found = [
        number for row in members for number in re.findall(r"\d+", row["CURRENT-ASSIGNMENT"].split(":")[1])
    ]
    assert sorted(found) == [str(number) for number in range(PARTITIONS)]
    assert all(row["CURRENT-ASSIGNMENT"] == row["TARGET-ASSIGNMENT"] for row in members)

    code, printed = tools.attempt(CONSUMER_GROUPS, "--delete", "--group", group)
    assert "GroupNotEmptyException" in printed, code


def test_offsets_are_planned_reset_and_deleted(tools: Tools, made: str, group: str) -> None:
    plan = ("--reset-offsets", "--group", group, "--topic", made, "--to-earliest")
    planned = rows(tools.run(CONSUMER_GROUPS, *plan, "--dry-run"))
    assert {(row["TOPIC"], row["NEW-OFFSET"]) for row in planned} == {(made, "0")}
    assert len(planned) == PARTITIONS
    _, printed = tools.attempt(CONSUMER_GROUPS, "--describe", "--group", group, "--offsets")
    assert "GroupIdNotFoundException" in printed, "a plan changes nothing"

    tools.run(CONSUMER_GROUPS, *plan, "--execute")
    offsets = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--offsets"))
    assert sorted(row["PARTITION"] for row in offsets) == [str(number) for number in range(PARTITIONS)]
    assert {(row["CURRENT-OFFSET"], row["LAG"]) for row in offsets} == {("0", "0")}

    tools.run(CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", f"{made}:0,1")
    offsets = rows(tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--offsets"))
    assert sorted(row["PARTITION"] for row in offsets) == ["2", "3", "4", "5"]

    assert "successful" in tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
    assert group not in tools.run(CONSUMER_GROUPS, "--list").split()


def test_offsets_of_a_subscribed_topic_stay(tools: Tools, made: str, fleet: Fleet, group: str) -> None:
    fleet.start(1)
    fleet.await_assigned(PARTITIONS)
    _, printed = tools.attempt(CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", made)
    assert "subscribed" in printed
    _, printed = tools.attempt(
        CONSUMER_GROUPS, "--reset-offsets", "--group", group, "--topic", made, "--to-earliest", "--execute"
    )
    assert "Stable" in printed, "a group with members is not reset"


def test_every_node_takes_a_groups_settings_and_shows_them(
    cluster: ClusterProcess, tools: Tools, group: str
) -> None:
    entity = ("--entity-type", "groups", "--entity-name", group)
    nodes = [f"{node.host}:{node.port}" for node in cluster.nodes]
    names = (
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "consumer.assignment.interval.ms",
    )
    values = dict(zip(names, ("1200", "50000", "700"), strict=True))
    for node, (name, value) in zip(nodes, values.items(), strict=True):
        tools.run(CONFIGS, "--alter", *entity, "--add-config", f"{name}={value}", bootstrap=node)
    expected = {f"{name}={value}" for name, value in values.items()}
    for node in nodes:
        words: set[str] = set()
        deadline_s = time.monotonic() + KNOWN_EVERYWHERE_S_MAX
        while not expected <= words:
            assert time.monotonic() < deadline_s, (node, words)
            words = set(tools.run(CONFIGS, "--describe", *entity, bootstrap=node).split())


def test_a_groups_own_interval_is_set_shown_and_removed(tools: Tools, group: str) -> None:
    entity = ("--entity-type", "groups", "--entity-name", group)
    tools.run(CONFIGS, "--alter", *entity, "--add-config", "consumer.heartbeat.interval.ms=1500")
    assert "consumer.heartbeat.interval.ms=1500" in tools.run(CONFIGS, "--describe", *entity)

    code, printed = tools.attempt(
        CONFIGS, "--alter", *entity, "--add-config", "consumer.heartbeat.interval.ms=100"
    )
    assert code == 1
    assert "InvalidConfigurationException" in printed

    tools.run(CONFIGS, "--alter", *entity, "--delete-config", "consumer.heartbeat.interval.ms")
    assert "heartbeat.interval.ms=1500" not in tools.run(CONFIGS, "--describe", *entity)
