"""Offsets that producers committed for groups in transactions that have not ended.

They are apart from the committed offsets, whose store is the hot path of every coordinator. They are indexed
by producer, because a transaction ends for all of them at once, and by partition, because a commit of a
partition supersedes those that were sent before it. Invariants: both indexes have the same offsets; a group
without pending offsets has no entry. (In Kafka, entries of such indexes that were left over kept groups from
being deleted and from expiring: KAFKA-19160, -19163 and -19164.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

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

PENDING_COST = 6
"""The committed offsets that are removed in the time of a pending one."""

_NONE: dict[int, PendingOffsetValue] = {}


class _OfPartition:
    """The pending offsets of one partition, by producer."""

    __slots__ = ("counting", "superseded")

    def __init__(self) -> None:
        self.counting: dict[int, PendingOffsetValue] = {}
        """Those that count if their transaction commits, oldest entry first."""
        self.superseded: dict[int, PendingOffsetValue] = {}

    def put(self, producer_id: int, value: PendingOffsetValue) -> None:
        self.remove(producer_id)
        if value.superseded:
            self.superseded[producer_id] = value
            return
        counting = self.counting
        is_newest = not counting or next(reversed(counting.values())).index <= value.index
        counting[producer_id] = value
        if not is_newest:  # not in a log, nor in a snapshot, which keeps the order of the log
            self.counting = dict(sorted(counting.items(), key=lambda item: item[1].index))

    def remove(self, producer_id: int) -> None:
        if self.counting.pop(producer_id, None) is None:
            self.superseded.pop(producer_id, None)

    @property
    def is_empty(self) -> bool:
        return not self.counting and not self.superseded


class PendingOffsets:
    """The pending offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, dict[TopicPartition, PendingOffsetValue]]] = {}
        self._partitions: dict[str, dict[TopicPartition, _OfPartition]] = {}
        self.newest_transaction = 0
        """The newest transaction that any pending offset ever applied belongs to; a catalog of an older
        version does not know it."""

    def __len__(self) -> int:
        return sum(map(self.count, self._groups))

    def apply(self, key: PendingOffsetKey, value: PendingOffsetValue | None) -> None:
        """Store a pending offset, or remove it. Removing a missing one does nothing."""
        group_id, producer_id, partition = key.group_id, key.producer_id, (key.topic, key.partition)
        if value is not None:
            self._groups.setdefault(group_id, {}).setdefault(producer_id, {})[partition] = value
            partitions = self._partitions.setdefault(group_id, {})
            if partition not in partitions:
                partitions[partition] = _OfPartition()
            partitions[partition].put(producer_id, value)
            self.newest_transaction = max(self.newest_transaction, value.transaction)
            return
        producers = self._groups.get(group_id, {})
        offsets = producers.get(producer_id, {})
        if partition not in offsets:
            return
        del offsets[partition]
        of_partition = self._partitions[group_id][partition]
        of_partition.remove(producer_id)
        if of_partition.is_empty:
            del self._partitions[group_id][partition]
        if not offsets:
            del producers[producer_id]
        if not producers:
            del self._groups[group_id], self._partitions[group_id]

    def get(self, key: PendingOffsetKey) -> PendingOffsetValue | None:
        producers = self._groups.get(key.group_id, {})
        return producers.get(key.producer_id, {}).get((key.topic, key.partition))

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether any transaction has a pending offset of the partition."""
        partitions = self._partitions.get(group_id)
        return partitions is not None and (topic, partition) in partitions

    @property
    def num_groups(self) -> int:
        """Number of groups that have pending offsets."""
        return len(self._groups)

    def group_ids(self) -> list[str]:
        """The groups that have pending offsets."""
        return list(self._groups)

    def count(self, group_id: str) -> int:
        """Number of the group's offsets that are pending in transactions."""
        return sum(map(len, self._groups.get(group_id, {}).values()))

    def counting(self, group_id: str, topic: str, partition: int) -> dict[int, PendingOffsetValue]:
        """The pending offsets of a partition that count if their transaction commits, by producer.

        The one of the oldest entry is the first."""
        found = self._partitions.get(group_id, {}).get((topic, partition))
        return _NONE if found is None else found.counting

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
        found = self._partitions.get(group_id, {}).get((topic, partition))
        if found is not None:
            for producer_id, value in chain(list(found.counting.items()), list(found.superseded.items())):
                yield _key(group_id, topic, partition, producer_id), value

    def of_group(self, group_id: str) -> Iterator[tuple[PendingOffsetKey, PendingOffsetValue]]:
        """Iterate over all pending offsets of a group, except those removed during iteration."""
        for producer_id in self.producers(group_id):
            yield from self.of_producer(group_id, producer_id)

    def free_incrementally(self) -> Iterator[None]:
        """Free all entries in steps. The store must not be used any more."""
        while self._partitions:
            yield from free_incrementally(self._partitions.popitem()[1])
        while self._groups:
            for offsets in self._groups.popitem()[1].values():
                yield from free_incrementally(offsets)


def _key(group_id: str, topic: str, partition: int, producer_id: int) -> PendingOffsetKey:
    return PendingOffsetKey(group_id=group_id, topic=topic, partition=partition, producer_id=producer_id)


def pending_tombstone(key: PendingOffsetKey) -> RawRecord:
    return encode_record(Record(key, None))


def superseded(
    pending: PendingOffsets, group_id: str, topic: str, partition: int, index: int
) -> Iterator[RawRecord]:
    """Records that mark older pending offsets of a partition, because that of entry `index` is committed.

    As in Kafka, the offset that was sent last counts, whenever its transaction ends."""
    for producer_id, value in pending.counting(group_id, topic, partition).items():
        if value.index >= index:
            break
        key = _key(group_id, topic, partition, producer_id)
        yield encode_record(Record(key, replace(value, superseded=1)))


def superseded_by(pending: PendingOffsets, commits: Iterable[RawRecord], index: int) -> list[RawRecord]:
    """`superseded` for each of these records of committed offsets."""
    records: list[RawRecord] = []
    for raw in commits:
        key: OffsetCommitKey = decode_key(raw)
        records += superseded(pending, key.group_id, key.topic, key.partition, index)
    return records
