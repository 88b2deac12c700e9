"""OffsetFetch: reads of committed offsets, in the shapes of its ten versions.

A partition without an offset answers −1, and so does one whose offset belongs to a topic that was deleted
since: the topic that has the name now is another one. requireStable needs no more than any read here, as all
reads are linearizable and no transaction is ever pending.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.api import Context, Refused
from coordinator.core import Core
from coordinator.offsets import TOPIC_IDS_SINCE, check_reader
from records import ZERO_UUID, OffsetCommitValue, offset_commit_key
from wire.errors import ErrorCode
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_SINCE = 8
NO_OFFSET = OffsetCommitValue(offset=-1, commit_timestamp_ms=-1)


def fetch_offsets(core: Core, request: OffsetFetchRequest, version: int, ctx: Context) -> OffsetFetchResponse:
    """The response; errors are per group."""
    if version < GROUPS_SINCE:
        return _fetch_single(core, request, ctx)
    return OffsetFetchResponse(groups=[_fetch_group(core, asked, version, ctx) for asked in request.groups])


def _fetch_single(core: Core, request: OffsetFetchRequest, ctx: Context) -> OffsetFetchResponse:
    asked = None
    if request.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                    )
                    for partition, value in found
                ],
            )
            for name, found in _find(core, request.group_id, asked, ctx)
        ]
    )


def _fetch_group(
    core: Core, request: OffsetFetchRequestGroup, version: int, ctx: Context
) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    try:
        check_reader(core, request.group_id, request.member_id, request.member_epoch)
    except Refused as refused:
        response.error_code = refused.code
        return response
    asked = None
    if request.topics is not None:
        asked = []
        for wanted in request.topics:
            name = wanted.name
            if version >= TOPIC_IDS_SINCE:
                topic = ctx.catalog.topic_by_id(wanted.topic_id)
                if topic is None:
                    response.topics.append(_unknown_topic(wanted.topic_id, wanted.partition_indexes))
                    continue
                name = topic.name
            asked.append((name, wanted.partition_indexes))
    for name, found in _find(core, request.group_id, asked, ctx):
        known = ctx.catalog.topic(name)
        response.topics.append(
            OffsetFetchResponseTopics(
                topic_id=known.topic_id if known is not None else ZERO_UUID,
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                    )
                    for partition, value in found
                ],
            )
        )
    return response


def _unknown_topic(topic_id: bytes, partitions: Iterable[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for partition in partitions
        ],
    )


Found = list[tuple[str, list[tuple[int, OffsetCommitValue]]]]


def _find(core: Core, group_id: str, asked: list[tuple[str, list[int]]] | None, ctx: Context) -> Found:
    """Offsets by topic: those asked for, or (None) all that the group has."""
    offsets = core.projection.offsets
    if asked is not None:
        return [
            (
                name,
                [
                    (partition, _valid(name, offsets.get(offset_commit_key(group_id, name, partition)), ctx))
                    for partition in partitions
                ],
            )
            for name, partitions in asked
        ]
    found: dict[str, list[tuple[int, OffsetCommitValue]]] = {}
    for offset in offsets.of_group(group_id):
        if _valid(offset.topic, offset.value, ctx) is offset.value:
            found.setdefault(offset.topic, []).append((offset.partition, offset.value))
    return list(found.items())


def _valid(name: str, value: OffsetCommitValue | None, ctx: Context) -> OffsetCommitValue:
    """The offset, unless it belongs to a topic that no longer exists. Imported offsets name no id."""
    if value is None:
        return NO_OFFSET
    if value.topic_id != ZERO_UUID:
        topic = ctx.catalog.topic(name)
        if topic is None or topic.topic_id != value.topic_id:
            return NO_OFFSET
    return value
