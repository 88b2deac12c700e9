"""OffsetFetch: reads of committed offsets, in the shapes of its ten versions.

A partition without an offset is answered with −1. So is one whose offset belongs to a deleted topic, because
the present topic of that name is a different one. All reads here are linearizable. With requireStable, a
partition with an offset pending in a transaction is answered UNSTABLE_OFFSET_COMMIT: ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.group_context import GroupContext
from coordinator.offsets.commits import TOPIC_IDS_SINCE, check_reader
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
PARTITIONS_AT_ONCE = 2_000
"""Partitions read in one turn of the event loop: about 15 ms. Reading a hundred thousand at once could cost
the node its leadership of every shard."""
NO_OFFSET = OffsetCommitValue(offset=-1, commit_timestamp_ms=-1)

T = TypeVar("T", OffsetFetchResponseTopic, OffsetFetchResponseTopics)


def fetch_offsets(
    groups: GroupContext, request: OffsetFetchRequest, version: int, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Read offsets and return the response. Errors are per group.

    Many partitions are read in several turns, each as it is in its own turn."""
    response = OffsetFetchResponse()
    if version < GROUPS_SINCE:
        asked = None
        if request.topics is not None:
            asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
        is_stable = request.require_stable
        reads = _read(groups, request.group_id, asked, response.topics, _old_topic, is_stable, ctx)
    else:
        reads = _read_groups(groups, request, version, response, ctx)
    return _read_on(response, reads, builder)


def _read_on(response: OffsetFetchResponse, reads: Iterator[None], builder: DecisionBuilder) -> Steps:
    """Read the next partitions; the final part returns the response."""
    if sum(1 for _ in islice(reads, PARTITIONS_AT_ONCE)) == PARTITIONS_AT_ONCE:
        builder.continuation = lambda ctx, builder: _read_on(response, reads, builder)
    yield from ()  # writes no records
    return response


def _old_topic(name: str, _ctx: Context) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(name=name)


def _topic(name: str, ctx: Context) -> OffsetFetchResponseTopics:
    known = ctx.catalog.topic(name)
    return OffsetFetchResponseTopics(topic_id=known.topic_id if known is not None else ZERO_UUID, name=name)


def _read_groups(
    groups: GroupContext,
    request: OffsetFetchRequest,
    version: int,
    response: OffsetFetchResponse,
    ctx: Context,
) -> Iterator[None]:
    """Fill the response, one partition per step."""
    for group in request.groups:
        answer = OffsetFetchResponseGroup(group_id=group.group_id)
        response.groups.append(answer)
        try:
            _check_ids(group, version, ctx)
            check_reader(groups, group.group_id, group.member_id, group.member_epoch)
        except RequestRefused as refused:
            answer.error_code = refused.code
            continue
        asked = None
        if group.topics is not None:
            asked = []
            for wanted in group.topics:
                name = wanted.name
                if version >= TOPIC_IDS_SINCE:
                    topic = ctx.catalog.topic_by_id(wanted.topic_id)
                    if topic is None:
                        answer.topics.append(_unknown_topic(wanted.topic_id, wanted.partition_indexes))
                        continue
                    name = topic.name
                asked.append((name, wanted.partition_indexes))
        is_stable = request.require_stable
        yield from _read(groups, group.group_id, asked, answer.topics, _topic, is_stable, ctx)


def _check_ids(group: OffsetFetchRequestGroup, version: int, ctx: Context) -> None:
    """Raise `RequestRefused` if a newer catalog may have one of the topics, which can then be read soon."""
    if version >= TOPIC_IDS_SINCE and any(ctx.catalog.is_behind(one.topic_id) for one in group.topics or ()):
        raise RequestRefused(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"This node knows the topics as of version {ctx.catalog.version}, which is not the newest. Try "
            "again in a moment.",
        )


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


def _read(
    groups: GroupContext,
    group_id: str,
    asked: list[tuple[str, list[int]]] | None,
    topics: list[T],
    make_topic: Callable[[str, Context], T],
    is_stable: bool,
    ctx: Context,
) -> Iterator[None]:
    """Fill `topics` with the requested offsets, one partition per step.

    If `asked` is None, these are all offsets of the group, under the keys that exist at the beginning. With
    `is_stable`, those of partitions with pending offsets are withheld."""
    offsets, pending = groups.projection.offsets, groups.projection.pending
    if asked is not None:
        for name, partitions in asked:
            topic = make_topic(name, ctx)
            topics.append(topic)
            for partition in partitions:
                if is_stable and pending.has(group_id, name, partition):
                    _add(topic, partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                else:
                    value = offsets.get(offset_commit_key(group_id, name, partition))
                    _add(topic, partition, _valid(name, value, ctx))
                yield
        return
    found: dict[str, T] = {}
    for key in sorted(offsets.keys(group_id)):  # msgpack order: by number within a topic
        offset = offsets.committed(key)
        if offset is not None and _valid(offset.topic, offset.value, ctx) is offset.value:
            topic = found.get(offset.topic) or found.setdefault(offset.topic, make_topic(offset.topic, ctx))
            if is_stable and pending.has(group_id, offset.topic, offset.partition):
                _add(topic, offset.partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                _add(topic, offset.partition, offset.value)
        yield
    topics += [found[name] for name in sorted(found)]


def _add(
    topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics,
    partition: int,
    value: OffsetCommitValue,
    error: ErrorCode = ErrorCode.NONE,
) -> None:
    if isinstance(topic, OffsetFetchResponseTopic):
        old = OffsetFetchResponsePartition(
            partition_index=partition,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=error,
        )
        topic.partitions.append(old)
        return
    row = OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=error,
    )
    topic.partitions.append(row)


def _valid(name: str, value: OffsetCommitValue | None, ctx: Context) -> OffsetCommitValue:
    """The offset, or NO_OFFSET if its topic no longer exists.

    Imported offsets have no topic id and are always valid."""
    if value is None:
        return NO_OFFSET
    if value.topic_id != ZERO_UUID:
        topic = ctx.catalog.topic(name)
        if topic is None or topic.topic_id != value.topic_id:
            return NO_OFFSET
    return value
