"""The projection of one group shard: the state that `apply` derives from the records.

`apply` is the only function in the program that changes it, live and at every kind of replay. It never reads
a clock, the catalog or a setting, and it rejects no record that it can decode. In whatever order compaction
left the records, the result is a function of the newest record of each key (see `coordinator.state.model`).
Records of unknown types are counted and skipped. An unknown *version* of a value raises
`records.UnsupportedVersion`, because an incomplete state must not be served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from coordinator.state.freeing import free_incrementally
from coordinator.state.model import JOINING, Group, Member, current_of
from coordinator.state.offsetstore import OffsetStore
from coordinator.state.statehash import MASK, STALE_MAX, EntryHashes
from records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    RawRecord,
    RecordType,
    TermStartKey,
    TermStartValue,
    decode_key_and_value,
)

_OFFSET_TYPES_MAX = int(RecordType.OFFSET_COMMIT)


class Projection:
    """Groups and offsets of a shard, and the hash over both.

    For `stale_max` see `coordinator.state.statehash`."""

    def __init__(self, stale_max: int = STALE_MAX) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.term: TermStartValue | None = None
        self.unknown_types: Counter[int] = Counter()
        self.applied_index = 0
        self.newest_catalog_version = 0
        self._hashes = EntryHashes(lambda key: _PROJECTED[type(key)](self, key), stale_max)

    def apply(self, raw: RawRecord, index: int) -> None:
        """Apply one record of the entry at `index`."""
        self.applied_index = index
        if raw[0] <= _OFFSET_TYPES_MAX:
            self.offsets.apply(raw)
            return
        handler = _APPLY.get(raw[0])
        if handler is None:
            self.unknown_types[raw[0]] += 1
            return
        key, value = decode_key_and_value(raw)
        handler(self, key, value)
        self._hashes.touch(raw, key)

    def apply_all(self, raws: Iterable[RawRecord], index: int) -> None:
        """Apply many records, which belong to the entry at `index` or to a snapshot that ends there."""
        self.applied_index = index
        records = iter(raws)
        while (raw := self.offsets.apply_run(records)) is not None:
            self.apply(raw, index)

    @property
    def state_hash(self) -> int:
        """State hash (u64) over all projected entries.

        It does not depend on their order; equal states have equal hashes."""
        return (self._hashes.total + self.offsets.state_hash) & MASK

    def free_incrementally(self) -> Iterator[None]:
        """Free the whole state in steps. The projection must not be used any more."""
        yield from self.offsets.free_incrementally()
        yield from self._hashes.free_incrementally()
        while self.groups:
            yield from free_incrementally(self.groups.popitem()[1].members)

    def group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    # Handlers by type of record. A tombstone for a missing entry does nothing.

    def _open(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        group.version += 1
        return group

    def _close(self, group: Group) -> None:
        if group.is_gone:
            self.groups.pop(group.group_id, None)

    def _classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        group = self._open(key.group_id)
        group.classic = value
        self._close(group)

    def _metadata(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        group = self._open(key.group_id)
        group.metadata = value
        self._close(group)

    def _partition_metadata(
        self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        group = self._open(key.group_id)
        group.partition_metadata = value
        if value is not None:
            self.newest_catalog_version = max(self.newest_catalog_version, value.catalog_version)
        self._close(group)

    def _member_metadata(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        group = self._open(key.group_id)
        member = group.members.get(key.member_id)
        if member is None:
            member = group.members[key.member_id] = Member(key.member_id)
        if value is not None:
            value = _with_shared_names(group, value)
        _count(group, member.metadata, -1)
        _release_instance(group, member)
        member.metadata = value
        _count(group, value, +1)
        if value is not None and value.instance_id is not None:
            group.static_members[value.instance_id] = key.member_id
        self._drop_member_if_gone(group, member)

    def _current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._open(key.group_id)
        member = group.members.get(key.member_id)
        if member is None:
            member = group.members[key.member_id] = Member(key.member_id)
        group.disown(key.member_id, member.current)
        member.current_value = value
        member.current = JOINING if value is None else current_of(value)
        group.own(key.member_id, member.current)
        self._drop_member_if_gone(group, member)

    def _drop_member_if_gone(self, group: Group, member: Member) -> None:
        if member.metadata is None and member.current_value is None:
            del group.members[member.member_id]
            self._close(group)

    def _target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._open(key.group_id)
        group.set_target(key.member_id, value)
        self._close(group)

    def _target_metadata(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._open(key.group_id)
        group.target_metadata = value
        self._close(group)

    def _regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        group = self._open(key.group_id)
        regex = key.regular_expression
        has_subscribers = regex in group.regex_subscribers  # otherwise its first subscriber counts them
        if has_subscribers:
            _tally(group.subscriptions, group.resolved(regex), -1)
        if value is None:
            group.regexes.pop(regex, None)
        else:
            group.regexes[regex] = value
        if has_subscribers:
            _tally(group.subscriptions, group.resolved(regex), +1)
        self._close(group)

    def _term_start(self, key: TermStartKey, value: TermStartValue | None) -> None:
        self.term = value

    # The value projected under a key; None if there is none.

    def _projected(self, key: Any, field: str) -> object | None:
        return getattr(self.groups.get(key.group_id), field, None)

    def _projected_member(self, key: Any, field: str) -> object | None:
        group = self.groups.get(key.group_id)
        return getattr(group.members.get(key.member_id), field, None) if group is not None else None

    def _projected_target(self, key: ConsumerGroupTargetAssignmentMemberKey) -> object | None:
        group = self.groups.get(key.group_id)
        return group.target.get(key.member_id) if group is not None else None

    def _projected_regex(self, key: ConsumerGroupRegularExpressionKey) -> object | None:
        group = self.groups.get(key.group_id)
        return group.regexes.get(key.regular_expression) if group is not None else None


def _with_shared_names(
    group: Group, value: ConsumerGroupMemberMetadataValue
) -> ConsumerGroupMemberMetadataValue:
    """Return the value with its list of topics replaced by an equal list of other members, if any."""
    names, _ = group.lists.get(value.subscribed_topic_names, (value.subscribed_topic_names, 0))
    return value if names is value.subscribed_topic_names else replace(value, subscribed_topic_names=names)


def _count(group: Group, value: ConsumerGroupMemberMetadataValue | None, by: int) -> None:
    """Add a member's subscription and assignor vote to the group's indexes (`by` 1), or remove them (-1)."""
    if value is None:
        return
    group.num_members += by
    names, number = group.lists.pop(value.subscribed_topic_names, (value.subscribed_topic_names, 0))
    if number + by:
        group.lists[names] = names, number + by
    _tally(group.subscriptions, names, by)
    regex = value.subscribed_topic_regex
    if regex:
        had_subscribers = regex in group.regex_subscribers
        _tally(group.regex_subscribers, (regex,), by)
        if had_subscribers != (regex in group.regex_subscribers):  # first subscriber came, or last one left
            _tally(group.subscriptions, group.resolved(regex), by)
    if value.server_assignor is not None:
        _tally(group.server_assignors, (value.server_assignor,), by)


def _tally(counts: Counter[str], names: Iterable[str], by: int) -> None:
    """Add `by` to the counts of these names; counts of 0 are removed."""
    for name in names:
        counts[name] += by
        if not counts[name]:
            del counts[name]


def _release_instance(group: Group, member: Member) -> None:
    """Free the member's instance id, unless another member has taken it over."""
    instance_id = member.metadata.instance_id if member.metadata is not None else None
    if instance_id is not None and group.static_members.get(instance_id) == member.member_id:
        del group.static_members[instance_id]


