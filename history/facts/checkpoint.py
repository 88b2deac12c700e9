"""Serialisation of the state of a `FactsBuilder`.

A walk may be interrupted anywhere: the restored builder goes on as the original would have. Readers of a
growing log use this to avoid starting over each time.

Invariant: what is written are the fields of these classes, so any change to one of them must raise `VERSION`.
Bytes of another version are refused, and the log is walked from its beginning instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.state.group_records import APPLY
from coordinator.state.model import Group
from history.reading.catalog import TopicChange, TopicNames
from records import (
    Arrival,
    Cause,
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
    Expiry,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    MemberLeasesKey,
    MemberLeasesValue,
    Phases,
    PushConsumer,
    PushGroupValue,
    PushPartitions,
    PushTopic,
    RecordsError,
    RewriteConsumer,
    RewriteGroupValue,
    RewritePartitions,
    RewriteTopic,
    TopicLeases,
    Value,
)
from records.packing import pack, unpack_nested

from . import epochs, ownership, rows, sessions
from .change import EntryPosition, Follower, Partition, Partitions
from .group import FactsBuilder
from .positional_codec import PositionalCodec, StateError
from .waits import OpenWait, Waits

__all__ = ["VERSION", "StateError", "dump_builder", "load_builder"]

VERSION = 9


@dataclass(slots=True)
class FollowerValues:
    """The content of a `Follower`: the newest value of each key of its group, and `Follower.unclosed`."""

    group_id: str
    metadata: ConsumerGroupMetadataValue | None
    target_metadata: ConsumerGroupTargetAssignmentMetadataValue | None
    partition_metadata: ConsumerGroupPartitionMetadataValue | None
    classic: GroupMetadataValue | None
    push: PushGroupValue | None
    rewrite: RewriteGroupValue | None
    regexes: dict[str, ConsumerGroupRegularExpressionValue]
    described: dict[str, ConsumerGroupMemberMetadataValue]
    current: dict[str, ConsumerGroupCurrentMemberAssignmentValue]
    leases: dict[str, MemberLeasesValue]
    target: dict[str, ConsumerGroupTargetAssignmentMemberValue]
    unclosed: dict[str, ConsumerGroupTargetAssignmentMemberValue | None]

    @classmethod
    def of(cls, follower: Follower) -> FollowerValues:
        group = follower.group
        return cls(
            group_id=group.group_id,
            metadata=group.metadata,
            target_metadata=group.target_metadata,
            partition_metadata=group.partition_metadata,
            classic=group.classic,
            push=follower.old if isinstance(follower.old, PushGroupValue) else None,
            rewrite=follower.old if isinstance(follower.old, RewriteGroupValue) else None,
            regexes=group.regexes,
            described={m.member_id: m.metadata for m in group.members.values() if m.metadata is not None},
            current={
                m.member_id: m.current_value for m in group.members.values() if m.current_value is not None
            },
            leases={m.member_id: m.leases for m in group.members.values() if m.leases is not None},
            target=group.target,
            unclosed=follower.unclosed,
        )

    def follower(self) -> Follower:
        group, group_id = Group(self.group_id), self.group_id

        def put(key: Key, value: Value | None) -> None:
            if value is not None:
                APPLY[type(key)](group, key, value)

        put(GroupMetadataKey(group_id=group_id), self.classic)
        put(ConsumerGroupMetadataKey(group_id=group_id), self.metadata)
        put(ConsumerGroupPartitionMetadataKey(group_id=group_id), self.partition_metadata)
        put(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), self.target_metadata)
        for regex, resolved in self.regexes.items():
            put(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), resolved)
        for one, described in self.described.items():
            put(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), described)
        for one, current in self.current.items():
            put(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), current)
        for one, leases in self.leases.items():
            put(MemberLeasesKey(group_id=group_id, member_id=one), leases)
        for one, part in self.target.items():
            put(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), part)
        return Follower.of(group, self.push or self.rewrite, self.unclosed)


ROW_CLASSES: tuple[type[Any], ...] = (
    *(rows.EpochRow, rows.Moved, rows.MemberProgress, rows.Wait, rows.Relapse, rows.OwnershipSpan),
    *(rows.MemberSession, rows.Away, rows.TermRow, rows.TopicPartition, TopicChange),
    *(Cause, Expiry, Phases, Arrival),
)
"""The classes of which rows consist."""
_CLASSES = (
    FactsBuilder,
    *(EntryPosition, FollowerValues, OpenWait, Waits),
    *(ownership.Ownership, ownership._Span, sessions.Sessions, sessions._Session),
    *(epochs.Epochs, epochs._Epoch, epochs._Step),
    *ROW_CLASSES,
    *(GroupMetadataValue, ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataValue),
    *(ConsumerGroupTargetAssignmentMetadataValue, ConsumerGroupTargetAssignmentMemberValue),
    *(ConsumerGroupMemberMetadataValue, ConsumerGroupCurrentMemberAssignmentValue),
    *(ConsumerGroupRegularExpressionValue, MemberLeasesValue, TopicLeases),
    *(PushGroupValue, PushTopic, PushConsumer, PushPartitions),
    *(RewriteGroupValue, RewriteConsumer, RewriteTopic, RewritePartitions),
)
_SHARED = {
    str: True,
    Partition: True,
    rows.TopicPartition: True,
    EntryPosition: False,
    tuple[str, ...]: False,
    Partitions: False,
    Cause: False,
    ConsumerGroupMemberMetadataValue: True,
    OpenWait: False,
    epochs._Epoch: False,
    sessions._Session: False,
}
"""The types with a table (see `PositionalCodec`). Some must be one object again: a wait belongs to its epoch
and goes on in `Waits`; an epoch is both the current one and one of the list. The others are the bulk of a
state."""
_LEFT_OUT = {FactsBuilder: {"_names": None}}
_STAND_INS = {Follower: (FollowerValues, FollowerValues.of, FollowerValues.follower)}
_CODEC = PositionalCodec(_CLASSES, _SHARED, _LEFT_OUT, _STAND_INS)


def dump_builder(builder: FactsBuilder) -> bytes:
    """Serialise all of the builder but its topic names."""
    return pack([VERSION, *_CODEC.dump(builder)])


def load_builder(data: bytes, names: TopicNames) -> FactsBuilder:
    """Restore a builder; raises `StateError`."""
    try:
        found: Any = unpack_nested(data)
    except RecordsError as error:
        raise StateError(str(error)) from None
    if type(found) is not list or len(found) != 3:
        raise StateError("it is not a stored state")
    version, *items = found
    if version != VERSION or type(version) is not int:
        raise StateError(f"it has version {version!r}, but this release uses {VERSION}")
    builder: FactsBuilder = _CODEC.load(FactsBuilder, items)
    builder._names = names
    return builder


def described() -> list[str]:
    """Describe the layout in words that differ whenever the bytes would."""
    return _CODEC.described()
