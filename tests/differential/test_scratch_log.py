"""The answers by which the scratch log is tested are those of Apache Kafka (`tests/support/log_cases`)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.apache import launch_kafka
from quorate.client import Client
from tests.differential.blocking import Asking
from tests.support.log_answers import MEASURED
from tests.support.log_cases import CASES, AskedLog, plain

UNANSWERED = {name for name, answer in MEASURED.items() if answer is None}


@pytest.mark.java
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("kafka_can_run")
def test_kafka_answers_as_measured(tmp_path: Path) -> None:
    answers = {}
    with launch_kafka(tmp_path, settings={"auto.create.topics.enable": "false"}) as kafka:
        (address,) = kafka.addresses
        with Client(":".join(map(str, address))) as client:
            for number in range(len(CASES)):
                client.create_topic(f"case-{number}", 1)
        asking = Asking(address)
        for number, name in enumerate(CASES):
            if name not in UNANSWERED:
                topic = f"case-{number}"
                log = AskedLog(asking.ask, topic, asking.topic_id(topic), int(time.time() * 1_000) - 60_000)
                answers[name] = plain(CASES[name](log))
        asking.close()
    assert answers == {name: answer for name, answer in MEASURED.items() if name not in UNANSWERED}
