"""The counters of the Kafka listener: plain integers, so that counting costs a request nothing.

The HTTP listener reads them for /metrics; nothing here knows Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)
"""Upper bounds of the buckets; slower replies fall into one more. They range from less than one sync of a
good disk to the timeout of a held reply."""


class Latency:
    """A histogram of one API's times from a complete request to its reply being handed to the socket."""

    __slots__ = ("buckets", "total_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_MS) + 1)
        self.total_ms = 0.0

    def observe(self, elapsed_ms: float, number: int = 1) -> None:
        """Count requests that were answered together."""
        self.buckets[bisect_left(LATENCY_BUCKETS_MS, elapsed_ms)] += number
        self.total_ms += elapsed_ms * number


class KafkaCounters:
    """Totals since the start of the node, in dictionaries by API key, Kafka error code, or reason."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections_closed",
        "connections_opened",
        "errors",
        "fast_heartbeats",
        "latency",
        "requests",
        "serving_ms",
    )

    def __init__(self) -> None:
        self.requests: dict[int, int] = defaultdict(int)
        self.errors: dict[tuple[int, int], int] = defaultdict(int)
        self.latency: dict[int, Latency] = defaultdict(Latency)
        self.fast_heartbeats = 0
        self.serving_ms = 0.0
        """Milliseconds of the loop spent on frames that were read: decoding, deciding, sending."""
        self.bytes_received = 0
        self.bytes_sent = 0
        self.connections_opened = 0
        self.connections_closed: dict[str, int] = defaultdict(int)
