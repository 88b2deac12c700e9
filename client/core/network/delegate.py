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

from client.core.env import ConnectionBackend, Environment, HandshakeFailed
from client.core.errors import AuthenticationError
from client.core.events import BackgroundEvent, ErrorEvent
from client.core.network.addresses import Address
from client.core.network.connection import ConnectionState, NodeConnection, Purpose
from client.core.network.pool import ConnectionPool
from client.core.network.setup import ConnectionFailed
from client.core.requests import FOREVER, ClientResponse, Destination, RequestFailure, UnsentRequest
from client.core.settings import ConsumerSettings
from wire.apis import API_VERSIONS, api_title
from wire.errors import Unencodable

UNSENT_MAX: Final = 10_000
"""Most requests that wait for a connection; further ones fail at once."""

LostListener = Callable[[int, Purpose, str, float], None]
"""Takes the end of a connection: node id (-1 if unknown), its purpose, the reason, and the time."""


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
        self.trouble = ""
        """The reason why the last connection ended, for people."""
        self._pool = ConnectionPool(settings, env, backend)
        self.addresses = self._pool.addresses
        self._request_timeout_ms = settings.request_timeout_ms
        idle_ms = settings.connections_max_idle_ms
        self._idle_ms_max = idle_ms if idle_ms >= 0 else FOREVER
        self._env = env
        self._emit = emit
        self._coordinator: tuple[int, Address] | None = None
        self._unsent: list[UnsentRequest] = []
        self._completed: deque[tuple[UnsentRequest, ClientResponse]] = deque()
        self._is_refused = False
        """Whether the application was told of refused credentials since a node last took them."""
        self._next_ms = FOREVER
        """The time at which the next pass has something to do, as far as this one has found."""

    # The managers' calls.

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
        """Let requests to `Destination.COORDINATOR` wait until it is found again.

        If a request to it timed out, its connection ends, and with it what else is in flight there."""
        connection = self._to_coordinator()
        self._coordinator = None
        if connection is not None and connection.is_behind():
            self._end(connection, RequestFailure.DISCONNECTED, why, now_ms)

    def fail_waiting(self, to: Destination, failure: RequestFailure, words: str, now_ms: float) -> None:
        """Fail the requests to a destination that were not sent yet."""
        waiting = [request for request in self._unsent if request.to is to]
        self._unsent = [request for request in self._unsent if request.to is not to]
        for request in waiting:
            self._fail(request, failure, words, now_ms)

    def close(self, now_ms: float) -> None:
        """End all connections. What was not answered fails with CANCELLED."""
        words = "the consumer is closing"
        for connection in list(self._pool.by_number.values()):
            self._pool.close(connection)
            for one in connection.in_flight:
                if one.request is not None and not one.has_expired:
                    self._fail(one.request, RequestFailure.CANCELLED, words, now_ms)
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            self._fail(request, RequestFailure.CANCELLED, words, now_ms)
        self._deliver()

    # The background side's call.

    def poll(self, now_ms: float) -> float:
        """Send what can be sent, and end what took too long. Returns the ms until there is more to do."""
        self._next_ms = FOREVER
        for connection in list(self._pool.by_number.values()):
            self._expire(connection, now_ms)
        self._expire_unsent(now_ms)
        self._send_unsent(now_ms)
        if self._deliver():
            return 0.0
        return max(0.0, self._next_ms - now_ms)

    # The backend's calls; it makes a pass afterwards.

    def connected(self, number: int) -> None:
        """Begin the set-up of a connection that is open, with TLS if that is on."""
        if connection := self._pool.by_number.get(number):
            self._advance(connection, partial(connection.connected, self._env.now_ms()))

    def received(self, number: int, data: bytes) -> bool:
        """Take bytes that arrived. Returns whether a pass is due, which not each piece of an answer needs."""
        connection = self._pool.by_number.get(number)
        if connection is None:
            return False
        was_ready = connection.state is ConnectionState.READY
        self._advance(connection, partial(self._take, connection, data))
        return self._deliver() or connection.state is not ConnectionState.READY or not was_ready

    def lost(self, number: int, error: Exception | None) -> None:
        """Forget a connection that could not be opened, or has ended; None: the node ended it."""
        connection = self._pool.by_number.get(number)
        if connection is None:
            return
        words = f"{connection} ended{_stage(connection)}: {error or 'the node closed it'}"
        refused = isinstance(error, HandshakeFailed)
        failure = RequestFailure.AUTHENTICATION if refused else RequestFailure.DISCONNECTED
        self._end(connection, failure, words, self._env.now_ms())
        self._deliver()

    # Connections.

    def _to_coordinator(self) -> NodeConnection | None:
        """Return the connection to the coordinator, if there is one."""
        known = self._coordinator
        return self._pool.known(known[1], Purpose.COORDINATOR) if known is not None else None

    def _take(self, connection: NodeConnection, data: bytes) -> None:
        self._completed.extend(connection.received(data, self._env.now_ms()))

    def _advance(self, connection: NodeConnection, step: Callable[[], None]) -> None:
        """Do a step of a connection; note that it is ready, or end it."""
        was_ready = connection.state is ConnectionState.READY
        try:
            step()
        except ConnectionFailed as error:
            self._end(connection, error.failure, str(error), self._env.now_ms())
        else:
            if not was_ready and connection.state is ConnectionState.READY:
                self.addresses.succeeded(connection.address)
                self._is_refused = False

    def _end(self, connection: NodeConnection, failure: RequestFailure, words: str, now_ms: float) -> None:
        """Forget a failed connection, and fail what depends on it.

        `failure` is that of the oldest request in flight; the others were only disconnected.
        """
        was_set_up = connection.state is ConnectionState.READY
        is_refused = failure is RequestFailure.AUTHENTICATION
        self._pool.close(connection)
        self.trouble = words
        self.addresses.failed(connection.address, now_ms, was_set_up=was_set_up)
        for one in connection.in_flight:
            if one.request is not None and not one.has_expired:
                self._fail(one.request, failure, words, now_ms, one.version, connection.node_id)
            failure = failure if is_refused else RequestFailure.DISCONNECTED
        if is_refused:
            self._tell_refused(words)
            self._fail_unsent(connection, failure, words, now_ms)
        elif not was_set_up:
            self._fail_unsent(connection, RequestFailure.UNREACHABLE, words, now_ms)
        for listener in self.lost_listeners:
            listener(connection.node_id, connection.purpose, words, now_ms)

    def _tell_refused(self, words: str) -> None:
        if not self._is_refused:
            self._is_refused = True
            self._emit(ErrorEvent(error=AuthenticationError(words)))

    def _fail_unsent(
        self, connection: NodeConnection, failure: RequestFailure, words: str, now_ms: float
    ) -> None:
        """Fail what waited for a connection that could not be made.

        Requests to the coordinator or to any node may still find another one, except with bad credentials."""
        kept = []
        for request in self._unsent:
            waits_for_node = (
                connection.purpose is _purpose(request)
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
        """End a connection that took too long or that nobody uses, and requests that took too long."""
        if connection.state is ConnectionState.READY and now_ms >= connection.authenticate_at_ms:
            self._advance(connection, partial(connection.reauthenticate, now_ms))
        end_ms = self._end_ms(connection)
        if connection.state is ConnectionState.CLOSED:
            return
        if now_ms >= end_ms:
            self._give_up(connection, now_ms)
            return
        self._due(end_ms)
        self._due(connection.authenticate_at_ms)
        self._expire_in_flight(connection, now_ms)

    def _end_ms(self, connection: NodeConnection) -> float:
        """Return the time at which a connection is ended unless the node answers or a request uses it."""
        if connection.state is not ConnectionState.READY:
            return connection.setup_deadline_ms
        if connection.in_flight:
            return connection.in_flight[0].sent_ms + self._request_timeout_ms
        return connection.used_ms + self._idle_ms_max

    def _give_up(self, connection: NodeConnection, now_ms: float) -> None:
        if connection.state is not ConnectionState.READY:
            words = f"{connection} was not usable in time{_stage(connection)}"
            self._end(connection, RequestFailure.UNREACHABLE, words, now_ms)
        elif connection.in_flight:
            words = f"{api_title(connection.in_flight[0].api)} on {connection} got no answer"
            self._end(connection, RequestFailure.TIMED_OUT, words, now_ms)
        else:
            self._pool.close(connection)

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
                words = f"{api_title(request.api)} was not sent in time: {self._obstacle(request.to)}"
                self._fail(request, RequestFailure.TIMED_OUT, words, now_ms)
            else:
                self._due(deadline_ms)
                kept.append(request)
        self._unsent = kept

    def _obstacle(self, to: int | Destination) -> str:
        if to is Destination.COORDINATOR and self._coordinator is None:
            return "the group's coordinator is not known"
        return self.trouble or "no connection was ready"

    # Requests.

    def _send_unsent(self, now_ms: float) -> None:
        unsent, self._unsent = self._unsent, []
        self._pool.retry_ms = FOREVER
        for request in unsent:
            if not request.is_wanted():
                self._fail(request, RequestFailure.CANCELLED, "it is not wanted any more", now_ms)
                continue
            try:
                connection = self._connection_for(request, now_ms)
                if connection is None or not self._write(request, connection, now_ms):
                    self._unsent.append(request)
            except ConnectionFailed as error:
                self._fail(request, error.failure, str(error), now_ms)
        self._due(self._pool.retry_ms)

    def _connection_for(self, request: UnsentRequest, now_ms: float) -> NodeConnection | None:
        """Return the connection for a request, opened if need be; None while there is none."""
        to = request.to
        if to is Destination.ANY:
            return self._pool.to_any(now_ms)
        if to is Destination.COORDINATOR:
            if self._coordinator is None:
                return None
            node_id, address = self._coordinator
            return self._pool.to_address(address, Purpose.COORDINATOR, node_id, now_ms)
        assert not isinstance(to, Destination)
        return self._pool.to_node(to, _purpose(request), now_ms)

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
        self._due(min(request.made_ms + request.timeout_ms, now_ms + self._request_timeout_ms))
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
        response = ClientResponse(None, failure, version, node_id, now_ms, words)
        self._completed.append((request, response))

    def _deliver(self) -> bool:
        """Hand out answers and failures. Returns whether there were any."""
        has_some = bool(self._completed)
        while self._completed:
            request, response = self._completed.popleft()
            request.then(response)
        return has_some


def _purpose(request: UnsentRequest) -> Purpose:
    """The purpose of the connection to a node that is named by its id."""
    return Purpose.BESIDE if request.is_beside else Purpose.DATA


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
