"""The projected group: the newest record of each key, and indexes derived from these records.

The principle of the whole package: a group is a function of the newest value of each of its record keys. No
index depends on which older records were seen. So a log from which compaction removed some records loads to
the same state, without consistency checks and without exceptions. KAFKA-17306, -19862, -21102 and -21117 are
bugs that come from doing it otherwise.

Only `coordinator.state.group_records` changes these objects, and only while it applies a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.state.machines import GroupFacts, GroupState, group_state, member_state
from coordinator.state.reconcile import AWAY_EPOCH, NO_METADATA, AssignorMetadata, Current, PartitionEpochs
from records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    MemberLeasesValue,
    MemberState,
    TopicMetadata,
    TopicPartitions,
)

JOINING = Current(MemberState.STABLE, 0, 0)
"""The state of a member without a record 8: it owns nothing, at epoch 0."""


NOTHING: Mapping[bytes, tuple[int, ...]] = {}


@dataclass(slots=True)
class Member:
    """One member of a consumer group.

    Requests see the member once `metadata` (record 5) is set. A record 8 may precede it if compaction removed
    the older record 5."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue | None = None
    current_value: ConsumerGroupCurrentMemberAssignmentValue | None = None
    current: Current = JOINING
    leases: MemberLeasesValue | None = None
    """The fencing tokens of its partitions, if it asks for them (`coordinator.members.leases`)."""

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that left temporarily and keeps its partitions.

        No process sends heartbeats for it."""
        return self.current.epoch == AWAY_EPOCH

    @property
    def classic(self) -> ClassicMemberMetadata | None:
        """The part of record 5 that a member of the classic protocol has (`coordinator.members`)."""
        return self.metadata.classic_member_metadata if self.metadata is not None else None

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol."""
        return self.classic is not None

    @property
    def tokens(self) -> dict[bytes, dict[int, int]]:
        """Topic id → partition → fencing token; empty if the member did not ask for them."""
        topics = self.leases.topics if self.leases is not None else ()
        return {one.topic_id: dict(zip(one.partitions, one.tokens, strict=True)) for one in topics}

    @property
    def is_gone(self) -> bool:
        """Whether the log has no record of the member any more."""
        return self.metadata is None and self.current_value is None and self.leases is None

    def copy(self) -> Member:
        """The member as it is now."""
        return Member(self.member_id, self.metadata, self.current_value, self.current, self.leases)


