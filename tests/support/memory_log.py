"""A log in memory that answers like `raftlog.offline.reader`, and a writer of hand-made stories.

Hand-made entries keep these tests independent of what the coordinator happens to decide today; the logs of
real replicas and real decisions are in `test_history_real`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.reader import Damaged, Problem
from raftlog.storage.frames import Frame
from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    TermStartKey,
    TermStartValue,
    TermWhy,
    TopicKey,
    TopicMetadata,
    TopicPartitions,
    TopicValue,
    Trigger,
    encode_entry,
    encode_record,
)

NOON_MS = 1_772_366_400_000  # 2026-03-01 12:00:00 UTC
ORDERS = bytes(range(16))
GROUP = "payments"


@dataclass
class MemorySnapshot:
    header: SnapshotHeader
    records: list[RawRecord]


@dataclass
class MemoryReader:
    """Frames by index; indexes in ``broken`` raise `Damaged` when the walk comes to them."""

    written: list[Frame] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)
    notes: list[dict[str, Any]] = field(default_factory=list)
    kept_snapshot: MemorySnapshot | None = None
    node: str = ""
    remarks: tuple[str, ...] = ()

    def frames(self, from_index: int | None = None, to_index: int | None = None) -> Iterator[Frame]:
        for frame in self.written:
            if from_index is not None and frame.index < from_index:
                continue
            if to_index is not None and frame.index > to_index:
                return
            if frame.index in self.broken:
                raise Damaged(frame.file, frame.offset, "the CRC of the frame does not match")
            yield frame

    def snapshots(self) -> list[SnapshotHeader]:
        return [] if self.kept_snapshot is None else [self.kept_snapshot.header]

    def snapshot(self, last_index: int | None = None) -> MemorySnapshot | None:
        return self.kept_snapshot

    def verify(self) -> list[Problem]:
        return []

    def evidence(self, group_id: str | None = None) -> list[dict[str, Any]]:
        return [note for note in self.notes if group_id is None or note.get("group") == group_id]

    def next_readable(self, missing: int) -> int | None:
        readable = [f.index for f in self.written if f.index > missing and f.index not in self.broken]
        return min(readable, default=None)


class Writer:
    """Appends entries to a `MemoryReader`; the clock moves only when told."""

    def __init__(self) -> None:
        self.log = MemoryReader()
        self.now_ms = NOON_MS

    def after(self, span_ms: int) -> Writer:
        self.now_ms += span_ms
        return self

    def append(self, cause: Cause, *records: Record, decided: bool = True) -> int:
        raws = tuple(encode_record(record) for record in records)
        return self.append_raw(encode_entry(cause, raws), len(raws), decided=decided)

    def append_raw(self, body: bytes, record_count: int, *, decided: bool = True) -> int:
        index = len(self.log.written) + 1
        self.log.written.append(
            Frame(
                index=index,
                term=1,
                commit_index=index - 1,
                timestamp_ms=self.now_ms,
                record_count=record_count,
                body=body,
                file="00000000000000000001.log",
                offset=index * 100,
                decided=decided,
            )
        )
        return index

    def term(self, number: int, why: TermWhy = TermWhy.START, previous: int = -1) -> int:
        value = TermStartValue(
            term=number, node_id=1, why=why, previous_leader=previous, incarnation="i", boot_id="b"
        )
        return self.append(Cause(trigger=Trigger.TERM_OPENED), Record(TermStartKey(), value))

    def topic(self, name: str, topic_id: bytes, partitions: int, trigger: Trigger) -> int:
        value = TopicValue(num_partitions=partitions, topic_id=topic_id) if partitions else None
        return self.append(
            Cause(trigger=trigger, principal="ann", detail=name), Record(TopicKey(name=name), value)
        )


def orders(*partitions: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(topic_id=ORDERS, partitions=partitions),) if partitions else ()


def group_epoch(epoch: int, group: str = GROUP) -> Record:
    return Record(ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=epoch))


def group_topics(partitions: int, catalog_version: int, group: str = GROUP) -> Record:
    topic = TopicMetadata(topic_id=ORDERS, topic_name="orders", num_partitions=partitions)
    value = ConsumerGroupPartitionMetadataValue(topics=(topic,), catalog_version=catalog_version)
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group), value)


def member(member_id: str, client_id: str, host: str = "127.0.0.1", group: str = GROUP) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        client_id=client_id,
        client_host=host,
        subscribed_topic_names=("orders",),
        rebalance_timeout_ms=300_000,
    )
    return Record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id), value)


def target_epoch(epoch: int, group: str = GROUP) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), value)


def target(member_id: str, *partitions: int, group: str = GROUP, epoch: int = -1) -> Record:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=orders(*partitions), assignment_epoch=epoch
    )
    return Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id), value)


def current(
    member_id: str,
    epoch: int,
    partitions: tuple[int, ...],
    pending: tuple[int, ...] = (),
    state: MemberState = MemberState.STABLE,
    previous: int = 0,
    group: str = GROUP,
) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned_partitions=orders(*partitions),
        partitions_pending_revocation=orders(*pending),
    )
    return Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id), value)


def gone(member_id: str, group: str = GROUP) -> tuple[Record, Record, Record]:
    return (
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id), None),
    )


def commit(partition: int, offset: int, group: str = GROUP) -> Record:
    key = OffsetCommitKey(group_id=group, topic="orders", partition=partition)
    return Record(key, OffsetCommitValue(offset=offset, commit_timestamp_ms=NOON_MS, topic_id=ORDERS))
