"""The requests that a client sends to find its way: versions, nodes, topics, coordinators.

They are answered from the node's catalog, its list of nodes, and the leader of each shard. One node is named
as the leader of all partitions: the leader of the metadata shard, in its term, which keeps the messages where
there is a scratch log. Every node gives the same answers, so any can serve as a bootstrap.

Invariants: nothing here creates an absent topic (`auto_topics` does, where there is a scratch log), and no
topic is reported absent while the catalog is not loaded, see `with_catalog`. A node that this one has no link
to is never named as leader or coordinator; while there is no other, an answer waits for one (`waiting`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import ELEMENTS_AT_ONCE, Exchange
from cluster.kafka.node_view import KafkaNode
from cluster.node_info import NodeInfo
from coordinator.topics import CatalogTopic, CatalogView
from records import METADATA_SHARD, ZERO_UUID, shard_of
from wire.apis import API_VERSIONS, ApiKey, is_private
from wire.errors import ErrorCode
from wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
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

KEYS_MAX = 10_000
"""At most this many groups in one FindCoordinator, which is generous for an admin client. A frame of empty
keys holds a million, and the answer would be fifty times as long as the frame."""

NOT_ASKED = -(2**31)
"""Kafka's value for authorized operations that were not requested."""

TOPIC_OPERATIONS = 0b1101_1111_1000
"""KIP-430 bits of READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: all that
Kafka has for a topic, as it answers when no authorizer is configured."""

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""The same for the cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and
IDEMPOTENT_WRITE."""

GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
NO_NODE = -1
"""Placeholder for a node id if there is no node."""

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2

NO_LEADER = "the coordinator's shard has no leader at the moment; try again"

CATALOG_POLL_MS = 20
"""Milliseconds between two checks while a request waits for the catalog; loading takes milliseconds."""


def with_catalog(context: ListenerContext, exchange: Exchange, then: Callable[[], None]) -> None:
    """Run `then` when the catalog is loaded; close the connection if that takes longer than a reply may.

    An answer from a half-loaded catalog would take topics away from the consumers that ask.
    """
    exchange.timer = None
    connection = exchange.connection
    if connection is None:
        return
    now_ms = context.host.monotonic_ms()
    if context.node.is_catalog_current:
        then()
    elif now_ms >= exchange.started_ms + context.settings.held_reply_timeout_ms:
        connection.refuse("loading", "the catalog of topics is still being loaded; the client may retry")
    else:
        exchange.timer = context.host.call_later(CATALOG_POLL_MS, with_catalog, context, exchange, then)


EXTENSIONS_FOR = "quorate"
"""Prefix of the software names of clients that are shown the extensions (docs/protocol-extensions.md)."""


def advertised(context: ListenerContext, client_software_name: str = "") -> list[ApiVersion]:
    """Return the advertised APIs: exactly those served, the extensions only to clients that know them."""
    knows_extensions = client_software_name.startswith(EXTENSIONS_FOR)
    return [
        ApiVersion(api_key=api_key, min_version=low, max_version=high)
        for api_key, (low, high) in sorted(API_VERSIONS.items())
        if api_key in context.served and (knows_extensions or not is_private(api_key))
    ]


GROUP_VERSION: Final = "group.version"
"""Kafka's feature that enables the consumer protocol of KIP-848, at level 1."""


def api_versions(context: ListenerContext, exchange: Exchange, request: ApiVersionsRequest) -> None:
    """Answer ApiVersions (KIP-511).

    Client software names are not checked beyond their encoding: they only decide whether the extensions are
    shown. There is one feature, and it is on. Its minimum level is 1 too, because clients before 4.0 refuse a
    feature whose range begins at 0. That never changes, so the epoch of the finalized features is 0.
    """
    response = ApiVersionsResponse(
        api_keys=advertised(context, request.client_software_name),
        supported_features=[SupportedFeatureKey(name=GROUP_VERSION, min_version=1, max_version=1)],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=GROUP_VERSION, max_version_level=1, min_version_level=1)
        ],
    )
    exchange.reply(response)