_APPLY: dict[int, Callable[[Projection, Any, Any], None]] = {
    RecordType.GROUP_METADATA: Projection._classic,
    RecordType.CONSUMER_GROUP_METADATA: Projection._metadata,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: Projection._partition_metadata,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: Projection._member_metadata,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Projection._target_metadata,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Projection._target,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Projection._current,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: Projection._regex,
    RecordType.TERM_START: Projection._term_start,
}

_PROJECTED: dict[type, Callable[[Projection, Any], Any]] = {
    GroupMetadataKey: lambda self, key: self._projected(key, "classic"),
    ConsumerGroupMetadataKey: lambda self, key: self._projected(key, "metadata"),
    ConsumerGroupPartitionMetadataKey: lambda self, key: self._projected(key, "partition_metadata"),
    ConsumerGroupMemberMetadataKey: lambda self, key: self._projected_member(key, "metadata"),
    ConsumerGroupTargetAssignmentMetadataKey: lambda self, key: self._projected(key, "target_metadata"),
    ConsumerGroupTargetAssignmentMemberKey: Projection._projected_target,
    ConsumerGroupCurrentMemberAssignmentKey: lambda self, key: self._projected_member(key, "current_value"),
    ConsumerGroupRegularExpressionKey: Projection._projected_regex,
    TermStartKey: lambda self, key: self.term,
}
