"""A Kafka client's side of a connection that never waits: answers come to callbacks, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.simulator.host import VirtualHost
from cluster.simulator.wiretap import Wiretap
from raftlog.env.host import Stream, StreamHandler, Timer
from wire.apis import ApiKey
from wire.framing import Framer
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.protocol import decode_response, encode_request
from wire.schema import Message

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
TIMEOUT_MS: Final = 2_000.0
"""Kafka's clients wait as long as their heartbeat interval; these are more patient than a failover."""

RETRY_MS: Final = 100.0

Then = Callable[[Any], None]
"""Called with the answer, or with None if there will be none and the request's outcome is unknown."""


class CallbackConnection(StreamHandler):
    """One connection to one node, from dialling to its end."""

    def __init__(
        self, host: VirtualHost, name: str, address: tuple[str, int], tap: Wiretap | None = None
    ) -> None:
        self.host = host
        self._tap = tap or Wiretap()
        self.name = name
        self.is_over = False
        self._transport: Stream | None = None
        self._framer = Framer(FRAME_BYTES_MAX)
        self._unsent: list[bytes] = []
        self._waiting: dict[int, tuple[int, int, float, Then, Timer]] = {}
        """Requests without an answer, by correlation id; the third is when they were sent."""
        self._correlation_id = 0
        host.connect(*address, lambda: self, self._dialled)

    def ask(
        self, api_key: int, api_version: int, body: Message, then: Then, patience_ms: float | None = None
    ) -> None:
        """Send a request; `then` is called once, later."""
        if self.is_over:
            self.host.call_soon(then, None)
            return
        self._correlation_id += 1
        timer = self.host.call_later(patience_ms or TIMEOUT_MS, self.end)
        sent_ms = self.host.monotonic_ms()
        self._waiting[self._correlation_id] = (api_key, api_version, sent_ms, then, timer)
        frame = encode_request(api_key, api_version, self._correlation_id, self.name, body)
        self._tap.requested(api_key, frame)
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def end(self) -> None:
        """Give up: all callbacks that wait are called with None."""
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        for _, _, _, then, timer in waiting.values():
            timer.cancel()
            self.host.call_soon(then, None)

    def _dialled(self, _handler: object, error: BaseException | None) -> None:
        if error is not None:
            self.end()

    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        if self.is_over:
            transport.abort()
            return
        for frame in self._unsent:
            transport.write(frame)
        self._unsent = []

    def data_received(self, data: bytes) -> None:
        for payload in self._framer.feed(data):
            if self.is_over:  # the callback of an earlier answer ended it
                return
            api_key, api_version, sent_ms, then, timer = self._waiting.pop(int.from_bytes(payload[:4], "big"))
            timer.cancel()
            self._tap.answered(api_key, api_version, sent_ms, payload)
            _, answer = decode_response(api_key, api_version, payload)
            then(answer)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def pause_writing(self) -> None:
        """Do nothing: the client waits for the next answer anyway."""

    def resume_writing(self) -> None:
        """Do nothing: nothing was held back."""


class Caller:
    """Finds the coordinator of one group and sends it requests; looks it up again when it has moved."""

    def __init__(
        self,
        host: VirtualHost,
        name: str,
        group_id: str,
        bootstrap: list[tuple[str, int]],
        tap: Wiretap | None = None,
    ) -> None:
        self.host = host
        self.tap = tap
        self.name = name
        self.group_id = group_id
        self.bootstrap = bootstrap
        self._connection: CallbackConnection | None = None
        self._is_finding = False
        self._wanted: list[Callable[[CallbackConnection], None]] = []

    def with_coordinator(self, fn: Callable[[CallbackConnection], None]) -> None:
        """Call `fn` with a connection to the coordinator, as soon as one is known."""
        if self._connection is not None and not self._connection.is_over:
            fn(self._connection)
            return
        self._wanted.append(fn)
        if not self._is_finding:
            self._is_finding = True
            self._find()

    def moved(self) -> None:
        """Forget the coordinator, which has moved or gone."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None

    def _find(self) -> None:
        asked = CallbackConnection(self.host, self.name, self.host.rng.choice(self.bootstrap), self.tap)

        def found(answer: Any) -> None:
            asked.end()
            if answer is None or answer.coordinators[0].error_code:
                self.host.call_later(RETRY_MS * self.host.rng.uniform(0.5, 1.5), self._find)
                return
            self._is_finding = False
            where = answer.coordinators[0]
            self._connection = CallbackConnection(self.host, self.name, (where.host, where.port), self.tap)
            wanted, self._wanted = self._wanted, []
            for fn in wanted:
                fn(self._connection)

        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id])
        asked.ask(ApiKey.FIND_COORDINATOR, 4, request, found)
