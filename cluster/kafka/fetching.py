"""The empty log behind every partition: ListOffsets and Fetch, so that unmodified consumers have a life.

Topics hold no messages, but consumers fetch between heartbeats, and they do it from offsets that they
committed elsewhere. So every offset that a client asks for *is* the end of the log: the high watermark is the
fetch offset, and nobody ever hears OFFSET_OUT_OF_RANGE, which would reset his position. A fetch waits as long
as it asked for (`max_wait_ms`), like one at the end of a real log, or until its connection has something else
to do: a client that has lost its coordinator must not wait half a second behind its own fetch.

Every node answers, whoever leads: an empty log reads the same everywhere. So a change of leaders costs
consumers nothing here, where NOT_LEADER_OR_FOLLOWER would make each of them ask for metadata and wait a
second (librdkafka) or spin until there is a leader.

What must stay true: a waiting fetch costs its encoded reply and a timer, and their number is bounded. Leader
epochs are not checked and not given: they would make clients ask for epochs of a log that is not there.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from cluster.kafka.cluster_apis import with_catalog
from coordinator.topics import CatalogTopic, CatalogView
from wire.errors import ErrorCode
from wire.messages.fetch import (
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

if TYPE_CHECKING:
    from cluster.kafka.exchange import Exchange
    from cluster.kafka.listener import KafkaListener

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
SPECIAL_TIMESTAMPS_MIN = -6
"""Newest of Kafka's special timestamps (earliest pending upload, ListOffsets 11 in other releases)."""

ENDS = frozenset((LATEST, EARLIEST, EARLIEST_LOCAL))
"""The timestamps that name an end of the log; the others look for a message, and there is none."""

TOPIC_IDS_SINCE = 13
"""First version of Fetch that names topics by id only (KIP-516)."""


def list_offsets(listener: KafkaListener, exchange: Exchange, request: ListOffsetsRequest) -> None:
    """ListOffsets 1–10: both ends are 0, and no timestamp has a message."""

    def answer() -> None:
        catalog = listener.node.catalog
        exchange.reply(
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[_offset(catalog.topic(topic.name), asked) for asked in topic.partitions],
                    )
                    for topic in request.topics
                ]
            )
        )

    with_catalog(listener, exchange, answer)


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


def fetch(listener: KafkaListener, exchange: Exchange, request: FetchRequest) -> None:
    """Fetch 4–17: empty, after the wait that was asked for. Sessions (KIP-227) are not kept: session id 0."""
    if request.session_id != 0:
        exchange.reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    with_catalog(listener, exchange, lambda: _fetch(listener, exchange, request))


def _fetch(listener: KafkaListener, exchange: Exchange, request: FetchRequest) -> None:
    catalog, by_id = listener.node.catalog, exchange.api_version >= TOPIC_IDS_SINCE
    response = FetchResponse(responses=[_fetched(catalog, topic, by_id) for topic in request.topics])
    failed = any(partition.error_code for topic in response.responses for partition in topic.partitions)
    wait_ms = min(request.max_wait_ms, listener.settings.fetch_wait_max_ms)
    if (
        failed
        or not response.responses
        or request.min_bytes <= 0
        or wait_ms <= 0
        or listener.fetches_waiting >= listener.settings.fetch_waiting_max
    ):
        exchange.reply(response)
        return
    listener.fetches_waiting += 1
    end = functools.partial(_end, listener, exchange, exchange.encode(response))
    exchange.timer = listener.host.call_later(wait_ms, end)
    exchange.on_drop = listener.fetch_ended
    exchange.be_patient(end)


def _end(listener: KafkaListener, exchange: Exchange, data: bytes) -> None:
    if exchange.timer is not None:
        exchange.timer.cancel()
        exchange.timer = None
    exchange.on_drop = None
    listener.fetch_ended()
    exchange.send(data)


def _fetched(catalog: CatalogView, asked: FetchTopic, by_id: bool) -> FetchableTopicResponse:
    topic = catalog.topic_by_id(asked.topic_id) if by_id else catalog.topic(asked.topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return FetchableTopicResponse(
        topic="" if by_id else asked.topic,
        topic_id=asked.topic_id,
        partitions=[_partition(topic, partition, unknown) for partition in asked.partitions],
    )


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
