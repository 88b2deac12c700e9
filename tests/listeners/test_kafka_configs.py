"""DescribeConfigs and ListConfigResources at the listener: values, their sources, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.kafka.configs import RESOURCES_MAX
from cluster.settings import table
from records import PartitionRacks
from tests.support.listener_rig import Rig
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.list_config_resources import ListConfigResourcesRequest
from wire.protocol import encode_request

TOPIC, BROKER, GROUP = 2, 4, 32
STATIC, DEFAULT, OF_GROUP = 4, 5, 8
SESSION = "consumer.session.timeout.ms"
VERSIONS = range(API_VERSIONS[ApiKey.DESCRIBE_CONFIGS][0], API_VERSIONS[ApiKey.DESCRIBE_CONFIGS][1] + 1)


@pytest.fixture
def rig() -> Rig:
    rig = Rig(group_consumer_session_timeout_ms=30_000, cluster_secret_file="/etc/quorate/secret")
    rig.node.catalog.configs.put("billing", SESSION, "10000")
    return rig


def describe(rig: Rig, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = rig.ask(rig.connect(), ApiKey.DESCRIBE_CONFIGS, version, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_shows_its_own_values_and_the_brokers(rig: Rig, version: int) -> None:
    result = describe(rig, GROUP, "billing", version=version)
    configs = {config.name: config for config in result.configs}
    assert {name: (config.value, config.config_source) for name, config in configs.items()} == {
        SESSION: ("10000", OF_GROUP),
        "consumer.heartbeat.interval.ms": ("1000", DEFAULT),
        "consumer.assignment.interval.ms": ("0", DEFAULT),
    }
    assert [(s.name, s.value, s.source) for s in configs[SESSION].synonyms] == [
        (SESSION, "10000", OF_GROUP),
        ("group.consumer.session.timeout.ms", "30000", STATIC),
    ]
    assert not any(config.read_only or config.is_sensitive for config in configs.values())
    if version >= 3:
        assert {config.config_type for config in configs.values()} == {3}
        assert all(config.documentation for config in configs.values())


def test_a_group_without_configs_shows_the_brokers_whether_it_exists_or_not(rig: Rig) -> None:
    (config,) = describe(rig, GROUP, "never-heard-of", [SESSION]).configs
    assert (config.value, config.config_source, len(config.synonyms)) == ("30000", STATIC, 1)


def test_a_broker_shows_every_setting_and_no_secret(rig: Rig) -> None:
    configs = {config.name: config for config in describe(rig, BROKER, "7").configs}
    assert list(configs) == [setting.name for setting in table()]
    assert all(config.read_only for config in configs.values())
    assert configs["group.consumer.session.timeout.ms"].value == "30000"
    assert configs["group.consumer.assignors"].value == "uniform,range"
    assert configs["insecure"].value == "false"
    secret = configs["cluster.secret.file"]
    assert (secret.is_sensitive, secret.value) == (True, None)
    assert not any("secret" in (synonym.value or "") for c in configs.values() for synonym in c.synonyms)


def test_only_what_is_asked_for_is_told(rig: Rig) -> None:
    keys = ["group.consumer.max.size", "nothing.of.that.name"]
    (config,) = describe(rig, BROKER, "7", keys).configs
    assert config.name == "group.consumer.max.size"
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name="billing", configuration_keys=None)
    (result,) = rig.ask(
        rig.connect(), ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource])
    ).results
    assert all(config.synonyms == [] and config.documentation is None for config in result.configs)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "orders", ErrorCode.NONE),
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "", ErrorCode.NONE),
        (BROKER, "8", ErrorCode.INVALID_REQUEST),
        (BROKER, "seven", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (8, "7", ErrorCode.INVALID_REQUEST),
        (16, "metrics", ErrorCode.INVALID_REQUEST),
        (9, "g", ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_errors_are_those_of_kafka(rig: Rig, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(rig, kind, name)
    assert result.error_code == code
    assert result.configs == []
    assert bool(result.error_message) == (code != ErrorCode.NONE)


def test_a_topic_shows_where_its_replicas_are(rig: Rig) -> None:
    racks = (PartitionRacks(partition=1, racks=("a", "b")),)
    rig.node.catalog.put_racks("orders", racks, 6)
    (config,) = describe(rig, TOPIC, "orders").configs
    assert (config.name, config.value) == ("quorate.partition.racks", '[[],["a","b"]]')
    assert (config.config_source, config.read_only) == (1, False)


def test_what_is_named_twice_is_not_described(rig: Rig) -> None:
    """A frame can name two hundred thousand resources, and a broker's description has nine thousand bytes."""
    broker = DescribeConfigsResource(resource_type=BROKER, resource_name="7", configuration_keys=None)
    group = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[broker, group, broker])
    results = rig.ask(rig.connect(), ApiKey.DESCRIBE_CONFIGS, 4, request).results
    codes = [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert [result.error_code for result in results] == codes
    assert [bool(result.configs) for result in results] == [False, True, False]


@pytest.mark.parametrize("kind", [TOPIC, BROKER, GROUP])
def test_too_many_resources_cost_the_connection(rig: Rig, kind: int) -> None:
    names = [str(number) for number in range(RESOURCES_MAX + 1)]
    described = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[])
        for name in names
    ]
    altered = [AlterConfigsResource(resource_type=kind, resource_name=name, configs=[]) for name in names]
    for api_key, most, too_many in (
        (
            ApiKey.DESCRIBE_CONFIGS,
            DescribeConfigsRequest(resources=described[1:]),
            DescribeConfigsRequest(resources=described),
        ),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest(resources=altered[1:]),
            IncrementalAlterConfigsRequest(resources=altered),
        ),
    ):
        client = rig.connect()
        if (api_key, kind) != (ApiKey.INCREMENTAL_ALTER_CONFIGS, GROUP):  # which the rig's node does not know
            rig.ask(client, api_key, 1, most)
        client.send(encode_request(api_key, 1, 1, "flood", too_many))
        rig.world.run_for(100)
        assert client.is_lost
    assert rig.listener.context.counters.connections_closed["flooding"] == 2


def test_resources_are_listed_by_type(rig: Rig) -> None:
    def listed(*types: int, version: int = 1) -> Any:
        request = ListConfigResourcesRequest(resource_types=list(types))
        return rig.ask(rig.connect(), ApiKey.LIST_CONFIG_RESOURCES, version, request)

    def names(*types: int) -> list[tuple[int, str]]:
        return [(item.resource_type, item.resource_name) for item in listed(*types).config_resources]

    assert names(GROUP) == [(GROUP, "billing")]
    assert names(BROKER) == [(BROKER, "7"), (BROKER, "9")]
    assert names() == [*names(TOPIC), *names(BROKER), *names(GROUP)]
    assert listed(99).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed(version=0).config_resources == []
