"""The topics of Apache Kafka itself, followed by `quorate topics mirror`."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.apache import launch_kafka
from cluster.launching.launcher import ClusterProcess
from quorate.app import run
from quorate.client import Client
from tests.support.waiting import wait_for

ADMIN_S = 30.0


def test_the_catalog_follows_apache_kafka(cluster: ClusterProcess, tmp_path: Path, topic: str) -> None:
    with (
        launch_kafka(tmp_path / "kafka", settings={"broker.rack": "east"}) as kafka,
        Client(cluster.bootstrap) as here,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        mirror = ["topics", "mirror", "--from", kafka.bootstrap, "--bootstrap", cluster.bootstrap]
        mirror += [
            "--once",
            "--interval",
            "0.5",
            "--topics",
            f"{topic}.*",
            "--state",
            str(tmp_path / "state"),
        ]

        def there() -> dict[str, int]:
            topics = admin.list_topics(timeout=ADMIN_S).topics.values()
            return {one.topic: len(one.partitions) for one in topics if one.topic.startswith(topic)}

        def partitions(expected: dict[str, int]) -> dict[str, int]:
            """Mirror once Apache Kafka shows what it has acknowledged, which takes a moment."""
            wait_for(lambda: there() == expected, lambda: f"{expected} in Apache Kafka: {there()}", ADMIN_S)
            assert run(mirror) == 0
            return {one.name: one.num_partitions for one in here.topics() if one.name.startswith(topic)}

        admin.create_topics([NewTopic(topic, 3, 1)], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
        assert partitions({topic: 3}) == {topic: 3}
        assert here.topic_racks([topic]) == {topic: (("east",),) * 3}
        grown = admin.create_partitions([NewPartitions(topic, 5)], operation_timeout=ADMIN_S)
        grown[topic].result(ADMIN_S)
        assert partitions({topic: 5}) == {topic: 5}
        assert here.topic_racks([topic]) == {topic: (("east",),) * 5}
        first_id = here.topic(topic)
        admin.delete_topics([topic], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
        admin.create_topics([NewTopic(topic, 5, 1)], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
        assert partitions({topic: 5}) == {topic: 5}
        assert here.topic(topic) != first_id, "another topic of the same name is another topic here too"
        admin.delete_topics([topic], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
        assert partitions({}) == {}
