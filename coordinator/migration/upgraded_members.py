"""A classic member as a member of the consumer group that its group becomes: what it said, and its records.

An upgrade is one entry with three records for each member, of whom there may be thousands. Most of its work
concerns one member at a time: reading what it and its leader said, and encoding its records. A decision that
upgrades a large group has this done before, in turns of its own (`coordinator.migration.preparing`).
Invariant: what was prepared is used only if everything that it was made of is still the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.assignors.spi import MemberAssignment
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember
from coordinator.limits import Limits
from coordinator.migration.embedded import by_id
from coordinator.state import writes
from coordinator.state.model import Member
from coordinator.state.reconcile import Current
from coordinator.topics import CatalogView
from records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    MemberState,
    RawRecord,
    decode_ahead,
)
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    decode,
)
from wire.errors import MalformedFrame

Partitions = dict[bytes, set[int]]
"""Topic id → partitions."""


class CannotUpgrade(Exception):
    """The reason why a classic group keeps its protocol, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class UpgradedMember:
    """The member, with its records 5, 7 and 8."""

    member: Member
    records: tuple[RawRecord, ...]


@dataclass(frozen=True, slots=True)
class PreparedMember:
    """The claims of one member, and the member as it will be if it owns what it claims to."""

    basis: tuple[object, ...]
    assigned: Sequence[TopicPartitionsByName]
    subscription: ConsumerProtocolSubscription
    owned: Partitions
    upgraded: UpgradedMember


def prepared_of(classic: ClassicGroup, member: GenerationMember, protocol: str) -> PreparedMember | None:
    """Return what is prepared of the member, if it still holds."""
    prepared = classic.prepared.get(member.member_id)
    if isinstance(prepared, PreparedMember) and prepared.basis == _basis(classic, member, protocol):
        return prepared
    return None


def prepare_member(
    classic: ClassicGroup, member: GenerationMember, protocol: str, catalog: CatalogView, limits: Limits
) -> None:
    """Prepare a member, unless the group cannot be upgraded because of it."""
    try:
        assigned = assigned_of(member)
        subscription = subscription_of(member, protocol, limits)
    except CannotUpgrade:
        return
    owned = by_id(assigned, catalog)
    if may_own_former(classic, member):
        for topic_id, numbers in by_id(subscription.owned_partitions, catalog).items():
            owned.setdefault(topic_id, set()).update(numbers)
    upgraded = upgraded_member(classic, member, subscription, owned)
    records = tuple([decode_ahead(raw) for raw in upgraded.records])
    upgraded = UpgradedMember(upgraded.member, records)
    basis = _basis(classic, member, protocol)
    classic.prepared[member.member_id] = PreparedMember(basis, assigned, subscription, owned, upgraded)


def _basis(classic: ClassicGroup, member: GenerationMember, protocol: str) -> tuple[object, ...]:
    """Everything that a `PreparedMember` is made of, except the catalog, which `owned` tells."""
    return (
        protocol,
        classic.generation,
        member.assignment,
        member.protocols,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
    )


def may_own_former(classic: ClassicGroup, member: GenerationMember) -> bool:
    """Whether the member may not have taken up its assignment: it may still own what it had when it joined.

    One that waits in the join phase says what it owns now; the answer with its assignment may be lost."""
    return not member.assignment or member.member_id in classic.not_synced or member.join is not None


def assigned_of(member: GenerationMember) -> Sequence[TopicPartitionsByName]:
    """The member's last assignment; nothing if it never got one."""
    if not member.assignment:
        return ()
    try:
        assignment = decode(ConsumerProtocolAssignment, member.assignment)
    except MalformedFrame as error:
        raise CannotUpgrade(f"the assignment of member {member.member_id} cannot be read: {error}") from None
    if assignment.user_data:
        raise CannotUpgrade(
            f"its assignor sent data of its own to member {member.member_id}, which would be lost: change "
            "the members to an assignor that does not"
        )
    return assignment.assigned_partitions


def subscription_of(member: GenerationMember, protocol: str, limits: Limits) -> ConsumerProtocolSubscription:
    try:
        subscription = decode(ConsumerProtocolSubscription, member.metadata(protocol))
    except MalformedFrame as error:
        raise CannotUpgrade(
            f"the subscription of member {member.member_id} cannot be read: {error}"
        ) from None
    if len(subscription.topics) > limits.topics_per_member_max:
        raise CannotUpgrade(
            f"member {member.member_id} subscribes to more than {limits.topics_per_member_max} topics"
        )
    return subscription


def upgraded_member(
    classic: ClassicGroup,
    member: GenerationMember,
    subscription: ConsumerProtocolSubscription,
    owned: Partitions,
) -> UpgradedMember:
    """The member at the epoch that was its generation, with what it owns; that is its target too."""
    group_id, member_id, epoch = classic.group_id, member.member_id, classic.generation
    metadata = _metadata(member, subscription, epoch)
    epochs = {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in owned.items()}
    current = Current(MemberState.STABLE, epoch, epoch, epochs)
    target = MemberAssignment({topic_id: tuple(numbers) for topic_id, numbers in owned.items()})
    return UpgradedMember(
        Member(member_id, metadata, None, current),
        (
            writes.member_metadata(group_id, member_id, metadata),
            writes.target_member(group_id, member_id, target, epoch),
            writes.current_assignment(group_id, member_id, current),
        ),
    )


def _metadata(
    member: GenerationMember, subscription: ConsumerProtocolSubscription, epoch: int
) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols
            ),
        ),
        group_epoch=epoch,
    )
