"""DescribeConfigs, ListConfigResources, and the routing of IncrementalAlterConfigs.

Every node describes the configs of groups and topics in the same way, from the committed catalog; a broker's
settings are those of the node that is asked. A request can change nothing of a broker, and of a topic only
the racks of its replicas. A request that changes nothing is answered here, whoever leads. Codes and shapes
are those that Kafka 4.3 was observed to use.

Invariants: the value of a sensitive setting is never in an answer; a request names a bounded number
of resources, and a resource that it repeats is refused without being described.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

from cluster.kafka.cluster_apis import absent, with_catalog
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange
from cluster.kafka.forwarding import submit_or_forward
from cluster.kafka.node_view import KafkaNode
from cluster.settings import Setting, Settings, table
from coordinator.catalog import topicracks
from coordinator.catalog.configadmin import ConfigType, alter_nothing, sets_racks
from coordinator.groupconfigs import GROUP_CONFIGS, PUSH_CONFIGS
from wire.errors import ErrorCode
from wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

RESOURCES_MAX: Final = 1_000
"""At most this many resources in one request, about 50 µs each. Admin tools ask for less; a frame holds
200,000."""


class ConfigSource(IntEnum):
    """The source of a value, in Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


KAFKA_TYPES: Final[dict[type, int]] = {bool: 1, str: 2, int: 3, tuple: 7}
"""Kafka's numbers for the types of values; 64-bit integers are LONG."""

TOPIC_CONFIGS: Final = {
    "max.message.bytes": "message.max.bytes",
    "retention.bytes": "scratch.log.partition.max.bytes",
}
"""The configs of a topic with messages, by Kafka's names, and the settings that they are."""

NOT_DURABLE: Final = "Messages are kept in memory and are NOT DURABLE (scratch.log.enable)."

LONG: Final = 5
INT32_MAX: Final = 2**31 - 1


class _Unknown(Exception):
    """A resource that cannot be described: its error code and message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def describe_configs(context: ListenerContext, exchange: Exchange, request: DescribeConfigsRequest) -> None:
    """Answer DescribeConfigs 1–4 for brokers, topics and groups."""
    if _is_bounded(exchange, request.resources):
        with_catalog(context, exchange, lambda: exchange.reply(described(context.node, request)))


def _is_bounded(exchange: Exchange, resources: Sequence[object]) -> bool:
    """Whether the request names few enough resources; closes the connection if not.

    An answer with an error for each of so many resources would be just as long.
    """
    if len(resources) <= RESOURCES_MAX:
        return True
    assert exchange.connection is not None
    exchange.connection.refuse(
        "flooding", f"{len(resources)} resources with configs in one request exceed the maximum"
    )
    return False


def described(node: KafkaNode, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise _Unknown(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            wanted = frozenset(resource.configuration_keys or ())
            result.configs = [
                _trimmed(config, request)
                for config in _configs_of(node, resource)
                if not wanted or config.name in wanted
            ]
        except _Unknown as unknown:
            result.error_code, result.error_message = unknown.code, unknown.message
    return response


def _trimmed(
    config: DescribeConfigsResourceResult, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """Return the config without the parts that were not requested."""
    if not request.include_synonyms:
        config.synonyms = []
    if not request.include_documentation:
        config.documentation = None
    return config


def _configs_of(
    node: KafkaNode, resource: DescribeConfigsResource
) -> Iterator[DescribeConfigsResourceResult]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigType.GROUP:
        if not name:
            raise _Unknown(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
        return _of_group(node, name)
    if kind == ConfigType.BROKER:
        return _of_broker(node, name)
    if kind == ConfigType.TOPIC:
        if node.catalog.topic(name) is None:
            raise _Unknown(absent(name), f"Topic {name[:300]!r} does not exist.")
        return _of_topic(node, name)
    raise _Unknown(
        ErrorCode.INVALID_REQUEST,
        f"Configs of resource type {kind} are not served; TOPIC is 2, BROKER 4, GROUP 32.",
    )


def _of_topic(node: KafkaNode, name: str) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the bounds of a topic's messages, if it takes any, and its replicas' racks, if they were set."""
    if node.settings.scratch_log_enable:
        yield from _of_messages(node.settings)
    text = topicracks.text_of(node.catalog.racks(name))
    if not text:
        return
    yield DescribeConfigsResourceResult(
        name=topicracks.NAME,
        value=text,
        read_only=False,
        config_source=ConfigSource.TOPIC,
        synonyms=[DescribeConfigsSynonym(name=topicracks.NAME, value=text, source=ConfigSource.TOPIC)],
        config_type=KAFKA_TYPES[str],
        documentation=topicracks.DOCUMENTATION,
    )


