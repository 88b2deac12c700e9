"""Apply each type of record to its group: the only code that changes a `Group`.

`Projection` applies the records of a whole shard; readers of history follow single groups. Both come here, so
no answer about a group can differ from what its coordinator decided on. A tombstone for a missing entry does
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.state.model import JOINING, Group, Member, current_of
from coordinator.state.reconcile import Current
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
    MemberLeasesKey,
    MemberLeasesValue,
    MemberState,
    RecordType,
)
from records.schemas import SCHEMA_OF_KEY


def _classic(group: Group, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    group.version += 1
    group.classic = value


def _metadata(group: Group, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
    group.version += 1
    group.metadata = value


def _partition_metadata(
    group: Group, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
) -> None:
    group.version += 1
    group.partition_metadata = value


def _member_metadata(
    group: Group, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    group.version += 1
    member = group.members.get(key.member_id)
    if member is None:
        member = group.members[key.member_id] = Member(key.member_id)
    if value is not None:
        _share_names(group, value)
    before, member.metadata = member.metadata, value
    if (before is None) is not (value is None):
        _count_joined(group, member.current, -1 if value is None else +1)
    if before is not None:
        _count(group, before, -1)
        _release_instance(group, member.member_id, before.instance_id)
    if value is not None:
        _count(group, value, +1)
        if value.instance_id is not None:
            group.static_members[value.instance_id] = key.member_id
    else:
        _drop_member_if_gone(group, member)


def _current(
    group: Group,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    group.version += 1
    member = group.members.get(key.member_id)
    if member is None:
        member = group.members[key.member_id] = Member(key.member_id)
    before, after = member.current, JOINING if value is None else current_of(value)
    group.disown(key.member_id, before)
    member.current_value, member.current = value, after
    group.own(key.member_id, after)
    if member.metadata is not None:
        _count_joined(group, before, -1)
        _count_joined(group, after, +1)
    elif value is None:
        _drop_member_if_gone(group, member)


def _leases(group: Group, key: MemberLeasesKey, value: MemberLeasesValue | None) -> None:
    group.version += 1
    member = group.members.get(key.member_id)
    if member is None:
        member = group.members[key.member_id] = Member(key.member_id)
    member.leases = value
    _drop_member_if_gone(group, member)


def _drop_member_if_gone(group: Group, member: Member) -> None:
    if member.is_gone:
        del group.members[member.member_id]


def _target(
    group: Group,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    group.version += 1
    group.set_target(key.member_id, value)


def _target_metadata(
    group: Group,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.version += 1
    group.target_metadata = value


def _regex(
    group: Group, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    group.version += 1
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


def _share_names(group: Group, value: ConsumerGroupMemberMetadataValue) -> None:
    """Let the value have the list of topics of other members with an equal list, if any.

    The value has just been decoded and remains equal. A copy of it would take as long as decoding it."""
    names, _ = group.lists.get(value.subscribed_topic_names, (value.subscribed_topic_names, 0))
    if names is not value.subscribed_topic_names:
        object.__setattr__(value, "subscribed_topic_names", names)


def _count(group: Group, value: ConsumerGroupMemberMetadataValue, by: int) -> None:
    """Add a member's subscription and assignor vote to the group's indexes (`by` 1), or remove them (-1)."""
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
    if value.classic_member_metadata is not None:
        group.num_classic += by
        protocols = value.classic_member_metadata.supported_protocols
        _tally(group.classic_protocols, {one.name for one in protocols}, by)


def _count_joined(group: Group, current: Current, by: int) -> None:
    """Count a member that requests can see (`by` 1), or stop counting it (-1)."""
    group.num_members += by
    if current.state is MemberState.STABLE:
        number = group.stable_at.get(current.epoch, 0) + by
        if number:
            group.stable_at[current.epoch] = number
        else:
            del group.stable_at[current.epoch]


def _tally(counts: Counter[str], names: Iterable[str], by: int) -> None:
    """Add `by` to the counts of these names; counts of 0 are removed."""
    for name in names:
        counts[name] += by
        if not counts[name]:
            del counts[name]


def _release_instance(group: Group, member_id: str, instance_id: str | None) -> None:
    """Free the member's instance id, unless another member has taken it over."""
    if instance_id is not None and group.static_members.get(instance_id) == member_id:
        del group.static_members[instance_id]


APPLY: dict[type, Callable[[Group, Any, Any], None]] = {
    GroupMetadataKey: _classic,
    ConsumerGroupMetadataKey: _metadata,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member_metadata,
    ConsumerGroupTargetAssignmentMetadataKey: _target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: _target,
    ConsumerGroupCurrentMemberAssignmentKey: _current,
    ConsumerGroupRegularExpressionKey: _regex,
    MemberLeasesKey: _leases,
}
"""Class of a key → what applies a record with such a key to its group. The value of a tombstone is None."""

MEMBERSHIP_TYPES = frozenset(SCHEMA_OF_KEY[key_class].type for key_class in APPLY)
"""The record types that belong to a group and change more than its offsets."""

OLD_GROUP_TYPES = frozenset({int(RecordType.REWRITE_GROUP), int(RecordType.PUSH_GROUP)})
"""The record types of groups of older protocols (`lineage`), which are one record each."""

GROUP_TYPES = MEMBERSHIP_TYPES | OLD_GROUP_TYPES
"""The record types that readers of history follow to tell a group of any protocol."""

TOLD_TYPES = GROUP_TYPES | {int(RecordType.MEMBER_NUMBER)}
"""These, and the type that names the group's members."""


def projected(group: Group, key: Any) -> Any:
    """The value projected under a key of the group; None if there is none."""
    return _PROJECTED[type(key)](group, key)


def _of_member(group: Group, key: Any, field: str) -> Any:
    return getattr(group.members.get(key.member_id), field, None)


_PROJECTED: dict[type, Callable[[Group, Any], Any]] = {
    GroupMetadataKey: lambda group, key: group.classic,
    ConsumerGroupMetadataKey: lambda group, key: group.metadata,
    ConsumerGroupPartitionMetadataKey: lambda group, key: group.partition_metadata,
    ConsumerGroupMemberMetadataKey: lambda group, key: _of_member(group, key, "metadata"),
    ConsumerGroupTargetAssignmentMetadataKey: lambda group, key: group.target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: lambda group, key: group.target.get(key.member_id),
    ConsumerGroupCurrentMemberAssignmentKey: lambda group, key: _of_member(group, key, "current_value"),
    ConsumerGroupRegularExpressionKey: lambda group, key: group.regexes.get(key.regular_expression),
    MemberLeasesKey: lambda group, key: _of_member(group, key, "leases"),
}
