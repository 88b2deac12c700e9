"""The upgrade: a member of the consumer protocol joins a classic group with members.

Each classic member becomes a member of the consumer group under its own id, at the epoch that was its
generation, with the partitions of its last assignment; requests of it that wait are answered
so that it joins again. The new member's join then begins the next epoch, and Heartbeat tells the classic
members to join again.

A refused upgrade changes nothing. Its client gets GROUP_ID_NOT_FOUND with the reason, which the node's log
has as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.api import Context, DecisionBuilder, RequestRefused
from coordinator.classic.phases import answer_sync, refuse_join
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.limits import DECISION_BYTES_MAX, Limits, MigrationPolicy
from coordinator.migration.embedded import by_id
from coordinator.migration.upgraded_members import (
    CannotUpgrade,
    Partitions,
    UpgradedMember,
    assigned_of,
    may_own_former,
    prepared_of,
    subscription_of,
    upgraded_member,
)
from coordinator.state import writes
from coordinator.state.model import Group, Member
from coordinator.steps import size_of
from coordinator.targets.epochs import Step
from records import (
    ConsumerGroupMetadataValue,
    RawRecord,
    ReasonKind,
)
from wire.embedded import CONSUMER
from wire.errors import ErrorCode

UPGRADE_BYTES_MAX = DECISION_BYTES_MAX // 2
"""Largest upgrade: the same decision also admits the member that caused it, with a new target."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade that may begin: the classic group, its records as a consumer group, and that group."""

    classic: ClassicGroup
    records: list[RawRecord]
    group: Group


def plan_upgrade(
    groups: GroupContext, group_id: str, ctx: Context, builder: DecisionBuilder
) -> Upgrade | None:
    """The upgrade of the group that a joining member asks for; None if it has no classic members.

    Raises `RequestRefused` if the group cannot be upgraded."""
    if not groups.has_classic_members(group_id):
        return None
    classic = groups.classic_group(group_id, ctx)
    if classic is None or not classic.members:
        return None  # records of a classic group were left by compaction; or all members left a rebalance
    try:
        _check(groups, classic, ctx)
        upgraded = _members(classic, ctx, groups.limits)
        records = _records(classic, upgraded, ctx)
    except CannotUpgrade as why:
        message = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
        builder.notice = message
        raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, message) from None
    finally:
        classic.prepared.clear()
    return Upgrade(classic, records, _as_it_will_be(classic, [one.member for one in upgraded]))


def upgrade_step(
    groups: GroupContext, upgrade: Upgrade, member_id: str, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Make the group a consumer group, because this member joins it."""
    classic = upgrade.classic
    builder.because(ReasonKind.GROUP_UPGRADED, member_id=member_id)
    builder.reasons |= classic.reasons  # of the rebalance under way, which the upgrade ends
    builder.expiries += classic.expiries
    yield upgrade.records
    groups.classic.forget(classic.group_id)
    for member in classic.members.values():
        # aiokafka's consumer ends when a JoinGroup is answered REBALANCE_IN_PROGRESS, as Kafka does it here.
        # After a failover every client looks for the coordinator, finds this one, and joins again.
        refuse_join(classic, member, builder, ErrorCode.NOT_COORDINATOR)
        answer_sync(classic, member, builder, ErrorCode.REBALANCE_IN_PROGRESS)
        key = classic.group_id, member.member_id
        if groups.sessions.get(key) is None:
            groups.sessions.arm(key, ctx.monotonic_ms, ctx.wall_ms, member.session_timeout_ms)


def _check(groups: GroupContext, classic: ClassicGroup, ctx: Context) -> None:
    """Raise `CannotUpgrade` for what Kafka checks before it reads what the members say."""
    if not groups.classic.is_served:
        raise CannotUpgrade(
            "it has members, and the classic protocol is not served: serve it again "
            "(group.coordinator.rebalance.protocols) until they have left"
        )
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


def upgradable(groups: GroupContext, classic: ClassicGroup, ctx: Context) -> bool:
    """Whether the group may be upgraded, as far as its members need not be asked."""
    try:
        _check(groups, classic, ctx)
    except CannotUpgrade:
        return False
    return True


def _members(classic: ClassicGroup, ctx: Context, limits: Limits) -> list[UpgradedMember]:
    """The classic members as members of the consumer group."""
    protocol = classic.protocol or classic.best_protocol()
    members = list(classic.members.values())
    prepared = [prepared_of(classic, member, protocol) for member in members]
    owners: dict[tuple[bytes, int], str] = {}
    owned_by = [
        by_id(assigned_of(member) if ready is None else ready.assigned, ctx.catalog)
        for member, ready in zip(members, prepared, strict=True)
    ]
    for member, owned in zip(members, owned_by, strict=True):
        _claim(owners, member.member_id, owned, ctx)
    upgraded = []
    for member, ready, owned in zip(members, prepared, owned_by, strict=True):
        subscription = subscription_of(member, protocol, limits) if ready is None else ready.subscription
        if may_own_former(classic, member):
            for topic_id, numbers in by_id(subscription.owned_partitions, ctx.catalog).items():
                for number in numbers:
                    if owners.setdefault((topic_id, number), member.member_id) == member.member_id:
                        owned.setdefault(topic_id, set()).add(number)
        if ready is not None and ready.owned == owned:
            upgraded.append(ready.upgraded)
        else:
            upgraded.append(upgraded_member(classic, member, subscription, owned))
    return upgraded


def _as_it_will_be(classic: ClassicGroup, members: list[Member]) -> Group:
    """The group after the upgrade, as far as a joining member is compared with it."""
    return Group(
        classic.group_id,
        {member.member_id: member for member in members},
        metadata=ConsumerGroupMetadataValue(epoch=classic.generation),
        num_members=len(members),
        static_members=dict(classic.instances),
    )


def _records(classic: ClassicGroup, upgraded: list[UpgradedMember], ctx: Context) -> list[RawRecord]:
    """The records of the upgrade, in Kafka's order (B.2). Each member's target is what it owns."""
    group_id, epoch = classic.group_id, classic.generation
    records = [
        writes.classic_tombstone(group_id),
        *[one.records[0] for one in upgraded],
        writes.group_epoch(Group(group_id), epoch, ctx.wall_ms),
        *[one.records[1] for one in upgraded],
        writes.target_epoch(group_id, epoch, 0),
        *[one.records[2] for one in upgraded],
    ]
    if (size := size_of(records)) > UPGRADE_BYTES_MAX:
        raise CannotUpgrade(f"its members take {size} bytes of log, more than {UPGRADE_BYTES_MAX}")
    return records


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
