"""The scratch log answers requests, good and bad, as Apache Kafka does (`tests/support/log_cases`).

tests/differential asks a broker the same.
"""

from __future__ import annotations

import pytest

from tests.support.log_answers import MEASURED, OTHERWISE
from tests.support.log_cases import CASES, AskedLog, plain
from tests.support.sim_node import SimNode


@pytest.fixture(scope="module")
def node() -> SimNode:
    settings = {"scratch_log_enable": True, "auto_create_topics_enable": False}
    topics = {f"case-{number}": 1 for number in range(len(CASES))}
    return SimNode(settings=settings, topics=topics)


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_answered_as_by_kafka(node: SimNode, name: str) -> None:
    topic = node.node.catalog.topic(f"case-{list(CASES).index(name)}")
    assert topic is not None
    now_ms = node.node.clock.wall_at(node.machine.host.monotonic_ms())
    log = AskedLog(node.client(name).ask, topic.name, topic.topic_id, now_ms)
    expected, _ = OTHERWISE.get(name, (MEASURED[name], ""))
    assert plain(CASES[name](log)) == expected


def test_what_is_otherwise_differs() -> None:
    assert MEASURED.keys() == CASES.keys()
    assert all(MEASURED[name] != answer for name, (answer, _) in OTHERWISE.items())
