"""The answers by which the scratch log is tested are those of Apache Kafka (`tests/support/log_cases`)."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache import launch_kafka
from quorate.client import Client
from tests.support.log_answers import MEASURED
from tests.support.log_cases import CASES, AskedLog, plain
from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.protocol import decode_response, encode_request

ANSWER_S_MAX = 10.0
UNANSWERED = {name for name, answer in MEASURED.items() if answer is None}


class Asking:
    """A connection that has one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, ANSWER_S_MAX)
        self._stream = self._socket.makefile("rb")

    def ask(self, api: ApiKey, version: int, body: Any) -> Any:
        self._socket.sendall(encode_request(api, version, 1, "cases", body))
        length = int.from_bytes(self._stream.read(4), "big")
        return decode_response(api, version, self._stream.read(length))[1]

    def topic_id(self, name: str) -> bytes:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        while True:
            topic = self.ask(ApiKey.METADATA, 12, request).topics[0]
            if not topic.error_code and topic.partitions[0].leader_id >= 0:
                return bytes(topic.topic_id)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


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
