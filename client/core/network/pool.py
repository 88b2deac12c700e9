"""The connections of a consumer: found, opened, chosen and forgotten. At most one per address and purpose."""

from __future__ import annotations

from functools import partial
from typing import Final

from client.core.backoff import Backoff
from client.core.env import ConnectionBackend, Environment
from client.core.network.addresses import Address, AddressBook
from client.core.network.connection import ConnectionState, NodeConnection, Purpose
from client.core.network.setup import ConnectionFailed, authenticate
from client.core.requests import FOREVER, RequestFailure
from client.core.settings import ConsumerSettings

RESPONSE_BYTES_MAX: Final = 100_000_000
"""Largest answer beside the records that fetch.max.bytes allows; a single batch may exceed that setting."""

HEDGE_MS: Final = 500.0
"""The time after which a slow connection for requests to any node is joined by one to another node."""


class ConnectionPool:
    """Connections by number, and by address and purpose.

    A method that finds none says in `retry_ms` when it is worth another try."""

    def __init__(self, settings: ConsumerSettings, env: Environment, backend: ConnectionBackend) -> None:
        backoff_ms, backoff_ms_max = settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        self.addresses = AddressBook(
            settings.bootstrap_servers, lambda: Backoff(backoff_ms, backoff_ms_max, env.uniform), env.uniform
        )
        self.by_number: dict[int, NodeConnection] = {}
        self.retry_ms = FOREVER
        """The earliest time at which a connection that could not be had may be had; the caller resets it."""
        self._by_use: dict[tuple[Address, Purpose], NodeConnection] = {}
        self._settings = settings
        self._env = env
        self._backend = backend
        self._last_number = 0

    def known(self, address: Address, purpose: Purpose) -> NodeConnection | None:
        """The connection for a purpose, set up or not; None if there is none."""
        return self._by_use.get((address, purpose))

    def to_node(self, node_id: int, purpose: Purpose, now_ms: float) -> NodeConnection:
        """The connection for requests to a node by its id, opened if need be.

        Raises `ConnectionFailed` if the node is unknown, or could not be reached just now."""
        address = self.addresses.nodes.get(node_id)
        if address is None:
            words = f"node {node_id} is not part of the cluster's metadata"
            raise ConnectionFailed(RequestFailure.UNREACHABLE, words)
        connection = self.to_address(address, purpose, node_id, now_ms)
        if connection is None:
            raise ConnectionFailed(RequestFailure.UNREACHABLE, f"{address} could not be reached just now")
        return connection

    def to_address(
        self, address: Address, purpose: Purpose, node_id: int, now_ms: float
    ) -> NodeConnection | None:
        """The connection for a purpose, opened unless the address has failed lately."""
        connection = self._by_use.get((address, purpose))
        if connection is not None:
            connection.node_id = node_id  # behind a proxy, another node may have the address
            return connection
        wait_ms = self.addresses.wait_ms(address, now_ms)
        if wait_ms > 0:
            self.retry_ms = min(self.retry_ms, now_ms + wait_ms)
            return None
        return self._open(address, purpose, node_id, now_ms)

    def to_any(self, now_ms: float) -> NodeConnection | None:
        """The least loaded connection that answers soon, or a new one to a node that has not failed."""
        addresses = self.addresses
        usable = [one for one in self.by_number.values() if self._answers_soon(one, now_ms)]
        if usable:
            return min(usable, key=lambda one: (addresses.has_failed(one.address), len(one.in_flight)))
        control = [one for one in self.by_number.values() if one.purpose is Purpose.CONTROL]
        begun = [one.opened_ms for one in control if one.state is not ConnectionState.READY]
        if begun and now_ms < max(begun) + HEDGE_MS:
            self.retry_ms = min(self.retry_ms, max(begun) + HEDGE_MS)
            return None
        address, wait_ms = addresses.choose([one.address for one in control], now_ms)
        if address is None:
            self.retry_ms = min(self.retry_ms, now_ms + wait_ms)
            return None
        return self._open(address, Purpose.CONTROL, addresses.node_at(address), now_ms)

    def close(self, connection: NodeConnection) -> None:
        """End a connection, if it has not ended by itself; what the backend still says of it is ignored."""
        del self.by_number[connection.number]
        del self._by_use[connection.address, connection.purpose]
        connection.state = ConnectionState.CLOSED
        self._backend.close(connection.number)

    def _answers_soon(self, connection: NodeConnection, now_ms: float) -> bool:
        return (
            connection.can_send(now_ms)
            and not connection.is_behind()
            and self.addresses.wait_ms(connection.address, now_ms) == 0
        )

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
            setup_ms=self._setup_ms(address),
        )
        self.by_number[connection.number] = connection
        self._by_use[address, purpose] = connection
        self._backend.connect(connection.number, address.host, address.port)
        return connection

    def _setup_ms(self, address: Address) -> float:
        """The time limit of a connection's set-up: twice as long after each failure (KIP-601)."""
        initial_ms = self._settings.socket_connection_setup_timeout_ms
        most_ms = self._settings.socket_connection_setup_timeout_max_ms
        backoff = Backoff(initial_ms, most_ms, self._env.uniform)
        backoff.failures = self.addresses.failed_setups(address)
        return backoff.next_ms()
