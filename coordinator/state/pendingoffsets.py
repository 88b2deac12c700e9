"""Offsets that producers committed for groups in transactions that have not ended, by group and producer.

They are apart from the committed offsets, whose store is the hot path of every coordinator. Invariants: a
group without pending offsets has no entry, and what is counted by partition is what is stored by producer.
(In Kafka, entries of these indexes that were left over kept groups from being deleted and from expiring:
KAFKA-19160, -19163 and -19164.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from coordinator.state.freeing import free_incrementally
from records import (
    OffsetCommitKey,
    PendingOffsetKey,
    PendingOffsetValue,
    RawRecord,
    Record,
    decode_key,
    encode_record,
)

TopicPartition = tuple[str, int]
"""Name of a topic and number of a partition."""


class PendingOffsets:
    """The pending offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, dict[TopicPartition, PendingOffsetValue]]] = {}
        self._partitions: dict[str, Counter[TopicPartition]] = {}
        """Number of producers with a pending offset of each partition, by group."""
        self.newest_transaction = 0
        """The newest transaction that any pending offset ever applied belongs to; a catalog of an older
        version does not know it."""

    def __len__(self) -> int:
        return sum(len(offsets) for producers in self._groups.values() for offsets in producers.values())

    def apply(self, key: PendingOffsetKey, value: PendingOffsetValue | None) -> None:
        """Store a pending offset, or remove it. Removing a missing one does nothing."""
        group_id, partition = key.group_id, (key.topic, key.partition)
        producers = self._groups.get(group_id, {})
        offsets = producers.get(key.producer_id, {})
        is_known = partition in offsets
        if value is not None:
            self._groups.setdefault(group_id, producers).setdefault(key.producer_id, offsets)
            offsets[partition] = value
            self.newest_transaction = max(self.newest_transaction, value.transaction)
            if not is_known:
                self._partitions.setdefault(group_id, Counter())[partition] += 1
            return
        if not is_known:
            return
        del offsets[partition]
        counts = self._partitions[group_id]
        counts[partition] -= 1
        if not counts[partition]:
            del counts[partition]
        if not offsets:
            del producers[key.producer_id]
        if not producers:
            del self._groups[group_id], self._partitions[group_id]

    def get(self, key: PendingOffsetKey) -> PendingOffsetValue | None:
        producers = self._groups.get(key.group_id, {})
        return producers.get(key.producer_id, {}).get((key.topic, key.partition))

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether any transaction has a pending offset of the partition."""
        counts = self._partitions.get(group_id)
        return counts is not None and (topic, partition) in counts

    @property
    def num_groups(self) -> int:
        """Number of groups that have pending offsets."""
        return len(self._groups)

    def group_ids(self) -> list[str]:
        """The groups that have pending offsets."""
        return list(self._groups)

    def count(self, group_id: str) -> int:
        """Number of the group's offsets that are pending in transactions."""
        return sum(self._partitions.get(group_id, Counter()).values())

    def producers(self, group_id: str) -> list[int]:
        """The ids of producers with pending offsets of the group."""
        return list(self._groups.get(group_id, ()))

    def transaction_of(self, group_id: str, producer_id: int) -> int:
        """The newest transaction of a producer that has pending offsets of the group."""
        return max(value.transaction for value in self._groups[group_id][producer_id].values())

    def of_producer(
        self, group_id: str, producer_id: int
    ) -> Iterator[tuple[PendingOffsetKey, PendingOffsetValue]]:
        """Iterate over a producer's pending offsets of a group, except those removed during iteration."""
        for (topic, partition), value in list(self._groups.get(group_id, {}).get(producer_id, {}).items()):
            key = _key(group_id, topic, partition, producer_id)
            if self.get(key) is value:
                yield key, value

    def of_partition(
        self, group_id: str, topic: str, partition: int
    ) -> Iterator[tuple[PendingOffsetKey, PendingOffsetValue]]:
        """Iterate over the pending offsets of one partition."""
        if not self.has(group_id, topic, partition):
            return
        for producer_id, offsets in list(self._groups[group_id].items()):
            value = offsets.get((topic, partition))
            if value is not None:
                yield _key(group_id, topic, partition, producer_id), value

    def of_group(self, group_id: str) -> Iterator[tuple[PendingOffsetKey, PendingOffsetValue]]:
        """Iterate over all pending offsets of a group, except those removed during iteration."""
        for producer_id in self.producers(group_id):
            yield from self.of_producer(group_id, producer_id)

    def free_incrementally(self) -> Iterator[None]:
        """Free all entries in steps. The store must not be used any more."""
        self._partitions.clear()
        while self._groups:
            yield from free_incrementally(self._groups.popitem()[1])


def _key(group_id: str, topic: str, partition: int, producer_id: int) -> PendingOffsetKey:
    return PendingOffsetKey(group_id=group_id, topic=topic, partition=partition, producer_id=producer_id)


def pending_tombstone(key: PendingOffsetKey) -> RawRecord:
    return encode_record(Record(key, None))


def superseded(
    pending: PendingOffsets, group_id: str, topic: str, partition: int, index: int
) -> Iterator[RawRecord]:
    """Records that mark older pending offsets of a partition, because that of entry `index` is committed.

    As in Kafka, the offset that was sent last counts, whenever its transaction ends."""
    for key, value in pending.of_partition(group_id, topic, partition):
        if value.index < index and not value.superseded:
            yield encode_record(Record(key, replace(value, superseded=1)))


def superseded_by(pending: PendingOffsets, commits: Iterable[RawRecord], index: int) -> list[RawRecord]:
    """`superseded` for each of these records of committed offsets."""
    records: list[RawRecord] = []
    for raw in commits:
        key: OffsetCommitKey = decode_key(raw)
        records += superseded(pending, key.group_id, key.topic, key.partition, index)
    return records
