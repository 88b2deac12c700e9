"""The changes that a member's metadata makes: to the member, the group's epoch and its target.

Heartbeats of the consumer protocol and JoinGroup requests of the classic protocol both end here, so a group
treats members of both kinds alike.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import Context, DecisionBuilder
from coordinator.group_context import GroupContext
from coordinator.limits import Limits
from coordinator.members.regexes import drop_unsubscribed, is_resolved, want_resolution
from coordinator.state import writes
from coordinator.state.model import Group, Member, assignor_metadata_of
from coordinator.state.reconcile import Report, Target, reconcile
from coordinator.targets import clientside
from coordinator.targets.epochs import Before, Step, epoch_step, target_step
from coordinator.targets.target import subscribed_ids, topic_ids, topic_ids_by_name
from records import ConsumerGroupMemberMetadataValue, RawRecord, ReasonKind, Trigger


def update_step(
    groups: GroupContext,
    group_id: str,
    member_id: str,
    metadata: ConsumerGroupMemberMetadataValue,
    report: Report,
    ctx: Context,
    builder: DecisionBuilder,
    detail: str = "",
) -> Step:
    """Write the member's metadata if it changed, the epoch and the target that follow, and the member's next
    assignment. `detail` is why the client joins, if it says so (KIP-800)."""
    group = groups.projection.groups.get(group_id)
    member = group.member(member_id) if group is not None else None
    before: Before | None = None
    if member is None or metadata != member.metadata:
        before = Before.of(group, ctx, group_id)
        _say_what_changed(builder, group, member, metadata, member_id, groups.limits, detail)
        bumps = bool(builder.reasons)
        epoch = (group.epoch if group is not None else 0) + bumps
        yield [writes.member_metadata(group_id, member_id, replace(metadata, group_epoch=epoch))]
        yield from drop_unsubscribed(groups, group_id)
        want_resolution(groups, group_id, metadata.subscribed_topic_regex, ctx)
    yield from epoch_step(groups, group_id, before, ctx, builder)
    yield from target_step(groups, group_id, ctx, builder)
    group = groups.projection.groups[group_id]
    member = group.members[member_id]
    records = reconcile_step(group, member, report)
    if records:
        yield records
        groups.member_moved(group, member, ctx)


def _say_what_changed(
    builder: DecisionBuilder,
    group: Group | None,
    member: Member | None,
    metadata: ConsumerGroupMemberMetadataValue,
    member_id: str,
    limits: Limits,
    detail: str,
) -> None:
    """Add reasons for an epoch bump.

    These are a new member, a changed subscription, and a changed rack if the assignor uses racks. Other
    changes only change record 5 (C.6)."""
    if group is None or member is None or member.metadata is None:
        builder.because(ReasonKind.MEMBER_JOINED, member_id=member_id, detail=detail)
        return
    is_step = builder.trigger in (Trigger.HEARTBEAT, Trigger.MEMBER_ACKED)
    if is_step and replace(metadata, classic_member_metadata=member.metadata.classic_member_metadata) != (
        member.metadata
    ):  # a classic client tells with every JoinGroup what it owns
        builder.trigger = Trigger.MEMBER_UPDATED
    if metadata.subscribed_topic_names != member.metadata.subscribed_topic_names:
        builder.because(ReasonKind.SUBSCRIPTION_CHANGED, member_id=member_id, detail=detail)
    regex = metadata.subscribed_topic_regex
    if regex != member.metadata.subscribed_topic_regex and is_resolved(group, regex):
        builder.because(ReasonKind.REGEX_CHANGED, member_id=member_id)  # otherwise once it is resolved
    if metadata.rack_id != member.metadata.rack_id and group.knows_racks:
        builder.because(ReasonKind.RACK_CHANGED, member_id=member_id)
    if clientside.change_matters(group, member, metadata.assignors, limits):
        builder.because(ReasonKind.CLIENT_ASSIGNORS_CHANGED, member_id=member_id)


def reconcile_step(group: Group, member: Member, report: Report) -> list[RawRecord]:
    """The member's next assignment (record 8), if it has one."""
    assert member.metadata is not None
    target = Target(
        group.assignment_epoch,
        group.target_of(member.member_id),
        subscribed_ids(group, member.metadata, topic_ids_by_name(group)),
        topic_ids(group),
        assignor_metadata_of(group.target.get(member.member_id)),
    )
    current = reconcile(member.member_id, member.current, target, report, group.owners)
    if current is member.current:
        return []
    return [writes.current_assignment(group.group_id, member.member_id, current)]
