"""TxnOffsetCommit: offsets that count once the producer's transaction commits.

The transaction is checked against the committed view of the metadata shard, which is on every node: the
producer must be the present one, and must have added the group. Then the member is checked as for an ordinary
commit, with three differences of Kafka's: a client that names neither member nor generation is not checked,
a commit is accepted while a classic group waits for its assignments, and another epoch is always
ILLEGAL_GENERATION. Offsets are written in parts, each checked again, as those of ordinary commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from coordinator import oldgroups
from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.classic.members import require_generation, require_group, require_member
from coordinator.group_context import GroupContext
from coordinator.limits import GroupSettings
from coordinator.offsets.commits import check_partition_epochs, require_generation_of
from coordinator.state.machines import ClassicState
from coordinator.topics import CatalogTopic
from records import PendingOffsetKey, PendingOffsetValue, RawRecord, Record, Trigger, encode_record
from wire.errors import ErrorCode
from wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

PARTITIONS_AT_ONCE = 1_000
"""Partitions written in one decision: about 15 ms of the event loop, and less on a follower."""

ABORTABLE_SINCE = 4
"""First version whose clients know TRANSACTION_ABORTABLE: abort, and go on with the next transaction."""

NO_GENERATION = -1

_Part = tuple[CatalogTopic | None, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponseTopic]
"""The topic of a partition, if it exists; the partition; and where its result goes."""


def commit_in_transaction(
    groups: GroupContext,
    request: TxnOffsetCommitRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Write one record per accepted partition. Errors of single partitions do not affect the others."""
    if not request.group_id:
        raise RequestRefused(ErrorCode.INVALID_GROUP_ID, "GroupId can't be empty.")
    if len(request.group_id.encode()) > groups.limits.group_id_bytes_max:
        raise RequestRefused(ErrorCode.INVALID_GROUP_ID, "The group id is too long.")
    response = TxnOffsetCommitResponse()
    parts = _parts(request, response, ctx)
    return _commit_some(groups, request, version, response, parts, ctx, builder)


def _parts(
    request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse, ctx: Context
) -> Iterator[_Part]:
    for asked in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=asked.name)
        response.topics.append(answered)
        for part in asked.partitions:
            yield ctx.catalog.topic(asked.name), part, answered


