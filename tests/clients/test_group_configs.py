"""Configs of groups by confluent-kafka's AdminClient, on three real nodes, while consumers run."""

from __future__ import annotations

import json
import re
import time
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from cluster.launching.launcher import ClusterProcess
from quorate.app import run
from quorate.errors import ExitCode
from tests.support.polled_consumers import Crowd

TIMEOUT_S = 20
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"


SETTINGS: dict[str, str] = {}
"""The defaults, which these tests describe."""


@pytest.fixture
def bootstraps(cluster: ClusterProcess) -> list[str]:
    return [f"{node.host}:{node.port}" for node in cluster.nodes]


@pytest.fixture
def admin(bootstraps: list[str]) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(bootstraps), "log_level": 0})


@pytest.fixture
def crowd(admin: AdminClient, bootstraps: list[str]) -> Iterator[Crowd]:
    topic, group = f"topic-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
    admin.create_topics([NewTopic(topic, 4)], operation_timeout=TIMEOUT_S)[topic].result()
    crowd = Crowd(",".join(bootstraps), group, topic)
    yield crowd
    crowd.close()


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def alter(admin: AdminClient, group: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=list(entries))
    only(admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S))


def setting(name: str, value: object) -> ConfigEntry:
    return ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = only(
        admin.describe_configs([ConfigResource(kind, name)], request_timeout=TIMEOUT_S)
    )
    return found


def heartbeats(cluster: ClusterProcess) -> int:
    """Return how many heartbeats all nodes together have received."""
    total = 0
    for node in cluster.nodes:
        with urllib.request.urlopen(
            f"http://{node.host}:{node.http_port}/metrics", timeout=TIMEOUT_S
        ) as answer:
            text = answer.read().decode()
        found = re.search(
            r'^quorate_kafka_requests_total\{api="consumer_group_heartbeat"\} (\S+)', text, re.M
        )
        total += int(float(found[1])) if found else 0
    return total


def test_a_running_consumer_goes_by_its_groups_config(
    cluster: ClusterProcess, admin: AdminClient, crowd: Crowd, bootstraps: list[str]
) -> None:
    """librdkafka adopts a new interval with the next reply, and loses nothing by it."""
    member = crowd.join()
    crowd.wait_balanced(4)
    alter(admin, crowd.group, setting(SESSION, 12_000), setting(HEARTBEAT, 2_500))
    for bootstrap in bootstraps:  # the reply waited until every node knew
        entries = describe(AdminClient({"bootstrap.servers": bootstrap}), ResourceType.GROUP, crowd.group)
        assert [entries[name].value for name in (SESSION, HEARTBEAT)] == ["12000", "2500"]
        assert entries[SESSION].source == ConfigSource.GROUP_CONFIG.value
    first = heartbeats(cluster)
    crowd.wait("the next heartbeat, which hears of it", lambda: heartbeats(cluster) > first)
    heard_s, heard = time.monotonic(), heartbeats(cluster)
    crowd.wait("two more heartbeats", lambda: heartbeats(cluster) >= heard + 2)
    assert time.monotonic() - heard_s > 4.0, "it kept its old interval"
    deletion = ConfigEntry(SESSION, None, incremental_operation=AlterConfigOpType.DELETE)
    alter(admin, crowd.group, deletion, setting(HEARTBEAT, 500))
    assert describe(admin, ResourceType.GROUP, crowd.group)[SESSION].value == "45000"
    heard = heartbeats(cluster)
    crowd.wait("the heartbeat that hears of it", lambda: heartbeats(cluster) > heard)
    crowd.join()
    crowd.wait_balanced(4)
    assert (member.lost, member.errors) == ([], [])


def test_what_is_wrong_is_refused_by_name(admin: AdminClient) -> None:
    for entry in (setting(SESSION, 1), setting("no.such.config", 1), setting(HEARTBEAT, "soon")):
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            alter(admin, "refused", entry)


def test_a_broker_is_described_and_not_changed(cluster: ClusterProcess, admin: AdminClient) -> None:
    for number in (1, 2, 3):
        entries = describe(admin, ResourceType.BROKER, str(number))
        assert entries["node.id"].value == str(number)
        assert all(entry.is_read_only for entry in entries.values())
        assert entries["cluster.secret.file"].is_sensitive
        assert entries["cluster.secret.file"].value is None
        resource = ConfigResource(
            ResourceType.BROKER,
            str(number),
            incremental_configs=[setting("group.consumer.session.timeout.ms", 46_000)],
        )
        with pytest.raises(KafkaException, match="INVALID_REQUEST"):
            only(admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S))


def test_a_topic_has_no_configs(admin: AdminClient, crowd: Crowd) -> None:
    assert describe(admin, ResourceType.TOPIC, crowd.topic) == {}
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        describe(admin, ResourceType.TOPIC, "no-such-topic")


def test_the_command_shows_and_changes_configs(
    cluster: ClusterProcess, bootstraps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap, group = ",".join(bootstraps), f"group-{uuid.uuid4().hex[:12]}"
    urls = ",".join(f"http://{node.host}:{node.http_port}" for node in cluster.nodes)
    base = ["groups", "config", group, "--bootstrap", bootstrap, "--url", urls]
    assert (
        run([*base, "--set", "session.timeout.ms=9000", "--set", "consumer.heartbeat.interval.ms=1500"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["consumer.assignment.interval.ms", "0"],
        ["consumer.heartbeat.interval.ms", "1500"],
        ["consumer.session.timeout.ms", "9000"],
    ]
    assert run([*base, "--unset", "session.timeout.ms", "--json"]) == 0
    shown = {row["name"]: row for row in json.loads(capsys.readouterr().out)["configs"]}
    assert (shown[SESSION]["value"], shown[SESSION]["origin"]) == (45_000, "broker")
    assert (shown[HEARTBEAT]["value"], shown[HEARTBEAT]["origin"]) == (1_500, "group")
    assert run([*base, "--unset", "heartbeat.interval.ms", "--json"]) == 0
    shown = {row["name"]: row for row in json.loads(capsys.readouterr().out)["configs"]}
    assert (shown[HEARTBEAT]["origin"], shown[HEARTBEAT]["set_to"]) == ("adaptive", None)
    assert run([*base, "--set", "session.timeout.ms=1"]) == ExitCode.REFUSED
    assert "INVALID_CONFIG" in capsys.readouterr().err
    for wrong in (["--set", "session.timeout.ms"], ["--unset", "a=1"], ["--set", "a=1", "--unset", "a"]):
        assert run([*base, *wrong]) == ExitCode.USAGE
        capsys.readouterr()
