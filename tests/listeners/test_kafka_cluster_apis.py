"""ApiVersions, Metadata, FindCoordinator, DescribeCluster and DescribeTopicPartitions, version by version."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.topics import CatalogTopic, CatalogView
from tests.support.listener_rig import CLICKS, ORDERS, Rig
from wire.apis import API_VERSIONS, ApiKey, is_private, served_apis
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.describe_cluster import DescribeClusterRequest
from wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

ZERO = bytes(16)
NOT_ASKED = -(2**31)


STOCK = {key: API_VERSIONS[key] for key in served_apis(classic=True) if not is_private(key)}
"""The APIs that every client sees in ApiVersions."""


def versions(api_key: ApiKey) -> list[int]:
    low, high = API_VERSIONS[api_key]
    return list(range(low, high + 1))


def since(first: int, api_key: ApiKey = ApiKey.METADATA) -> list[int]:
    return [version for version in versions(api_key) if version >= first]


def by_name(*names: str | None) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def metadata(rig: Rig, version: int, **fields: Any) -> Any:
    return rig.ask(rig.connect(), ApiKey.METADATA, version, MetadataRequest(**fields))


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_what_is_served_is_advertised_and_nothing_else(rig: Rig, version: int) -> None:
    answer = rig.ask(rig.connect(), ApiKey.API_VERSIONS, version, ApiVersionsRequest())
    assert answer.error_code == 0
    assert {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys} == STOCK
    for absent in (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ):
        assert absent not in {key.api_key for key in answer.api_keys}


def test_without_the_classic_protocol_its_apis_are_not_advertised() -> None:
    rig = Rig(group_coordinator_rebalance_protocols=("consumer",))
    answer = rig.ask(rig.connect(), ApiKey.API_VERSIONS, 4, ApiVersionsRequest())
    absent = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT}
    assert {key.api_key for key in answer.api_keys} == set(STOCK) - absent


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_group_version_is_finalized_at_1(rig: Rig, version: int) -> None:
    """Clients before 4.0 refuse a feature whose range begins at 0; before version 3 there are no features."""
    answer = rig.ask(rig.connect(), ApiKey.API_VERSIONS, version, ApiVersionsRequest())
    said = (
        [(one.name, one.min_version, one.max_version) for one in answer.supported_features],
        [(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features],
        answer.finalized_features_epoch,
    )
    feature = [("group.version", 1, 1)]
    assert said == ((feature, feature, 0) if version >= 3 else ([], [], -1))


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("quorate", True),
        ("quorate-lab", True),
        ("apache-kafka-java", False),
        ("librdkafka", False),
        ("", False),
    ],
)
def test_extensions_are_advertised_to_clients_that_know_them(rig: Rig, name: str, is_told: bool) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    told = {key.api_key for key in rig.ask(rig.connect(), ApiKey.API_VERSIONS, 4, request).api_keys}
    assert told == (served_apis(classic=True) if is_told else set(STOCK))


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_of_all_topics(rig: Rig, version: int) -> None:
    answer = metadata(rig, version, topics=[] if version == 0 else None)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
        (7, "kafka.example", 19092),
        (9, "kafka2.example", 29092),
    ]
    assert answer.controller_id == (7 if version >= 1 else -1)
    assert answer.cluster_id == ("test-cluster" if version >= 2 else None)
    assert [(topic.error_code, topic.name, len(topic.partitions)) for topic in answer.topics] == [
        (0, "clicks", 1),
        (0, "orders", 3),
    ]
    orders = answer.topics[1]
    assert orders.topic_id == (ORDERS.topic_id if version >= 10 else ZERO)
    assert [partition.partition_index for partition in orders.partitions] == [0, 1, 2]
    for partition in orders.partitions:
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (7, [7, 9], [7, 9])
        assert partition.leader_epoch == (4 if version >= 7 else -1)
        assert partition.error_code == 0
    assert orders.topic_authorized_operations == NOT_ASKED
    assert answer.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", since(1))
def test_an_empty_list_asks_for_no_topic_since_version_1(rig: Rig, version: int) -> None:
    answer = metadata(rig, version, topics=[])
    assert answer.topics == []
    assert len(answer.brokers) == 2


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_by_name_never_invents_a_topic(rig: Rig, version: int) -> None:
    asked = by_name("orders", "new", "orders", "bad name", "", ".", "x" * 250)
    answer = metadata(rig, version, topics=asked, allow_auto_topic_creation=True)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", 0),
        ("new", 3),
        ("bad name", 17),
        ("", 17),
        (".", 17),
        ("x" * 250, 17),
    ]
    assert rig.node.asked == []
    assert len(rig.node.catalog) == 2


@pytest.mark.parametrize("version", since(10))
def test_metadata_by_id_since_version_12(rig: Rig, version: int) -> None:
    unknown = b"\x07" * 16
    asked = [
        MetadataRequestTopic(topic_id=ORDERS.topic_id, name=None),
        MetadataRequestTopic(topic_id=unknown, name=None),
    ]
    answer = metadata(rig, version, topics=asked)
    got = [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics]
    if version < 12:
        assert got == [(42, "", ORDERS.topic_id), (42, "", unknown)]
    else:
        assert got == [(0, "orders", ORDERS.topic_id), (100, None, unknown)]


@pytest.mark.parametrize("version", since(10))
def test_a_null_name_without_an_id_is_an_invalid_request(rig: Rig, version: int) -> None:
    answer = metadata(rig, version, topics=by_name(None, "orders"))
    assert [topic.error_code for topic in answer.topics] == [42, 0]


@pytest.mark.parametrize("version", since(8))
def test_authorized_operations_when_asked_for(rig: Rig, version: int) -> None:
    fields: dict[str, Any] = {"include_topic_authorized_operations": True}
    if version <= 10:
        fields["include_cluster_authorized_operations"] = True
    answer = metadata(rig, version, topics=by_name("orders", "new"), **fields)
    assert answer.topics[0].topic_authorized_operations == 3576  # Kafka's value without an authorizer
    assert answer.topics[1].topic_authorized_operations == NOT_ASKED
    assert answer.cluster_authorized_operations == (8096 if version <= 10 else NOT_ASKED)


def test_no_topic_is_reported_absent_while_the_catalog_loads() -> None:
    rig = Rig(held_reply_timeout_ms=1_000)
    rig.node.is_catalog_current = False
    full, rig.node.catalog = rig.node.catalog, CatalogView()
    client = rig.connect()
    rig.world.at(rig.world.now_ms + 300, lambda: setattr(rig.node, "catalog", full))
    rig.world.at(rig.world.now_ms + 300, lambda: setattr(rig.node, "is_catalog_current", True))
    answer = rig.ask(client, ApiKey.METADATA, 12, MetadataRequest(topics=by_name("orders")))
    assert answer.topics[0].error_code == 0
    rig.node.is_catalog_current = False
    with pytest.raises(AssertionError, match="no answer"):
        rig.ask(client, ApiKey.METADATA, 12, MetadataRequest(topics=None), within_ms=2_000)
    assert client.is_lost
    assert rig.listener.context.counters.connections_closed["loading"] == 1


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_every_group_is_coordinated_here_also_the_empty_one(rig: Rig, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "", "h"])
    answer = rig.ask(rig.connect(), ApiKey.FIND_COORDINATOR, version, request)
    if version < 4:
        found = [("g", answer.error_code, answer.node_id, answer.host, answer.port)]
        assert found == [("g", 0, 7, "kafka.example", 19092)]
    else:
        assert [
            (one.key, one.error_code, one.node_id, one.host, one.port) for one in answer.coordinators
        ] == [(key, 0, 7, "kafka.example", 19092) for key in ("g", "", "h")]


@pytest.mark.parametrize("version", since(1, ApiKey.FIND_COORDINATOR))
@pytest.mark.parametrize("key_type", [1, 2, 77, -1])
def test_other_key_types_have_no_coordinator(rig: Rig, version: int, key_type: int) -> None:
    request = FindCoordinatorRequest(key="t", coordinator_keys=["t"], key_type=key_type)
    answer = rig.ask(rig.connect(), ApiKey.FIND_COORDINATOR, version, request)
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id, one.host, one.port) == (42, -1, "", -1)
    assert f"key type {key_type}" in one.error_message


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster(rig: Rig, version: int) -> None:
    client = rig.connect()
    answer = rig.ask(client, ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest())
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "test-cluster", 7)
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [
        (7, "kafka.example", 19092),
        (9, "kafka2.example", 29092),
    ]
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert rig.ask(client, ApiKey.DESCRIBE_CLUSTER, version, asked).cluster_authorized_operations == 8096
    if version >= 1:
        for endpoint_type, code in ((2, 114), (9, 115)):
            request = DescribeClusterRequest(endpoint_type=endpoint_type)
            answer = rig.ask(client, ApiKey.DESCRIBE_CLUSTER, version, request)
            assert (answer.error_code, answer.brokers, bool(answer.error_message)) == (code, [], True)


def pages(
    rig: Rig, limit: int, names: list[str], cursor: Cursor | None = None
) -> list[list[tuple[str, int, int]]]:
    """Return all pages as (topic, error, partition) rows."""
    client, found = rig.connect(), []
    for _ in range(50):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        answer = rig.ask(client, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        found.append(
            [
                (topic.name, topic.error_code, partition)
                for topic in answer.topics
                for partition in ([one.partition_index for one in topic.partitions] or [-1])
            ]
        )
        cursor = answer.next_cursor
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


ROWS = [("clicks", 0, 0), ("new", 3, -1), ("orders", 0, 0), ("orders", 0, 1), ("orders", 0, 2)]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 2000, 10**6])
def test_pages_of_topics_of_any_size_add_up(rig: Rig, limit: int) -> None:
    found = pages(rig, limit, ["orders", "new", "clicks", "orders"])
    assert [row for page in found for row in page] == ROWS
    assert all(sum(row[2] >= 0 for row in page) <= limit for page in found)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_still_makes_progress(rig: Rig, limit: int) -> None:
    assert [row for page in pages(rig, limit, []) for row in page] == [row for row in ROWS if row[0] != "new"]


def test_no_names_mean_all_topics_and_a_cursor_may_name_one_that_is_gone(rig: Rig) -> None:
    assert pages(rig, 2000, []) == [[row for row in ROWS if row[0] != "new"]]
    assert pages(rig, 2000, [], Cursor(topic_name="dahlia", partition_index=1)) == [ROWS[2:]]
    assert pages(rig, 2000, [], Cursor(topic_name="orders", partition_index=2)) == [ROWS[4:]]
    assert pages(rig, 2000, [], Cursor(topic_name="zebra", partition_index=0)) == [[]]


def test_a_page_is_bounded_by_the_node_too(rig: Rig) -> None:
    wide = CatalogTopic(name="wide", topic_id=b"wide-topic-id-xx", num_partitions=5_000)
    rig.node.catalog = CatalogView([CLICKS, wide])
    assert [len(page) for page in pages(rig, 10**6, [])] == [2_000, 2_000, 1_001]


def test_a_negative_cursor_is_an_invalid_request(rig: Rig) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="orders")], cursor=Cursor(topic_name="orders", partition_index=-1)
    )
    answer = rig.ask(rig.connect(), ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("orders", 42)]
