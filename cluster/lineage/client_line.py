"""A client's connection that carries frames: four bytes of size, then so many bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.env.host import Host, Stream, StreamHandler
from wire.errors import MalformedFrame
from wire.framing import Framer

FRAME_BYTES_MAX: Final = 4 << 20
"""The largest frame of the push protocol; seed 000's are smaller."""

Address = tuple[str, int]


class ClientLine(StreamHandler):
    """One connection, from dialling to its end. `lost` is called once, unless `end` was before."""

    def __init__(
        self, host: Host, address: Address, received: Callable[[bytes], None], lost: Callable[[], None]
    ) -> None:
        self._host = host
        self._received = received
        self._lost = lost
        self._stream: Stream | None = None
        self._framer = Framer(FRAME_BYTES_MAX)
        self._unsent: list[bytes] = []
        self.is_over = False
        host.connect(*address, lambda: self, self._dialled)

    def send(self, data: bytes) -> None:
        """Send a frame, once connected."""
        if self._stream is None:
            self._unsent.append(data)
        elif not self.is_over:
            self._stream.write(data)

    def end(self) -> None:
        """Close the connection; nothing that comes on it counts any more."""
        self.is_over = True
        if self._stream is not None:
            self._stream.abort()

    def _dialled(self, _handler: object, error: BaseException | None) -> None:
        if error is not None:
            self._break()

    def _break(self) -> None:
        if not self.is_over:
            self.end()
            self._lost()

    # Called by the host.

    def connection_made(self, transport: Stream) -> None:
        self._stream = transport
        if self.is_over:
            transport.abort()
            return
        for data in self._unsent:
            transport.write(data)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._framer.feed(data):
                if self.is_over:  # what came before has ended it
                    return
                self._received(payload)
        except MalformedFrame:
            self._break()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._break()

    def pause_writing(self) -> None:
        """Do nothing: a consumer sends little, and waits for the next message anyway."""

    def resume_writing(self) -> None:
        """Do nothing: nothing was held back."""
