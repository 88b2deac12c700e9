"""A consumer of seed 000 with connections and time from a Host, around `lineage.rewrite.consumer`.

The thread that polls sends the heartbeats, as in the design: a paused consumer neither sends nor reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from client.core.types import ConsumerRecord
from cluster.lineage.client_line import Address, ClientLine
from cluster.lineage.rewrite_fetcher import RewriteFetcher
from lineage.rewrite.consumer import RewriteConsumerCore, RewriteConsumerSettings, Send
from lineage.rewrite.fetching import FetchRules
from lineage.rewrite.machines import DESIGN_CONSUMER, THREAD_CONSUMER
from lineage.rewrite.messages import ConsumerMetadataResponse, decode_response, encode_request
from lineage.rewrite.strategies import Partition
from raftlog.env.host import Host, Timer
from wire.errors import MalformedFrame
from wire.schema import Message

TABLES = {"design": DESIGN_CONSUMER, "thread": THREAD_CONSUMER}


class RewriteClient:
    """One consumer. `changed` is called after everything that happened to it.

    `tap` is told of each message that is sent, and of each that comes; `others` are arguments of
    `RewriteConsumerCore`. With addresses of Kafka ports (`kafka`) it fetches: `deliver` gets the messages,
    and their offsets are its positions."""

    def __init__(
        self,
        host: Host,
        name: str,
        settings: RewriteConsumerSettings,
        topics: Iterable[str],
        brokers: tuple[Address, ...],
        *,
        variant: str = "design",
        changed: Callable[[], None] = lambda: None,
        tap: Callable[[Message], None] = lambda message: None,
        kafka: tuple[Address, ...] = (),
        rules: FetchRules | None = None,
        deliver: Callable[[list[ConsumerRecord]], None] = lambda messages: None,
        **others: Any,
    ) -> None:
        if kafka:
            others["positions"] = self._positions
        self.core = RewriteConsumerCore(TABLES[variant], settings, topics, **others)
        self.fetcher: RewriteFetcher | None = None
        if kafka:
            group_id, rules = settings.group_id, rules or FetchRules()
            self.fetcher = RewriteFetcher(
                host, name, group_id, self.core, kafka, rules, deliver, self._happens
            )
        self._host = host
        self._name = name
        self._brokers = brokers
        self._asked = 0
        self._changed = changed
        self._tap = tap
        self._addresses: dict[int, Address] = {}
        self._line: ClientLine | None = None
        self._line_to: int | None = None
        self._sent: Send | None = None
        self._timer: Timer | None = None
        self._is_over = False
        self._paused_until_ms = 0.0
        self._unread: list[Callable[[], None]] = []
        """Events that came while it was paused."""

    def start(self) -> None:
        self.core.start(self._now_ms)
        self._work()

    def quit(self) -> None:
        """End the process; the protocol has no request for it."""
        self._is_over = True
        if self._line is not None:
            self._line.end()
        if self.fetcher is not None:
            self.fetcher.end()

    def pause(self, for_ms: float) -> None:
        """Neither poll nor read for so long."""
        self._paused_until_ms = self._now_ms + for_ms
        self._host.call_later(for_ms, self._work)

    def saw_topics(self, names: Iterable[str]) -> None:
        """All topics there are; a consumer with a wildcard picks its own."""
        self.core.saw_topics(names)
        self._work()

    def _positions(self) -> dict[Partition, int]:
        return {} if self.fetcher is None else self.fetcher.fetching.positions

    @property
    def _now_ms(self) -> float:
        return self._host.monotonic_ms()

    def _work(self) -> None:
        """Read what has come, send what is due, and come back at the next deadline."""
        if self._is_over or self._paused_until_ms > self._now_ms:
            return
        while self._unread:
            self._unread.pop(0)()
        send = self.core.poll(self._now_ms)
        if send is not None:
            self._send(send)
        if self.fetcher is not None:
            self.fetcher.work()
        self._changed()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        fetch_ms = None if self.fetcher is None else self.fetcher.fetching.next_deadline_ms
        times = [one for one in (self.core.next_deadline_ms, fetch_ms) if one is not None]
        if (deadline_ms := min(times, default=None)) is not None:
            self._timer = self._host.call_later(max(deadline_ms - self._now_ms, 1.0), self._work)

    def _send(self, send: Send) -> None:
        is_unanswered, self._sent = self._sent is not None, send
        if self._line is None or self._line.is_over or self._line_to != send.to or is_unanswered:
            self._connect(send.to)
        assert self._line is not None
        self._tap(send.request)
        self._line.send(encode_request(send.number, self._name, send.request))

    def _connect(self, to: int | None) -> None:
        """Connect to the coordinator `to`, or to the next of the known brokers."""
        if self._line is not None:
            self._line.end()
        address = None if to is None else self._addresses.get(to)
        if address is None:
            address = self._brokers[self._asked % len(self._brokers)]
            self._asked += 1
        self._line_to = to
        line = self._line = ClientLine(
            self._host,
            address,
            lambda payload: self._happens(lambda: self._received(line, payload)),
            lambda: self._happens(lambda: self._lost(line)),
        )

    def _happens(self, what: Callable[[], None]) -> None:
        self._unread.append(what)
        self._work()

    def _received(self, line: ClientLine, payload: bytes) -> None:
        if line is not self._line or self._sent is None:
            return
        sent, self._sent = self._sent, None
        try:
            number, answer = decode_response(sent.request, payload)
        except MalformedFrame:
            line.end()
            self.core.lost(sent.number, self._now_ms)
            return
        self._tap(answer)
        if isinstance(answer, ConsumerMetadataResponse):
            where = answer.coordinator
            if answer.error_code:
                line.end()  # the next broker may know
            else:
                self._addresses[where.node_id] = where.host, where.port
        self.core.answered(number, answer, self._now_ms)

    def _lost(self, line: ClientLine) -> None:
        if line is not self._line:
            return
        sent, self._sent = self._sent, None
        if sent is not None:
            self.core.lost(sent.number, self._now_ms)
        else:
            self.core.disconnected(self._now_ms)
