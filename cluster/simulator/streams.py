"""One end of a simulated stream: asyncio's Transport towards the protocol, connected to the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from cluster.simulator.world import World

SPLIT_CHANCE: Final = 0.15
"""Probability that a delivery arrives in two pieces, so that no code mistakes a read for a frame."""

SOCKET_BUFFER_BYTES: Final = 64 * 1024
"""Bytes that the kernels at both ends hold before a writer's own buffer begins to fill."""

HIGH_WATER_BYTES: Final = 64 * 1024
"""asyncio's own default."""


class Carrier(Protocol):
    """The network as one end of a stream uses it."""

    world: World
    transports: dict[SimTransport, None]

    def soon(self, owner: str, fn: Callable[..., object], *args: object) -> None:
        """Call `fn` in a later event of `owner`, at the same time."""

    def carry(self, source: SimTransport, method: str, args: tuple[object, ...]) -> None:
        """Carry a call from one end of a stream to the other."""

    def acknowledge(self, source: SimTransport, num_bytes: int) -> None:
        """Give `source` room for bytes that its peer has read."""

    def drop_held(self, source: SimTransport) -> None:
        """Drop what this end has written and the network holds back."""


class Shaking(asyncio.Protocol):
    """Stands in for a handler whose peer does not speak TLS: its bytes are not a handshake."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc or ConnectionResetError("it left in its TLS handshake"))


class SimTransport(asyncio.Transport):
    """One end of a stream between two simulated hosts."""

    def __init__(self, network: Carrier, owner: str, sockname: tuple[str, int], peername: tuple[str, int]):
        super().__init__({"sockname": sockname, "peername": peername})
        self.network = network
        self.owner = owner
        self.machine = owner.partition("#")[0]
        self.peer: SimTransport | None = None
        self.protocol: asyncio.Protocol | None = None
        self.has_no_power = False
        self.last_arrival_ms = 0.0
        self.in_flight_bytes = 0
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._writing_paused = False
        self._high_bytes, self._low_bytes = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._unread = bytearray()
        self._eof_unread = False

    # The part of asyncio.Transport that protocols use.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or self._lost or not data:
            return
        payload = bytes(data)
        self.in_flight_bytes += len(payload)
        rng = self.network.world.rng
        cut = rng.randrange(1, len(payload)) if len(payload) > 1 and rng.random() < SPLIT_CHANCE else 0
        for piece in (payload[:cut], payload[cut:]):
            if piece:
                self._send("arrive", piece)
        self._check_high_water()

    def close(self) -> None:
        if self._closing or self._lost:
            return
        self._closing = True
        self._send("arrive_eof")
        self.network.soon(self.owner, self._lose, None)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        if self.peer is not None:
            self.network.drop_held(self)
        self._send("arrive_reset")
        self.network.soon(self.owner, self._lose, None)

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self.network.soon(self.owner, self._deliver)

    def get_write_buffer_size(self) -> int:
        return max(0, self.in_flight_bytes - SOCKET_BUFFER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_WATER_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low
        self._check_high_water()

    # Called by the network.

    def opened(self, factory: Callable[[], Any], done: Opened | None = None) -> None:
        """Open the connection; `done` is called after the protocol."""
        if self._lost:
            return
        self.protocol = factory()
        self.protocol.connection_made(self)
        if done is not None:
            done(self, None)

    def vanish(self, *, has_power: bool) -> None:
        """End without callbacks, because the host of this end died.

        The other end is reset if there is still a kernel to send the reset.
        """
        if not self._lost:
            self._lost = True
            self.has_no_power = not has_power
            if has_power:
                self._send("arrive_reset")
            elif self.peer is not None:
                self.network.drop_held(self)

    def arrive(self, data: bytes) -> None:
        self._unread += data
        self._deliver()

    def arrive_eof(self) -> None:
        self._eof_unread = True
        self._deliver()

    def arrive_reset(self) -> None:
        self._unread.clear()
        self._lose(ConnectionResetError("connection reset by peer"))

    def drained(self, num_bytes: int) -> None:
        """Free buffer space for bytes that the other end took; writing resumes once the buffer is low."""
        self.in_flight_bytes -= num_bytes
        if self._writing_paused and self.get_write_buffer_size() <= self._low_bytes:
            self._writing_paused = False
            self.network.soon(self.owner, self._call_protocol, "resume_writing")

    def _send(self, method: str, *args: object) -> None:
        if self.peer is not None:
            self.network.carry(self, method, args)

    def _deliver(self) -> None:
        if self._reading_paused or self._lost or self.protocol is None:
            return
        if self._unread:
            data = bytes(self._unread)
            self._unread.clear()
            if self.peer is not None:
                self.network.acknowledge(self.peer, len(data))
            if not self._closing:
                self.protocol.data_received(data)
        if self._eof_unread and not self._lost and not self._reading_paused:
            self._eof_unread = False
            if self._closing or not self.protocol.eof_received():
                self.close()

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


Opened = Callable[[SimTransport | None, BaseException | None], None]
"""Called with one end of a new stream, or with the reason why there is none."""
