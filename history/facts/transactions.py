"""The transactions in which producers committed offsets of one group.

Such an offset is pending until the transaction ends: readers that ask for stable offsets have to wait. The
metadata shard decides, and the group's shard follows in an entry that names the decision (`Cause.refs`). The
cause of the decision says why a transaction was aborted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from history.reading.node import NodeLog
from history.reading.source import Walk
from raftlog.storage.frames import Frame
from records import (
    Cause,
    OffsetCommitKey,
    PendingOffsetKey,
    PendingOffsetValue,
    RecordsError,
    RecordType,
    TransactionKey,
    TransactionState,
    TransactionValue,
    Trigger,
    decode_cause,
    decode_key_and_value,
    iter_records,
)
from records.ids import METADATA_SHARD

from .rows import TopicPartition


class TransactionOutcome(StrEnum):
    """The end of a transaction's offsets."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    REMOVED = "removed"
    """Removed with the group or the topic."""
    OPEN = "open"
    """Still pending at the last entry read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDecision:
    """The entry of the metadata shard that decided a transaction."""

    index: int
    timestamp_ms: int
    cause: Cause
    transactional_id: str
    value: TransactionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTransaction:
    """One transaction with offsets of the group, from the first of them to its end."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    from_index: int
    from_ms: int
    to_index: int | None
    to_ms: int | None
    outcome: TransactionOutcome
    decision: TransactionDecision | None = None
    """``None``: not in the entries read, or there was none."""


@dataclass(slots=True)
class _Open:
    transactional_id: str
    producer_epoch: int
    index: int
    ms: int
    partitions: set[TopicPartition] = field(default_factory=set)
    has_committed: bool = False
    decided: int = -1

    def row(
        self, producer_id: int, outcome: TransactionOutcome, to_index: int | None, to_ms: int | None
    ) -> GroupTransaction:
        return GroupTransaction(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=self.producer_epoch,
            partitions=tuple(sorted(self.partitions)),
            from_index=self.index,
            from_ms=self.ms,
            to_index=to_index,
            to_ms=to_ms,
            outcome=outcome,
        )


def transactions_of(
    log: NodeLog, group_id: str, shard: int, to_index: int | None, to_ms: int | None
) -> tuple[GroupTransaction, ...]:
    """The group's transactions in the order in which they ended, and then those that are open.

    The walk begins at the oldest entry kept: offsets that were pending before it are not seen."""
    walk = Walk(shard, log.reader(shard), to_index=to_index, to_ms=to_ms)
    needle = group_id.encode()
    found: list[tuple[GroupTransaction, int]] = []
    pending: dict[int, _Open] = {}
    for item in walk.about({group_id}):
        if isinstance(item, Frame) and needle in item.body:
            with contextlib.suppress(RecordsError):  # told by the facts of the group
                found += _in_entry(item, group_id, pending)
    decisions = _decisions(log, {decided for _, decided in found if decided >= 0})
    done = [_with(row, decisions.get(decided)) for row, decided in found]
    return (
        *done,
        *(one.row(producer_id, TransactionOutcome.OPEN, None, None) for producer_id, one in pending.items()),
    )


def _in_entry(
    frame: Frame, group_id: str, pending: dict[int, _Open]
) -> Iterator[tuple[GroupTransaction, int]]:
    """Follow one entry; yield the transactions that it ended, each with the index of its decision."""
    raws = iter_records(frame.body)
    if all(raw.type != RecordType.PENDING_OFFSET for raw in raws):
        return
    cause = decode_cause(frame.body)
    committed: set[TopicPartition] = set()
    resolved: dict[int, set[TopicPartition]] = {}
    for raw in raws:
        if raw.type not in (RecordType.PENDING_OFFSET, RecordType.OFFSET_COMMIT):
            continue
        key, value = decode_key_and_value(raw)
        if key.group_id != group_id:
            continue
        partition = TopicPartition(topic=key.topic, partition=key.partition)
        if isinstance(key, OffsetCommitKey):
            committed.add(partition)
        elif isinstance(key, PendingOffsetKey) and value is None:
            resolved.setdefault(key.producer_id, set()).add(partition)
        elif isinstance(value, PendingOffsetValue) and cause.trigger == Trigger.OFFSETS_PENDING:
            begun = _Open(cause.detail, value.producer_epoch, frame.index, frame.timestamp_ms)
            pending.setdefault(key.producer_id, begun).partitions.add(partition)
    for producer_id, partitions in resolved.items():
        one = pending.get(producer_id)
        if one is None:  # it began before the oldest entry
            continue
        one.has_committed |= not committed.isdisjoint(partitions)
        one.decided = max((ref.index for ref in cause.refs if ref.shard == METADATA_SHARD), default=-1)
        left = one.partitions - partitions
        if cause.trigger == Trigger.OFFSETS_RESOLVED and left:  # a part of many; the rest follows
            continue
        outcome = TransactionOutcome.REMOVED
        if cause.trigger == Trigger.OFFSETS_RESOLVED:
            outcome = TransactionOutcome.COMMITTED if one.has_committed else TransactionOutcome.ABORTED
        del pending[producer_id]
        yield one.row(producer_id, outcome, frame.index, frame.timestamp_ms), one.decided


def _with(row: GroupTransaction, decision: TransactionDecision | None) -> GroupTransaction:
    if decision is None or row.outcome is TransactionOutcome.REMOVED:
        return row
    is_commit = decision.value.state == TransactionState.PREPARE_COMMIT
    outcome = TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED
    return replace(row, decision=decision, outcome=outcome)


def _decisions(log: NodeLog, indexes: Collection[int]) -> dict[int, TransactionDecision]:
    """The decisions in these entries of the metadata shard, as far as it is there."""
    found: dict[int, TransactionDecision] = {}
    if not indexes or METADATA_SHARD not in log.readers:
        return found
    for item in Walk(METADATA_SHARD, log.reader(METADATA_SHARD)):
        if not isinstance(item, Frame) or item.index not in indexes:
            continue
        with contextlib.suppress(RecordsError):
            for raw in iter_records(item.body):
                if raw.type != RecordType.TRANSACTION:
                    continue
                key, value = decode_key_and_value(raw)
                if isinstance(key, TransactionKey) and isinstance(value, TransactionValue):
                    found[item.index] = TransactionDecision(
                        index=item.index,
                        timestamp_ms=item.timestamp_ms,
                        cause=decode_cause(item.body),
                        transactional_id=key.transactional_id,
                        value=value,
                    )
    return found
