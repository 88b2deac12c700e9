"""What a client asks before it knows whom to ask: versions, nodes, topics, coordinators.

All of it is read from the node's catalog and its list of nodes. Topics have partitions and no messages, so
one node is named as leader of all of them: the one that leads the metadata shard, in its term.

What must stay true: an absent topic is never invented (`allow_auto_topic_creation` is ignored), and while the
catalog is not loaded nobody is told that a topic is absent, see `with_catalog`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.topics import CatalogTopic, CatalogView
from records import ZERO_UUID
from wire.apis import API_VERSIONS
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from cluster.kafka.exchange import Exchange
    from cluster.kafka.listener import KafkaListener
    from cluster.kafka.node_view import KafkaNode

NOT_ASKED = -(2**31)
"""Kafka's value for authorized operations that were not asked for."""

TOPIC_OPERATIONS = 0b1101_1111_1000
"""KIP-430 bits of READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: all that
Kafka has for a topic, as it answers when no authorizer is configured."""

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""The same for the cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and
IDEMPOTENT_WRITE."""

GROUP_COORDINATOR = 0
BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2

CATALOG_POLL_MS = 20
"""How often a request that came before the catalog was loaded looks again; a load takes milliseconds."""


def with_catalog(listener: KafkaListener, exchange: Exchange, then: Callable[[], None]) -> None:
    """Runs `then` when the catalog is loaded; closes the connection if that takes as long as a reply may.

    An answer from a half-loaded catalog would take topics away from every consumer that asks.
    """
    deadline_ms = exchange.started_ms + listener.settings.held_reply_timeout_ms

    def look() -> None:
        exchange.timer = None
        connection = exchange.connection
        if connection is None:
            return
        if listener.node.metadata.is_ready:
            then()
        elif listener.host.monotonic_ms() >= deadline_ms:
            connection.refuse("loading", "the catalog of topics is still being loaded; the client may retry")
        else:
            exchange.timer = listener.host.call_later(CATALOG_POLL_MS, look)

    look()


def served() -> list[ApiVersion]:
    """What is advertised: exactly what is served."""
    return [
        ApiVersion(api_key=api_key, min_version=low, max_version=high)
        for api_key, (low, high) in sorted(API_VERSIONS.items())
    ]


def api_versions(listener: KafkaListener, exchange: Exchange, request: ApiVersionsRequest) -> None:
    """KIP-511. Client software names are not checked beyond their encoding: they decide nothing here."""
    exchange.reply(ApiVersionsResponse(api_keys=served()))


# Metadata


def metadata(listener: KafkaListener, exchange: Exchange, request: MetadataRequest) -> None:
    """Metadata 0–13: all topics, by name, or (from version 12) by id (KIP-516)."""
    with_catalog(
        listener,
        exchange,
        lambda: exchange.reply(metadata_response(listener.node, exchange.api_version, request)),
    )


def metadata_response(node: KafkaNode, version: int, request: MetadataRequest) -> MetadataResponse:
    topic_operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    cluster_operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    topics = [
        _topic(node, found, topic_operations) for found in _asked(node.catalog, version, request.topics)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=info.node_id, host=info.kafka_host, port=info.kafka_port)
            for info in node.nodes
        ],
        cluster_id=node.info.cluster_id,
        controller_id=node.info.node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


Found = CatalogTopic | tuple[ErrorCode, str | None, bytes]
"""A topic, or why it is not one: error, the name and the id that were asked for."""


def _asked(catalog: CatalogView, version: int, topics: list[MetadataRequestTopic] | None) -> list[Found]:
    """Every topic asked for, each once. None asks for all; in version 0, which has no null, an empty list."""
    if topics is None or (version == 0 and not topics):
        return list(catalog.topics())
    asked = dict.fromkeys((topic.topic_id, topic.name) for topic in topics)
    return [_lookup(catalog, version, topic_id, name) for topic_id, name in asked]


def _lookup(catalog: CatalogView, version: int, topic_id: bytes, name: str | None) -> Found:
    if version >= 10 and topic_id != ZERO_UUID:
        if version < 12:  # Kafka refuses ids in 10 and 11, where the answer could not leave out the name
            return ErrorCode.INVALID_REQUEST, name or "", topic_id
        return catalog.topic_by_id(topic_id) or (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if name is None:
        return ErrorCode.INVALID_REQUEST, None if version >= 12 else "", topic_id
    return catalog.topic(name) or (absent(name), name, ZERO_UUID)


def absent(name: str) -> ErrorCode:
    """The error of a name that is in no catalog: an illegal one can never be, any other may come."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_topic(name) else ErrorCode.INVALID_TOPIC_EXCEPTION


