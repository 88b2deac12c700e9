"""Fetch and ListOffsets, where the node keeps a scratch log (`scratch.log.enable`).

A consumer with isolation `read_committed` gets what comes before the last stable offset, and the transactions
in it that were aborted (`scratchlog.transactions`).

A fetch that finds less than its `min_bytes` waits, as in Kafka: until enough has arrived, until `max_wait_ms`
have passed, or until its connection has other work. Then all its partitions are read again. Fetch sessions
(KIP-227) are not kept: the session id is always 0, upon which clients name all partitions each time.

Invariants: what a waiting fetch keeps counts among the bytes kept for its connection, and the number of
waiting fetches is bounded; an answer has a bounded size, beyond which it has only one batch. No leader epochs
are given or checked (`scratchlog.batches` says why).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final

from cluster.kafka.appending import log_led_here
from cluster.kafka.cluster_apis import with_leader
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import ELEMENTS_AT_ONCE, Answer, Exchange
from cluster.kafka.waiting import end_fetches
from cluster.scratchlog import PartitionLog
from cluster.scratchlog.partition import OffsetOutOfRange
from cluster.scratchlog.producers import Partition
from cluster.scratchlog.records import RecordSearch
from coordinator.topics import CatalogTopic
from wire.errors import ErrorCode
from wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

TOPIC_IDS_SINCE: Final = 13
"""First version of Fetch that names topics by id only (KIP-516)."""

FETCH_BYTES_MAX: Final = 1 << 20
"""Records in one answer, unless a single batch is larger. Clients ask for 50 MiB by default; with less in
each answer, a client that reads slowly takes less of the node's memory."""

ANSWERS_BYTES_MAX: Final = 64 << 20
"""Records in answers that are being made, for all connections. Beyond it an answer has none, and its client
asks again; once an answer is sent, it counts towards its connection's bound."""

WAIT_COST_BYTES: Final = 400
"""Bytes that a waiting fetch keeps for each partition: the decoded request, and a place among the waiters."""

READ_COMMITTED: Final = 1

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, NEWEST_TIERED = -1, -2, -3, -4, -5
SPECIAL_SINCE: Final = {LATEST: 1, EARLIEST: 1, NEWEST: 7, EARLIEST_LOCAL: 8, NEWEST_TIERED: 9}
"""The first version of ListOffsets with each special timestamp. Nothing is tiered here."""

NO_OFFSET: Final = -1