# Metadata


def metadata(context: ListenerContext, exchange: Exchange, request: MetadataRequest) -> None:
    """Answer Metadata 0–13: all topics, by name, or (from version 12) by id (KIP-516)."""

    def answer() -> None:
        exchange.reply_in_slices(metadata_answer(context.node, exchange.api_version, request))

    with_leader(context, exchange, len(request.topics or ()), answer)


def with_leader(
    context: ListenerContext, exchange: Exchange, num_topics: int, then: Callable[[], None]
) -> None:
    """Run `then` when the catalog is loaded and its shard has a leader, or the wait for one is over."""
    with_catalog(
        context, exchange, lambda: context.leaders.when_led(exchange, (METADATA_SHARD,), num_topics, then)
    )


@dataclass(frozen=True, slots=True)
class Leadership:
    """The part that all partitions' entries share: leader, term, and the nodes with a copy of the catalog."""

    error_code: ErrorCode
    leader_id: int
    term: int
    replicas: list[int]
    in_contact: list[int]
    offline: list[int]

    @staticmethod
    def of(node: KafkaNode) -> Leadership:
        leader = node.controller
        present = {info.node_id for info in node.nodes}
        voters = sorted(node.voters)
        return Leadership(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader is None else ErrorCode.NONE,
            leader_id=NO_NODE if leader is None else leader.node_id,
            term=node.metadata_term,
            replicas=voters,
            in_contact=[node_id for node_id in voters if node_id in present],
            offline=[node_id for node_id in voters if node_id not in present],
        )


def metadata_answer(
    node: KafkaNode, version: int, request: MetadataRequest
) -> Generator[None, None, MetadataResponse]:
    """Describe the catalog as it is at the first step: topics are not changed in place, but replaced."""
    topic_operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    cluster_operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    led = Leadership.of(node)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=info.node_id, host=info.kafka_host, port=info.kafka_port)
            for info in node.listed_nodes
        ],
        cluster_id=node.info.cluster_id,
        controller_id=led.leader_id,
        cluster_authorized_operations=cluster_operations,
    )
    num_made = 0
    for found in _asked(node.catalog, version, request.topics):
        topic = _topic(found, topic_operations)
        response.topics.append(topic)
        num_partitions = found.num_partitions if isinstance(found, CatalogTopic) else 0
        for first in range(0, num_partitions, ELEMENTS_AT_ONCE):
            some = range(first, min(first + ELEMENTS_AT_ONCE, num_partitions))
            topic.partitions += [_partition(led, partition) for partition in some]
            if len(some) == ELEMENTS_AT_ONCE:
                yield
        num_made += 1 + num_partitions % ELEMENTS_AT_ONCE
        if num_made >= ELEMENTS_AT_ONCE:
            num_made = 0
            yield
    return response


Found = CatalogTopic | tuple[ErrorCode, str | None, bytes]
"""A topic, or why there is none: the error, and the name and id in the request."""


def _asked(catalog: CatalogView, version: int, topics: list[MetadataRequestTopic] | None) -> list[Found]:
    """Return every requested topic once. None requests all; so does an empty list in version 0."""
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
    """Return the error for a name that is in no catalog: illegal, or perhaps created later."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_topic(name) else ErrorCode.INVALID_TOPIC_EXCEPTION


_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
TOPIC_NAME_MAX = 249
"""Kafka's limit: a file name of 255 characters less the suffix of a partition's directory."""


def is_legal_topic(name: str) -> bool:
    """Whether a name obeys Kafka's rule for topic names."""
    return 0 < len(name) <= TOPIC_NAME_MAX and name not in (".", "..") and _LEGAL.issuperset(name)


def _topic(found: Found, operations: int) -> MetadataResponseTopic:
    if not isinstance(found, CatalogTopic):
        error_code, name, topic_id = found
        return MetadataResponseTopic(error_code=error_code, name=name, topic_id=topic_id)
    return MetadataResponseTopic(
        name=found.name, topic_id=found.topic_id, topic_authorized_operations=operations
    )


