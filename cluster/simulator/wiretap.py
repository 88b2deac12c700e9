"""An ear at a client's connections."""

from __future__ import annotations


class Wiretap:
    """Told of every request that a client sends and of every answer that reaches it; does nothing."""

    def requested(self, api_key: int, frame: bytes) -> None:
        """Note a request as it is sent; `frame` begins with its length."""

    def answered(self, api_key: int, api_version: int, sent_ms: float, payload: bytes) -> None:
        """Note an answer, without its length, to a request that was sent at `sent_ms`."""
