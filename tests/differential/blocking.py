"""A connection to a server for tests that ask one request after the other, and wait for each answer."""

from __future__ import annotations

import socket
from typing import Any, Final

from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.protocol import decode_response, encode_request

ANSWER_S_MAX: Final = 10.0


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
