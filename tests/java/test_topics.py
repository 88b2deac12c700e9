"""kafka-topics: the administration of topics."""

from __future__ import annotations

import re

from tests.java.toolbox import TOPICS, Tools


def test_a_topic_is_created_described_grown_and_deleted(tools: Tools, topic: str) -> None:
    created = tools.run(TOPICS, "--create", "--topic", topic, "--partitions", "3")
    assert f"Created topic {topic}." in created

    assert topic in tools.run(TOPICS, "--list").split()
    described = tools.run(TOPICS, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3\b", described)

    tools.run(TOPICS, "--alter", "--topic", topic, "--partitions", "6")
    described = tools.run(TOPICS, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 6\b", described)
    numbers = re.findall(r"Partition: (\d+)\s+Leader: \d+", described)
    assert numbers == [str(number) for number in range(6)]

    tools.run(TOPICS, "--delete", "--topic", topic)
    assert topic not in tools.run(TOPICS, "--list").split()


def test_what_cannot_be_is_refused_with_kafkas_words(tools: Tools, topic: str) -> None:
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", "3")

    code, printed = tools.attempt(TOPICS, "--create", "--topic", topic, "--partitions", "3")
    assert code == 1
    assert "already exists" in printed

    code, printed = tools.attempt(TOPICS, "--alter", "--topic", topic, "--partitions", "2")
    assert code == 1
    assert "InvalidPartitionsException" in printed
