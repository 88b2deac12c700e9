"""Produce, InitProducerId and DeleteRecords, where the node keeps a scratch log (`scratch.log.enable`).

Only the leader of the metadata shard takes records, which Metadata names as the leader of every partition;
other nodes answer NOT_LEADER_OR_FOLLOWER. Nothing is written to disk or to other nodes, so every `acks` is
answered at once, and what a producer got an answer for is lost with its leader.

A transactional batch is appended while its producer's transaction is open with the partition, as the
coordinator of transactions says, which is the same leader.

Invariants: the batches of a connection are appended in the order of its requests, also if a request is served
in slices; a batch that is refused leaves no trace; a producer that wants no answer (`acks` 0) gets none, and
loses its connection if a batch is refused, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from cluster.kafka.cluster_apis import with_leader
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import ELEMENTS_AT_ONCE, Answer, Exchange
from cluster.scratchlog import RefusedBatch, ScratchLog
from coordinator.topics import CatalogTopic
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.refusals import refuse

TOPIC_IDS_SINCE: Final = 13
"""First version of Produce that names topics by id only (KIP-516)."""

PARTITIONS_AT_ONCE: Final = 100
"""Partitions of a request that are served in one step, about a millisecond with small batches."""

BYTES_AT_ONCE: Final = 1 << 20
"""Bytes of records that are checked in one step: less than a millisecond."""

HIGH_WATERMARK: Final = -1
"""The offset by which DeleteRecords asks to delete everything."""

NO_OFFSET: Final = -1


def log_led_here(context: ListenerContext) -> ScratchLog | None:
    """Return the scratch log if this node leads the metadata shard; its own is emptied otherwise."""
    log, node = context.scratch_log, context.node
    assert log is not None
    lead = node.metadata_lead
    if lead is None:
        log.resign()
        return None
    log.lead(*lead, node.catalog.version)
    return log


# Produce


def produce(context: ListenerContext, exchange: Exchange, request: ProduceRequest) -> None:
    """Answer Produce 3–13: append one batch per partition."""
    if request.acks not in (-1, 0, 1):
        code = ErrorCode.INVALID_REQUIRED_ACKS
        exchange.reply(refuse(ApiKey.PRODUCE, exchange.api_version, request, code, None))
        return
    with_leader(context, exchange, len(request.topic_data), lambda: _produce(context, exchange, request))
    if not exchange.is_answered and exchange.connection is not None:
        exchange.connection.serve_alone(exchange)  # a later batch must not overtake one that waits


def _produce(context: ListenerContext, exchange: Exchange, request: ProduceRequest) -> None:
    refused: list[str] = []

    def end_unanswered(_: bytes) -> None:
        connection = exchange.connection
        if refused and connection is not None:
            connection.refuse("unacknowledged", f"a batch with acks=0 was refused: {refused[0]}")
        else:
            exchange.send(b"")

    answer = _appended(context, exchange.api_version, request, refused)
    exchange.reply_in_slices(answer, end_unanswered if request.acks == 0 else None)


def _appended(context: ListenerContext, version: int, request: ProduceRequest, refused: list[str]) -> Answer:
    """Append the batches and make the response; `refused` receives the first error, if any."""
    responses: list[TopicProduceResponse] = []
    scratch_log = context.scratch_log
    assert scratch_log is not None
    told_before = scratch_log.num_told
    num_partitions = num_bytes = 0
    for topic in request.topic_data:
        made: list[PartitionProduceResponse] = []
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=made)
        )
        for asked in topic.partition_data:
            made.append(_append(context, version, request.transactional_id, topic, asked, refused))
            num_partitions += 1
            num_bytes += len(asked.records or b"")
            num_told = scratch_log.num_told - told_before
            if (
                num_partitions >= PARTITIONS_AT_ONCE
                or num_bytes >= BYTES_AT_ONCE
                or num_told >= ELEMENTS_AT_ONCE
            ):
                num_partitions = num_bytes = 0
                told_before = scratch_log.num_told
                yield
    return ProduceResponse(responses=responses)


def _append(
    context: ListenerContext,
    version: int,
    transactional_id: str | None,
    topic: TopicProduceData,
    asked: PartitionProduceData,
    refused: list[str],
) -> PartitionProduceResponse:
    catalog = context.node.catalog
    now_ms = context.node.clock.wall_at(context.host.monotonic_ms())
    found = catalog.topic_by_id(topic.topic_id) if version >= TOPIC_IDS_SINCE else catalog.topic(topic.name)
    code = (
        ErrorCode.UNKNOWN_TOPIC_ID
        if version >= TOPIC_IDS_SINCE and found is None
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )

    def transaction_error(producer_id: int, producer_epoch: int) -> ErrorCode:
        if transactional_id is None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if producer_id in context.ending_producers:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        assert found is not None
        partition = found.name, asked.index
        return context.node.transaction_error(transactional_id, producer_id, producer_epoch, partition)

    try:
        log = log_led_here(context)
        if log is None:
            raise RefusedBatch(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads this partition")
        if found is None or not 0 <= asked.index < found.num_partitions:
            raise RefusedBatch(code, f"partition {asked.index} does not exist")
        partition = found.topic_id, asked.index
        base_offset, start = log.append(partition, asked.records, version, now_ms, transaction_error)
    except RefusedBatch as error:
        if not refused:
            refused.append(error.message)
        return PartitionProduceResponse(
            index=asked.index, error_code=error.code, base_offset=NO_OFFSET, error_message=error.message
        )
    return PartitionProduceResponse(index=asked.index, base_offset=base_offset, log_start_offset=start)


# InitProducerId


def init_producer_id(context: ListenerContext, exchange: Exchange, request: InitProducerIdRequest) -> None:
    """Answer InitProducerId 0–5. An idempotent producer gets a new id, whichever it has (as in Kafka).

    The id is random, so that any node may give it without asking another. With 63 bits, no two producers get
    the same. That of a transactional producer comes from the metadata shard.
    """
    if request.transactional_id is not None:
        context.node.submit(exchange.api_key, exchange.api_version, request, exchange.client, exchange.reply)
        return
    producer_id = int.from_bytes(context.host.fresh_uuid()[-8:], "big") >> 1
    exchange.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


# DeleteRecords


def delete_records(context: ListenerContext, exchange: Exchange, request: DeleteRecordsRequest) -> None:
    """Answer DeleteRecords 0–2: the records before an offset are gone at once."""
    with_leader(
        context,
        exchange,
        len(request.topics),
        lambda: exchange.reply_in_slices(_deleted(context, request)),
    )


def _deleted(context: ListenerContext, request: DeleteRecordsRequest) -> Answer:
    results: list[DeleteRecordsTopicResult] = []
    num_made = 0
    for topic in request.topics:
        partitions: list[DeleteRecordsPartitionResult] = []
        results.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        for asked in topic.partitions:
            partitions.append(_delete(context, context.node.catalog.topic(topic.name), asked))
            num_made += 1
            if not num_made % PARTITIONS_AT_ONCE:
                yield
    return DeleteRecordsResponse(topics=results)


def _delete(
    context: ListenerContext, topic: CatalogTopic | None, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    number = asked.partition_index
    log = log_led_here(context)
    if log is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif topic is None or not 0 <= number < topic.num_partitions:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        partition = topic.topic_id, number
        end = log.log(partition).end
        offset = end if asked.offset == HIGH_WATERMARK else asked.offset
        if 0 <= offset <= end:
            start = log.delete_before(partition, offset)
            return DeleteRecordsPartitionResult(partition_index=number, low_watermark=start)
        code = ErrorCode.OFFSET_OUT_OF_RANGE
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=NO_OFFSET, error_code=code)