_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
TOPIC_NAME_MAX = 249
"""Kafka's: a file name of 255 less the suffix of a partition's directory."""


def is_legal_topic(name: str) -> bool:
    """Kafka's rule for topic names."""
    return 0 < len(name) <= TOPIC_NAME_MAX and name not in (".", "..") and _LEGAL.issuperset(name)


def _topic(node: KafkaNode, found: Found, operations: int) -> MetadataResponseTopic:
    if not isinstance(found, CatalogTopic):
        error_code, name, topic_id = found
        return MetadataResponseTopic(error_code=error_code, name=name, topic_id=topic_id)
    leader_id, term = node.info.node_id, node.metadata_term
    return MetadataResponseTopic(
        name=found.name,
        topic_id=found.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition,
                leader_id=leader_id,
                leader_epoch=term,
                replica_nodes=[leader_id],
                isr_nodes=[leader_id],
            )
            for partition in range(found.num_partitions)
        ],
        topic_authorized_operations=operations,
    )


# Coordinators and nodes


def find_coordinator(listener: KafkaListener, exchange: Exchange, request: FindCoordinatorRequest) -> None:
    """FindCoordinator 0–6: this node coordinates every group; other key types have no coordinator here.

    An empty key is a group like any other, as in Kafka (measured: it answers 0).
    """
    info = listener.node.info
    error_code, message = ErrorCode.NONE, None
    node_id, host, port = info.node_id, info.kafka_host, info.kafka_port
    if request.key_type != GROUP_COORDINATOR:
        error_code = ErrorCode.INVALID_REQUEST
        message = f"key type {request.key_type} has no coordinator here: only groups (0) are coordinated"
        node_id, host, port = -1, "", -1
    if exchange.api_version < 4:
        answer = FindCoordinatorResponse(
            error_code=error_code, error_message=message, node_id=node_id, host=host, port=port
        )
    else:
        answer = FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=node_id,
                    host=host,
                    port=port,
                    error_code=error_code,
                    error_message=message,
                )
                for key in request.coordinator_keys
            ]
        )
    exchange.reply(answer)


def describe_cluster(listener: KafkaListener, exchange: Exchange, request: DescribeClusterRequest) -> None:
    """DescribeCluster 0–2 (KIP-700, 919): the nodes' Kafka endpoints; controllers have none of their own."""
    node = listener.node
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "this is a broker endpoint; ask for endpoint type 1"
    elif request.endpoint_type != BROKER_ENDPOINTS:
        error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"endpoint type {request.endpoint_type} is unknown; ask for endpoint type 1"
    else:
        operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        exchange.reply(
            DescribeClusterResponse(
                endpoint_type=BROKER_ENDPOINTS,
                cluster_id=node.info.cluster_id,
                controller_id=node.info.node_id,
                brokers=[
                    DescribeClusterBroker(broker_id=info.node_id, host=info.kafka_host, port=info.kafka_port)
                    for info in node.nodes
                ],
                cluster_authorized_operations=operations,
            )
        )
        return
    exchange.reply(
        DescribeClusterResponse(
            error_code=error_code,
            error_message=message,
            endpoint_type=request.endpoint_type,
            cluster_id=node.info.cluster_id,
        )
    )
