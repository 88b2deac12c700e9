"""The cached replies of one connection's steady heartbeats, see `connection`.

Invariants: they are few, and their size in bytes is known.
"""

from __future__ import annotations

from cluster.kafka.exchange import Exchange
from cluster.kafka.node_view import HeartbeatEntry

FAST_REPLIES_MAX = 64
"""Replies kept for one connection: a consumer needs one, a load generator that acts for many a few."""

CORRELATION_END = 8
"""Every request begins with API key, version (2 bytes each) and correlation id (4)."""


class FastReply:
    """The cached reply to a steady heartbeat, without its correlation id, and the entry that validates it."""

    __slots__ = ("entry", "head", "length", "rest")

    def __init__(self, head: bytes, data: bytes, entry: HeartbeatEntry) -> None:
        self.head = head  # API key and version of the request
        self.length = data[:4]
        self.rest = data[8:]
        self.entry = entry


class FastReplies:
    """The replies, by the bytes of their requests after the correlation id."""

    __slots__ = ("by_tail", "num_bytes")

    def __init__(self) -> None:
        self.by_tail: dict[bytes, FastReply] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self.by_tail)

    def put(self, exchange: Exchange, data: bytes, entry: HeartbeatEntry) -> None:
        if len(self.by_tail) >= FAST_REPLIES_MAX:
            self.clear()
        self.forget(exchange.tail)
        head = exchange.api_key.to_bytes(2, "big") + exchange.api_version.to_bytes(2, "big")
        self.by_tail[exchange.tail] = FastReply(head, data, entry)
        self.num_bytes += len(exchange.tail) + len(data)

    def forget(self, tail: bytes) -> None:
        hit = self.by_tail.pop(tail, None)
        if hit is not None:
            self.num_bytes -= len(tail) + CORRELATION_END + len(hit.rest)

    def clear(self) -> None:
        self.by_tail.clear()
        self.num_bytes = 0