def _commit_some(
    groups: GroupContext,
    request: TxnOffsetCommitRequest,
    version: int,
    response: TxnOffsetCommitResponse,
    parts: Iterator[_Part],
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Write the next partitions; the final part returns the response."""
    refused = ErrorCode.NONE
    try:
        _check(groups, request, version, ctx)
    except RequestRefused as why:
        refused = why.code
    builder.trigger, builder.detail = Trigger.OFFSETS_PENDING, request.transactional_id
    builder.member_id, builder.member_epoch = request.member_id, request.generation_id
    settings = ctx.settings.for_group(request.group_id)
    value = ctx.catalog.transactions.of(request.transactional_id)
    transaction = -1 if value is None else value.began
    records: list[RawRecord] = []
    num_seen = 0
    for topic, part, answered in islice(parts, PARTITIONS_AT_ONCE):
        num_seen += 1
        error = _unknown(topic, part) or refused or _too_large(part, settings)
        error = error or _crowded(groups, request, topic, part)
        if topic is not None and not error:
            records.append(_pending(request, topic, part, transaction, ctx))
        answered.partitions.append(
            TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
        )
    if num_seen == PARTITIONS_AT_ONCE:
        builder.continuation = lambda ctx, builder: _commit_some(
            groups, request, version, response, parts, ctx, builder
        )
    if records:
        yield records
    return response


def _unknown(topic: CatalogTopic | None, part: TxnOffsetCommitRequestPartition) -> ErrorCode:
    is_known = topic is not None and 0 <= part.partition_index < topic.num_partitions
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _too_large(part: TxnOffsetCommitRequestPartition, settings: GroupSettings) -> ErrorCode:
    is_too_large = len((part.committed_metadata or "").encode()) > settings.offset_metadata_max_bytes
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE


def _crowded(
    groups: GroupContext,
    request: TxnOffsetCommitRequest,
    topic: CatalogTopic | None,
    part: TxnOffsetCommitRequestPartition,
) -> ErrorCode:
    """A retriable error if too many other transactions have an offset of the partition pending."""
    assert topic is not None
    others = groups.projection.pending.counting(request.group_id, topic.name, part.partition_index)
    has_room = len(others) < groups.limits.pending_of_partition_max or request.producer_id in others
    return ErrorCode.NONE if has_room else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def _pending(
    request: TxnOffsetCommitRequest,
    topic: CatalogTopic,
    part: TxnOffsetCommitRequestPartition,
    transaction: int,
    ctx: Context,
) -> RawRecord:
    key = PendingOffsetKey(
        group_id=request.group_id,
        topic=topic.name,
        partition=part.partition_index,
        producer_id=request.producer_id,
    )
    value = PendingOffsetValue(
        offset=part.committed_offset,
        leader_epoch=part.committed_leader_epoch,
        commit_timestamp_ms=ctx.wall_ms,
        metadata=part.committed_metadata or "",
        topic_id=topic.topic_id,
        producer_epoch=request.producer_epoch,
        transaction=transaction,
        index=ctx.next_index,
    )
    return encode_record(Record(key, value))


def _check(groups: GroupContext, request: TxnOffsetCommitRequest, version: int, ctx: Context) -> None:
    """Raise `RequestRefused` unless the producer may commit these offsets in its transaction."""
    error = ctx.catalog.transactions.error_for_group(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    if error is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE:
        error = ErrorCode.TRANSACTION_ABORTABLE
    if error is not ErrorCode.NONE:
        raise RequestRefused(
            error,
            f"Producer {request.producer_id} at epoch {request.producer_epoch} has no open transaction of "
            f"{request.transactional_id} that group {request.group_id} was added to.",
        )
    _check_member(groups, request, ctx)


def _check_member(groups: GroupContext, request: TxnOffsetCommitRequest, ctx: Context) -> None:
    group = groups.projection.groups.get(request.group_id)
    epoch, member_id = request.generation_id, request.member_id
    names_nobody = epoch == NO_GENERATION and not member_id and request.group_instance_id is None
    if group is not None and group.is_consumer:
        if names_nobody or (epoch < 0 and not group.num_members):
            return
        member = group.member(member_id)
        if member is None:
            raise _unknown_member(request)
        if member.is_classic:
            require_generation_of(member, epoch)
        elif epoch != member.current.epoch:
            partitions = [
                (topic.topic_id, part.partition_index)
                for asked in request.topics
                if (topic := ctx.catalog.topic(asked.name)) is not None
                for part in asked.partitions
            ]
            check_partition_epochs(group, member_id, epoch, partitions, ErrorCode.ILLEGAL_GENERATION)
    elif group is not None and group.classic is not None:
        classic = require_group(groups, request.group_id, ctx)
        if names_nobody or (epoch < 0 and classic.state is ClassicState.EMPTY):
            return
        require_member(classic, member_id, request.group_instance_id)
        require_generation(classic, epoch)
    else:
        oldgroups.require_free(groups, request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        _check_simple_group(groups, request)


def _check_simple_group(groups: GroupContext, request: TxnOffsetCommitRequest) -> None:
    """Check a commit to a group without members, which may not exist yet."""
    if request.generation_id >= 0:
        if groups.projection.has_offsets(request.group_id):
            raise _unknown_member(request)
        raise RequestRefused(
            ErrorCode.ILLEGAL_GENERATION, f"Group {request.group_id} does not exist, at no generation."
        )
    groups.require_room_for_offsets(request.group_id)


def _unknown_member(request: TxnOffsetCommitRequest) -> RequestRefused:
    return RequestRefused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"{request.member_id or 'The client'} is not a member of group {request.group_id}.",
    )