def _of_messages(settings: Settings) -> Iterator[DescribeConfigsResourceResult]:
    broker = _broker_settings()
    for name, broker_name in TOPIC_CONFIGS.items():
        setting = broker[broker_name]
        synonym = _synonym(setting, settings)
        yield DescribeConfigsResourceResult(
            name=name,
            value=synonym.value,
            read_only=True,
            config_source=synonym.source,
            synonyms=[synonym],
            config_type=_kafka_type(setting),
            documentation=f"{NOT_DURABLE} {setting.reason}",
        )


def _of_group(node: KafkaNode, group_id: str) -> Iterator[DescribeConfigsResourceResult]:
    """Yield each config with the group's own value, or else the broker's. Both are among its synonyms."""
    own = node.catalog.configs.of(group_id)
    broker = _broker_settings()
    for config in GROUP_CONFIGS.values():
        fallback = _synonym(broker[config.broker_name], node.settings)
        value = own.get(config.name)
        synonyms = [fallback]
        if value is not None:
            synonyms.insert(
                0, DescribeConfigsSynonym(name=config.name, value=value, source=ConfigSource.GROUP)
            )
        yield DescribeConfigsResourceResult(
            name=config.name,
            value=synonyms[0].value,
            read_only=False,
            config_source=synonyms[0].source,
            synonyms=synonyms,
            config_type=KAFKA_TYPES[int],
            documentation=config.documentation,
        )
    yield from _of_push_group(node.settings, own)


def _of_push_group(settings: Settings, own: Mapping[str, str]) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the configs of the push protocol: all where it is served, otherwise those that were set."""
    for config in PUSH_CONFIGS.values():
        is_own = config.name in own
        if not is_own and settings.lineage_push_port < 0:
            continue
        source = ConfigSource.GROUP if is_own else ConfigSource.DEFAULT
        value = config.value_of(own)
        yield DescribeConfigsResourceResult(
            name=config.name,
            value=value,
            read_only=False,
            config_source=source,
            synonyms=[DescribeConfigsSynonym(name=config.name, value=value, source=source)],
            config_type=KAFKA_TYPES[str],
            documentation=config.documentation,
        )


@functools.cache
def _broker_settings() -> dict[str, Setting]:
    return {setting.name: setting for setting in table()}


def _of_broker(node: KafkaNode, name: str) -> Iterator[DescribeConfigsResourceResult]:
    """Yield every setting of this node. The empty name asks for what all brokers share, which is nothing."""
    if not name:
        return
    own = str(node.info.node_id)
    if name != own:
        raise _Unknown(
            ErrorCode.INVALID_REQUEST,
            f"This is node {own}, which knows only its own settings: send the request to node "
            f"{name[:100]!r}.",
        )
    for setting in table():
        synonym = _synonym(setting, node.settings)
        yield DescribeConfigsResourceResult(
            name=setting.name,
            value=synonym.value,
            read_only=True,
            config_source=synonym.source,
            is_sensitive=setting.is_sensitive,
            synonyms=[synonym],
            config_type=_kafka_type(setting),
            documentation=setting.reason,
        )


def _synonym(setting: Setting, settings: Settings) -> DescribeConfigsSynonym:
    value = getattr(settings, setting.attribute)
    return DescribeConfigsSynonym(
        name=setting.name,
        value=None if setting.is_sensitive else _text(value),
        source=ConfigSource.DEFAULT if value == setting.default else ConfigSource.STATIC_BROKER,
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _kafka_type(setting: Setting) -> int:
    if setting.high is not None and setting.high > INT32_MAX:
        return LONG
    return KAFKA_TYPES[type(setting.default)]


def alter_configs(
    context: ListenerContext, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> None:
    """Answer IncrementalAlterConfigs 0–1; a request that may change something goes to the controller."""
    if not _is_bounded(exchange, request.resources):
        return
    if any(one.resource_type == ConfigType.GROUP or sets_racks(one) for one in request.resources):
        submit_or_forward(context, exchange, request, len(request.resources))
    else:
        with_catalog(context, exchange, lambda: exchange.reply(alter_nothing(context.node.catalog, request)))


def list_config_resources(
    context: ListenerContext, exchange: Exchange, request: ListConfigResourcesRequest
) -> None:
    """Answer ListConfigResources 0–1. Version 0 asks for client metrics alone, of which there are none."""
    with_catalog(
        context, exchange, lambda: exchange.reply(listed(context.node, exchange.api_version, request))
    )


def listed(node: KafkaNode, version: int, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    known = tuple(ConfigType)
    wanted: Sequence[int] = tuple(dict.fromkeys(request.resource_types)) or known
    if version == 0:
        return ListConfigResourcesResponse()
    if any(kind not in known for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in _names(node, kind)
        ]
    )


def _names(node: KafkaNode, kind: int) -> Iterable[str]:
    if kind == ConfigType.GROUP:
        return sorted(node.catalog.configs)
    if kind == ConfigType.BROKER:
        return [str(info.node_id) for info in node.listed_nodes]
    return [topic.name for topic in node.catalog.topics()]
