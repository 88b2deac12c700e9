"""IncrementalAlterConfigs: sets and deletes group configs; for other configs, errors say where to set them.

Errors are per resource, as observed with Kafka 4.3: an invalid value is INVALID_CONFIG, an invalid request is
INVALID_REQUEST. A resource is changed completely or not at all, and the accepted changes of one request form
one entry. A resource named twice is refused both times.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Final

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.catalog import topicracks
from coordinator.groupconfigs import GROUP_CONFIGS, PUSH_CONFIGS, InvalidConfig, check_together
from coordinator.limits import Limits
from coordinator.topics import CatalogView
from records import (
    RACKS_SINCE,
    GroupConfigKey,
    GroupConfigValue,
    RawRecord,
    Record,
    TopicRacksKey,
    TopicRacksValue,
    Trigger,
    encode_record,
)
from wire.errors import ErrorCode
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CLIENT_ID_SHOWN: Final = 300
"""Characters of a client id kept in a cause."""


class ConfigType(IntEnum):
    """Kafka's resource types, as far as they are supported here."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Operation(IntEnum):
    """Operations of IncrementalAlterConfigs on one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


WHO_SETS: Final[dict[int, str]] = {
    ConfigType.BROKER: "it is a setting of the node: change it in the settings file and restart the node",
    ConfigType.TOPIC: "topics hold no data here, so it would have no effect; the only topic config is "
    f"{topicracks.NAME}",
}
"""Hints how to change a config that no request can change."""


def alter_configs(
    view: CatalogView,
    limits: Limits,
    request: IncrementalAlterConfigsRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Set and delete configs of groups, and the replica racks of topics."""
    builder.trigger = Trigger.CONFIG_CHANGED
    if ctx.client_id:
        builder.detail = f"by client {ctx.client_id[:CLIENT_ID_SHOWN]}"  # a forwarding node names the client
    times = named_times(request)
    response = IncrementalAlterConfigsResponse()
    records: list[RawRecord] = []
    with_configs = set(view.configs)
    for resource in request.resources:
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            check_names(resource, times)
            changes = _changes(view, limits, resource, ctx)
            is_group = resource.resource_type == ConfigType.GROUP
            if changes and is_group and resource.resource_name not in with_configs:
                if len(with_configs) >= limits.configured_groups_max:
                    raise RequestRefused(
                        ErrorCode.POLICY_VIOLATION,
                        f"{limits.configured_groups_max} groups already have configs of their own; delete "
                        "those that are not used.",
                    )
                if not request.validate_only:
                    with_configs.add(resource.resource_name)
        except RequestRefused as refused:
            answer.error_code, answer.error_message = refused.code, refused.message
            continue
        if not request.validate_only:
            records += changes
    if records:
        yield records
    return response


