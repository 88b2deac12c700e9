"""The downgrade: the last member of the consumer protocol is gone, and members of the classic protocol stay.

The group becomes a classic group whose generation is its epoch, and prepares a rebalance, so that its members
take over what is free now. Record 2 names no leader then, because nobody has computed an assignment: a new
leader of the shard that finds such a record prepares the rebalance in its turn. Kafka writes a leader, and a
coordinator that takes over serves the group as stable, with partitions that nobody owns.

Each member's assignment in record 2 is what it may own, where Kafka writes its target: a member that has not
reached its target has other partitions than that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from coordinator.api import Context, DecisionBuilder
from coordinator.classic.phases import is_too_large, prepare_rebalance
from coordinator.group_context import GroupContext
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember
from coordinator.leader_state.classic_groups import ClassicTimer
from coordinator.limits import DECISION_BYTES_MAX, MigrationPolicy
from coordinator.migration.embedded import assignment_bytes
from coordinator.state import writes
from coordinator.state.machines import ClassicState
from coordinator.state.model import Group, Member
from coordinator.steps import size_of
from coordinator.targets.epochs import Step
from records import RawRecord, ReasonKind
from wire.embedded import CONSUMER, version_of
from wire.errors import MalformedFrame


@dataclass(frozen=True, slots=True)
class Downgrade:
    """A downgrade that may begin: the classic group that the consumer group becomes, and the records."""

    classic: ClassicGroup
    records: list[RawRecord]


def plan_downgrade(
    groups: GroupContext, group: Group, gone: Collection[str], ctx: Context, *, rebalances: bool
) -> Downgrade | None:
    """The downgrade of a group without the members that are `gone`; None if it remains a consumer group.

    It remains one, with classic members alone, if it may not be a classic group, is too large for one entry,
    or uses topics that this node does not know yet; it is looked at again when a member goes.

    Without `rebalances` the members go on with the partitions that they have."""
    if not turns_classic(groups, group, gone) or groups.catalog_is_behind(group, ctx):
        return None
    classic = ClassicGroup(
        group.group_id, group.epoch, ClassicState.STABLE, ClassicState.STABLE, protocol_type=CONSUMER
    )
    left = [member for member in group.joined() if member.member_id not in gone]
    left.sort(key=lambda member: member.member_id)
    for member in left:
        classic.add(_as_classic(member))
    classic.protocol = classic.best_protocol()
    try:
        for member in left:
            one = classic.members[member.member_id]
            version = version_of(one.metadata(classic.protocol))
            owned = (member.current.assigned, member.current.pending)
            one.assignment = assignment_bytes(owned, version, ctx.catalog)
    except MalformedFrame:  # only in imported logs: a join must tell a subscription
        return None
    if rebalances:
        classic.leader = None
    record = writes.classic_group(group.group_id, classic.value(ctx.wall_ms))
    records = [*writes.group_tombstones(group), record]
    fits = not is_too_large(record) and size_of(records) <= DECISION_BYTES_MAX
    return Downgrade(classic, records) if fits else None


def turns_classic(groups: GroupContext, group: Group, gone: Collection[str], *, num_joining: int = 0) -> bool:
    """Whether only classic members are left, with those who join, and the group may become theirs."""
    if not group.num_classic + num_joining:
        return False
    going = [member for member_id in gone if (member := group.member(member_id)) is not None]
    num_left = group.num_members - len(going) + num_joining
    num_classic = group.num_classic - sum(member.is_classic for member in going) + num_joining
    return (
        0 < num_left == num_classic
        and num_left <= groups.limits.classic_group_size_max
        and groups.classic.is_served
        and MigrationPolicy(groups.limits.migration_policy).allows_downgrade
    )


def _as_classic(member: Member) -> GenerationMember:
    metadata = member.metadata
    assert metadata is not None
    classic = member.classic
    assert classic is not None
    return GenerationMember(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms if metadata.rebalance_timeout_ms >= 0 else classic.session_timeout_ms,
        classic.session_timeout_ms,
        tuple((one.name, one.metadata) for one in classic.supported_protocols),
    )


def downgrade_step(
    groups: GroupContext, group: Group, downgrade: Downgrade, ctx: Context, builder: DecisionBuilder
) -> Step:
    """Make the group a classic group; unless its members go on as they are, it prepares a rebalance."""
    classic, group_id = downgrade.classic, group.group_id
    builder.because(ReasonKind.GROUP_DOWNGRADED)
    member_ids = list(group.members)
    yield downgrade.records
    for member_id in member_ids:
        groups.forget_member(group_id, member_id)
    groups.forget_protocol(group_id, ctx)
    groups.classic.put(classic)
    for member in classic.members.values():
        groups.classic.arm(
            ClassicTimer.SESSION, group_id, member.session_timeout_ms, ctx, member.member_id, is_heard=False
        )
    if classic.leader is None:
        classic.reasons |= builder.reasons
        yield from prepare_rebalance(groups, classic, ctx, builder)
