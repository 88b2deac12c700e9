"""The end of transactions in a group shard: pending offsets are committed or dropped.

The metadata shard has decided; here the decision is carried out, in records of this shard. Each pending
offset that counts becomes an ordinary one, and none is pending any more. The last entry also says that the
decision was followed. A transaction with many offsets takes several entries. If the leader dies between two
of them, the next one goes on where it stopped, because what is resolved is no longer pending.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.api import Context, DecisionBuilder, Steps
from coordinator.group_context import GroupContext
from coordinator.leader_state.decisions import TransactionEnd
from coordinator.state.pendingoffsets import pending_tombstone, superseded
from coordinator.state.projection import Projection
from coordinator.steps import size_of
from records import (
    METADATA_SHARD,
    PendingOffsetKey,
    PendingOffsetValue,
    RawRecord,
    Record,
    TransactionsResolvedKey,
    TransactionsResolvedValue,
    Trigger,
    encode_offset_commit,
    encode_record,
    offset_commit_key,
)

RECORDS_AT_ONCE = 1_000
"""Records in one decision, or a few more: about 20 ms of the event loop, and less on a follower."""

BYTES_AT_ONCE = 1 << 20
"""Size of these records, whose metadata may be long: far less than an entry may have."""

_NO_EXPIRY = -1


def resolve_next(groups: GroupContext, ctx: Context, builder: DecisionBuilder) -> Steps:
    """Follow the oldest decision, or a part of it."""
    decision = groups.decisions.next()
    builder.trigger = Trigger.OFFSETS_RESOLVED
    verb = "was committed" if decision.is_commit else "was aborted"
    builder.detail = f"{decision.transactional_id or f'producer {decision.producer_id}'} {verb}"
    builder.refer(METADATA_SHARD, max(decision.decided, decision.transaction))
    records: list[RawRecord] = []
    num_bytes, is_last = 0, True
    for resolved in _resolved(groups.projection, decision):
        num_bytes += size_of(resolved)
        if records and (len(records) >= RECORDS_AT_ONCE or num_bytes > BYTES_AT_ONCE):
            is_last = False
            break
        records += resolved
    if is_last and decision.decided > groups.projection.resolved_decision:
        value_ = TransactionsResolvedValue(decided=decision.decided)
        records.append(encode_record(Record(TransactionsResolvedKey(), value_)))
    if records:
        yield records
    if is_last:
        groups.decisions.done()
        for group_id in decision.group_ids:
            settings = ctx.settings.for_group(group_id)
            groups.expect_expiry(group_id, ctx.wall_ms + settings.offsets_retention_ms, ctx)
            groups.expect_end(group_id, ctx)
    return None


def _resolved(projection: Projection, decision: TransactionEnd) -> Iterator[list[RawRecord]]:
    """The records that resolve what is left of a transaction's offsets; an entry may end after each.

    Those that an offset supersedes are marked first, so that an entry which ends in between loses none."""
    for key, value in _pending(projection, decision):
        records = [pending_tombstone(key)]
        if decision.is_commit and not value.superseded:
            for mark in superseded(projection.pending, key.group_id, key.topic, key.partition, value.index):
                yield [mark]
            records.append(_committed(key, value))
        yield records


def _pending(
    projection: Projection, decision: TransactionEnd
) -> Iterator[tuple[PendingOffsetKey, PendingOffsetValue]]:
    """The transaction's pending offsets that are left here."""
    for group_id in decision.group_ids:
        for key, value in projection.pending.of_producer(group_id, decision.producer_id):
            if value.transaction <= decision.transaction:
                yield key, value


def _committed(key: PendingOffsetKey, value: PendingOffsetValue) -> RawRecord:
    return encode_offset_commit(
        offset_commit_key(key.group_id, key.topic, key.partition),
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        _NO_EXPIRY,
        value.topic_id,
    )
