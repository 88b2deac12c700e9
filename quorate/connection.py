"""One blocking connection to one Kafka node: sends a request and receives its answer by a deadline.

Versions are negotiated on connect (ApiVersions), and every call uses the highest that both sides support. Any
failure (refused, reset, timeout, malformed answer) is a `ConnectionLost`, after which the connection is
closed: a late answer can never be taken for the answer to the next request.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode, MalformedFrame
from wire.framing import Framer
from wire.messages.api_versions import ApiVersionsRequest
from wire.protocol import decode_response, encode_request
from wire.schema import Message

CLIENT_ID = "quorate"
FRAME_BYTES_MAX = 64 * 1024 * 1024  # an answer listing every group of a large cluster is a few MiB
READ_BYTES = 64 * 1024
API_VERSIONS_VERSION = 3  # the first version that names the client; every broker since Kafka 2.4 answers it
HTTP = b"HTTP"  # as a length that Kafka's protocol begins with, it would be a gigabyte


class ConnectionLost(Exception):
    """The node could not be reached or stopped answering; a retry, perhaps at another node, may help."""


class NotKafka(Exception):
    """Something answers at the address, but not in Kafka's protocol."""


class VersionMissing(Exception):
    """The node serves no version of the API that this client speaks."""


class ClientConnection:
    """A connection to `host`:`port`, opened and negotiated by `deadline_s` (on `time.monotonic`)."""

    def __init__(self, host: str, port: int, deadline_s: float) -> None:
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._framer = Framer(FRAME_BYTES_MAX)
        try:
            self.socket = socket.create_connection((host, port), timeout=_remaining_s(deadline_s))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {_reason(error)}") from error
        self._served = self._negotiate(deadline_s)

    def close(self) -> None:
        self.socket.close()

    def call(self, api: ApiKey, body: Message, deadline_s: float, *, version_max: int | None = None) -> Any:
        """Send one request and return its decoded answer.

        Raises `ConnectionLost` (the connection is closed then) or `VersionMissing`.
        """
        return self._exchange(api, self._version(api, version_max), body, deadline_s)

    def serves(self, api: ApiKey) -> bool:
        return int(api) in self._served

    def _version(self, api: ApiKey, version_max: int | None) -> int:
        ours_min, ours_max = API_VERSIONS[api]
        theirs_min, theirs_max = self._served.get(int(api), (0, -1))
        version = min(ours_max, theirs_max, ours_max if version_max is None else version_max)
        if version < max(ours_min, theirs_min):
            raise VersionMissing(f"{self.address} does not serve {api.name}")
        return version

    def _negotiate(self, deadline_s: float) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="0")
        answer = self._exchange(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, request, deadline_s)
        if answer.error_code != ErrorCode.NONE:
            self.close()
            raise VersionMissing(f"{self.address} answers ApiVersions with error {answer.error_code}")
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def _exchange(self, api: ApiKey, version: int, body: Message, deadline_s: float) -> Any:
        self._correlation_id += 1
        try:
            self.socket.settimeout(_remaining_s(deadline_s))
            self.socket.sendall(encode_request(api, version, self._correlation_id, CLIENT_ID, body))
            payload = self._receive(deadline_s)
            correlation_id, answer = decode_response(api, version, payload)
        except NotKafka:
            self.close()
            raise
        except (OSError, MalformedFrame) as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {_reason(error)}") from error
        if correlation_id != self._correlation_id:
            self.close()
            raise ConnectionLost(
                f"{self.address}: answered request {correlation_id}, not {self._correlation_id}"
            )
        return answer

    def _receive(self, deadline_s: float) -> bytes:
        while True:
            self.socket.settimeout(_remaining_s(deadline_s))
            data = self.socket.recv(READ_BYTES)
            if not data:
                raise OSError("the node closed the connection")
            if data.startswith(HTTP):
                raise NotKafka(f"{self.address} is an HTTP port, not one for Kafka clients")
            payloads = self._framer.feed(data)
            if payloads:
                return payloads[0]


def _remaining_s(deadline_s: float) -> float:
    remaining_s = deadline_s - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("timed out")
    return remaining_s


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
