"""The projected group: what the newest record of each key says, and indexes derived from that.

The principle of the whole room: a group is a function of the newest value of each of its record keys. Every
index here is kept in a way that does not depend on which older records were seen, so a log from which
compaction removed some loads to the same state, with nothing to check and nothing to throw (KAFKA-17306,
-19862, -21102 and -21117 are what comes of doing it otherwise).

Only `coordinator.state.projection` changes these objects, and only while it applies a record. The one
exception is `Group.changes`, a counter that also moves when a cached reply must not be used any longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.state.machines import GroupFacts, GroupState, group_state, member_state
from coordinator.state.reconcile import AWAY_EPOCH, NOTHING_TOLD, Current, PartitionEpochs, Told
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
    TopicMetadata,
    TopicPartitions,
)

JOINING = Current(MemberState.STABLE, 0, 0)
"""A member that has no record 8 yet: it owns nothing, at epoch 0."""


NOTHING: Mapping[bytes, tuple[int, ...]] = {}


@dataclass(slots=True)
class Member:
    """One member of a consumer group. It exists for requests once `metadata` (record 5) is there; a record 8
    may come before it when compaction removed the older record 5."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue | None = None
    current_value: ConsumerGroupCurrentMemberAssignmentValue | None = None
    current: Current = JOINING

    @property
    def is_away(self) -> bool:
        """A static member that left for a while: its partitions are its own, and nobody speaks for it."""
        return self.current.epoch == AWAY_EPOCH


@dataclass(slots=True)
class Group:
    """Everything the log says of one group, offsets excepted."""

    group_id: str
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, ConsumerGroupTargetAssignmentMemberValue] = field(default_factory=dict)
    regexes: dict[str, ConsumerGroupRegularExpressionValue] = field(default_factory=dict)
    metadata: ConsumerGroupMetadataValue | None = None
    target_metadata: ConsumerGroupTargetAssignmentMetadataValue | None = None
    partition_metadata: ConsumerGroupPartitionMetadataValue | None = None
    classic: GroupMetadataValue | None = None
    # Derived from the members' newest records:
    num_members: int = 0
    owners: dict[bytes, dict[int, str]] = field(default_factory=dict)
    regex_subscribers: Counter[str] = field(default_factory=Counter)
    """How many members subscribe by each expression."""
    subscriptions: Counter[str] = field(default_factory=Counter)
    """Topics that somebody subscribes to: how many members name one, and how many expressions that have a
    subscriber resolve to it."""
    lists: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = field(default_factory=dict)
    """Lists of topics that members name, each once however many name it (the names of 100 topics would take
    60 MB in a group of 10,000), and how many do. They go with the last of them."""
    server_assignors: Counter[str] = field(default_factory=Counter)
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id → id of the member that has it; the last put wins, as with `owners`."""
    # Made when somebody asks, dropped by the next record 7 of that member:
    _parts: dict[str, Mapping[bytes, tuple[int, ...]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    # Volatile: moves with every record and with everything else that may change a reply.
    changes: int = 0
    _state: tuple[int, GroupState] | None = None

    @property
    def is_consumer(self) -> bool:
        """Whether this is a group of the consumer protocol (KIP-848)."""
        return self.metadata is not None

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, of either protocol."""
        return not self.num_members and (self.classic is None or not self.classic.members)

    @property
    def is_gone(self) -> bool:
        """Whether no record of the group is left."""
        return not (
            self.members
            or self.target
            or self.regexes
            or self.metadata
            or self.target_metadata
            or self.partition_metadata
            or self.classic
        )

    @property
    def epoch(self) -> int:
        return self.metadata.epoch if self.metadata is not None else 0

    @property
    def assignment_epoch(self) -> int:
        """Epoch for which the target was computed; 0 when there is none yet."""
        return self.target_metadata.assignment_epoch if self.target_metadata is not None else 0

    @property
    def catalog_version(self) -> int:
        """Version of the catalog that the group last decided on; it must not decide on an older one."""
        return self.partition_metadata.catalog_version if self.partition_metadata is not None else 0

    @property
    def topics(self) -> tuple[TopicMetadata, ...]:
        """The subscribed topics that exist, as the group last saw them."""
        return self.partition_metadata.topics if self.partition_metadata is not None else ()

    @property
    def knows_racks(self) -> bool:
        """Whether the assignor asked for the racks of partitions, and there are some."""
        return any(topic.partition_racks for topic in self.topics)

    def resolved(self, regex: str | None) -> tuple[str, ...]:
        """Names that the expression matched when it was last resolved; an unresolved one matches nothing."""
        value = self.regexes.get(regex) if regex else None
        return value.topics if value is not None else ()

    def target_of(self, member_id: str) -> Mapping[bytes, tuple[int, ...]]:
        """What the member is to own: topic id → partitions. The same object until the next record 7."""
        part = self._parts.get(member_id)
        if part is None:
            value = self.target.get(member_id)
            if value is None:
                return NOTHING
            part = {topic.topic_id: topic.partitions for topic in value.topic_partitions}
            self._parts[member_id] = part
        return part

    def set_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        """Record 7, or its tombstone."""
        self._parts.pop(member_id, None)
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = value

    def member(self, member_id: str) -> Member | None:
        member = self.members.get(member_id)
        return member if member is not None and member.metadata is not None else None

    def joined(self) -> Iterable[Member]:
        """The members that exist for requests, in no order that a decision may depend on."""
        return [member for member in self.members.values() if member.metadata is not None]

    @property
    def state(self) -> GroupState:
        """EMPTY, ASSIGNING, RECONCILING or STABLE; computed once per change."""
        if self._state is None or self._state[0] != self.changes:
            epoch = self.assignment_epoch
            settled = all(
                member.current.state is MemberState.STABLE and member.current.epoch == epoch
                for member in self.joined()
            )
            facts = GroupFacts(self.num_members > 0, self.epoch, epoch, settled)
            self._state = (self.changes, group_state(facts))
        return self._state[1]

    def own(self, member_id: str, current: Current) -> None:
        """The member's partitions are its own now; the last put wins (C.7)."""
        for epochs_of in (current.assigned, current.pending):
            for topic_id, epochs in epochs_of.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def disown(self, member_id: str, current: Current) -> None:
        """The member's partitions are free, except where somebody else took them since."""
        for epochs_of in (current.assigned, current.pending):
            for topic_id, epochs in epochs_of.items():
                owner_of = self.owners.get(topic_id, {})
                for partition in epochs:
                    if owner_of.get(partition) == member_id:
                        del owner_of[partition]
                if not owner_of:
                    self.owners.pop(topic_id, None)


