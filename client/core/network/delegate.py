"""The network delegate: takes the managers' requests, and brings each an answer or the reason why not.

Requests wait here until a connection can take them. Each is completed exactly once, and handlers run at the
end of an entry point (`poll`, `connected`, `received`, `lost`), never in the middle of a change. A request
that timed out leaves its connection open, since its manager may simply have had little time; a node that
has not answered for request.timeout.ms loses its connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from client.core.backoff import Backoff
from client.core.env import ConnectionBackend, Environment, HandshakeFailed
from client.core.errors import KafkaError
from client.core.events import BackgroundEvent, ErrorEvent
from client.core.network.addresses import Address, AddressBook
from client.core.network.connection import ConnectionState, NodeConnection, Purpose
from client.core.network.setup import ConnectionFailed, authenticate
from client.core.requests import FOREVER, ClientResponse, Destination, RequestFailure, UnsentRequest
from client.core.settings import ConsumerSettings
from wire.apis import API_VERSIONS, ApiKey, api_title
from wire.errors import ErrorCode, Unencodable

UNSENT_MAX: Final = 10_000
"""Most requests that wait for a connection; further ones fail at once."""

RESPONSE_BYTES_MAX: Final = 100_000_000
"""Largest answer beside the records that fetch.max.bytes allows; a single batch may exceed that setting."""

HEDGE_MS: Final = 500.0
"""How long a connection for requests to any node may take before another node is tried as well."""

LostListener = Callable[[int, Purpose, str, float], None]
"""Told that a connection ended: node id (-1 if unknown), its purpose, why, and the time."""


class NetworkDelegate:
    """The requests and connections of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        backend: ConnectionBackend,
        emit: Callable[[BackgroundEvent], None],
    ) -> None:
        self.lost_listeners: list[LostListener] = []
        self.addresses = AddressBook(
            settings.bootstrap_servers,
            lambda: Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, env.uniform),
            env.uniform,
        )
        self._settings = settings
        idle_ms = settings.connections_max_idle_ms
        self._idle_ms_max = idle_ms if idle_ms >= 0 else FOREVER
        self._env = env
        self._backend = backend
        self._emit = emit
        self._coordinator: tuple[int, Address] | None = None
        self._unsent: list[UnsentRequest] = []
        self._connections: dict[tuple[Address, Purpose], NodeConnection] = {}
        self._by_number: dict[int, NodeConnection] = {}
        self._last_number = 0
        self._completed: deque[tuple[UnsentRequest, ClientResponse]] = deque()
        self._next_ms = FOREVER
        """When the next pass has something to do, as far as this one has found."""

    # What managers use.

    def add(self, request: UnsentRequest, now_ms: float) -> None:
        """Take a request; the next poll sends it if it can."""
        request.made_ms = now_ms
        if len(self._unsent) < UNSENT_MAX:
            self._unsent.append(request)
        else:
            self._fail(
                request, RequestFailure.UNREACHABLE, f"{UNSENT_MAX} requests are waiting already", now_ms
            )

    def set_coordinator(self, node_id: int, address: Address) -> None:
        """Send requests to `Destination.COORDINATOR` there."""
        self._coordinator = node_id, address

    def clear_coordinator(self, why: str, now_ms: float) -> None:
        """Let requests to `Destination.COORDINATOR` wait; those in flight fail, as nobody will answer."""
        known, self._coordinator = self._coordinator, None
        if known is not None and (known[1], Purpose.COORDINATOR) in self._connections:
            connection = self._connections[known[1], Purpose.COORDINATOR]
            self._backend.close(connection.number)
            self._end(connection, RequestFailure.DISCONNECTED, why, now_ms)

    def coordinator_serves(self, api: ApiKey) -> bool | None:
        """Whether the coordinator names an API; None until a connection to it is set up."""
        if self._coordinator is None:
            return None
        connection = self._connections.get((self._coordinator[1], Purpose.COORDINATOR))
        return api in connection.served if connection is not None and connection.served else None

    def fail_waiting(self, to: Destination, failure: RequestFailure, words: str, now_ms: float) -> None:
        """Fail the requests to a destination that were not sent yet."""
        waiting = [request for request in self._unsent if request.to is to]
        self._unsent = [request for request in self._unsent if request.to is not to]
        for request in waiting:
            self._fail(request, failure, words, now_ms)

    def is_idle(self) -> bool:
        """Whether no request waits for a connection or an answer."""
        return not (
            self._unsent
            or self._completed
            or any(
                one.request is not None and not one.has_expired
                for connection in self._by_number.values()
                for one in connection.in_flight
            )
        )

    def close(self, now_ms: float) -> None:
        """End all connections. What was not answered fails with CANCELLED."""
        words = "the consumer is closing"
        for connection in list(self._by_number.values()):
            self._forget(connection)
            self._backend.close(connection.number)
            for one in connection.in_flight:
                if one.request is not None and not one.has_expired:
                    self._fail(one.request, RequestFailure.CANCELLED, words, now_ms)
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            self._fail(request, RequestFailure.CANCELLED, words, now_ms)
        self._deliver()

    # What the background side calls.

    def poll(self, now_ms: float) -> float:
        """Send what can be sent, and end what took too long. Returns the ms until there is more to do."""
        self._next_ms = FOREVER
        for connection in list(self._by_number.values()):
            self._expire(connection, now_ms)
        self._expire_unsent(now_ms)
        self._send_unsent(now_ms)
        if self._deliver():
            return 0.0
        return max(0.0, self._next_ms - now_ms)

    # What the backend calls; it makes a pass afterwards.

    def connected(self, number: int) -> None:
        """A connection is open, with TLS if that is on."""
        if connection := self._by_number.get(number):
            self._advance(connection, partial(connection.connected, self._env.now_ms()))

    def received(self, number: int, data: bytes) -> None:
        """Bytes have arrived."""
        if connection := self._by_number.get(number):
            self._advance(connection, partial(self._take, connection, data))
            self._deliver()

    def lost(self, number: int, error: Exception | None) -> None:
        """A connection could not be opened, or has ended; None: the node ended it."""
        connection = self._by_number.get(number)
        if connection is None:
            return
        words = f"{connection} ended{_stage(connection)}: {error or 'the node closed it'}"
        refused = isinstance(error, HandshakeFailed)
        failure = RequestFailure.AUTHENTICATION if refused else RequestFailure.DISCONNECTED
        self._end(connection, failure, words, self._env.now_ms())
        self._deliver()

    # Connections.

    def _open(self, address: Address, purpose: Purpose, node_id: int, now_ms: float) -> NodeConnection:
        self._last_number += 1
        settings = self._settings
        has_sasl = settings.security_protocol.startswith("SASL_")
        connection = NodeConnection(
            self._last_number,
            address,
            purpose,
            node_id,
            client_id=settings.client_id,
            write=partial(self._backend.write, self._last_number),
            authenticate_with=partial(authenticate, settings, self._env) if has_sasl else None,
            frame_bytes_max=RESPONSE_BYTES_MAX + settings.fetch_max_bytes,
            opened_ms=now_ms,
            setup_ms=settings.socket_connection_setup_timeout_ms,
        )
        self._by_number[connection.number] = connection
        self._connections[address, purpose] = connection
        self._backend.connect(connection.number, address.host, address.port)
        return connection

    def _take(self, connection: NodeConnection, data: bytes) -> None:
        self._completed.extend(connection.received(data, self._env.now_ms()))

    def _advance(self, connection: NodeConnection, step: Callable[[], None]) -> None:
        """Do a step of a connection; note that it is ready, or end it."""
        was_ready = connection.state is ConnectionState.READY
        try:
            step()
        except ConnectionFailed as error:
            self._backend.close(connection.number)
            self._end(connection, error.failure, str(error), self._env.now_ms())
        else:
            if not was_ready and connection.state is ConnectionState.READY:
                self.addresses.succeeded(connection.address)

    def _forget(self, connection: NodeConnection) -> None:
        del self._by_number[connection.number]
        del self._connections[connection.address, connection.purpose]
        connection.state = ConnectionState.CLOSED

    def _end(self, connection: NodeConnection, failure: RequestFailure, words: str, now_ms: float) -> None:
        """Forget a failed connection, and fail what depends on it.

        `failure` is that of the oldest request in flight; the others were only disconnected.
        """
        was_set_up = connection.state is ConnectionState.READY
        self._forget(connection)
        self.addresses.failed(connection.address, now_ms)
        for one in connection.in_flight:
            if one.request is not None and not one.has_expired:
                self._fail(one.request, failure, words, now_ms, one.version, connection.node_id)
            failure = failure if failure is RequestFailure.AUTHENTICATION else RequestFailure.DISCONNECTED
        if failure is RequestFailure.AUTHENTICATION:
            self._emit(ErrorEvent(error=KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, words)))
        elif not was_set_up:
            failure = RequestFailure.UNREACHABLE
        if failure is not RequestFailure.DISCONNECTED:
            self._fail_unsent(connection, failure, words, now_ms)
        for listener in self.lost_listeners:
            listener(connection.node_id, connection.purpose, words, now_ms)

    def _fail_unsent(
        self, connection: NodeConnection, failure: RequestFailure, words: str, now_ms: float
    ) -> None:
        """Fail what waited for a connection that could not be made.

        Requests to the coordinator or to any node may still find another one, except with bad credentials."""
        kept = []
        for request in self._unsent:
            waits_for_node = (
                connection.purpose is Purpose.DATA
                and not isinstance(request.to, Destination)
                and self.addresses.nodes.get(request.to) == connection.address
            )
            if waits_for_node or failure is RequestFailure.AUTHENTICATION:
                self._fail(request, failure, words, now_ms)
            else:
                kept.append(request)
        self._unsent = kept

    # Deadlines.

    def _due(self, at_ms: float) -> None:
        self._next_ms = min(self._next_ms, at_ms)

    def _expire(self, connection: NodeConnection, now_ms: float) -> None:
        """End requests and connections that took too long, and connections that nobody uses."""
        in_flight = connection.in_flight
        if connection.state is not ConnectionState.READY:
            if now_ms >= connection.setup_deadline_ms:
                words = f"{connection} was not usable in time{_stage(connection)}"
                self._close(connection, RequestFailure.UNREACHABLE, words, now_ms)
                return
            self._due(connection.setup_deadline_ms)
        elif in_flight:
            silent_ms = in_flight[0].sent_ms + self._settings.request_timeout_ms
            if now_ms >= silent_ms:
                words = f"{api_title(in_flight[0].api)} on {connection} got no answer"
                self._close(connection, RequestFailure.TIMED_OUT, words, now_ms)
                return
            self._due(silent_ms)
        elif now_ms >= connection.used_ms + self._idle_ms_max:
            self._forget(connection)
            self._backend.close(connection.number)
            return
        elif now_ms >= connection.authenticate_at_ms:
            self._advance(connection, partial(connection.reauthenticate, now_ms))
        self._due(connection.used_ms + self._idle_ms_max if not in_flight else FOREVER)
        self._due(connection.authenticate_at_ms)
        self._expire_in_flight(connection, now_ms)

    def _close(self, connection: NodeConnection, failure: RequestFailure, words: str, now_ms: float) -> None:
        self._backend.close(connection.number)
        self._end(connection, failure, words, now_ms)

    def _expire_in_flight(self, connection: NodeConnection, now_ms: float) -> None:
        for one in connection.in_flight:
            if one.request is None or one.has_expired:
                continue
            if now_ms >= one.deadline_ms:
                one.has_expired = True
                words = f"{api_title(one.api)} on {connection} got no answer in time"
                failure, node_id = RequestFailure.TIMED_OUT, connection.node_id
                self._fail(one.request, failure, words, now_ms, one.version, node_id)
            else:
                self._due(one.deadline_ms)

    def _expire_unsent(self, now_ms: float) -> None:
        kept = []
        for request in self._unsent:
            deadline_ms = request.made_ms + request.timeout_ms
            if now_ms >= deadline_ms:
                words = (
                    f"{api_title(request.api)} was not sent in time: no connection to {_named(request.to)}"
                )
                self._fail(request, RequestFailure.TIMED_OUT, words, now_ms)
            else:
                self._due(deadline_ms)
                kept.append(request)
        self._unsent = kept

    # Requests.

    def _send_unsent(self, now_ms: float) -> None:
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            try:
                connection = self._connection_for(request.to, now_ms)
                if connection is None or not self._write(request, connection, now_ms):
                    self._unsent.append(request)
            except ConnectionFailed as error:
                self._fail(request, error.failure, str(error), now_ms)

    def _connection_for(self, to: int | Destination, now_ms: float) -> NodeConnection | None:
        """The connection for a request, opened if need be; None: not yet."""
        if to is Destination.ANY:
            return self._any_connection(now_ms)
        if to is Destination.COORDINATOR:
            if self._coordinator is None:
                return None
            node_id, address = self._coordinator
            return self._connection_to(address, Purpose.COORDINATOR, node_id, now_ms)
        assert not isinstance(to, Destination)
        known = self.addresses.nodes.get(to)
        if known is None:
            raise ConnectionFailed(
                RequestFailure.UNREACHABLE, f"node {to} is not part of the cluster's metadata"
            )
        connection = self._connection_to(known, Purpose.DATA, to, now_ms)
        if connection is None:
            raise ConnectionFailed(RequestFailure.UNREACHABLE, f"{known} could not be reached just now")
        return connection

    def _connection_to(
        self, address: Address, purpose: Purpose, node_id: int, now_ms: float
    ) -> NodeConnection | None:
        connection = self._connections.get((address, purpose))
        if connection is not None:
            return connection
        wait_ms = self.addresses.wait_ms(address, now_ms)
        if wait_ms > 0:
            self._due(now_ms + wait_ms)
            return None
        return self._open(address, purpose, node_id, now_ms)

    def _any_connection(self, now_ms: float) -> NodeConnection | None:
        """The least loaded connection that answers soon, or a new one to a node that has not failed."""
        usable = [one for one in self._by_number.values() if self._answers_soon(one, now_ms)]
        if usable:
            return min(usable, key=lambda one: (self.addresses.has_failed(one.address), len(one.in_flight)))
        control = [one for one in self._by_number.values() if one.purpose is Purpose.CONTROL]
        newest_ms = max(
            (one.opened_ms for one in control if one.state is not ConnectionState.READY), default=None
        )
        if newest_ms is not None and now_ms < newest_ms + HEDGE_MS:
            self._due(newest_ms + HEDGE_MS)
            return None
        address, wait_ms = self.addresses.choose((one.address for one in control), now_ms)
        if address is None:
            self._due(now_ms + wait_ms)
            return None
        return self._open(address, Purpose.CONTROL, self.addresses.node_at(address), now_ms)

    def _answers_soon(self, connection: NodeConnection, now_ms: float) -> bool:
        return (
            connection.can_send(now_ms)
            and not connection.waits_for_records()
            and not any(one.has_expired for one in connection.in_flight)
            and self.addresses.wait_ms(connection.address, now_ms) == 0
        )

    def _write(self, request: UnsentRequest, connection: NodeConnection, now_ms: float) -> bool:
        """Send a request on a connection. Returns False if it has to wait.

        Raises `ConnectionFailed` if it cannot be sent there at all; the connection itself goes on."""
        if not connection.can_send(now_ms):
            if connection.throttled_until_ms > now_ms:
                self._due(connection.throttled_until_ms)
            return False
        version = connection.version_of(request)
        if version is None:
            raise ConnectionFailed(RequestFailure.UNSUPPORTED_VERSION, _versions_differ(request, connection))
        try:
            connection.send(request, version, now_ms)
        except Unencodable as error:
            raise ConnectionFailed(RequestFailure.UNSUPPORTED_VERSION, str(error)) from error
        self._due(min(request.made_ms + request.timeout_ms, now_ms + self._settings.request_timeout_ms))
        return True

    def _fail(
        self,
        request: UnsentRequest,
        failure: RequestFailure,
        words: str,
        now_ms: float,
        version: int = -1,
        node_id: int = -1,
    ) -> None:
        response = ClientResponse(None, failure, version, node_id, request.made_ms, now_ms, words)
        self._completed.append((request, response))

    def _deliver(self) -> bool:
        """Hand out answers and failures. Returns whether there were any."""
        has_some = bool(self._completed)
        while self._completed:
            request, response = self._completed.popleft()
            request.then(response)
        return has_some


def _named(to: int | Destination) -> str:
    if isinstance(to, Destination):
        return {Destination.ANY: "any node", Destination.COORDINATOR: "the group's coordinator"}[to]
    return f"node {to}"


_STAGES: Final = {
    ConnectionState.CONNECTING: " while connecting",
    ConnectionState.NEGOTIATING: " before it answered ApiVersions (is security.protocol right?)",
    ConnectionState.AUTHENTICATING: " while authenticating",
}


def _stage(connection: NodeConnection) -> str:
    return _STAGES.get(connection.state, "")


def _versions_differ(request: UnsentRequest, connection: NodeConnection) -> str:
    """Say which versions of an API both sides speak, when they have none in common."""
    low, high = request.versions or API_VERSIONS[request.api]
    title, served = api_title(request.api), connection.served.get(request.api)
    theirs = f"serves its versions {served[0]} to {served[1]}" if served else "does not serve it"
    return f"this client speaks {title} {low} to {high}; the node at {connection.address} {theirs}"
