"""The connections of the product's own consumer on a simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from client.core.network.delegate import NetworkDelegate
from cluster.simulator.host import VirtualHost
from cluster.simulator.wiretap import Wiretap
from raftlog.env.host import Stream, StreamHandler
from wire.framing import Framer

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
LENGTH_BYTES: Final = 4
_HEADER: Final = Struct(">hhi")
"""The head of every request: api key, version and correlation id."""


class HostConnections:
    """The `ConnectionBackend` of one process, over the connections of its simulated machine."""

    def __init__(self, host: VirtualHost, tap: Wiretap) -> None:
        self.delegate: NetworkDelegate
        self.wake: Callable[[], None]
        self.host = host
        self.tap = tap
        self.links: dict[int, _Link] = {}

    def connect(self, number: int, host: str, port: int) -> None:
        link = self.links[number] = _Link(self, number)
        self.host.connect(host, port, lambda: link, link.dialled)

    def write(self, number: int, data: bytes) -> None:
        if (link := self.links.get(number)) is not None:
            link.write(data)

    def close(self, number: int) -> None:
        if (link := self.links.pop(number, None)) is not None:
            link.end()

    def kill(self) -> None:
        """End all connections, as the machine does when the process is gone."""
        for number in [*self.links]:
            self.close(number)


class _Link(StreamHandler):
    """One connection."""

    def __init__(self, ends: HostConnections, number: int) -> None:
        self._ends = ends
        self._number = number
        self._stream: Stream | None = None
        self._framer = Framer(FRAME_BYTES_MAX)
        self._asked: dict[int, tuple[int, int, float]] = {}
        """Requests without an answer: api key, version and time of sending, by correlation id."""

    @property
    def is_known(self) -> bool:
        return self._ends.links.get(self._number) is self

    def write(self, data: bytes) -> None:
        assert self._stream is not None
        api_key, version, correlation_id = _HEADER.unpack_from(data, LENGTH_BYTES)
        self._asked[correlation_id] = (api_key, version, self._ends.host.monotonic_ms())
        self._ends.tap.requested(api_key, data)
        self._stream.write(data)

    def end(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def dialled(self, _handler: object, error: BaseException | None) -> None:
        if error is not None:
            self._lose(error)

    def connection_made(self, transport: Stream) -> None:
        self._stream = transport
        if not self.is_known:
            transport.abort()
            return
        self._ends.delegate.connected(self._number)
        self._ends.wake()

    def data_received(self, data: bytes) -> None:
        if not self.is_known:
            return
        for payload in self._framer.feed(data):
            asked = self._asked.pop(int.from_bytes(payload[:4], "big"), None)
            if asked is not None:
                self._ends.tap.answered(*asked, payload)
        self._ends.delegate.received(self._number, data)
        self._ends.wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc)

    def _lose(self, error: BaseException | None) -> None:
        if self.is_known:
            del self._ends.links[self._number]
            self._ends.delegate.lost(self._number, error if isinstance(error, Exception) else None)
            self._ends.wake()

    def pause_writing(self) -> None:
        """Do nothing: requests in flight are bounded."""

    def resume_writing(self) -> None:
        """Do nothing: nothing was held back."""
