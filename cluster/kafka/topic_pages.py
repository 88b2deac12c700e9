"""DescribeTopicPartitions (KIP-966): topics with their partitions, in pages.

A page ends after `response_partition_limit` partitions, or at our own limit; `next_cursor` then names the
first partition of the next page. Topics come in the order of their names, not of the request, so that a
cursor means the same in every request.
"""

from __future__ import annotations

from collections.abc import Generator

from cluster.kafka.cluster_apis import TOPIC_OPERATIONS, Leadership, absent, with_leader
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import ELEMENTS_AT_ONCE, Exchange
from cluster.kafka.node_view import KafkaNode
from coordinator.topics import CatalogTopic
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from wire.refusals import refuse

PAGE_PARTITIONS_MAX = 2_000
"""Kafka's max.request.partition.size.limit."""


def describe_topic_partitions(
    context: ListenerContext, exchange: Exchange, request: DescribeTopicPartitionsRequest
) -> None:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        message = f"cursor.partition_index is {cursor.partition_index}; it must not be negative"
        exchange.reply(
            refuse(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                exchange.api_version,
                request,
                ErrorCode.INVALID_REQUEST,
                message,
            )
        )
        return
    with_leader(
        context, exchange, len(request.topics), lambda: exchange.reply_in_slices(page(context.node, request))
    )


def page(
    node: KafkaNode, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """Make one page: from the cursor, as many partitions as the limit allows.

    Names that are not in the catalog do not count towards the limit, and there may be many.
    """
    catalog, cursor, led = node.catalog, request.cursor, Leadership.of(node)
    names = {topic.name for topic in request.topics} or {topic.name for topic in catalog.topics()}
    left = max(1, min(request.response_partition_limit, PAGE_PARTITIONS_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    in_order = sorted(names)
    yield
    for number, name in enumerate(in_order, 1):
        if not number % ELEMENTS_AT_ONCE:
            yield
        if cursor is not None and name < cursor.topic_name:
            continue
        if left == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        found = catalog.topic(name)
        if found is None:
            topics.append(DescribeTopicPartitionsResponseTopic(error_code=absent(name), name=name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(found.num_partitions, first + left)
        topics.append(_described(led, found, range(first, end)))
        left -= max(0, end - first)
        if end < found.num_partitions:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def _described(
    led: Leadership, topic: CatalogTopic, partitions: range
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=led.error_code,
                partition_index=partition,
                leader_id=led.leader_id,
                leader_epoch=led.term,
                replica_nodes=led.replicas,
                isr_nodes=led.in_contact,
                eligible_leader_replicas=[],  # null is allowed, but Kafka's own Java client fails on it
                last_known_elr=[],
                offline_replicas=led.offline,
            )
            for partition in partitions
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
