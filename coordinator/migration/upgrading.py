"""The upgrade: a member of the consumer protocol joins a classic group with members.

Each classic member becomes a member of the consumer group under its own id, at the epoch that was its
generation, with the partitions of its last assignment; requests of it that wait are answered
REBALANCE_IN_PROGRESS. The new member's join then begins the next epoch, and Heartbeat tells the classic
members to join again.

A refused upgrade changes nothing. Its client gets GROUP_ID_NOT_FOUND with the reason, which the node's log
has as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.api import Context, DecisionBuilder, RequestRefused
from coordinator.assignors.spi import MemberAssignment
from coordinator.classic.phases import refuse_waiting
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember
from coordinator.limits import DECISION_BYTES_MAX, Limits, MigrationPolicy
from coordinator.migration.embedded import CONSUMER, by_id
from coordinator.state import writes
from coordinator.state.group_records import APPLY
from coordinator.state.model import Group
from coordinator.state.reconcile import Current
from coordinator.steps import size_of
from coordinator.targets.epochs import Step
from records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    MemberState,
    RawRecord,
    ReasonKind,
    decode_key_and_value,
)
from wire.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode
from wire.errors import ErrorCode, MalformedFrame

UPGRADE_BYTES_MAX = DECISION_BYTES_MAX // 2
"""Largest upgrade: the same decision also admits the member that caused it, with a new target."""

Partitions = Mapping[bytes, set[int]]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade that may begin: the classic group, its records as a consumer group, and that group."""

    classic: ClassicGroup
    records: list[RawRecord]
    group: Group


class CannotUpgrade(Exception):
    """Why a classic group keeps its protocol, as the end of a sentence."""


def plan_upgrade(
    groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder
) -> Upgrade | None:
    """The upgrade of the group that a joining member asks for; None if it has no classic members.

    Raises `RequestRefused` if the group cannot be upgraded."""
    if not groups.has_classic_members(group_id):
        return None
    classic = groups.classic_group(group_id, ctx)
    if classic is None:  # a consumer group; records of a classic one were left by compaction
        return None
    try:
        _check(groups, classic, ctx)
        records = _records(classic, ctx, groups.limits)
    except CannotUpgrade as why:
        message = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
        builder.notice = message
        raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, message) from None
    group = Group(group_id)
    for raw in records[1:]:
        key, value = decode_key_and_value(raw)
        APPLY[type(key)](group, key, value)
    return Upgrade(classic, records, group)


def upgrade_step(
    groups: GroupContext, upgrade: Upgrade, member_id: str, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Make the group a consumer group, because this member joins it."""
    classic = upgrade.classic
    builder.because(ReasonKind.GROUP_UPGRADED, member_id=member_id)
    yield upgrade.records
    groups.classic.forget(classic.group_id)
    for member in classic.members.values():
        refuse_waiting(classic, member, builder, ErrorCode.REBALANCE_IN_PROGRESS)
        key = classic.group_id, member.member_id
        if groups.sessions.get(key) is None:
            groups.sessions.arm(key, ctx.monotonic_ms, ctx.wall_ms, member.session_timeout_ms)


def _check(groups: GroupContext, classic: ClassicGroup, ctx: Context) -> None:
    """Raise `CannotUpgrade` for what Kafka checks before it reads what the members say."""
    if not groups.classic.is_served:
        raise CannotUpgrade("it has members, and the classic protocol is not served: stop them first")
    if not MigrationPolicy(groups.limits.migration_policy).allows_upgrade:
        raise CannotUpgrade(
            f"group.consumer.migration.policy is {groups.limits.migration_policy}: stop its members first"
        )
    if classic.protocol_type != CONSUMER:
        raise CannotUpgrade(f"its members are not consumers: their protocol type is {classic.protocol_type}")
    max_size = ctx.settings.for_group(classic.group_id).max_size
    if len(classic.members) > max_size:
        raise CannotUpgrade(
            f"its {len(classic.members)} members are more than group.consumer.max.size, {max_size}"
        )


def _records(classic: ClassicGroup, ctx: Context, limits: Limits) -> list[RawRecord]:
    """The records of the upgrade, in Kafka's order (B.2)."""
    group_id, epoch = classic.group_id, classic.generation
    protocol = classic.protocol or classic.best_protocol()
    members: list[RawRecord] = []
    targets: list[RawRecord] = []
    currents: list[RawRecord] = []
    owners: dict[tuple[bytes, int], str] = {}
    assigned_to = {one.member_id: _assigned(one, ctx) for one in classic.members.values()}
    for member_id, assigned in assigned_to.items():
        _claim(owners, member_id, assigned, ctx)
    for member in classic.members.values():
        member_id, assigned = member.member_id, assigned_to[member.member_id]
        subscription = _subscription(member, protocol, limits)
        metadata = _metadata(member, subscription, epoch)
        members.append(writes.member_metadata(group_id, member_id, metadata))
        kept = {topic_id: set(numbers) for topic_id, numbers in assigned.items()}
        if not member.assignment or member_id in classic.not_synced:
            # It has not taken up this assignment, and may still own what it had when it joined.
            for topic_id, numbers in by_id(subscription.owned_partitions, ctx.catalog).items():
                for number in numbers:
                    if owners.setdefault((topic_id, number), member_id) == member_id:
                        kept.setdefault(topic_id, set()).add(number)
        target = MemberAssignment({topic_id: tuple(numbers) for topic_id, numbers in kept.items()})
        targets.append(writes.target_member(group_id, member_id, target, epoch))
        epochs = {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in kept.items()}
        current = Current(MemberState.STABLE, epoch, epoch, epochs)
        currents.append(writes.current_assignment(group_id, member_id, current))
    records = [
        writes.classic_tombstone(group_id),
        *members,
        writes.group_epoch(Group(group_id), epoch, ctx.wall_ms),
        *targets,
        writes.target_epoch(group_id, epoch, 0),
        *currents,
    ]
    if (size := size_of(records)) > UPGRADE_BYTES_MAX:
        raise CannotUpgrade(f"its members take {size} bytes of log, more than {UPGRADE_BYTES_MAX}")
    return records


def _assigned(member: GenerationMember, ctx: Context) -> Partitions:
    """The partitions of the member's last assignment; none if it never got one."""
    if not member.assignment:
        return {}
    try:
        assignment = decode(ConsumerProtocolAssignment, member.assignment)
    except MalformedFrame as error:
        raise CannotUpgrade(f"the assignment of member {member.member_id} cannot be read: {error}") from None
    if assignment.user_data:
        raise CannotUpgrade(
            f"its assignor sent data of its own to member {member.member_id}, which would be lost: change "
            "the members to an assignor that does not"
        )
    return by_id(assignment.assigned_partitions, ctx.catalog)


def _claim(owners: dict[tuple[bytes, int], str], member_id: str, assigned: Partitions, ctx: Context) -> None:
    """Note whose these partitions are. Members of a consumer group cannot share one."""
    for topic_id, numbers in assigned.items():
        for number in numbers:
            owner_id = owners.setdefault((topic_id, number), member_id)
            if owner_id != member_id:
                topic = ctx.catalog.topic_by_id(topic_id)
                assert topic is not None
                raise CannotUpgrade(
                    f"its assignor gave partition {number} of topic {topic.name} to two members, {owner_id} "
                    f"and {member_id}"
                )


def _subscription(member: GenerationMember, protocol: str, limits: Limits) -> ConsumerProtocolSubscription:
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
