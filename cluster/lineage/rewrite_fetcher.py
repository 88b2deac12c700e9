"""The messages of a consumer of seed 000, with connections from a Host around `lineage.rewrite.fetching`.

There is one connection for each broker that leads partitions, and for each request for metadata one of its
own, to the next of the known brokers: so one that is cut off is not asked again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.core.errors import CorruptRecord
from client.core.fetch.codecs import Decompressor
from client.core.fetch.completed import CompletedFetch
from client.core.types import ConsumerRecord, FetchedData, Position, TopicPartition
from cluster.lineage.client_line import Address, ClientLine
from lineage.rewrite.consumer import RewriteConsumerCore
from lineage.rewrite.fetching import FETCH_APIS, Fetching, FetchRules, FetchSend
from lineage.rewrite.strategies import Partition
from raftlog.env.host import Host
from wire.errors import MalformedFrame
from wire.protocol import decode_response, encode_request

RECORDS_AT_ONCE: Final = 1_000
"""Messages that the application is given in one call."""

Deliver = Callable[[list[ConsumerRecord]], None]


class RewriteFetcher:
    """Fetches for one consumer. `deliver` gets the messages, `happens` what to do about each event."""

    def __init__(
        self,
        host: Host,
        name: str,
        group_id: str,
        core: RewriteConsumerCore,
        brokers: tuple[Address, ...],
        rules: FetchRules,
        deliver: Deliver,
        happens: Callable[[Callable[[], None]], None],
    ) -> None:
        self.fetching = Fetching(core, group_id, rules, self._take)
        self._host, self._name, self._brokers = host, name, brokers
        self._deliver, self._happens = deliver, happens
        self._asked = 0
        self._lines: dict[int | None, ClientLine] = {}
        self._sent: dict[int | None, FetchSend] = {}
        """Requests without an answer, by broker."""
        self._decompressor = Decompressor()

    def work(self) -> None:
        """Send what is due."""
        while (send := self.fetching.poll(self._host.monotonic_ms())) is not None:
            is_unanswered = send.to in self._sent
            self._sent[send.to] = send
            line = self._lines.get(send.to)
            if line is None or line.is_over or is_unanswered:
                line = self._connect(send.to)
            api, version = FETCH_APIS[type(send.request)]
            line.send(encode_request(api, version, send.number, self._name, send.request))

    def end(self) -> None:
        for line in self._lines.values():
            line.end()

    def _connect(self, to: int | None) -> ClientLine:
        if to in self._lines:
            self._lines[to].end()
        address = None if to is None else self.fetching.brokers.get(to)
        if address is None:
            address = self._brokers[self._asked % len(self._brokers)]
            self._asked += 1
        line = self._lines[to] = ClientLine(
            self._host,
            address,
            lambda payload: self._happens(lambda: self._received(to, line, payload)),
            lambda: self._happens(lambda: self._lost(to, line)),
        )
        return line

    def _received(self, to: int | None, line: ClientLine, payload: bytes) -> None:
        if line is not self._lines.get(to) or to not in self._sent:
            return
        sent = self._sent[to]
        try:
            number, answer = decode_response(*FETCH_APIS[type(sent.request)], payload)
        except MalformedFrame:
            line.end()
            self._lost(to, line)
            return
        if to is None:
            line.end()
        del self._sent[to]
        self.fetching.answered(number, answer, self._host.monotonic_ms())

    def _lost(self, to: int | None, line: ClientLine) -> None:
        if line is self._lines.get(to):
            del self._lines[to]
            sent = self._sent.pop(to, None)
            if sent is not None:
                self.fetching.lost(sent.number, self._host.monotonic_ms())

    def _take(self, partition: Partition, offset: int, records: bytes) -> int:
        """Give the application what can be read."""
        data = FetchedData(TopicPartition(*partition), Position(offset, -1, 0), records, (), -1, -1)
        fetch = CompletedFetch(data, self._decompressor, checks_crcs=True)
        while not fetch.is_drained:
            messages: list[ConsumerRecord] = []
            try:
                fetch.read(messages, RECORDS_AT_ONCE)
            except CorruptRecord:
                break  # fetched again, from another broker if another one leads by then
            finally:
                if messages:
                    self._deliver(messages)
        return fetch.next_offset
