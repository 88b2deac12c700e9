"""Steps that change topics or configuration, and the barrier after them.

A Kafka broker answers CreateTopics before its coordinator knows of the topic, and a group's behaviour then
depends on when it learns of it. So a probe group joins on each side until its assignment shows the topic as
it now is. Both sides keep one queue per coordinator, and both are configured with one partition or shard for
offsets: every later request sees what the probe saw.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.differential.asked import topic_name
from tests.differential.requests import GROUP_RESOURCE
from tests.differential.script import Step
from tests.differential.side import Side
from tests.support.waiting import until
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.delete_topics import DeleteTopicsRequest
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

VERBS: Final = frozenset({"create", "grow", "drop", "config"})
TIMEOUT_MS: Final = 10_000
BARRIER_S_MAX: Final = 15.0
"""Seconds between two attempts of a probe."""

PROBE: Final = "probe"
PROBE_INTERVAL_MS: Final = "2500"
CONFIGS: Final = {
    "heartbeat": "consumer.heartbeat.interval.ms",
    "session": "consumer.session.timeout.ms",
    "interval": "consumer.assignment.interval.ms",
    "unknown": "consumer.no.such.config",
}
SET, DELETE = 0, 1


@dataclass(slots=True)
class Probes:
    """Names for the probe groups of one script."""

    group_id: str
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def fresh(self) -> str:
        return f"{self.group_id}-{PROBE}{next(self.numbers)}"


async def change(step: Step, side: Side, group_id: str, probes: Probes) -> int:
    """Make the change and return its error code; 0 once every later request will see it."""
    if step.verb == "config":
        return await _configure(step, side, group_id, probes)
    name = topic_name(step.get("topic"), group_id)
    partitions = int(step.get("partitions", "0"))
    code = await _CHANGE[step.verb](side, name, partitions)
    if not code:
        await _barrier(side, name, partitions, probes.fresh())
    return code


async def drop_own(side: Side, group_id: str) -> None:
    for label in [label for label in side.topic_ids if label.endswith(group_id)]:
        with contextlib.suppress(Exception):
            await _drop(side, label, 0)


async def create(side: Side, name: str, partitions: int) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    body = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    answer = await side.ask(ApiKey.CREATE_TOPICS, 7, body)
    return int(answer.topics[0].error_code)


async def _grow(side: Side, name: str, partitions: int) -> int:
    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    body = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    answer = await side.ask(ApiKey.CREATE_PARTITIONS, 3, body)
    return int(answer.results[0].error_code)


async def _drop(side: Side, name: str, partitions: int) -> int:
    body = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
    answer = await side.ask(ApiKey.DELETE_TOPICS, 5, body)
    return int(answer.responses[0].error_code)


_CHANGE = {"create": create, "grow": _grow, "drop": _drop}


async def _barrier(side: Side, name: str, partitions: int, probe_group: str) -> None:
    async def is_known() -> bool:
        return (await side.learn_topics([name])).get(name, 0) == partitions

    async def is_seen() -> bool:
        return await _seen_by_probe(side, name, probe_group) == partitions

    await until(is_known, BARRIER_S_MAX)
    await until(is_seen, BARRIER_S_MAX)
    await _remove_probe(side, probe_group)


async def _remove_probe(side: Side, probe_group: str) -> None:
    leave = ConsumerGroupHeartbeatRequest(group_id=probe_group, member_id=PROBE, member_epoch=-1)
    await side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave)
    await side.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[probe_group]))


async def _join_probe(side: Side, names: list[str], probe_group: str) -> Any:
    join = ConsumerGroupHeartbeatRequest(
        group_id=probe_group,
        member_id=PROBE,
        member_epoch=0,
        rebalance_timeout_ms=TIMEOUT_MS,
        subscribed_topic_names=names,
        topic_partitions=[],
    )
    return await side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join)


async def _seen_by_probe(side: Side, name: str, probe_group: str) -> int:
    """Return how many partitions of the topic as it now is the coordinator knows."""
    answer = await _join_probe(side, [name], probe_group)
    if answer.error_code or answer.assignment is None:
        return -1
    known = side.topic_ids.get(name)
    return sum(
        len(topic.partitions) if topic.topic_id == known else -1_000
        for topic in answer.assignment.topic_partitions
    )


async def _configure(step: Step, side: Side, group_id: str, probes: Probes) -> int:
    """Set configs and wait until the broker has applied them.

    A broker applies the controller's commits in order, but later, so two probes wait for configs of their
    own. The second probe's change was made after the first one's had been applied, so it came with a later
    image.
    """
    code = await _set_configs(side, group_id, {CONFIGS[name]: value for name, value in step.args.items()})
    if not code:
        for _ in range(2):
            probe_group = probes.fresh()
            await _set_configs(side, probe_group, {CONFIGS["heartbeat"]: PROBE_INTERVAL_MS})
            await until(partial(_is_configured, side, probe_group), BARRIER_S_MAX)
            await _remove_probe(side, probe_group)
    return code


async def _is_configured(side: Side, probe_group: str) -> bool:
    return (await _join_probe(side, [], probe_group)).heartbeat_interval_ms == int(PROBE_INTERVAL_MS)


async def _set_configs(side: Side, group_id: str, values: Mapping[str, str]) -> int:
    """Set these configs; an empty value deletes one."""
    configs = [
        AlterableConfig(name=name, config_operation=SET if value else DELETE, value=value or None)
        for name, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=configs)
    body = IncrementalAlterConfigsRequest(resources=[resource])
    answer: Any = await side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
    return int(answer.responses[0].error_code)


# ---- expressions ----


async def group_epoch(side: Side, group_id: str) -> int:
    """Return the group epoch as described; for a group that does not exist, the side's initial one."""
    body = ConsumerGroupDescribeRequest(group_ids=[group_id])
    answer = await side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body)
    group = answer.groups[0]
    return side.manners.new_group_epoch if group.error_code else int(group.group_epoch)


async def await_epoch(side: Side, group_id: str, epoch: int) -> None:
    async def is_reached() -> bool:
        return await group_epoch(side, group_id) >= epoch

    await until(is_reached, BARRIER_S_MAX)