def _partition(led: Leadership, partition: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=led.error_code,
        partition_index=partition,
        leader_id=led.leader_id,
        leader_epoch=led.term,
        replica_nodes=led.replicas,
        isr_nodes=led.in_contact,
        offline_replicas=led.offline,
    )


# Coordinators and nodes


def find_coordinator(context: ListenerContext, exchange: Exchange, request: FindCoordinatorRequest) -> None:
    """Answer FindCoordinator 0–6: the leader of each group's shard, and for transactions the controller.

    An empty key is a group like any other, as in Kafka (measured: it answers 0). A batch is answered as a
    whole, but each key has its own answer: a shard without a leader costs the others a wait, not an error.
    """
    keys = [request.key] if exchange.api_version < 4 else request.coordinator_keys
    if len(keys) > KEYS_MAX:
        assert exchange.connection is not None
        exchange.connection.refuse("flooding", f"{len(keys)} coordinators in one request exceed the maximum")
        return
    is_transaction = request.key_type == TRANSACTION_COORDINATOR and ApiKey.END_TXN in context.served
    if request.key_type != GROUP_COORDINATOR and not is_transaction:
        code = ErrorCode.INVALID_REQUEST
        message = f"key type {request.key_type} has no coordinator here: only groups (0) are coordinated"
        if ApiKey.END_TXN in context.served:
            message += ", and transactions (1)"
        _reply_coordinators(exchange, [_no_coordinator(key, code, message) for key in keys])
        return
    if len(keys) == 1 and not is_transaction and exchange.connection is not None:  # as a consumer asks
        context.arrivals.asked(keys[0], exchange.connection.peer, exchange.started_ms)
    num_shards = context.settings.cluster_shards
    shards = [METADATA_SHARD if is_transaction else shard_of(key, num_shards) for key in keys]

    def answer() -> None:
        leaders = {shard: context.node.leader_of(shard) for shard in set(shards)}
        found = [_coordinator(key, leaders[shard]) for key, shard in zip(keys, shards, strict=True)]
        _reply_coordinators(exchange, found)

    context.leaders.when_led(exchange, shards, len(keys), answer)


def _coordinator(key: str, leader: NodeInfo | None) -> Coordinator:
    if leader is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_LEADER)
    return Coordinator(key=key, node_id=leader.node_id, host=leader.kafka_host, port=leader.kafka_port)


def _no_coordinator(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message)


def _reply_coordinators(exchange: Exchange, found: list[Coordinator]) -> None:
    """Reply with the coordinators. Up to version 3 the only one stands at the top level."""
    if exchange.api_version >= 4:
        exchange.reply(FindCoordinatorResponse(coordinators=found))
        return
    (one,) = found
    exchange.reply(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )


def describe_cluster(context: ListenerContext, exchange: Exchange, request: DescribeClusterRequest) -> None:
    """Answer DescribeCluster 0–2 (KIP-700, 919) with the nodes' Kafka endpoints; controllers have none."""
    if request.endpoint_type == BROKER_ENDPOINTS:
        context.leaders.when_led(
            exchange, (METADATA_SHARD,), 0, lambda: exchange.reply(_described(context.node, request))
        )
        return
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "this is a broker endpoint; use endpoint type 1"
    else:
        error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"endpoint type {request.endpoint_type} is unknown; use endpoint type 1"
    exchange.reply(
        DescribeClusterResponse(
            error_code=error_code,
            error_message=message,
            endpoint_type=request.endpoint_type,
            cluster_id=context.node.info.cluster_id,
        )
    )


def _described(node: KafkaNode, request: DescribeClusterRequest) -> DescribeClusterResponse:
    controller = node.controller
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    return DescribeClusterResponse(
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=node.info.cluster_id,
        controller_id=NO_NODE if controller is None else controller.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=info.node_id, host=info.kafka_host, port=info.kafka_port)
            for info in node.listed_nodes
        ],
        cluster_authorized_operations=operations,
    )