class _Refused(Exception):
    """A partition that cannot be read."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def _log_of(context: ListenerContext, topic: CatalogTopic | None, number: int) -> PartitionLog:
    """Return the log of a partition of a topic.  Raises _Refused."""
    log = log_led_here(context)
    if log is None:
        raise _Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if topic is None or not 0 <= number < topic.num_partitions:
        raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return log.log((topic.topic_id, number))


# ListOffsets


def list_offsets(context: ListenerContext, exchange: Exchange, request: ListOffsetsRequest) -> None:
    """Answer ListOffsets 1–10, by special timestamps and by time.

    Time is exact to the record, or to the batch where that is compressed or the request asks for very much.
    """
    with_leader(
        context,
        exchange,
        len(request.topics),
        lambda: exchange.reply_in_slices(_offsets(context, exchange.api_version, request)),
    )


def _offsets(context: ListenerContext, version: int, request: ListOffsetsRequest) -> Answer:
    topics: list[ListOffsetsTopicResponse] = []
    is_committed = request.isolation_level == READ_COMMITTED
    search = RecordSearch()
    num_made = 0
    for topic in request.topics:
        found = context.node.catalog.topic(topic.name)
        partitions: list[ListOffsetsPartitionResponse] = []
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        for asked in topic.partitions:
            is_known = asked.timestamp >= 0 or version >= SPECIAL_SINCE.get(asked.timestamp, version + 1)
            if is_known:
                partitions.append(
                    (yield from _offset(context, found, asked, search, is_committed=is_committed))
                )
            else:
                partitions.append(_no_offset(asked, ErrorCode.UNSUPPORTED_VERSION))
            num_made += 1
            if not num_made % ELEMENTS_AT_ONCE:
                yield
    return ListOffsetsResponse(topics=topics)


def _offset(
    context: ListenerContext,
    topic: CatalogTopic | None,
    asked: ListOffsetsPartition,
    search: RecordSearch,
    *,
    is_committed: bool,
) -> Generator[None, None, ListOffsetsPartitionResponse]:
    number = asked.partition_index
    try:
        log = _log_of(context, topic, number)
        timestamp, offset = yield from _found_at(log, asked.timestamp, search, is_committed=is_committed)
    except _Refused as refused:
        return _no_offset(asked, refused.code)
    return ListOffsetsPartitionResponse(partition_index=number, timestamp=timestamp, offset=offset)


def _no_offset(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=code, timestamp=-1, offset=NO_OFFSET
    )


Found = Generator[None, None, tuple[int, int]]
"""Finds timestamp and offset; both are −1 if there is none."""


def _found_at(log: PartitionLog, timestamp: int, search: RecordSearch, *, is_committed: bool) -> Found:
    """Find what a timestamp asks for, before the end that a consumer of this isolation sees."""
    end = log.stable if is_committed else log.end
    if timestamp == LATEST:
        return -1, end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start
    found = -1, NO_OFFSET
    if timestamp == NEWEST:
        newest = log.newest()
        if newest is not None:
            latest = newest.header.max_timestamp
            exact = yield from search.first_since(newest, latest, log.start)
            found = exact or (latest, newest.last_offset)
    elif timestamp >= 0:
        found = yield from _found_since(log, timestamp, search)
    return found if found[1] < end else (-1, NO_OFFSET)


def _found_since(log: PartitionLog, timestamp: int, search: RecordSearch) -> Found:
    """Find the first record with this timestamp or a later one; in a batch that is not read, its first one.

    In the first batch that has one it may be deleted, but not in the next one.
    """
    batches, start = list(islice(log.batches_since(timestamp), 2)), log.start
    for batch in batches:
        found = yield from search.first_since(batch, timestamp, start)
        if found is not None:
            return found
        if not search.can_read(batch):
            return batch.header.base_timestamp, max(start, batch.base_offset)
    return -1, NO_OFFSET


# Fetch


def fetch(context: ListenerContext, exchange: Exchange, request: FetchRequest) -> None:
    """Answer Fetch 4–17."""
    if request.session_id != 0:
        exchange.reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    with_leader(context, exchange, len(request.topics), _Fetch(context, exchange, request).begin)


class _Fetch:
    """One fetch, from its request to its answer (`scratchlog.RecordWaiter`)."""

    __slots__ = (
        "_context",
        "_exchange",
        "_is_by_id",
        "_is_waiting",
        "_made_bytes",
        "_missing_bytes",
        "_partitions",
        "_request",
        "_wait_ms",
        "is_committed",
    )

    def __init__(self, context: ListenerContext, exchange: Exchange, request: FetchRequest) -> None:
        self._context = context
        self._exchange = exchange
        self._request = request
        self.is_committed = request.isolation_level == READ_COMMITTED
        self._is_by_id = exchange.api_version >= TOPIC_IDS_SINCE
        self._wait_ms = min(request.max_wait_ms, context.settings.fetch_wait_max_ms)
        self._missing_bytes = request.min_bytes
        self._partitions: list[Partition] = []
        self._is_waiting = False
        self._made_bytes = 0  # records in the answer, until it is sent

    def begin(self) -> None:
        if self._wait_ms <= 0 or self._missing_bytes <= 0 or not self._request.topics:
            self._answer()
        else:
            self._exchange.work_in_slices(self._look())

    # What there is to read.

    def _look(self) -> Iterator[None]:
        """Count the bytes that there are, and answer or wait."""
        scratch_log = self._context.scratch_log
        assert scratch_log is not None
        appended_before = scratch_log.num_appended
        num_seen = 0
        for topic in self._request.topics:
            found = self._topic(topic)
            for asked in topic.partitions:
                try:
                    log = _log_of(self._context, found, asked.partition)
                    num_bytes = log.bytes_from(asked.fetch_offset, is_committed=self.is_committed)
                    self._missing_bytes -= min(num_bytes, FETCH_BYTES_MAX)
                except (_Refused, OffsetOutOfRange):
                    self._missing_bytes = 0  # an error does not wait
                if self._missing_bytes <= 0:
                    self._answer()
                    return
                assert found is not None
                self._partitions.append((found.topic_id, asked.partition))
                num_seen += 1
                if not num_seen % ELEMENTS_AT_ONCE:
                    yield
        if scratch_log.num_appended != appended_before or not self._has_room():
            self._answer()
        else:
            self._wait()

    def _topic(self, asked: FetchTopic) -> CatalogTopic | None:
        catalog = self._context.node.catalog
        return catalog.topic_by_id(asked.topic_id) if self._is_by_id else catalog.topic(asked.topic)

    # Waiting.

    @property
    def _kept_bytes(self) -> int:
        return WAIT_COST_BYTES * (1 + len(self._partitions))

    def _has_room(self) -> bool:
        """Whether the fetch may wait: only within half of what all connections may keep."""
        context, settings = self._context, self._context.settings
        return (
            context.fetches_waiting < settings.fetch_waiting_max
            and context.kept_bytes + self._kept_bytes <= settings.listener_buffered_max_bytes // 2
        )

    def _wait(self) -> None:
        context, exchange = self._context, self._exchange
        connection = exchange.connection
        if connection is None:
            return
        if not connection.may_wait_with(self._kept_bytes):
            end_fetches(connection)
        connection.waits_with(exchange, self._kept_bytes)
        context.fetches_waiting += 1
        assert context.scratch_log is not None
        context.scratch_log.wait(self, self._partitions)
        self._is_waiting = True
        exchange.timer = context.host.call_later(self._wait_ms, self._end)
        exchange.on_drop = self._stop_waiting
        exchange.be_patient(self._end)

    def arrived(self, num_bytes: int) -> None:
        before, self._missing_bytes = self._missing_bytes, self._missing_bytes - num_bytes
        if before > 0 >= self._missing_bytes:
            self._context.end_soon(self._end)

    def ended(self) -> None:
        self.arrived(max(1, self._missing_bytes))

    def _end(self) -> None:
        """Answer with what there is; has no effect if the fetch has been answered or dropped."""
        exchange = self._exchange
        connection = exchange.connection
        if connection is None or not self._is_waiting:
            return
        if exchange.timer is not None:
            exchange.timer.cancel()
            exchange.timer = None
        connection.deferred.pop(exchange, None)
        self._stop_waiting()
        connection.waits_with(exchange, -self._kept_bytes)
        self._answer()

    def _stop_waiting(self) -> None:
        self._is_waiting = False
        self._context.fetch_ended()
        assert self._context.scratch_log is not None
        self._context.scratch_log.stop_waiting(self, self._partitions)

    # The answer.

    def _answer(self) -> None:
        self._exchange.on_drop = self._release
        self._exchange.reply_in_slices(self._fetched(), self._deliver)

    def _deliver(self, data: bytes) -> None:
        self._exchange.on_drop = None
        self._release()
        self._exchange.send(data)

    def _release(self) -> None:
        self._context.fetched_bytes -= self._made_bytes
        self._made_bytes = 0

    def _fetched(self) -> Answer:
        responses: list[FetchableTopicResponse] = []
        left_bytes = min(self._request.max_bytes, FETCH_BYTES_MAX)
        has_records = False
        num_made = 0
        for topic in self._request.topics:
            found = self._topic(topic)
            partitions: list[PartitionData] = []
            responses.append(
                FetchableTopicResponse(
                    topic="" if self._is_by_id else topic.topic,
                    topic_id=topic.topic_id,
                    partitions=partitions,
                )
            )
            for asked in topic.partitions:
                data = self._read(found, asked, left_bytes, at_least_one=not has_records)
                partitions.append(data)
                if data.records:
                    has_records = True
                    left_bytes -= len(data.records)
                    self._made_bytes += len(data.records)
                    self._context.fetched_bytes += len(data.records)
                    yield
                num_made += 1
                if not num_made % ELEMENTS_AT_ONCE:
                    yield
        return FetchResponse(responses=responses)

    def _read(
        self, topic: CatalogTopic | None, asked: FetchPartition, left_bytes: int, *, at_least_one: bool
    ) -> PartitionData:
        try:
            log = _log_of(self._context, topic, asked.partition)
            bytes_max = min(asked.partition_max_bytes, left_bytes)
            if self._context.fetched_bytes >= ANSWERS_BYTES_MAX:
                bytes_max, at_least_one = 0, False
            records, end = log.read(
                asked.fetch_offset, bytes_max, at_least_one=at_least_one, is_committed=self.is_committed
            )
        except (_Refused, OffsetOutOfRange) as error:
            code = error.code if isinstance(error, _Refused) else ErrorCode.OFFSET_OUT_OF_RANGE
            if topic is None and self._is_by_id and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            return PartitionData(
                partition_index=asked.partition, error_code=code, high_watermark=NO_OFFSET, records=b""
            )
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start,
            aborted_transactions=_aborted(log, asked.fetch_offset, end) if self.is_committed else None,
            records=records,
        )


def _aborted(log: PartitionLog, begin: int, end: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
        for transaction in log.transactions.aborted_in(begin, end)
    ]