def alter_nothing(
    view: CatalogView, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Answer a request that names no group: nothing can change, so any node may answer."""
    times = named_times(request)
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            check_names(resource, times)
            _refuse_fixed(view, resource)
        except RequestRefused as refused:
            answer.error_code, answer.error_message = refused.code, refused.message
    return response


def named_times(request: IncrementalAlterConfigsRequest) -> Counter[tuple[int, str]]:
    """Number of times a request names each resource."""
    return Counter((resource.resource_type, resource.resource_name) for resource in request.resources)


def check_names(resource: AlterConfigsResource, times: Counter[tuple[int, str]]) -> None:
    """Raise `RequestRefused` if the resource, or one of its configs, is named twice."""
    if times[resource.resource_type, resource.resource_name] > 1:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "Each config must be named at most once.")


def _changes(
    view: CatalogView, limits: Limits, resource: AlterConfigsResource, ctx: Context
) -> list[RawRecord]:
    """The records for one resource of a request; raises `RequestRefused`."""
    if resource.resource_type == ConfigType.GROUP:
        return _group_records(view, limits, resource, ctx)
    if sets_racks(resource):
        return _racks_records(view, limits, resource)
    _refuse_fixed(view, resource)
    return []


def sets_racks(resource: AlterConfigsResource) -> bool:
    """Whether the resource is a topic and its only config in the request is the racks config."""
    names = [config.name for config in resource.configs]
    return resource.resource_type == ConfigType.TOPIC and names == [topicracks.NAME]


def _racks_records(view: CatalogView, limits: Limits, resource: AlterConfigsResource) -> list[RawRecord]:
    name, (config,) = resource.resource_name, resource.configs
    topic = view.topic(name)
    if topic is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if config.config_operation not in (Operation.SET, Operation.DELETE):
        raise RequestRefused(ErrorCode.INVALID_CONFIG, f"{config.name} supports only SET and DELETE.")
    is_set = config.config_operation == Operation.SET
    racks = topicracks.racks_of(config.value or "", topic, limits) if is_set else ()
    if racks == view.racks(name):
        return []
    if view.format_level < RACKS_SINCE:
        raise RequestRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{config.name} needs format level {RACKS_SINCE}, and the cluster is at {view.format_level}: "
            "once no node runs an older release, raise it with `quorate cluster upgrade`.",
        )
    value = TopicRacksValue(partition_racks=racks) if racks else None
    return [encode_record(Record(TopicRacksKey(name=name), value))]


def _refuse_fixed(view: CatalogView, resource: AlterConfigsResource) -> None:
    """Refuse to change a config that no request can change.

    Deleting one is accepted, since it was never set, as in Kafka."""
    kind, owner = resource.resource_type, resource.resource_name
    if kind not in WHO_SETS:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"Resource type {kind} is unknown; GROUP is {int(ConfigType.GROUP)}."
        )
    if kind == ConfigType.TOPIC and view.topic(owner) is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{owner}' does not exist.")
    for config in resource.configs:
        if config.config_operation != Operation.DELETE:
            code = ErrorCode.INVALID_CONFIG if kind == ConfigType.TOPIC else ErrorCode.INVALID_REQUEST
            raise RequestRefused(code, f"{config.name} cannot be changed by a request: {WHO_SETS[kind]}.")


def _group_records(
    view: CatalogView, limits: Limits, resource: AlterConfigsResource, ctx: Context
) -> list[RawRecord]:
    group_id = resource.resource_name
    if not group_id:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            "The group name must not be empty. Set the default for all groups in the node's "
            "group.consumer.* settings.",
        )
    if len(group_id.encode()) > limits.group_id_bytes_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"The group id is longer than {limits.group_id_bytes_max} bytes."
        )
    before = view.configs.of(group_id)
    after = dict(before)
    for config in resource.configs:
        _change(after, config, ctx)
    try:
        if after != before:
            check_together(ctx.settings.defaults, after)
    except InvalidConfig as invalid:
        raise RequestRefused(ErrorCode.INVALID_CONFIG, str(invalid)) from None
    return [
        encode_record(
            Record(
                GroupConfigKey(group_id=group_id, name=name),
                GroupConfigValue(value=after[name]) if name in after else None,
            )
        )
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _change(configs: dict[str, str], config: AlterableConfig, ctx: Context) -> None:
    """Set or delete one config of a group in `configs`."""
    operation = config.config_operation
    if operation == Operation.DELETE:
        configs.pop(config.name, None)
        return
    known = GROUP_CONFIGS.get(config.name) or PUSH_CONFIGS.get(config.name)
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        what = Operation(operation).name
        raise RequestRefused(
            ErrorCode.INVALID_CONFIG, f"{what} does not apply to {config.name}; use SET with the whole value."
        )
    if operation != Operation.SET:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"Operation {operation} is unknown: SET is 0, DELETE is 1."
        )
    if known is None:
        names = ", ".join([*GROUP_CONFIGS, *PUSH_CONFIGS])
        raise RequestRefused(
            ErrorCode.INVALID_CONFIG,
            f"{config.name[:100]!r} is not a group config. Group configs are {names}.",
        )
    if config.value is None:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"SET of {config.name} needs a value.")
    try:
        configs[known.name] = str(known.parse(config.value, ctx.settings.defaults))
    except InvalidConfig as invalid:
        raise RequestRefused(ErrorCode.INVALID_CONFIG, str(invalid)) from None
