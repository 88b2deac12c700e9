"""One connection to a node: its set-up, then requests whose answers come in the same order.

A node answers the requests of a connection one after the other, so the answer to the oldest request in flight
is the next one to come, and an answer with another correlation id means that the stream is out of step.
Whatever is wrong with a connection is raised as `ConnectionFailed`; the delegate closes it then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from client.core.network.addresses import Address
from client.core.network.frames import ResponseFrames
from client.core.network.setup import (
    ConnectionFailed,
    Dialogue,
    ServedVersions,
    SetupRequest,
    negotiate,
)
from client.core.requests import ClientResponse, RequestFailure, UnsentRequest
from wire.apis import API_VERSIONS, ApiKey, api_title
from wire.errors import ErrorCode, MalformedFrame, Unencodable
from wire.protocol import decode_response, encode_request
from wire.schema import Message

IN_FLIGHT_MAX: Final = 100
"""Most requests without an answer on a connection; further ones wait."""

CORRELATION_ID_MAX: Final = 2**31 - 1

REAUTHENTICATE_AFTER: Final = 0.85
"""The part of a session's lifetime after which the client authenticates again, as the Java client does."""

REAUTHENTICATE_MS_MIN: Final = 1_000.0
"""The shortest time between two authentications of a connection; Kafka's brokers refuse more."""

THROTTLE_MS_MAX: Final = 30_000.0
"""The longest wait that a node can ask for. It reads nothing meanwhile, so an earlier request does no harm; a
longer wait would cost a member its place."""

_ERROR_CODE = slice(4, 6)
"""The place of the error code in an answer to ApiVersions, whose header version is 0 always."""


class Purpose(Enum):
    """The use of a connection. A node may have one for each, as answers come in order."""

    DATA = "requests to a node by its id; a Fetch waits there for records"
    BESIDE = "a Fetch of partitions that are not in the one that waits"
    COORDINATOR = "the group's requests, so that no heartbeat waits behind a Fetch"
    CONTROL = "requests that any node answers, when the other connections are busy"


class ConnectionState(Enum):
    """The states of a connection, in order. After READY, it is AUTHENTICATING again when due (KIP-368)."""

    CONNECTING = "TCP and TLS"
    NEGOTIATING = "ApiVersions"
    AUTHENTICATING = "SASL"
    READY = "requests of the managers"
    CLOSED = "ended; its number is not used again"


@dataclass(slots=True)
class InFlight:
    """A request that was written. `request` is None if it is part of the set-up."""

    correlation_id: int
    api: ApiKey
    version: int
    request: UnsentRequest | None
    sent_ms: float
    deadline_ms: float
    has_expired: bool = False
    """Whether its manager was told that it timed out; an answer is dropped then."""


