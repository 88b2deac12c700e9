"""The servers that consumers read from, Quorate and Apache Kafka; each test has its own topic and group."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.apache import java_is_missing, launch_kafka
from cluster.launching.launcher import launch_cluster
from quorate import Consumer
from tests.clients.consumer.reading import WITHIN_S

HEARTBEATS = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
}

KAFKA = {"log.retention.ms": "-1", **HEARTBEATS}
"""The messages are of 2023: the broker would delete them when it has run for half a minute."""


@pytest.fixture(scope="session", params=["quorate", pytest.param("kafka", marks=pytest.mark.java)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server that clients connect to: three nodes of Quorate with the scratch log, or Apache Kafka."""
    data = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as running:
        if request.param == "quorate":
            started = launch_cluster(data / "cluster", settings={"scratch.log.enable": "true", **HEARTBEATS})
            running.callback(started.kill)
            yield started.bootstrap
        else:
            if reason := java_is_missing():
                pytest.skip(reason)
            yield running.enter_context(launch_kafka(data / "kafka", settings=KAFKA)).bootstrap


@pytest.fixture
def topic(server: str) -> str:
    """A new topic of two partitions."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic(name, 2)])[name].result(WITHIN_S)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def consumer(server: str, topic: str, group: str) -> Callable[..., Consumer]:
    """Makes consumers of the topic."""

    def make(*topics: str, **settings: Any) -> Consumer:
        settings = {"group_id": group, "auto_offset_reset": "earliest", **settings}
        return Consumer(*(topics or (topic,)), bootstrap_servers=server, **settings)

    return make
