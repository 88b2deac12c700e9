"""Requests other than heartbeats: offsets, and an administrator's requests about groups."""

from __future__ import annotations

from typing import Final

from tests.differential.asked import Asked, epoch_of, topic_name
from tests.differential.script import Step
from tests.differential.side import Side
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

NAMES_VERSION: Final = 9
IDS_VERSION: Final = 10
GROUP_RESOURCE: Final = 32
GROUP_CONFIGS: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
)


def commit(step: Step, side: Side, group_id: str) -> Asked | None:
    member = side.members.get(step.who)
    if step.who != "-" and (member is None or not member.member_id):
        return None
    epoch, member_id = -1, ""
    if member is not None:
        member_id = member.member_id
        found = -1 if step.get("epoch") == "none" else epoch_of(step, member)
        if found is None:
            return None
        epoch = found
    name, partition, is_positional = (
        topic_name(step.get("topic"), group_id),
        int(step.get("partition")),
        False,
    )
    if step.get("held"):
        held = (
            [(label, number) for label in sorted(member.told) for number in member.told[label]]
            if member
            else []
        )
        if not held:
            return None
        label, partition = held[int(step.get("held")) % len(held)]
        name, is_positional = label.partition("#")[0], True
    version = int(step.get("version", str(NAMES_VERSION)))
    if version >= IDS_VERSION and name not in side.topic_ids:
        return None
    part = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=int(step.get("offset", "0")),
        committed_metadata="x" * int(step.get("metadata", "0")),
    )
    topic = OffsetCommitRequestTopic(
        name=name, topic_id=side.topic_ids.get(name, bytes(16)), partitions=[part]
    )
    body = OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        group_instance_id=member.instance_id if member is not None else None,
        topics=[topic],
    )
    return Asked(ApiKey.OFFSET_COMMIT, version, body, is_positional=is_positional)


def fetch(step: Step, side: Side, group_id: str) -> Asked | None:
    version = int(step.get("version", str(NAMES_VERSION)))
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    if step.get("topic"):
        name = topic_name(step.get("topic"), group_id)
        if version >= IDS_VERSION and name not in side.topic_ids:
            return None
        topic_id = side.topic_ids.get(name, bytes(16))
        wanted = OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0, 1, 2, 3, 4, 5])
        group.topics = [wanted]
    if step.who != "-":
        member = side.members.get(step.who)
        if member is None or not member.member_id or version < NAMES_VERSION:
            return None
        epoch = epoch_of(step, member)
        if epoch is None:
            return None
        group.member_id, group.member_epoch = member.member_id, epoch
    return Asked(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=[group]))


def forget(step: Step, side: Side, group_id: str) -> Asked | None:
    part = OffsetDeleteRequestPartition(partition_index=int(step.get("partition")))
    topic = OffsetDeleteRequestTopic(name=topic_name(step.get("topic"), group_id), partitions=[part])
    return Asked(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group_id, topics=[topic]))


def describe(step: Step, side: Side, group_id: str) -> Asked | None:
    facts: dict[str, object] = {"settled": step.get("settled") == "1"}
    body = ConsumerGroupDescribeRequest(group_ids=[group_id])
    return Asked(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body, facts=facts)


def list_groups(step: Step, side: Side, group_id: str) -> Asked | None:
    states = [state for state in step.get("states").split(",") if state]
    types = [kind for kind in step.get("types").split(",") if kind]
    return Asked(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states_filter=states, types_filter=types))


def delete(step: Step, side: Side, group_id: str) -> Asked | None:
    return Asked(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group_id]))


def classic(step: Step, side: Side, group_id: str) -> Asked | None:
    return Asked(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[group_id]))


def configs(step: Step, side: Side, group_id: str) -> Asked | None:
    resource = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group_id,
        configuration_keys=[*GROUP_CONFIGS, "no.such.config"],
    )
    has_synonyms = step.get("synonyms") == "1"
    body = DescribeConfigsRequest(resources=[resource], include_synonyms=has_synonyms)
    return Asked(ApiKey.DESCRIBE_CONFIGS, 4, body)
