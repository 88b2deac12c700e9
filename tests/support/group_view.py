"""A group's state derived from its records alone: a second opinion on the coordinator's.

`GroupView` implements the replay rules of Kafka's group records (docs/records.md) on plain dictionaries and
shares no code with `coordinator.state`. It accepts records in any order, as a compacted log requires.
`differences` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.state.model import Group
from records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    MemberState,
    RawRecord,
    RecordType,
    TopicPartitions,
    decode_key,
    decode_value,
)

Partition = tuple[bytes, int]
"""Topic id and partition number."""
Partitions = frozenset[Partition]
NO_PARTITIONS: Partitions = frozenset()
NO_EPOCH = -1
AWAY_EPOCH = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One member at one index."""

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    """Last reported rebalance timeout; -1: it reported none."""
    epoch: int = NO_EPOCH
    previous_epoch: int = NO_EPOCH
    state: int = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending: Partitions = NO_PARTITIONS
    described: bool = False
    """Record 5 of the member was seen."""

    @property
    def is_away(self) -> bool:
        """Whether the static member left temporarily, with member epoch −2."""
        return self.epoch == AWAY_EPOCH

    @property
    def owned(self) -> Partitions:
        return self.assigned | self.pending


@dataclass(slots=True)
class GroupView:
    """The state of a consumer group, as far as records tell; only `apply` and `take` change it."""

    group_id: str
    epoch: int = NO_EPOCH
    assignment_epoch: int = NO_EPOCH
    members: dict[str, MemberView] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    target_epochs: dict[str, int] = field(default_factory=dict)
    topics: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Topic name -> (id, number of partitions), by the newest record 4."""
    regexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Regular expression -> topic names that it matched when last resolved."""
    catalog_version: int = NO_EPOCH
    classic: GroupMetadataValue | None = None

    @property
    def exists(self) -> bool:
        return self.epoch != NO_EPOCH or bool(self.members) or self.classic is not None

    @property
    def state(self) -> str:
        """Kafka's name of the group state, computed as the coordinator computes it."""
        if self.classic is not None:
            return "Stable" if self.classic.members else "Empty"
        if self.epoch == NO_EPOCH and not self.members:
            return "Dead"
        joined = [member for member in self.members.values() if member.described]
        if not joined:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = self.assignment_epoch
        for member in joined:
            if member.epoch != settled or member.state != MemberState.STABLE:
                return "Reconciling"
        return "Stable"

    def apply(self, raw: RawRecord) -> None:
        """Apply any record of this group; types that say nothing about membership are ignored."""
        if raw.type in _HANDLERS:
            self.take(raw.type, decode_key(raw), None if raw.value is None else decode_value(raw))

    def take(self, type_: int, key: Any, value: Any) -> None:
        """Apply a decoded record of a type in `_HANDLERS`; a tombstone has no value."""
        _HANDLERS[type_](self, key, value)

    def subscribed(self, member: MemberView) -> frozenset[str]:
        """Topic names that the member subscribes to, by name or by regular expression."""
        resolved = self.regexes.get(member.subscribed_topic_regex or "", ())
        return frozenset(member.subscribed_topic_names).union(resolved)

    def owners(self) -> dict[Partition, str]:
        """Partition -> member that owns it, including partitions pending revocation."""
        return {partition: m.member_id for m in self.members.values() for partition in m.owned}

    def target_owners(self) -> dict[Partition, str]:
        return {partition: member_id for member_id, parts in self.target.items() for partition in parts}

    def _group(self, _key: Any, value: ConsumerGroupMetadataValue | None) -> None:
        self.epoch = NO_EPOCH if value is None else value.epoch
        if value is None:
            self.topics = {}

    def _topics(self, _key: Any, value: ConsumerGroupPartitionMetadataValue | None) -> None:
        self.topics = (
            {} if value is None else {t.topic_name: (t.topic_id, t.num_partitions) for t in value.topics}
        )
        self.catalog_version = NO_EPOCH if value is None else value.catalog_version

    def _member(self, key: Any, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        known = self.members.get(key.member_id) or MemberView(member_id=key.member_id)
        self.members[key.member_id] = replace(
            known,
            client_id=value.client_id,
            client_host=value.client_host,
            instance_id=value.instance_id,
            subscribed_topic_names=value.subscribed_topic_names,
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            described=True,
        )

    def _target_epoch(self, _key: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch

    def _target(self, key: Any, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
            self.target_epochs.pop(key.member_id, None)
        else:
            self.target[key.member_id] = flat(value.topic_partitions)
            self.target_epochs[key.member_id] = value.assignment_epoch

    def _current(self, key: Any, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(key.member_id)
        if value is None:
            if known is not None:
                blank = MemberView(member_id=key.member_id)
                self.members[key.member_id] = replace(
                    known,
                    epoch=blank.epoch,
                    previous_epoch=blank.previous_epoch,
                    state=blank.state,
                    assigned=NO_PARTITIONS,
                    pending=NO_PARTITIONS,
                )
            return
        self.members[key.member_id] = replace(
            known or MemberView(member_id=key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=value.state,
            assigned=flat(value.assigned_partitions),
            pending=flat(value.partitions_pending_revocation),
        )

    def _regex(self, key: Any, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = value.topics

    def _classic(self, _key: Any, value: GroupMetadataValue | None) -> None:
        self.classic = value


_HANDLERS: dict[int, Callable[[GroupView, Any, Any], None]] = {
    RecordType.GROUP_METADATA: GroupView._classic,
    RecordType.CONSUMER_GROUP_METADATA: GroupView._group,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: GroupView._topics,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: GroupView._member,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: GroupView._target_epoch,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: GroupView._target,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: GroupView._current,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: GroupView._regex,
}


def flat(parts: Iterable[TopicPartitions]) -> Partitions:
    return frozenset((part.topic_id, partition) for part in parts for partition in part.partitions)


def differences(group: Group, view: GroupView) -> list[str]:
    """Every difference between the coordinator's group and the second opinion, as a sentence."""
    seen = [
        ("epoch", group.epoch, max(view.epoch, 0)),
        ("assignment epoch", group.assignment_epoch, max(view.assignment_epoch, 0)),
        ("members", set(group.members), set(view.members)),
        ("target", {m: flat(value.topic_partitions) for m, value in group.target.items()}, view.target),
        ("owners", _flat(group.owners), set(view.owners())),
        ("topics", {t.topic_name: (t.topic_id, t.num_partitions) for t in group.topics}, view.topics),
    ]
    for member_id in set(group.members) & set(view.members):
        current, known = group.members[member_id].current, view.members[member_id]
        seen += [
            (f"epoch of {member_id}", current.epoch, 0 if known.epoch == NO_EPOCH else known.epoch),
            (f"assigned partitions of {member_id}", _flat(current.assigned), known.assigned),
            (f"pending partitions of {member_id}", _flat(current.pending), known.pending),
        ]
    return [f"the projection has {name} {one}, the records {two}" for name, one, two in seen if one != two]


def _flat(parts: Mapping[bytes, Iterable[int]]) -> Partitions:
    return frozenset((topic_id, partition) for topic_id, numbers in parts.items() for partition in numbers)