class NodeConnection:
    """The client's end of one connection."""

    def __init__(
        self,
        number: int,
        address: Address,
        purpose: Purpose,
        node_id: int,
        *,
        client_id: str,
        write: Callable[[bytes], None],
        authenticate_with: Callable[[ServedVersions], Dialogue[float]] | None,
        frame_bytes_max: int,
        opened_ms: float,
        setup_ms: float,
    ) -> None:
        self.number = number
        self.address = address
        self.purpose = purpose
        self.node_id = node_id
        """The node at the other end, -1 if it is a bootstrap address whose node is not known."""
        self.state = ConnectionState.CONNECTING
        self.in_flight: deque[InFlight] = deque()
        self.served: ServedVersions = {}
        self.opened_ms = opened_ms
        self.setup_deadline_ms = opened_ms + setup_ms
        self.used_ms = opened_ms
        """The time at which a request of a manager was last written or answered."""
        self.throttled_until_ms = opened_ms
        """The time before which the node does not read requests (KIP-219)."""
        self.authenticate_at_ms = float("inf")
        self._client_id = client_id
        self._write = write
        self._authenticate_with = authenticate_with
        self._frames = ResponseFrames(frame_bytes_max)
        self._correlation_id = 0
        self._setup_ms = setup_ms
        self._dialogue: Dialogue[Any] | None = None

    def __str__(self) -> str:
        return f"the connection to {self.address}"

    def can_send(self, now_ms: float) -> bool:
        """Whether a request may be written now."""
        return (
            self.state is ConnectionState.READY
            and now_ms >= self.throttled_until_ms
            and len(self.in_flight) < IN_FLIGHT_MAX
        )

    def is_behind(self) -> bool:
        """Whether another request would wait for long: behind a Fetch, or behind one that timed out."""
        return any(one.api is ApiKey.FETCH or one.has_expired for one in self.in_flight)

    def connected(self, now_ms: float) -> None:
        """The transport is connected: begin with ApiVersions."""
        self.state = ConnectionState.NEGOTIATING
        self._begin(negotiate(), now_ms)

    def reauthenticate(self, now_ms: float) -> None:
        """Authenticate again, before the session ends; answers still to come are not affected."""
        assert self._authenticate_with is not None
        self.state = ConnectionState.AUTHENTICATING
        self.authenticate_at_ms = float("inf")
        self.setup_deadline_ms = now_ms + self._setup_ms
        self._begin(self._authenticate_with(self.served), now_ms)

    def version_of(self, request: UnsentRequest) -> int | None:
        """The highest version of the request's API that both sides speak, and the request allows."""
        low, high = API_VERSIONS[request.api]
        node_low, node_high = self.served.get(request.api, (0, -1))
        allowed_low, allowed_high = request.versions or (low, high)
        version = min(high, node_high, allowed_high)
        return version if version >= max(low, node_low, allowed_low) else None

    def send(self, request: UnsentRequest, version: int, now_ms: float) -> None:
        """Write a request. Raises `Unencodable` if its values do not fit; nothing was written then."""
        self._send(request.api, version, request.build(version), request, now_ms)
        self.used_ms = now_ms

    def received(self, data: bytes, now_ms: float) -> Iterator[tuple[UnsentRequest, ClientResponse]]:
        """Take bytes from the node. Yields the requests that they answer, with their answers."""
        try:
            frames = self._frames.feed(data)
        except MalformedFrame as error:
            hint = " (is security.protocol right?)" if self.state is ConnectionState.NEGOTIATING else ""
            words = f"{self} brought no answer: {error}{hint}"
            raise ConnectionFailed(RequestFailure.MALFORMED, words) from error
        for frame in frames:
            sent, body = self._answer(frame)
            if sent.request is None:
                self._continue(body, now_ms)
                continue
            response = self._response(sent, body, now_ms)
            if not sent.has_expired:
                yield sent.request, response

    def _send(
        self, api: ApiKey, version: int, body: Message, request: UnsentRequest | None, now_ms: float
    ) -> None:
        correlation_id = self._correlation_id
        frame = encode_request(api, version, correlation_id, self._client_id, body)
        self._correlation_id = 0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1
        deadline_ms = self.setup_deadline_ms if request is None else request.made_ms + request.timeout_ms
        self.in_flight.append(InFlight(correlation_id, api, version, request, now_ms, deadline_ms))
        self._write(frame)

    def _answer(self, frame: bytes) -> tuple[InFlight, Any]:
        if not self.in_flight:
            words = f"{self} brought an answer that nobody asked for"
            raise ConnectionFailed(RequestFailure.MALFORMED, words)
        sent = self.in_flight[0]
        version = sent.version
        if sent.api is ApiKey.API_VERSIONS and _is_unsupported_version(frame):
            version = 0
        try:
            correlation_id, body = decode_response(sent.api, version, frame)
        except MalformedFrame as error:
            words = f"the answer to {api_title(sent.api)} {version} on {self} is malformed: {error}"
            raise ConnectionFailed(RequestFailure.MALFORMED, words) from error
        if correlation_id != sent.correlation_id:
            words = f"{self} answered request {correlation_id} when {sent.correlation_id} was due"
            raise ConnectionFailed(RequestFailure.MALFORMED, words)
        self.in_flight.popleft()
        return sent, body

    def _response(self, sent: InFlight, body: Any, now_ms: float) -> ClientResponse:
        self.used_ms = now_ms
        throttle_ms = getattr(body, "throttle_time_ms", 0)
        if throttle_ms > 0:
            until_ms = now_ms + min(throttle_ms, THROTTLE_MS_MAX)
            self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        return ClientResponse(body, None, sent.version, self.node_id, now_ms)

    def _begin(self, dialogue: Dialogue[Any], now_ms: float) -> None:
        self._dialogue = dialogue
        self._continue(None, now_ms)

    def _continue(self, body: Any, now_ms: float) -> None:
        """Give the answer to the dialogue of the set-up, and send what it says next."""
        assert self._dialogue is not None
        try:
            said: SetupRequest = self._dialogue.send(body)
        except StopIteration as end:
            self._dialogue = None
            self._advance(end.value, now_ms)
        else:
            try:
                self._send(said.api, said.version, said.body, None, now_ms)
            except Unencodable as error:
                raise ConnectionFailed(RequestFailure.AUTHENTICATION, str(error)) from error

    def _advance(self, result: Any, now_ms: float) -> None:
        """Go to the next state, after a dialogue has ended with `result`."""
        if self.state is ConnectionState.NEGOTIATING:
            self.served = result
            if self._authenticate_with is not None:
                self.state = ConnectionState.AUTHENTICATING
                self._begin(self._authenticate_with(self.served), now_ms)
                return
        elif result > 0:
            wait_ms = max(result * REAUTHENTICATE_AFTER, REAUTHENTICATE_MS_MIN)
            self.authenticate_at_ms = now_ms + wait_ms
        self.state = ConnectionState.READY


def _is_unsupported_version(frame: bytes) -> bool:
    return int.from_bytes(frame[_ERROR_CODE], "big") == ErrorCode.UNSUPPORTED_VERSION
