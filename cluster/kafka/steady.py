"""The cached replies of one connection's steady heartbeats, see `connection`.

Invariants: they are few, and their size in bytes is known.
"""

from __future__ import annotations

from struct import Struct

from cluster.kafka.exchange import Exchange
from cluster.kafka.node_view import HeartbeatEntry

FAST_REPLIES_MAX = 64
"""Replies kept for one connection: a consumer needs one, a load generator that acts for many a few."""

CORRELATION_END = 8
"""Every request begins with API key, version (2 bytes each) and correlation id (4)."""

FRAME_HEAD = Struct(">ihh")
"""The part of a frame before its correlation id: its length, API key and version."""

TAIL_BEGIN = 12
"""Bytes of a frame up to the end of its correlation id."""


class FastReply:
    """The cached reply to a steady heartbeat, without its correlation id, and the entry that validates it."""

    __slots__ = ("entry", "frame_head", "head", "length", "rest")

    def __init__(self, frame_head: bytes, data: bytes, entry: HeartbeatEntry) -> None:
        self.frame_head = frame_head  # length, API key and version of the request
        self.head = frame_head[4:]
        self.length = data[:4]
        self.rest = data[8:]
        self.entry = entry


class FastReplies:
    """The replies, by the bytes of their requests after the correlation id."""

    __slots__ = ("by_tail", "frame_bytes_max", "num_bytes")

    def __init__(self) -> None:
        self.by_tail: dict[bytes, FastReply] = {}
        self.frame_bytes_max = 0
        """Bytes of the longest request: what is longer cannot be one of them alone."""
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self.by_tail)

    def put(self, exchange: Exchange, data: bytes, entry: HeartbeatEntry) -> None:
        if len(self.by_tail) >= FAST_REPLIES_MAX:
            self.clear()
        self.forget(exchange.tail)
        num_bytes = CORRELATION_END + len(exchange.tail)
        head = FRAME_HEAD.pack(num_bytes, exchange.api_key, exchange.api_version)
        self.by_tail[exchange.tail] = FastReply(head, data, entry)
        self.frame_bytes_max = max(self.frame_bytes_max, TAIL_BEGIN + len(exchange.tail))
        self.num_bytes += len(exchange.tail) + len(data)

    def forget(self, tail: bytes) -> None:
        hit = self.by_tail.pop(tail, None)
        if hit is not None:
            self.num_bytes -= len(tail) + CORRELATION_END + len(hit.rest)

    def clear(self) -> None:
        self.by_tail.clear()
        self.frame_bytes_max = self.num_bytes = 0
