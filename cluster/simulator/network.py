"""Streams in memory, with the manners of asyncio's transports and the weather of a real network.

Bytes arrive in order, after a latency drawn per delivery, sometimes in two pieces; what a reader does not
take fills the writer's buffer until `pause_writing`. A closed stream delivers what was written first; an
aborted one resets its peer; so does a host that dies.

What must stay true: a protocol sees the same calls in the same order as under asyncio
(connection_made, data_received*, eof_received?, connection_lost), never from inside its own write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from cluster.simulator.world import World

LATENCY_MIN_MS: Final = 0.02
LATENCY_MAX_MS: Final = 0.4
"""Loopback to a good local network: one way."""

SPLIT_CHANCE: Final = 0.15
"""How often a delivery arrives in two pieces, so that nobody mistakes a read for a frame."""

SOCKET_BUFFER_BYTES: Final = 64 * 1024
"""What the kernels at both ends hold before a writer's own buffer begins to fill."""

HIGH_WATER_BYTES: Final = 64 * 1024
"""asyncio's own default."""

FIRST_EPHEMERAL_PORT: Final = 40_000


class SimTransport(asyncio.Transport):
    """One end of a stream between two simulated hosts."""

    def __init__(self, network: Network, owner: str, sockname: tuple[str, int], peername: tuple[str, int]):
        super().__init__({"sockname": sockname, "peername": peername})
        self.network = network
        self.owner = owner
        self.peer: SimTransport | None = None
        self.protocol: asyncio.Protocol | None = None
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._writing_paused = False
        self._high_bytes, self._low_bytes = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._unread = bytearray()
        self._eof_unread = False
        self._in_flight_bytes = 0
        self._last_arrival_ms = 0.0

    # What asyncio.Transport has, used by protocols.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or self._lost or not data:
            return
        payload = bytes(data)
        self._in_flight_bytes += len(payload)
        rng = self.network.world.rng
        cut = rng.randrange(1, len(payload)) if len(payload) > 1 and rng.random() < SPLIT_CHANCE else 0
        for piece in (payload[:cut], payload[cut:]):
            if piece:
                self._send("_arrive", piece)
        self._check_high_water()

    def close(self) -> None:
        if self._closing or self._lost:
            return
        self._closing = True
        self._send("_arrive_eof")
        self.network.soon(self.owner, self._lose, None)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        self._send("_arrive_reset")
        self.network.soon(self.owner, self._lose, None)

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self.network.soon(self.owner, self._deliver)

    def is_reading(self) -> bool:
        return not self._reading_paused

    def get_write_buffer_size(self) -> int:
        return max(0, self._in_flight_bytes - SOCKET_BUFFER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_WATER_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low
        self._check_high_water()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    # What the network does to it.

    def opened(self) -> None:
        if self.protocol is not None and not self._lost:
            self.protocol.connection_made(self)

    def vanish(self) -> None:
        """The host of this end died: no callback here, a reset at the other end."""
        if not self._lost:
            self._lost = True
            self._send("_arrive_reset")

    def _send(self, method: str, *args: object) -> None:
        peer = self.peer
        if peer is None:
            return
        world = self.network.world
        arrival_ms = world.now_ms + world.rng.uniform(LATENCY_MIN_MS, LATENCY_MAX_MS)
        self._last_arrival_ms = max(arrival_ms, self._last_arrival_ms)
        world.at(self._last_arrival_ms, getattr(peer, method), *args, owner=peer.owner)

    def _arrive(self, data: bytes) -> None:
        self._unread += data
        self._deliver()

    def _arrive_eof(self) -> None:
        self._eof_unread = True
        self._deliver()

    def _arrive_reset(self) -> None:
        self._unread.clear()
        self._lose(ConnectionResetError("connection reset by peer"))

    def _deliver(self) -> None:
        if self._reading_paused or self._lost or self.protocol is None:
            return
        if self._unread:
            data = bytes(self._unread)
            self._unread.clear()
            if self.peer is not None:
                self.peer.drained(len(data))
            if not self._closing:
                self.protocol.data_received(data)
        if self._eof_unread and not self._lost and not self._reading_paused:
            self._eof_unread = False
            if self._closing or not self.protocol.eof_received():
                self.close()

    def drained(self, num_bytes: int) -> None:
        """The other end took bytes: this end may write again once its buffer is low."""
        self._in_flight_bytes -= num_bytes
        if self._writing_paused and self.get_write_buffer_size() <= self._low_bytes:
            self._writing_paused = False
            self.network.soon(self.owner, self._call_protocol, "resume_writing")

    def _check_high_water(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high_bytes:
            self._writing_paused = True
            self._call_protocol("pause_writing")

    def _call_protocol(self, method: str) -> None:
        if self.protocol is not None and not self._lost:
            getattr(self.protocol, method)()

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self.network.transports.pop(self, None)
        if self.protocol is not None:
            self.protocol.connection_lost(error)


class SimListener:
    """A listening address; `close` stops new connections and leaves the open ones alone."""

    def __init__(
        self, network: Network, owner: str, address: tuple[str, int], factory: Callable[[], Any]
    ) -> None:
        self._network = network
        self.owner = owner
        self.address = address
        self.port = address[1]
        self.factory = factory

    def close(self) -> None:
        self._network.listeners.pop(self.address, None)


class Network:
    """All streams and listeners of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.transports: dict[SimTransport, None] = {}
        self._next_port = FIRST_EPHEMERAL_PORT

    def soon(self, owner: str, fn: Callable[..., object], *args: object) -> None:
        self.world.at(self.world.now_ms, fn, *args, owner=owner)

    def listen(self, owner: str, host: str, port: int, factory: Callable[[], Any]) -> SimListener:
        """Raises OSError when the address is taken."""
        address = (host, port or self._ephemeral_port())
        if address in self.listeners:
            raise OSError(f"{host}:{port} is in use")
        listener = SimListener(self, owner, address, factory)
        self.listeners[address] = listener
        return listener

    def connect(self, owner: str, host: str, port: int, factory: Callable[[], Any]) -> SimTransport:
        """Both ends at once; the protocols hear of it in later events. Raises ConnectionRefusedError."""
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        local = (host, self._ephemeral_port())
        near = SimTransport(self, owner, local, listener.address)
        far = SimTransport(self, listener.owner, listener.address, local)
        near.peer, far.peer = far, near
        near.protocol, far.protocol = factory(), listener.factory()
        self.transports[near] = self.transports[far] = None
        self.soon(listener.owner, far.opened)
        return near

    def drop_host(self, owner: str) -> None:
        """A host died: its addresses refuse, its connections reset."""
        for address in [a for a, listener in self.listeners.items() if listener.owner == owner]:
            del self.listeners[address]
        for transport in [t for t in self.transports if t.owner == owner]:
            del self.transports[transport]
            transport.vanish()

    def _ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port