@dataclass(slots=True)
class Group:
    """The state of one group, as far as the log determines it, without offsets."""

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
    """Number of members that subscribe by each expression."""
    subscriptions: Counter[str] = field(default_factory=Counter)
    """Subscribed topics. The count of a topic is the number of members that name it plus the number of
    expressions with a subscriber that resolve to it."""
    lists: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = field(default_factory=dict)
    """Lists of topics that members name, and how many members name each.

    Equal lists are stored once: with 100 topics, separate copies would take 60 MB in a group of 10,000
    members. A list is removed with its last member."""
    server_assignors: Counter[str] = field(default_factory=Counter)
    num_classic: int = 0
    """Number of members that speak the classic protocol."""
    classic_protocols: Counter[str] = field(default_factory=Counter)
    """Number of them that support each protocol (assignor) of theirs."""
    stable_at: dict[int, int] = field(default_factory=dict)
    """Number of STABLE members that have joined, by epoch."""
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id → id of the member that has it; the last one written wins, as with `owners`."""
    # Computed on first use, invalidated by the member's next record 7:
    _parts: dict[str, Mapping[bytes, tuple[int, ...]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    version: int = field(default=0, compare=False, repr=False)
    """Number of records applied to this object. A reply that was cached at another version is out of date."""

    @property
    def is_consumer(self) -> bool:
        """Whether this is a group of the consumer protocol (KIP-848)."""
        return self.metadata is not None

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, of either protocol."""
        return not self.num_members and (self.classic is None or not self.classic.members)

    @property
    def is_gone(self) -> bool:
        """Whether the log has no record of the group any more."""
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
        """Epoch for which the target was computed; 0 if there is no target yet."""
        return self.target_metadata.assignment_epoch if self.target_metadata is not None else 0

    @property
    def catalog_version(self) -> int:
        """Version of the catalog that the group last decided on; it must not decide on an older one."""
        return self.partition_metadata.catalog_version if self.partition_metadata is not None else 0

    @property
    def topics(self) -> tuple[TopicMetadata, ...]:
        """The subscribed topics that exist, as of the group's last comparison with the catalog."""
        return self.partition_metadata.topics if self.partition_metadata is not None else ()

    @property
    def knows_racks(self) -> bool:
        """Whether the assignor asked for the racks of partitions and any are known."""
        return any(topic.partition_racks for topic in self.topics)

    def resolved(self, regex: str | None) -> tuple[str, ...]:
        """Names that the expression matched when it was last resolved; empty if it is unresolved."""
        value = self.regexes.get(regex) if regex else None
        return value.topics if value is not None else ()

    def target_of(self, member_id: str) -> Mapping[bytes, tuple[int, ...]]:
        """The member's target: topic id → partitions. The same object is returned until the next record 7."""
        part = self._parts.get(member_id)
        if part is None:
            value = self.target.get(member_id)
            if value is None:
                return NOTHING
            part = {topic.topic_id: topic.partitions for topic in value.topic_partitions}
            self._parts[member_id] = part
        return part

    def set_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        """Apply record 7 or its tombstone (None)."""
        self._parts.pop(member_id, None)
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = value

    def member(self, member_id: str) -> Member | None:
        member = self.members.get(member_id)
        return member if member is not None and member.metadata is not None else None

    def joined(self) -> Iterable[Member]:
        """The members that requests can see. Decisions must not depend on their order."""
        return [member for member in self.members.values() if member.metadata is not None]

    @property
    def state(self) -> GroupState:
        """EMPTY, ASSIGNING, RECONCILING or STABLE."""
        num_members, epoch = self.num_members, self.assignment_epoch
        are_settled = self.stable_at.get(epoch, 0) == num_members
        return group_state(GroupFacts(num_members > 0, self.epoch, epoch, are_settled))

    def own(self, member_id: str, current: Current) -> None:
        """Record the member as owner of its partitions; the last one written wins (C.7)."""
        for epochs_of in (current.assigned, current.pending):
            for topic_id, epochs in epochs_of.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def disown(self, member_id: str, current: Current) -> None:
        """Remove the member as owner of its partitions, except those that another member has taken over."""
        for epochs_of in (current.assigned, current.pending):
            for topic_id, epochs in epochs_of.items():
                owner_of = self.owners.get(topic_id, {})
                for partition in epochs:
                    if owner_of.get(partition) == member_id:
                        del owner_of[partition]
                if not owner_of:
                    self.owners.pop(topic_id, None)


def assignor_metadata_of(
    value: ConsumerGroupTargetAssignmentMemberValue | ConsumerGroupCurrentMemberAssignmentValue | None,
) -> AssignorMetadata:
    """Data of a client-side assignor for the member, taken from its record 7 or 8."""
    if value is None or not (value.error or value.metadata_version != -1 or value.metadata_bytes):
        return NO_METADATA
    return AssignorMetadata(value.error, value.metadata_version, value.metadata_bytes)


def current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    """Decode a record 8 into its working form."""
    return Current(
        member_state(value.state),
        value.member_epoch,
        value.previous_member_epoch,
        _epochs_of(value.assigned_partitions, value.member_epoch),
        _epochs_of(value.partitions_pending_revocation, value.member_epoch),
        assignor_metadata_of(value),
    )


def _epochs_of(topics: tuple[TopicPartitions, ...], member_epoch: int) -> PartitionEpochs:
    """Decode partitions with their epochs.

    Records from before KIP-1251 have no epoch per partition; the member epoch is a safe substitute."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
        if len(topic.assignment_epochs) == len(topic.partitions)
        else dict.fromkeys(topic.partitions, member_epoch)
        for topic in topics
        if topic.partitions
    }


def topic_partitions_of(epochs_of: PartitionEpochs) -> tuple[TopicPartitions, ...]:
    """Encode partitions as in records 8: sorted by topic id and partition, with one epoch per partition."""
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
