"""The projection of one group shard: the state that `apply` derives from the records.

`apply` is the only function in the program that changes it, live and at every kind of replay. It never reads
a clock, the catalog or a setting, and it rejects no record that it can decode. In whatever order compaction
left the records, the result is a function of the newest record of each key (see `coordinator.state.model`).
Records of unknown types are counted and skipped. An unknown *version* of a value raises
`records.UnsupportedVersion`, because an incomplete state must not be served.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from coordinator.state.freeing import free_incrementally
from coordinator.state.group_records import APPLY, MEMBERSHIP_TYPES, OLD_GROUP_TYPES, projected
from coordinator.state.membernumbers import MemberNumbers
from coordinator.state.model import Group
from coordinator.state.offsetstore import OffsetStore
from coordinator.state.pendingoffsets import PendingOffsets
from coordinator.state.statehash import MASK, STALE_MAX, EntryHashes
from coordinator.topics import created_at
from records import (
    MemberNumberKey,
    PendingOffsetKey,
    PushGroupKey,
    PushGroupValue,
    RawRecord,
    RecordType,
    RewriteGroupKey,
    RewriteGroupValue,
    TermStartKey,
    TermStartValue,
    TransactionsResolvedKey,
    TransactionsResolvedValue,
    Value,
    decode_key_and_value,
)

_OFFSET_TYPES_MAX = int(RecordType.OFFSET_COMMIT)
_TERM_START = int(RecordType.TERM_START)
_PARTITION_METADATA = int(RecordType.CONSUMER_GROUP_PARTITION_METADATA)
_MEMBER_NUMBER = int(RecordType.MEMBER_NUMBER)
_PENDING_OFFSET = int(RecordType.PENDING_OFFSET)
_TRANSACTIONS_RESOLVED = int(RecordType.TRANSACTIONS_RESOLVED)

RESOLVED_KEPT = 1_000
"""Limit on the uncommitted changes of `Projection.resolved`, beyond which the oldest are forgotten."""


OldGroupKey = PushGroupKey | RewriteGroupKey
OldGroupValue = PushGroupValue | RewriteGroupValue


class Projection:
    """Groups and offsets of a shard, committed and pending, groups of older protocols, the members' numbers,
    and the hash over all.

    For `stale_max` see `coordinator.state.statehash`."""

    def __init__(self, stale_max: int = STALE_MAX) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.pending = PendingOffsets()
        self.numbers = MemberNumbers()
        self.old_groups: dict[OldGroupKey, OldGroupValue] = {}
        self.old_ids: dict[str, tuple[OldGroupKey, ...]] = {}
        """Group id → the keys in `old_groups`: one, except while a compacted log is loaded."""
        self.newest_old_topic = 0
        """The catalog version that created the newest topic that any of these groups ever named."""
        self.resolved: TransactionsResolvedValue | None = None
        self.term: TermStartValue | None = None
        self.unknown_types: Counter[int] = Counter()
        self.applied_index = 0
        self.newest_catalog_version = 0
        self._resolved_at: deque[tuple[int, int]] = deque(maxlen=RESOLVED_KEPT)
        self._resolved_and_committed = 0
        self._hashes = EntryHashes(self._projected, stale_max)

    def apply(self, raw: RawRecord, index: int) -> None:
        """Apply one record of the entry at `index`."""
        self.applied_index = index
        type_ = raw[0]
        if type_ <= _OFFSET_TYPES_MAX:
            self.offsets.apply(raw)
            return
        if type_ in MEMBERSHIP_TYPES:
            key, value = decode_key_and_value(raw)
            group_id = key.group_id
            group = self.groups.get(group_id)
            if group is None:
                group = self.groups[group_id] = Group(group_id)
            APPLY[type(key)](group, key, value)
            if value is None:
                if group.is_gone:
                    del self.groups[group_id]
            elif type_ == _PARTITION_METADATA:
                self.newest_catalog_version = max(self.newest_catalog_version, value.catalog_version)
        elif type_ == _TERM_START:
            key, self.term = decode_key_and_value(raw)
        elif type_ == _PENDING_OFFSET:
            key, value = decode_key_and_value(raw)
            self.pending.apply(key, value)
        elif type_ == _TRANSACTIONS_RESOLVED:
            key, self.resolved = decode_key_and_value(raw)
            self._resolved_at.append((index, self.resolved_decision))
        elif type_ == _MEMBER_NUMBER:
            key, value = decode_key_and_value(raw)
            self.numbers.apply(key, value)
        elif type_ in OLD_GROUP_TYPES:
            key, value = decode_key_and_value(raw)
            self._apply_old_group(key, value)
        else:
            self.unknown_types[type_] += 1
            return
        self._hashes.touch(raw, key, index)

    def apply_all(self, raws: Iterable[RawRecord], index: int) -> None:
        """Apply many records, which belong to the entry at `index` or to a snapshot that ends there."""
        self.applied_index = index
        records = iter(raws)
        while (raw := self.offsets.apply_run(records)) is not None:
            self.apply(raw, index)

    def _apply_old_group(self, key: OldGroupKey, value: OldGroupValue | None) -> None:
        others = [one for one in self.old_ids.get(key.group_id, ()) if one != key]
        if value is None:
            self.old_groups.pop(key, None)
        else:
            self.old_groups[key] = value
            others.append(key)
            for topic in value.topics:
                self.newest_old_topic = max(self.newest_old_topic, created_at(topic.topic_id))
        if others:
            self.old_ids[key.group_id] = tuple(others)
        else:
            self.old_ids.pop(key.group_id, None)

    def old_groups_of(self, group_id: str) -> list[tuple[OldGroupKey, OldGroupValue]]:
        """The group of an old protocol with this id, with its key; empty if there is none."""
        return [(key, self.old_groups[key]) for key in self.old_ids.get(group_id, ())]

    @property
    def resolved_decision(self) -> int:
        """The index of the newest decision about a transaction that this shard has followed; 0 if none."""
        return 0 if self.resolved is None else self.resolved.decided

    @property
    def newest_transaction_version(self) -> int:
        """The oldest version of the catalog that knows the pending offsets' transactions, and all decisions
        that were followed here."""
        return max(self.resolved_decision, self.pending.newest_transaction)

    def resolved_by(self, commit_index: int) -> int:
        """`resolved_decision` as of an index of this shard's log, which never goes back."""
        changes = self._resolved_at
        while changes and changes[0][0] <= commit_index:
            self._resolved_and_committed = changes.popleft()[1]
        return self._resolved_and_committed

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has any offset, committed or pending."""
        return self.offsets.has_group(group_id) or self.pending.has_group(group_id)

    @property
    def state_hash(self) -> int:
        """State hash (u64) over all projected entries.

        It does not depend on their order; equal states have equal hashes."""
        return (self._hashes.total + self.offsets.state_hash) & MASK

    def free_incrementally(self) -> Iterator[None]:
        """Free the whole state in steps. The projection must not be used any more."""
        yield from self.offsets.free_incrementally()
        yield from self.pending.free_incrementally()
        yield from self.numbers.free_incrementally()
        yield from free_incrementally(self.old_groups)
        yield from free_incrementally(self.old_ids)
        yield from self._hashes.free_incrementally()
        while self.groups:
            yield from free_incrementally(self.groups.popitem()[1].members)

    def group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def _projected(self, key: Any) -> Value | None:
        """The value projected under a key; None if there is none."""
        if isinstance(key, TermStartKey):
            return self.term
        if isinstance(key, PendingOffsetKey):
            return self.pending.get(key)
        if isinstance(key, TransactionsResolvedKey):
            return self.resolved
        if isinstance(key, MemberNumberKey):
            return self.numbers.get(key)
        if isinstance(key, OldGroupKey):
            return self.old_groups.get(key)
        group = self.groups.get(key.group_id)
        return None if group is None else projected(group, key)
