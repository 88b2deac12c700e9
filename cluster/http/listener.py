"""The HTTP port of a node.

aiohttp is imported when the listener starts, in a thread, so that the Kafka port, which clients wait for, is
up a quarter of a second earlier. This is asyncio only: there is no HTTP in virtual time. `places` bounds the
number of connections, because aiohttp has no bound of its own; idle ones are closed by its keep-alive
timeout.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Any

from cluster.host.accepting import DESCRIPTORS_KEPT, Acceptor, listening_sockets
from cluster.http.places import PlacedConnection, Places
from cluster.settings import Settings, is_loopback
from records import RELEASE

if TYPE_CHECKING:
    from aiohttp import web

    from cluster.http.node_view import HttpNode
    from cluster.kafka.listener import KafkaListener

LOG = logging.getLogger("quorate.http")

KEEPALIVE_S = 30.0
"""A metrics scraper comes every 15 to 60 s; no other client needs its connection kept."""

SHUTDOWN_S = 1.0
"""Seconds that a stop waits for answers that are being sent."""


class HttpListener:
    """Serves the HTTP API for `node` on `settings.http_host` and `http_port`."""

    def __init__(
        self,
        node: HttpNode,
        settings: Settings,
        kafka: KafkaListener,
        *,
        descriptors_kept: int = DESCRIPTORS_KEPT,
    ) -> None:
        self._node = node
        self._descriptors_kept = descriptors_kept
        self._settings = settings
        self._kafka = kafka
        self._places = Places(settings.http_connections_max)
        self._runner: web.AppRunner | None = None
        self._app: web.Application | None = None
        self._leases: Any = None
        self._server: Acceptor | None = None

    async def start(self) -> None:
        """Listen; raises OSError if the address cannot be bound."""
        loop = asyncio.get_running_loop()
        app_module = await loop.run_in_executor(None, importlib.import_module, "cluster.http.app")
        aiohttp_web = importlib.import_module("aiohttp.web")
        settings = self._settings
        self._leases = app_module.LEASES
        self._app = app_module.application(self._node, settings, self._kafka, self._places, RELEASE)
        self._runner = aiohttp_web.AppRunner(
            self._app,
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,  # a client that leaves ends its long poll
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()
        sockets = await listening_sockets(settings.http_host, settings.http_port)
        self._server = Acceptor(loop, sockets, self._protocol, kept=self._descriptors_kept)
        if not is_loopback(settings.http_host):
            LOG.warning("listening on %s without TLS or authentication (insecure = true)", settings.http_host)

    @property
    def address(self) -> tuple[str, int]:
        """The bound host and port; the configured port before `start` is done."""
        port = self._settings.http_port if self._server is None else self._server.port
        return self._settings.http_host, port

    async def end_leases(self) -> None:
        """Let the members of open leases leave their groups, while the node still serves them."""
        if self._app is not None:
            await self._app[self._leases].end_all()

    async def stop(self) -> None:
        """Accept nothing more and end open requests."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._places.close()

    def _protocol(self) -> Any:
        assert self._runner is not None
        assert self._runner.server is not None
        return PlacedConnection(self._places, self._runner.server())
