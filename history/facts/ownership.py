"""The owner of each partition over time, as spans.

Invariant: at any index a partition is in at most one span. It is OWNED or REVOKING by the member whose record
8 names it, and UNOWNED if no record does although the group has members and its record 4 says that it
subscribes to the topic. If the log gives a partition to two members, the later entry wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.state.model import Group
from records import TopicMetadata
from records.ids import topic_id_text

from .change import Change, EntryPosition, Partition, partitions_of
from .rows import OwnershipSpan, SpanKind, TopicPartition

_NOBODY: Mapping[int, str] = {}


@dataclass(slots=True)
class _Span:
    partition: Partition
    kind: SpanKind
    member_id: str | None
    epoch: int
    start: EntryPosition
    end: EntryPosition | None = None


@dataclass(slots=True)
class Ownership:
    """The ownership spans of one group, updated with each `Change`."""

    told: dict[Partition, EntryPosition | None] = field(default_factory=dict)
    """Partition pending revocation -> the entry that asked its owner to revoke it (``None``: before the first
    entry read)."""
    _open: dict[Partition, _Span] = field(default_factory=dict)
    _ended: list[_Span] = field(default_factory=list)
    _counts: dict[bytes, int] = field(default_factory=dict)
    """Topic id -> number of partitions, for the subscribed topics while the group has members."""

    def update(self, change: Change, group: Group) -> set[Partition]:
        """Apply a change; return the partitions whose owner or revocation changed."""
        touched: set[Partition] = set()
        for member_id, member in change.members.items():
            for partition in member.released:
                if self.owner(partition) == member_id and partition not in member.kept:
                    self.told.pop(partition, None)
                    touched.add(partition)
        for member in change.members.values():
            for partition in member.gained | member.kept:
                self.told.pop(partition, None)
                touched.add(partition)
            if member.told:
                self.told.update(dict.fromkeys(member.told, change.at))
                touched |= member.told
        before, after = change.before, change.after
        moved = touched
        if before.topics is not after.topics or bool(before.num_members) != bool(after.num_members):
            moved = touched | self._expect(after.topics if after.num_members else ())
        for partition in moved:
            self._put(partition, group, after.epoch, change.at)
        return touched

    def owner(self, partition: Partition) -> str | None:
        span = self._open.get(partition)
        return None if span is None else span.member_id

    @property
    def is_settled(self) -> bool:
        """Whether every partition has an owner that need not revoke it."""
        return all(span.kind is SpanKind.OWNED for span in self._open.values())

    def begin(self, group: Group, epoch: int, at: EntryPosition) -> None:
        """Continue from an existing state at one place."""
        for member in group.members.values():
            self.told.update(dict.fromkeys(partitions_of(member.current.pending)))
        expected = self._expect(group.topics if group.num_members else ())
        for partition in expected.union(partitions_of(group.owners)):
            self._put(partition, group, epoch, at)

    def cut(self, at: EntryPosition) -> None:
        """End all spans here, because the entries after ``at`` are missing."""
        for span in self._open.values():
            span.end = at
        self._ended += self._open.values()
        self._open, self.told, self._counts = {}, {}, {}

    def spans(
        self, group_id: str, shard: int, named: Callable[[Partition], TopicPartition]
    ) -> tuple[OwnershipSpan, ...]:
        return self._rows((*self._ended, *self._open.values()), group_id, shard, named)

    def __len__(self) -> int:
        return len(self._ended) + len(self._open)

    def drain(
        self, group_id: str, shard: int, named: Callable[[Partition], TopicPartition]
    ) -> tuple[OwnershipSpan, ...]:
        """Remove and return the spans that have ended."""
        ended, self._ended = self._ended, []
        return self._rows(ended, group_id, shard, named)

    @staticmethod
    def _rows(
        spans: Iterable[_Span], group_id: str, shard: int, named: Callable[[Partition], TopicPartition]
    ) -> tuple[OwnershipSpan, ...]:
        rows = [
            OwnershipSpan(
                group_id=group_id,
                shard=shard,
                partition=named(span.partition),
                kind=span.kind,
                member_id=span.member_id,
                epoch=span.epoch,
                from_index=span.start.index,
                from_ms=span.start.ms,
                to_index=None if span.end is None else span.end.index,
                to_ms=None if span.end is None else span.end.ms,
                topic_id=topic_id_text(span.partition[0]),
            )
            for span in spans
        ]
        rows.sort(key=by_partition)
        return tuple(rows)

    def _expect(self, topics: Iterable[TopicMetadata]) -> set[Partition]:
        """Update the subscribed topics; return the partitions added to or removed from them."""
        counts = {topic.topic_id: topic.num_partitions for topic in topics}
        changed: set[Partition] = set()
        for topic_id in counts.keys() | self._counts.keys():
            before, after = self._counts.get(topic_id, 0), counts.get(topic_id, 0)
            changed.update((topic_id, number) for number in _between(before, after))
        self._counts = counts
        return changed

    def _put(self, partition: Partition, group: Group, epoch: int, at: EntryPosition) -> None:
        """If the partition changed owner or kind, end its span and begin another."""
        member_id = group.owners.get(partition[0], _NOBODY).get(partition[1])
        kind: SpanKind | None = None
        if member_id is not None:
            kind = SpanKind.REVOKING if partition in self.told else SpanKind.OWNED
        elif partition[1] < self._counts.get(partition[0], 0):
            kind = SpanKind.UNOWNED
        present = self._open.get(partition)
        if present is not None:
            if present.kind is kind and present.member_id == member_id:
                return
            present.end = at
            self._ended.append(self._open.pop(partition))
        if kind is not None:
            self._open[partition] = _Span(partition, kind, member_id, epoch, at)


def by_partition(row: OwnershipSpan) -> tuple[str, int, int, str]:
    """Sort key of spans.

    The topic id is last, because a recreated topic may have a span with the same name and start.
    """
    return row.partition.topic, row.partition.partition, row.from_index, row.topic_id


def _between(before: int, after: int) -> Iterator[int]:
    yield from range(min(before, after), max(before, after))
