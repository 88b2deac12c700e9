"""The state that the connections of one Kafka listener share with each other and with request handlers."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator

from cluster.faults.table import FaultTable
from cluster.kafka.arrivals import Arrivals
from cluster.kafka.counters import KafkaCounters
from cluster.kafka.exchange import Exchange
from cluster.kafka.node_view import KafkaNode
from cluster.kafka.waiting import LeaderWaits
from cluster.runtime.slices import MORE, Slices
from cluster.scratchlog import ScratchBounds, ScratchLog
from cluster.settings import Settings
from raftlog.env.host import Host
from raftlog.env.rate_limit import RateLimitedLogger
from wire.apis import served_apis

LOG = logging.getLogger("quorate.kafka")

CLIENT_LINES_AT_ONCE = 10
"""Log lines about clients in a burst: enough to see a few clients go wrong together."""

CLIENT_LINE_MS = 1_000.0
"""Milliseconds per further line: the trouble stays visible, at no more than 86,400 lines a day."""


class ListenerContext:
    """The node, its settings, the APIs served, and what is counted and bounded over all connections."""

    def __init__(self, host: Host, node: KafkaNode, settings: Settings) -> None:
        self.host = host
        self.node = node
        self.settings = settings
        self.served = served_apis(
            classic=settings.serves_classic,
            log=settings.scratch_log_enable,
            transactions=settings.scratch_log_enable,
        )
        self.slices = Slices(host)
        self.scratch_log = _scratch_log(settings, self.slices)
        self.frame_bytes_max = settings.socket_request_max_bytes
        if self.scratch_log is not None:
            self.frame_bytes_max = max(self.frame_bytes_max, settings.scratch_log_request_max_bytes)
        self.counters = KafkaCounters()
        self.faults = FaultTable()
        self.arrivals = Arrivals()
        self.leaders = LeaderWaits(host, node)
        self.limited_log = RateLimitedLogger(
            LOG, host.monotonic_ms, burst=CLIENT_LINES_AT_ONCE, repeat_ms=CLIENT_LINE_MS
        )
        self.forwards = 0  # requests that wait for the controller (`forwarding`)
        self.fetches_waiting = 0
        self._ends: deque[Callable[[], None]] = deque()  # of waits of fetches
        self.ending_producers: Counter[int] = Counter()  # whose transactions have no markers yet (`ending`)
        self.fetched_bytes = 0  # records in answers that are being made (`reading`)
        self.long_reads: dict[Exchange, None] = {}  # not answered yet, see `dispatch.LONG_READS`
        self.kept_bytes = 0  # upper bound over all connections: what was sent since is included

    def end_soon(self, end: Callable[[], None]) -> None:
        """End the wait of a fetch soon; one batch may end thousands, so that is done in slices."""
        self._ends.append(end)
        if len(self._ends) == 1:
            self.host.call_soon(lambda: self.slices.run(self._end_waits(), lambda: True))

    def _end_waits(self) -> Iterator[None]:
        while self._ends:
            self._ends.popleft()()
            yield

    def fetch_ended(self) -> None:
        """Count down the empty fetches that wait."""
        self.fetches_waiting -= 1

    def observe(self, exchange: Exchange) -> None:
        """Record the latency of a reply that is ready."""
        if self.long_reads:
            self.long_reads.pop(exchange, None)
        elapsed_ms = self.host.monotonic_ms() - exchange.started_ms
        self.counters.latency[exchange.api_key].observe(elapsed_ms, exchange.num_requests)


def _scratch_log(settings: Settings, slices: Slices) -> ScratchLog | None:
    """Return an empty scratch log, or None if the node keeps none."""
    if not settings.scratch_log_enable:
        return None
    return ScratchLog(
        ScratchBounds(
            bytes_max=settings.scratch_log_max_bytes,
            partition_bytes_max=settings.scratch_log_partition_max_bytes,
            batch_bytes_max=settings.message_max_bytes,
        ),
        lambda work: slices.run(work, lambda: True, MORE),
    )
