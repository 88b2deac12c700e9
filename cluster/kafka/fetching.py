"""The empty log of every partition, without a scratch log: ListOffsets and Fetch, so that consumers work.

Topics hold no messages then, but consumers fetch between heartbeats, and from offsets that they committed
elsewhere. So every requested offset *is* the end of the log: the high watermark is the fetch offset, and no
consumer gets OFFSET_OUT_OF_RANGE, which would reset its position. A fetch waits as long as requested
(`max_wait_ms`), like one at the end of a real log, or until its connection has other work: a client that has
lost its coordinator must not wait half a second for its own fetch.

Every node answers, whoever leads, because an empty log reads the same everywhere. So a change of leader costs
consumers nothing here, whereas NOT_LEADER_OR_FOLLOWER would make each of them request metadata and wait a
second (librdkafka) or spin until there is a leader.

Invariants: a waiting fetch costs its encoded reply and a timer; their number is bounded, and their
replies count among the bytes kept for their connections. A frame may name a partition 65,000 times, so
answers are made in slices. Leader epochs are neither checked nor given: they would make clients ask for
epochs of a log that does not exist.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TypeVar

from cluster.kafka.cluster_apis import with_catalog
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import ELEMENTS_AT_ONCE, Answer, Exchange
from cluster.kafka.waiting import end_fetches
from coordinator.topics import CatalogTopic, CatalogView
from wire.errors import ErrorCode
from wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

T = TypeVar("T")

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
SPECIAL_TIMESTAMPS_MIN = -6
"""Newest of Kafka's special timestamps (earliest pending upload, ListOffsets 11 in other releases)."""

ENDS = frozenset((LATEST, EARLIEST, EARLIEST_LOCAL))
"""The timestamps that name an end of the log; the others look for a message, and there is none."""

TOPIC_IDS_SINCE = 13
"""First version of Fetch that names topics by id only (KIP-516)."""


def list_offsets(context: ListenerContext, exchange: Exchange, request: ListOffsetsRequest) -> None:
    """Answer ListOffsets 1–10: both ends are 0, and no timestamp has a message."""
    with_catalog(context, exchange, lambda: exchange.reply_in_slices(_offsets(context.node.catalog, request)))


def _offsets(catalog: CatalogView, request: ListOffsetsRequest) -> Answer:
    topics: list[ListOffsetsTopicResponse] = []
    num_made = 0
    for topic in request.topics:
        found = catalog.topic(topic.name)
        partitions: list[ListOffsetsPartitionResponse] = []
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        for some in _some_at_once(topic.partitions):
            partitions += [_offset(found, asked) for asked in some]
            num_made += 1 + len(some)
            if num_made >= ELEMENTS_AT_ONCE:
                num_made = 0
                yield
    return ListOffsetsResponse(topics=topics)


def _some_at_once(partitions: list[T]) -> Iterator[list[T]]:
    """Yield the partitions of one topic in lists, at least one."""
    yield partitions[:ELEMENTS_AT_ONCE]
    for first in range(ELEMENTS_AT_ONCE, len(partitions), ELEMENTS_AT_ONCE):
        yield partitions[first : first + ELEMENTS_AT_ONCE]


def _offset(topic: CatalogTopic | None, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    partition = asked.partition_index
    if topic is None or not 0 <= partition < topic.num_partitions:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ListOffsetsPartitionResponse(
            partition_index=partition, error_code=code, timestamp=-1, offset=-1
        )
    if asked.timestamp < SPECIAL_TIMESTAMPS_MIN:
        code = ErrorCode.UNSUPPORTED_VERSION
        return ListOffsetsPartitionResponse(
            partition_index=partition, error_code=code, timestamp=-1, offset=-1
        )
    offset = 0 if asked.timestamp in ENDS else -1
    return ListOffsetsPartitionResponse(partition_index=partition, timestamp=-1, offset=offset)


def fetch(context: ListenerContext, exchange: Exchange, request: FetchRequest) -> None:
    """Answer Fetch 4–17: empty, after the requested wait. Sessions (KIP-227) are not kept: session id 0."""
    if request.session_id != 0:
        exchange.reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    with_catalog(context, exchange, lambda: _fetch(context, exchange, request))


def _fetch(context: ListenerContext, exchange: Exchange, request: FetchRequest) -> None:
    wait_ms = min(request.max_wait_ms, context.settings.fetch_wait_max_ms)
    if not request.topics or request.min_bytes <= 0:
        wait_ms = 0
    catalog, by_id = context.node.catalog, exchange.api_version >= TOPIC_IDS_SINCE
    failures: list[int] = []

    def deliver(data: bytes) -> None:
        if failures or wait_ms <= 0 or not _has_room(context, len(data)):
            exchange.send(data)
        else:
            _wait(context, exchange, data, wait_ms)

    exchange.reply_in_slices(_fetched(catalog, request, by_id, failures), deliver)


def _has_room(context: ListenerContext, num_bytes: int) -> bool:
    """Whether a reply of this size may wait: only within half of what all connections may keep."""
    settings = context.settings
    return (
        context.fetches_waiting < settings.fetch_waiting_max
        and context.kept_bytes + num_bytes <= settings.listener_buffered_max_bytes // 2
    )


def _wait(context: ListenerContext, exchange: Exchange, data: bytes, wait_ms: int) -> None:
    connection = exchange.connection
    if connection is None:
        return
    if not connection.may_wait_with(len(data)):
        end_fetches(connection)
    connection.waits_with(exchange, len(data))
    context.fetches_waiting += 1
    end = functools.partial(_end, context, exchange, data)
    exchange.timer = context.host.call_later(wait_ms, end)
    exchange.on_drop = context.fetch_ended
    exchange.be_patient(end)


def _end(context: ListenerContext, exchange: Exchange, data: bytes) -> None:
    if exchange.timer is not None:
        exchange.timer.cancel()
        exchange.timer = None
    exchange.on_drop = None
    context.fetch_ended()
    if exchange.connection is not None:
        exchange.connection.waits_with(exchange, -len(data))
    exchange.send(data)


def _fetched(catalog: CatalogView, request: FetchRequest, by_id: bool, failures: list[int]) -> Answer:
    """Make the response; `failures` receives one of its errors, if any: such an answer does not wait."""
    responses: list[FetchableTopicResponse] = []
    num_made = 0
    for asked in request.topics:
        topic = catalog.topic_by_id(asked.topic_id) if by_id else catalog.topic(asked.topic)
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        partitions: list[PartitionData] = []
        responses.append(
            FetchableTopicResponse(
                topic="" if by_id else asked.topic, topic_id=asked.topic_id, partitions=partitions
            )
        )
        for some in _some_at_once(asked.partitions):
            made = [_partition(topic, partition, unknown) for partition in some]
            partitions += made
            if not failures:
                failures += [partition.error_code for partition in made if partition.error_code][:1]
            num_made += 1 + len(some)
            if num_made >= ELEMENTS_AT_ONCE:
                num_made = 0
                yield
    return FetchResponse(responses=responses)


def _partition(topic: CatalogTopic | None, asked: FetchPartition, unknown: ErrorCode) -> PartitionData:
    if topic is None or not 0 <= asked.partition < topic.num_partitions:
        return PartitionData(
            partition_index=asked.partition, error_code=unknown, high_watermark=-1, records=b""
        )
    end = max(0, asked.fetch_offset)
    return PartitionData(
        partition_index=asked.partition,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        records=b"",
    )
