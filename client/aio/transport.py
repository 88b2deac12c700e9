"""Connections by number over asyncio, with TLS: the `ConnectionBackend` of both flavours.

All methods run on the event loop. A connection is known by its number from `connect` until it has ended, and
events of it that the event loop brings later are dropped.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final, cast

from aiohappyeyeballs import AddrInfoType, start_connection

from client.aio.loop import BackgroundDriver, now_ms
from client.core.background import Background
from client.core.env import HandshakeFailed
from client.core.errors import ConfigError
from client.core.network.delegate import NetworkDelegate
from client.core.settings import ConsumerSettings

NEXT_ADDRESS_S: Final = 0.25
"""If a name has several addresses, the next one is tried beside the one before after this time (RFC 8305)."""

HEAP_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Free memory that the allocator may keep for the next answers; an answer to Fetch takes some megabytes."""


def keep_heap() -> None:
    """Have glibc keep free memory of up to HEAP_KEPT_BYTES, rather than give it back and get it again.

    It keeps twice the largest block that was ever freed. Otherwise each answer of a megabyte takes new pages
    from the kernel, which costs as much CPU as all that is done with its messages. The block is not touched,
    so it takes no memory itself; with other allocators it has no effect."""
    bytes(HEAP_KEPT_BYTES // 2)


async def addresses_of(host: str, port: int) -> Sequence[AddrInfoType]:
    """Return the addresses of a host. Only a name needs the event loop's thread for lookups.

    Raises OSError for a name that is not known."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


class AsyncioConnections:
    """Opens, writes and closes connections; tells `events`, then has the driver make a pass."""

    def __init__(self, settings: ConsumerSettings, driver: BackgroundDriver) -> None:
        self.events: NetworkDelegate
        """The delegate, which `start` sets before the first connection."""
        self._tls = tls_context(settings)
        keep_heap()
        self._driver = driver
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._given_up: set[asyncio.Task[None]] = set()
        self._open: dict[int, asyncio.Transport] = {}

    def start(self, delegate: NetworkDelegate, background: Background) -> None:
        """Take the delegate and the background side, which needed this backend first."""
        self.events, self._driver.background = delegate, background

    async def stop(self) -> None:
        """Make no pass any more, and end all connections, also those of a background side that failed."""
        self._driver.stop()
        self.events.close(now_ms())
        await self.wait_closed()

    def connect(self, number: int, host: str, port: int) -> None:
        """Begin to connect."""
        task = asyncio.get_running_loop().create_task(self._connect(number, host, port))
        self._connecting[number] = task

    def write(self, number: int, data: bytes) -> None:
        """Send bytes. What the network does not take at once is kept; requests in flight are bounded."""
        if transport := self._open.get(number):
            transport.write(data)

    def close(self, number: int) -> None:
        """End a connection or the attempt to make it."""
        if transport := self._open.pop(number, None):
            transport.abort()  # not close(): a node that hangs would keep it for as long as it likes
        if task := self._connecting.pop(number, None):
            task.cancel()
            self._given_up.add(task)
            task.add_done_callback(self._given_up.discard)

    async def wait_closed(self) -> None:
        """Wait until closed connections have released their sockets. No node can prolong this."""
        await asyncio.gather(*self._given_up, return_exceptions=True)
        await asyncio.sleep(0)  # connections end in the next turn of the event loop

    async def _connect(self, number: int, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        name = None if self._tls is None else host
        try:
            infos = await addresses_of(host, port)
            # asyncio's own way of trying several addresses loses the socket of an attempt that is cancelled
            # just after it was connected: it stays open until the garbage collector finds it.
            connected = await start_connection(infos, happy_eyeballs_delay=NEXT_ADDRESS_S)
            await loop.create_connection(
                lambda: _Stream(self, number), sock=connected, ssl=self._tls, server_hostname=name
            )
        except ssl.SSLError as error:
            self.lost(number, HandshakeFailed(f"TLS: {error}"))
        except OSError as error:
            self.lost(number, error)
        except Exception as error:  # such as a name that IDNA does not know, or a port that is none
            self.lost(number, OSError(f"{host}:{port} is not an address: {error}"))

    # Events of the streams.

    def connected(self, number: int, transport: asyncio.Transport) -> None:
        """Note a connection that is made, unless it was given up meanwhile."""
        if self._connecting.pop(number, None) is None:
            transport.abort()
            return
        self._open[number] = transport
        with self._driver.guarding():
            self.events.connected(number)
            self._driver.wake()

    def received(self, number: int, data: bytes) -> None:
        """Pass bytes on that have arrived."""
        if number in self._open:
            with self._driver.guarding():
                if self.events.received(number, data):
                    self._driver.wake()

    def lost(self, number: int, error: Exception | None) -> None:
        """Forget a connection that has ended, or was never made."""
        was_known = self._connecting.pop(number, None) or self._open.pop(number, None)
        if was_known is not None:
            with self._driver.guarding():
                self.events.lost(number, error)
                self._driver.wake()


class _Stream(asyncio.Protocol):
    """The event loop's side of one connection."""

    def __init__(self, connections: AsyncioConnections, number: int) -> None:
        self._connections = connections
        self._number = number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connections.connected(self._number, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._connections.received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.lost(self._number, exc)


def tls_context(settings: ConsumerSettings) -> ssl.SSLContext | None:
    """Return the TLS context of these settings, None without TLS.

    Raises `ConfigError` if a file cannot be read or does not fit."""
    if not settings.security_protocol.endswith("SSL"):
        return None
    if settings.ssl_context is not None:
        return cast(ssl.SSLContext, settings.ssl_context)
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location)
        context.check_hostname = settings.ssl_check_hostname
        if settings.ssl_certificate_location is not None:
            context.load_cert_chain(
                settings.ssl_certificate_location, settings.ssl_key_location, settings.ssl_key_password
            )
    except (OSError, ssl.SSLError) as error:
        names = "ssl.ca.location, ssl.certificate.location, ssl.key.location, ssl.key.password"
        raise ConfigError(f"the TLS settings cannot be used ({names}): {error}") from error
    return context
