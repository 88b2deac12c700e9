"""The connections of the HTTP listener: their number is bounded, and a new one always gets in.

    state      until                               closed to make room
    asking     the head of its request is whole    first, beginning with the oldest; ends after HEAD_S
    at work    it is answered                      never
    idle       its next request begins             if none is asking, beginning with the first answered

A connection is asking from the accept on, and again from the first byte after an answer.

Invariants: requests at work leave most of `KEPT` places free (`has_room`), and probes are never at
work. So there is always a connection that can make room, and a probe is answered however many others send
nothing, or slowly, or wait.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

KEPT: Final = 64
"""Places beyond http.connections.max: as many as may be accepted in a few turns of the loop, so that a
connection has time to send its request before it may have to make room."""

HEAD_S: Final = 5.0
"""Time for the head of a request; clients send it whole, even those used by hand."""


class PlacedConnection(asyncio.Protocol):
    """One connection, which passes everything on to aiohttp's handler."""

    def __init__(self, places: Places, handler: asyncio.Protocol) -> None:
        self._places = places
        self._handler = handler
        self._transport: asyncio.Transport
        self.began_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._places.opened(self)
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._places.heard(self)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.left(self)
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def give_up(self) -> None:
        """Close the connection to make room."""
        self._transport.abort()


class Places:
    """All connections of one listener."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._asking: dict[PlacedConnection, None] = {}
        self._idle: dict[PlacedConnection, None] = {}
        self._at_work: set[PlacedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def has_room(self, kept: int) -> bool:
        """Whether one more request may be at work, where `kept` of the reserved places may be used too."""
        return len(self._at_work) < self._connections_max + kept

    def opened(self, place: PlacedConnection) -> None:
        """Take in a new connection; if there is no room, another one is closed."""
        if len(self._asking) + len(self._idle) + len(self._at_work) >= self._connections_max + KEPT:
            oldest = next(iter(self._asking or self._idle))
            self.left(oldest)
            oldest.give_up()
        self._ask(place)

    def heard(self, place: PlacedConnection) -> None:
        """Handle received bytes: after an answer they begin a new request."""
        if place in self._idle:
            del self._idle[place]
            self._ask(place)

    def begins(self, place: PlacedConnection) -> None:
        """Count a request as being at work, since its head is whole."""
        self.left(place)
        self._at_work.add(place)

    def answered(self, place: PlacedConnection) -> None:
        """Count a connection as idle, since its request was answered, unless it has gone meanwhile."""
        if place in self._at_work or place in self._asking:
            self.left(place)
            self._idle[place] = None

    def left(self, place: PlacedConnection) -> None:
        """Forget a connection that is gone."""
        self._asking.pop(place, None)
        self._idle.pop(place, None)
        self._at_work.discard(place)

    def close(self) -> None:
        """Stop watching connections."""
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self, place: PlacedConnection) -> None:
        loop = asyncio.get_running_loop()
        self._asking[place] = None
        place.began_s = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(HEAD_S, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() - HEAD_S
        self._timer = None
        for place in list(self._asking):
            if place.began_s > due_s:
                self._timer = loop.call_later(place.began_s - due_s, self._look)
                return
            self.left(place)
            place.give_up()
