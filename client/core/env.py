"""Everything that the core needs from outside: a clock, chance, fresh ids, and connections.

The asyncio backend passes the real ones, the tests virtual ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Environment:
    """The clock and chance of one consumer."""

    now_ms: Callable[[], float]
    """A monotonic clock."""
    wall_ms: Callable[[], int]
    """Unix time, for words that people read and for tokens' lifetimes."""
    uniform: Callable[[], float]
    """A number from 0 to before 1, for jitter."""
    fresh_id: Callable[[], str]
    """A new UUID in Kafka's text form (22 characters of base64 without padding)."""


class HandshakeFailed(ConnectionError):
    """TLS refused the node or the client: a certificate, a version. `ConnectionBackend` reports it so."""


class ConnectionBackend(Protocol):
    """Connections by number, which the core chooses. No method waits.

    The backend calls `NetworkDelegate.connected`, `received` and `lost` with the same number. It reports a
    connection that ends by itself, and none that `close` has ended.
    """

    def connect(self, number: int, host: str, port: int) -> None:
        """Begin to connect, with TLS if the settings ask for it."""

    def write(self, number: int, data: bytes) -> None:
        """Send bytes on an open connection."""

    def close(self, number: int) -> None:
        """End a connection, if it has not ended yet; bytes that were not sent may be lost."""
