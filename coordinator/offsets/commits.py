"""OffsetCommit: who may commit, with which epoch, and which records are written.

A member's commit is checked against its epoch, not against the partitions it owns. An older epoch is accepted
if the member has held the partition since then (KIP-1251): such a commit was in flight when the epoch
changed. One partition that fails this check refuses the whole commit, as in Kafka. Errors of a single
partition (unknown topic, metadata too long) do not affect the others.

Commits are the hot path of any coordinator: per partition, only its part of the response and the record's
bytes are created. A commit of very many partitions, or one that supersedes very many pending offsets, is
written in several decisions, so that it blocks neither this node's event loop nor a follower's. Each part is
independent, and the member is checked again before each, because it may have been told to revoke partitions
in the meantime.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from coordinator import oldgroups
from coordinator.api import Context, Decision, DecisionBuilder, RequestRefused
from coordinator.classic.members import require_generation, require_group, require_member
from coordinator.group_context import GroupContext
from coordinator.leader_state.committer import Committer
from coordinator.limits import DECISION_BYTES_MAX
from coordinator.state.machines import ClassicState
from coordinator.state.model import Group, Member
from coordinator.state.offsetstore import removal_bytes
from coordinator.state.pendingoffsets import PendingOffsets, superseded_by
from coordinator.steps import TOO_LARGE, size_of
from coordinator.topics import CatalogTopic
from records import RawRecord, Trigger, encode_offset_commit, offset_commit_key
from wire.errors import ErrorCode
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10
MEMBER_EPOCHS_SINCE = 9
NO_EXPIRY = -1
EXPIRY_MAX_MS = (1 << 63) - 1

VALUE_BYTES = 128
"""Upper bound for the bytes of a record besides its names and metadata."""

PARTITIONS_AT_ONCE = 2_000
"""Partitions committed in one decision: about 10 ms of the event loop, and less on a follower."""

SUPERSEDED_COST = 2
"""The partitions whose commit takes as long as one pending offset that a commit supersedes."""


def commit_offsets(
    groups: GroupContext, request: OffsetCommitRequest, version: int, ctx: Context
) -> Decision | OffsetCommitResponse:
    """Decide to write one record per accepted partition; the caller applies the records.

    Up to `PARTITIONS_AT_ONCE` partitions form one entry. `RequestRefused` refuses the whole request."""
    committer = groups.committer
    if committer is None or not committer.sends(request, version, ctx):
        if len(request.group_id.encode()) > groups.limits.group_id_bytes_max:
            raise RequestRefused(
                ErrorCode.INVALID_GROUP_ID,
                f"Group id is longer than {groups.limits.group_id_bytes_max} bytes.",
            )
        try:
            committer = _committer(groups, request, version, ctx)
        except RequestRefused as refused:
            if not _names_unknown(request, version, ctx):
                raise
            return _refused_beside_unknown(request, version, refused.code, ctx)
    if _num_partitions(request) > committer.fitting:
        _check_size(request, version, committer.settings.offset_metadata_max_bytes, ctx)
    expire_ms = NO_EXPIRY
    if request.retention_time_ms != -1:
        expire_ms = min(ctx.wall_ms + request.retention_time_ms, EXPIRY_MAX_MS)
    return _commit_some(groups, request, committer, _Part(expire_ms), ctx)


def _committer(groups: GroupContext, request: OffsetCommitRequest, version: int, ctx: Context) -> Committer:
    """Return who sends the request; raises `RequestRefused` unless that client may commit."""
    group_id, member_id = request.group_id, request.member_id
    epoch, instance_id = request.generation_id_or_member_epoch, request.group_instance_id
    is_for_all = _check_member(groups, request, version, ctx)
    settings = ctx.settings.for_group(group_id)
    builder = DecisionBuilder(Trigger.OFFSETS_COMMITTED, member_id, epoch, by_operator=not member_id)
    cause = builder.cause(ctx)
    fitting = DECISION_BYTES_MAX // (
        removal_bytes(group_id) + VALUE_BYTES + settings.offset_metadata_max_bytes
    )
    committer = Committer(ctx, group_id, member_id, epoch, instance_id, version, settings, fitting, cause)
    groups.committer = committer if is_for_all else None
    return committer


def is_in_parts(pending: PendingOffsets, request: OffsetCommitRequest, num_bytes: int) -> bool:
    """Whether the commit, in a frame of `num_bytes`, may take more than one decision."""
    if pending.has_group(request.group_id):
        return True
    if num_bytes <= PARTITIONS_AT_ONCE:  # each partition takes at least one byte
        return False
    return _num_partitions(request) > PARTITIONS_AT_ONCE


def _num_partitions(request: OffsetCommitRequest) -> int:
    """The number of partitions of a request, where a topic without any counts as one."""
    return sum([len(asked.partitions) or 1 for asked in request.topics])


@dataclass(slots=True)
class _Part:
    """Progress of a commit: the next topic and the next of its partitions."""

    expire_ms: int
    response: OffsetCommitResponse = field(default_factory=OffsetCommitResponse)
    topic: int = 0
    partition: int = 0

    def some(
        self, request: OffsetCommitRequest, number: int
    ) -> Iterator[
        tuple[OffsetCommitRequestTopic, list[OffsetCommitRequestPartition], OffsetCommitResponseTopic]
    ]:
        """Yield the next partitions, at most `number`, by topic.

        Each comes with the topic of the response for its results."""
        while self.topic < len(request.topics) and number > 0:
            asked = request.topics[self.topic]
            if not self.partition:
                answered = OffsetCommitResponseTopic(topic_id=asked.topic_id, name=asked.name)
                self.response.topics.append(answered)
            partitions = asked.partitions
            if self.partition or len(partitions) > number:
                partitions = partitions[self.partition : self.partition + number]
            number -= max(1, len(partitions))
            self.partition += len(partitions)
            if self.partition == len(asked.partitions):
                self.topic, self.partition = self.topic + 1, 0
            yield asked, partitions, self.response.topics[-1]

    def back_to(self, topic: int, partition: int) -> None:
        """Take back the answers from this place on, which were prepared and not decided."""
        self.topic, self.partition = topic, partition
        if partition:
            del self.response.topics[topic].partitions[partition:]
        del self.response.topics[topic + bool(partition) :]

    def left(
        self, request: OffsetCommitRequest
    ) -> Iterator[tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition | None]]:
        """Iterate over the partitions that are left, each with its topic, once over a topic without any."""
        start = self.partition
        for asked in islice(request.topics, self.topic, None):
            if not asked.partitions:
                yield asked, None
            for part in islice(asked.partitions, start, None):
                yield asked, part
            start = 0


def _commit_some(
    groups: GroupContext, request: OffsetCommitRequest, committer: Committer, part: _Part, ctx: Context
) -> Decision:
    """Commit the next partitions; the final part has the whole response."""
    group_id, settings, version = request.group_id, committer.settings, committer.version
    metadata_max = settings.offset_metadata_max_bytes
    records: list[RawRecord] = []
    pending = groups.projection.pending
    number = PARTITIONS_AT_ONCE
    if pending.has_group(group_id):
        number = _number_at_once(pending, request, committer, part, ctx)
    for asked, partitions, answered in part.some(request, number):
        topic = _topic(asked, version, ctx)
        if topic is None:
            answered.partitions += _all(partitions, _unknown(asked, version, ctx))
        else:
            answered.partitions += _commit_topic(
                partitions, topic, group_id, metadata_max, part.expire_ms, ctx, records
            )
    if pending.has_group(group_id):
        records += superseded_by(pending, records, ctx.next_index)
    if len(records) > committer.fitting and (num_bytes := size_of(records)) > DECISION_BYTES_MAX:
        raise RequestRefused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, TOO_LARGE.format(num_bytes))
    decision = Decision(cause=committer.cause if records else None, records=records, reply=part.response)
    if part.topic < len(request.topics):
        decision.continuation = partial(_commit_on, groups, request, version, part)
    if records:
        if part.expire_ms != NO_EXPIRY:
            groups.expect_expiry(group_id, part.expire_ms, ctx)
        elif group_id not in groups.expiry:
            groups.expect_expiry(group_id, ctx.wall_ms + settings.offsets_retention_ms, ctx)
    return decision


def _number_at_once(
    pending: PendingOffsets, request: OffsetCommitRequest, committer: Committer, part: _Part, ctx: Context
) -> int:
    """The number of partitions that one decision commits, with the pending offsets that they supersede."""
    room = min(PARTITIONS_AT_ONCE, committer.fitting)
    number = 0
    for asked, one in islice(part.left(request), PARTITIONS_AT_ONCE):
        topic = _topic(asked, committer.version, ctx)
        room -= 1
        if topic is not None and one is not None:
            superseded = pending.counting(request.group_id, topic.name, one.partition_index)
            room -= SUPERSEDED_COST * len(superseded)
        if room < 0:
            break
        number += 1
    return max(1, number)


def _commit_on(
    groups: GroupContext, request: OffsetCommitRequest, version: int, part: _Part, ctx: Context
) -> Decision:
    """Commit the parts after the first.

    If the member may no longer commit, or a part would not fit into an entry, the remaining partitions get
    the error."""
    start = part.topic, part.partition
    try:
        committer = _committer(groups, request, version, ctx)
        return _commit_some(groups, request, committer, part, ctx)
    except RequestRefused as refused:
        part.back_to(*start)
        for _, partitions, answered in part.some(request, sys.maxsize):
            answered.partitions += _all(partitions, refused.code)
        return Decision(reply=part.response)


def _all(partitions: list[OffsetCommitRequestPartition], code: int) -> list[OffsetCommitResponsePartition]:
    return [
        OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
        for part in partitions
    ]


def _topic(asked: OffsetCommitRequestTopic, version: int, ctx: Context) -> CatalogTopic | None:
    if version >= TOPIC_IDS_SINCE:
        return ctx.catalog.topic_by_id(asked.topic_id)
    return ctx.catalog.topic(asked.name)


def _unknown(asked: OffsetCommitRequestTopic, version: int, ctx: Context) -> ErrorCode:
    """The error for a topic that the catalog lacks; retriable if a newer catalog may have the topic."""
    if version < TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_behind = ctx.catalog.is_behind(asked.topic_id)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_behind else ErrorCode.UNKNOWN_TOPIC_ID


def _is_partition(topic: CatalogTopic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.num_partitions


def _names_unknown(request: OffsetCommitRequest, version: int, ctx: Context) -> bool:
    return any(
        not _is_partition(_topic(asked, version, ctx), part.partition_index)
        for asked in request.topics
        for part in asked.partitions
    )


def _refused_beside_unknown(
    request: OffsetCommitRequest, version: int, code: int, ctx: Context
) -> OffsetCommitResponse:
    """Refuse the whole commit, but report partitions that do not exist as such.

    Kafka does the same, because its listener checks topics before its coordinator checks the member."""
    response = OffsetCommitResponse()
    for asked in request.topics:
        topic = _topic(asked, version, ctx)
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is not None else _unknown(asked, version, ctx)
        answered = OffsetCommitResponseTopic(topic_id=asked.topic_id, name=asked.name)
        for part in asked.partitions:
            error = code if _is_partition(topic, part.partition_index) else absent
            answered.partitions.append(
                OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
            )
        response.topics.append(answered)
    return response


def _check_size(request: OffsetCommitRequest, version: int, metadata_max: int, ctx: Context) -> None:
    """Raise `RequestRefused` if the commit would take too many bytes of log, before memory for them is
    allocated.

    A few bytes on the wire can require a large key each. Metadata is included if it may be large, so that no
    part after the first exceeds the size of an entry."""
    log_bytes = 0
    is_metadata_small = metadata_max * PARTITIONS_AT_ONCE <= DECISION_BYTES_MAX
    for asked in request.topics:
        if (topic := _topic(asked, version, ctx)) is not None:
            log_bytes += len(asked.partitions) * (len(request.group_id) + len(topic.name))
            if not is_metadata_small:
                log_bytes += sum(
                    [VALUE_BYTES + len((part.committed_metadata or "").encode()) for part in asked.partitions]
                )
    if log_bytes > DECISION_BYTES_MAX:
        raise RequestRefused(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            f"The commit would take {log_bytes} bytes of log, more than {DECISION_BYTES_MAX}. Commit fewer "
            "partitions per request.",
        )


def _commit_topic(
    partitions: list[OffsetCommitRequestPartition],
    topic: CatalogTopic,
    group_id: str,
    metadata_max: int,
    expire_ms: int,
    ctx: Context,
    records: list[RawRecord],
) -> list[OffsetCommitResponsePartition]:
    name, topic_id, num_partitions = topic.name, topic.topic_id, topic.num_partitions
    wall_ms = ctx.wall_ms
    answers = []
    for part in partitions:
        partition = part.partition_index
        metadata = part.committed_metadata or ""
        error = 0
        if not 0 <= partition < num_partitions:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif metadata and len(metadata.encode()) > metadata_max:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            records.append(
                encode_offset_commit(
                    offset_commit_key(group_id, name, partition),
                    part.committed_offset,
                    part.committed_leader_epoch,
                    metadata,
                    wall_ms,
                    expire_ms,
                    topic_id,
                )
            )
        answers.append(OffsetCommitResponsePartition(partition_index=partition, error_code=error))
    return answers


def _check_member(groups: GroupContext, request: OffsetCommitRequest, version: int, ctx: Context) -> bool:
    """Raise `RequestRefused` unless the member, or a client without membership, may commit to the group
    (E.1). Return whether it may commit any partition, not only those of this request."""
    group = groups.projection.groups.get(request.group_id)
    epoch = request.generation_id_or_member_epoch
    if group is None or not (group.is_consumer or group.classic is not None):
        _check_simple_group(groups, request, epoch, version)
        return True
    if not group.is_consumer:
        _check_classic_member(groups, request, ctx)
        return True
    if epoch < 0 and not group.num_members:
        return True
    member = group.member(request.member_id)
    if member is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{request.member_id or 'The client'} is not a member of group {request.group_id}.",
        )
    if version < MEMBER_EPOCHS_SINCE and not member.is_classic:
        raise RequestRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Members of consumer groups commit with version {MEMBER_EPOCHS_SINCE} or newer, not {version}.",
        )
    if epoch != member.current.epoch:
        metadata_max = ctx.settings.for_group(request.group_id).offset_metadata_max_bytes
        partitions = _partitions(request, version, metadata_max, ctx)
        code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        check_partition_epochs(group, request.member_id, epoch, partitions, code)
        return False
    return True


def require_generation_of(member: Member, generation: int) -> None:
    """Raise `RequestRefused` unless a classic member of a consumer group names its epoch as generation."""
    if generation != member.current.epoch:
        raise RequestRefused(
            ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is at generation {member.current.epoch}, not {generation}. Join "
            "again.",
        )


def _check_simple_group(groups: GroupContext, request: OffsetCommitRequest, epoch: int, version: int) -> None:
    """Check a commit to a group without members, which may not exist yet.

    Only clients without membership may commit to it."""
    oldgroups.require_free(groups, request.group_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if epoch < 0:
        groups.require_room_for_offsets(request.group_id)
        return
    exists = groups.projection.has_offsets(request.group_id)
    if exists:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{request.member_id or 'The client'} is not a member of group {request.group_id}, which has no "
            "members.",
        )
    is_new_enough = version >= MEMBER_EPOCHS_SINCE
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_new_enough else ErrorCode.ILLEGAL_GENERATION
    raise RequestRefused(code, f"Group {request.group_id} does not exist.")


def check_partition_epochs(
    group: Group, member_id: str, epoch: int, partitions: Iterable[tuple[bytes, int]], code: ErrorCode
) -> None:
    """Check a commit with another epoch than the member's (KIP-1251); `code` is for one that is refused.

    An older epoch may commit partitions that the member has held, assigned or pending, since that epoch."""
    current = group.members[member_id].current
    stale = RequestRefused(
        code,
        f"Member {member_id} has epoch {current.epoch}, not {epoch}, and has not owned all of these "
        "partitions since that epoch.",
    )
    if epoch > current.epoch:
        raise stale
    for topic_id, partition in partitions:
        assigned_at = current.assigned.get(topic_id, {}).get(partition)
        if assigned_at is None:
            assigned_at = current.pending.get(topic_id, {}).get(partition)
        if assigned_at is None or epoch < assigned_at:
            raise stale


def _partitions(
    request: OffsetCommitRequest, version: int, metadata_max: int, ctx: Context
) -> Iterator[tuple[bytes, int]]:
    """Yield the partitions that will be committed; the others get errors of their own."""
    for asked in request.topics:
        topic = _topic(asked, version, ctx)
        for part in asked.partitions:
            is_too_large = len((part.committed_metadata or "").encode()) > metadata_max
            if topic is not None and part.partition_index < topic.num_partitions and not is_too_large:
                yield topic.topic_id, part.partition_index


def _check_classic_member(groups: GroupContext, request: OffsetCommitRequest, ctx: Context) -> None:
    """Check a commit to a group of the classic protocol; it restarts the member's session."""
    group = require_group(groups, request.group_id, ctx)
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.state is ClassicState.EMPTY:
        return
    member = require_member(group, request.member_id, request.group_instance_id)
    require_generation(group, generation)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        raise RequestRefused(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"Group {request.group_id} waits for the assignments of generation {group.generation}: commit "
            "after SyncGroup.",
        )
    if groups.classic.is_served:
        groups.classic.restart_session(group, member, ctx)


def check_reader(groups: GroupContext, group_id: str, member_id: str | None, member_epoch: int) -> None:
    """Raise `RequestRefused` unless the member may read the group's offsets (E.2).

    A client without membership (null id, epoch −1) always may."""
    if member_id is None and member_epoch < 0:
        return
    group = groups.projection.groups.get(group_id)
    if group is None or not group.is_consumer:  # classic groups may be read by any client
        return
    member = group.member(member_id or "")
    if member is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id or 'The client'} is not a member of group {group_id}."
        )
    if member.is_classic:
        require_generation_of(member, member_epoch)
    elif member_epoch != member.current.epoch:
        raise RequestRefused(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"Member {member_id} has epoch {member.current.epoch}, not {member_epoch}.",
        )