def told_by(
    value: ConsumerGroupTargetAssignmentMemberValue | ConsumerGroupCurrentMemberAssignmentValue | None,
) -> Told:
    """What a record 7 or 8 carries from a client-side assignor to the member."""
    if value is None or not (value.error or value.metadata_version != -1 or value.metadata_bytes):
        return NOTHING_TOLD
    return Told(value.error, value.metadata_version, value.metadata_bytes)


def current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    """The working form of a record 8."""
    return Current(
        member_state(value.state),
        value.member_epoch,
        value.previous_member_epoch,
        _epochs_of(value.assigned_partitions, value.member_epoch),
        _epochs_of(value.partitions_pending_revocation, value.member_epoch),
        told_by(value),
    )


def _epochs_of(topics: tuple[TopicPartitions, ...], member_epoch: int) -> PartitionEpochs:
    """Records from before KIP-1251 have no epochs per partition; the member's own is the safe reading."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
        if len(topic.assignment_epochs) == len(topic.partitions)
        else dict.fromkeys(topic.partitions, member_epoch)
        for topic in topics
        if topic.partitions
    }


def topic_partitions_of(epochs_of: PartitionEpochs) -> tuple[TopicPartitions, ...]:
    """The form in which records 8 hold partitions: topics by id, partitions ascending, epochs beside them."""
    return tuple(
        [
            TopicPartitions(
                topic_id=topic_id,
                partitions=(partitions := tuple(sorted(epochs))),
                assignment_epochs=tuple([epochs[partition] for partition in partitions]),
            )
            for topic_id, epochs in sorted(epochs_of.items())
            if epochs
        ]
    )
