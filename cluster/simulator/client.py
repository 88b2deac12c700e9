"""A Kafka client at the level of frames, for stories and tests: it sends the given requests and waits.

It knows no protocol beyond framing: it never retries, heartbeats or rejoins by itself, so a test states each
of these explicitly.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.simulator.host import LOOPBACK, VirtualHost
from cluster.simulator.machine import KAFKA_PORT
from cluster.simulator.network import Network
from cluster.simulator.world import World
from raftlog.env.host import Stream, StreamHandler
from raftlog.env.simulated_files import SimFiles
from wire.framing import Framer
from wire.protocol import decode_response, encode_request
from wire.schema import Message

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
ANSWER_TIMEOUT_MS: Final = 10_000.0


class ConnectionGone(Exception):
    """The node closed the connection, or could not be reached."""


class Call:
    """A request in flight; `response` is None until it is answered, at `answered_ms`."""

    def __init__(self, api_key: int, api_version: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.response: Any = None
        self.answered_ms: float | None = None
        self.is_lost = False


class WireClient(StreamHandler):
    """One client machine with one connection at a time, to `address`."""

    def __init__(
        self, world: World, network: Network, name: str, port: int = KAFKA_PORT, address: str = LOOPBACK
    ) -> None:
        self.world = world
        self.name = name
        self.port = port
        self.address = address
        self.host = VirtualHost(world, network, SimFiles(), name=name)
        self._transport: Stream | None = None
        self._framer = Framer(FRAME_BYTES_MAX)
        self._calls: dict[int, Call] = {}
        self._correlation_id = 0

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def connect(self) -> None:
        """Connect; raises ConnectionGone if no node listens."""
        errors: list[BaseException | None] = []
        self.host.connect(self.address, self.port, lambda: self, lambda _handler, error: errors.append(error))
        self.world.run_until(lambda: bool(errors), within_ms=ANSWER_TIMEOUT_MS)
        if errors != [None]:
            raise ConnectionGone(str(errors))

    def close(self) -> None:
        """End the connection as a client that exits does."""
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Break the connection: data on its way to this client never arrives."""
        if self._transport is not None:
            self._transport.abort()
            self._lose()

    def vanish(self) -> None:
        """End the client as kill -9 does."""
        self.host.kill()
        self._lose()

    def send(self, api_key: int, api_version: int, body: Message) -> Call:
        """Send a request, over a new connection if there is none, without waiting for the answer."""
        if self._transport is None:
            self.connect()
        assert self._transport is not None
        self._correlation_id += 1
        call = Call(api_key, api_version)
        self._calls[self._correlation_id] = call
        self._transport.write(encode_request(api_key, api_version, self._correlation_id, self.name, body))
        return call

    def ask(self, api_key: int, api_version: int, body: Message, within_ms: float = ANSWER_TIMEOUT_MS) -> Any:
        """Send a request and wait, in virtual time, for its answer. Raises ConnectionGone, TimeoutError."""
        call = self.send(api_key, api_version, body)
        if not self.world.run_until(lambda: call.response is not None or call.is_lost, within_ms=within_ms):
            raise TimeoutError(f"{self.name}: no answer to API {api_key} within {within_ms} ms")
        if call.is_lost:
            raise ConnectionGone(f"{self.name}: the connection was closed before the answer to API {api_key}")
        return call.response

    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        self._framer = Framer(FRAME_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        for payload in self._framer.feed(data):
            call = self._calls.pop(int.from_bytes(payload[:4], "big"))
            _, call.response = decode_response(call.api_key, call.api_version, payload)
            call.answered_ms = self.world.now_ms

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()

    def pause_writing(self) -> None:
        """Do nothing: the client waits for the next answer anyway."""

    def resume_writing(self) -> None:
        """Do nothing: nothing was held back."""

    def _lose(self) -> None:
        self._transport = None
        for call in self._calls.values():
            call.is_lost = True
        self._calls.clear()
