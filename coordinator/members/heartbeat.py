"""ConsumerGroupHeartbeat (KIP-848): a member joins, acknowledges, stays and leaves.

There are three phases, each of which sees the records of the previous one: update the member (and with it the
group's epoch), compute the target if one is due, and reconcile the member with it. All refusals come before
the first record. If computing the target fails, the join succeeds nevertheless, on the old target.

Replies and records follow Kafka, in its newer behaviour where it changed. Rejoining with epoch 0 is always
accepted from an existing member (KAFKA-19233). A member whose last reply was lost may repeat its heartbeat
with the previous epoch if it only owns partitions that were assigned to it; it then receives its assignment
again.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator import oldgroups
from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.group_context import GroupContext
from coordinator.limits import GroupSettings
from coordinator.members.leases import lease_step
from coordinator.members.leaving import leave
from coordinator.members.regexes import check_expression
from coordinator.members.statics import (
    existing_member,
    joining_member,
    leave_temporarily,
    replace_static_member,
)
from coordinator.members.updating import update_step
from coordinator.members.validation import JOIN_EPOCH, LEAVE_EPOCH, validate_heartbeat
from coordinator.migration.upgrading import plan_upgrade, upgrade_step
from coordinator.state import writes
from coordinator.state.model import JOINING, Group, Member
from coordinator.state.reconcile import (
    AWAY_EPOCH,
    NOT_REPORTED,
    Current,
    PartitionEpochs,
    Report,
    existing,
)
from coordinator.targets import clientside
from coordinator.targets.target import topic_ids
from records import (
    ClientAssignor,
    ConsumerGroupMemberMetadataValue,
    MemberState,
    TopicPartitions,
    Trigger,
)
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from wire.messages.consumer_group_heartbeat import TopicPartitions as WirePartitions

Owned = dict[bytes, set[int]]


def heartbeat(
    groups: GroupContext,
    request: ConsumerGroupHeartbeatRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
    offered: tuple[ClientAssignor, ...] | None = None,
    *,
    asks_tokens: bool = False,
) -> Steps:
    """Decide one heartbeat. Raises `RequestRefused` before the first step, or returns the response.

    `offered` are the member's client-side assignors, or None if the request does not list any; `asks_tokens`
    is whether it asks for fencing tokens (`coordinator.members.extensions`)."""
    settings = ctx.settings.for_group(request.group_id)
    validate_heartbeat(request, version, settings.assignors, groups.limits)
    builder.member_id, builder.member_epoch = request.member_id, request.member_epoch
    if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
        for_good = request.member_epoch == LEAVE_EPOCH
        yield from (leave if for_good else leave_temporarily)(groups, request, ctx, builder)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    owned = _owned(request)
    group = groups.projection.groups.get(request.group_id)
    upgrade = plan_upgrade(groups, request.group_id, ctx, builder) if not request.member_epoch else None
    if upgrade is not None:
        group = upgrade.group
    member = _admit(groups, group, request, owned, settings, ctx)
    check_expression(group, request.subscribed_topic_regex, groups.limits)
    if not request.member_id:
        builder.member_id = ctx.fresh_id()
    group_id, member_id = request.group_id, builder.member_id
    current_before = member.current if member is not None else JOINING
    was_classic = member is not None and member.is_classic
    may_have_lost_reply = member is not None and request.member_epoch < member.current.epoch
    key = group_id, member_id
    report = groups.reports.hear(key, member, owned, request.member_epoch, _is_full(request))

    builder.trigger = _trigger(group, member, report)
    if builder.trigger is Trigger.MEMBER_ACKED:
        builder.owned = _as_reported(owned or {})
    groups.restart_session(key, settings.session_timeout_ms, ctx)  # done first, so that no failure skips it
    if upgrade is not None:
        yield from upgrade_step(groups, upgrade, member_id, ctx, builder)
        group = groups.projection.groups[group_id]
    elif group is None or group.classic is not None:
        yield from _make_way(groups, group, group_id)
    if group is not None and member is not None:
        yield from _take_place(groups, group, member, member_id, builder)
        member = group.members[member_id]
    metadata = clientside.with_assignors(
        _updated(member, request, ctx), member, offered, is_join=not request.member_epoch
    )
    yield from update_step(groups, group_id, member_id, metadata, report, ctx, builder)
    group = groups.projection.groups[group_id]
    member = group.members[member_id]
    leases_before = member.leases
    if asks_tokens or leases_before is not None:
        kept = current_before.assigned if request.member_epoch and not was_classic else {}
        yield from lease_step(group_id, member, kept, ctx, asks=asks_tokens)
    has_new_tokens = asks_tokens and member.leases != leases_before
    # A report may acknowledge a revocation although it is older than that: then the next reply must say it.
    is_in_doubt = builder.trigger is Trigger.MEMBER_ACKED and current_before.previous_epoch == NOT_REPORTED
    is_overdue = groups.reports.is_overdue(key, ctx.monotonic_ms, settings.heartbeat_interval_ms)
    is_due = report.is_full or may_have_lost_reply or is_in_doubt or has_new_tokens or is_overdue
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member.current.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=_assignment(groups, group, member, current_before, report, ctx, is_due=is_due),
    )


def _take_place(
    groups: GroupContext, group: Group, member: Member, member_id: str, builder: DecisionBuilder
) -> Steps:
    """Let a member that is known go on in the consumer protocol, under the id of its heartbeat."""
    if member.is_classic:  # it changes its protocol, and is waited for no more
        groups.forget_joining((group.group_id, member_id))
    if member.is_away or member.member_id != member_id:
        yield from replace_static_member(groups, group, member, member_id, builder)
    return None


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: Owned = {}
    for topic in request.topic_partitions:  # the request may list a topic twice
        if topic.partitions:
            owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _admit(
    groups: GroupContext,
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    owned: Owned | None,
    settings: GroupSettings,
    ctx: Context,
) -> Member | None:
    """Check the request against the group's state, and return the member, or None for a new one.

    A join may return a member with another id: a static member that is away, whose place the join takes."""
    joins = request.member_epoch == JOIN_EPOCH
    if not joins:
        if groups.classic.get(request.group_id) is not None:
            raise RequestRefused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {request.group_id} went back to the classic protocol when its last member of the "
                "consumer protocol was gone. Give up all partitions and join with member epoch 0.",
            )
        group = groups.consumer_group(request.group_id)
        groups.require_catalog(group, ctx)
        member = existing_member(groups, group, request.member_id, request.instance_id)
        _check_epoch(member, request, owned)
        return member
    if group is None or not group.is_consumer:
        _admit_new_group(groups, request.group_id)
        return None
    groups.require_catalog(group, ctx)
    return joining_member(group, request, settings.max_size)


def _make_way(groups: GroupContext, group: Group | None, group_id: str) -> Steps:
    """Remove the group of another protocol, without members, that has the id."""
    if group is not None:
        yield [writes.classic_tombstone(group_id)]
        groups.classic.forget(group_id)
    elif gone := oldgroups.tombstones(groups, group_id):
        yield gone
    return None


def _admit_new_group(groups: GroupContext, group_id: str) -> None:
    if not groups.has_room_for(group_id):
        raise RequestRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"This shard already holds the maximum of {groups.limits.groups_max} groups; delete unused ones.",
        )


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest, owned: Owned | None) -> None:
    """Check the epoch: it must be equal to the member's, or the previous one if the last reply was lost."""
    current, received = member.current, request.member_epoch
    if current.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise RequestRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} owns partitions and is in a state unknown to this release. Give up "
            "all partitions and join with member epoch 0.",
        )
    if received == current.epoch:
        return
    is_previous = received < current.epoch and received == current.previous_epoch
    if is_previous and owned is not None and _is_part_of(owned, current.assigned):
        return
    raise RequestRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"Member {member.member_id} has epoch {current.epoch}, not {received}. "
        "Give up all partitions and join with member epoch 0.",
    )


def _is_part_of(owned: Owned, assigned: PartitionEpochs) -> bool:
    return all(partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


def _trigger(group: Group | None, member: Member | None, report: Report) -> Trigger:
    if group is None or member is None:
        return Trigger.MEMBER_JOINED
    if report.epoch == JOIN_EPOCH:
        return Trigger.MEMBER_REJOINED
    current = member.current
    if current.state is not MemberState.UNREVOKED_PARTITIONS:
        return Trigger.HEARTBEAT
    return Trigger.MEMBER_ACKED if report.acknowledges(current, topic_ids(group)) else Trigger.HEARTBEAT


def _updated(
    member: Member | None, request: ConsumerGroupHeartbeatRequest, ctx: Context
) -> ConsumerGroupMemberMetadataValue:
    """The member's metadata after this request. Fields that are null in the request keep their value."""
    old = member.metadata if member is not None else None
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    if old is None:
        return ConsumerGroupMemberMetadataValue(
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=ctx.client_id,
            client_host=ctx.client_host,
            subscribed_topic_names=tuple(sorted(set(names or ()))),
            subscribed_topic_regex=regex or None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=request.server_assignor,
        )
    if (
        names is None
        and regex is None
        and request.rack_id is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and old.client_id == ctx.client_id
        and old.client_host == ctx.client_host
        and old.classic_member_metadata is None
    ):
        return old
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        old,
        rack_id=request.rack_id if request.rack_id is not None else old.rack_id,
        client_id=ctx.client_id,
        client_host=ctx.client_host,
        subscribed_topic_names=tuple(sorted(set(names))) if names is not None else old.subscribed_topic_names,
        subscribed_topic_regex=(regex or None) if regex is not None else old.subscribed_topic_regex,
        rebalance_timeout_ms=timeout_ms if timeout_ms != -1 else old.rebalance_timeout_ms,
        classic_member_metadata=None,
        server_assignor=request.server_assignor
        if request.server_assignor is not None
        else old.server_assignor,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether this is a join, or a heartbeat with all fields; it is answered in full."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(
    groups: GroupContext,
    group: Group,
    member: Member,
    before: Current,
    report: Report,
    ctx: Context,
    *,
    is_due: bool,
) -> Assignment | None:
    """The partitions that the member may use, or None if there is nothing new and none is due.

    A revocation is told by leaving partitions out; if it is uncertain that the member ever had them, they are
    assigned to it once more instead."""
    current = member.current
    is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS
    key = group.group_id, member.member_id
    is_new = current.assigned != before.assigned
    is_silent = report.owned is None and key in groups.reports.unacknowledged
    is_untold = is_revoking and not report.is_told and not is_silent
    if not (is_due or is_new or is_untold):
        return None
    topics = topic_ids(group) if is_revoking else frozenset()
    is_open = report.leaves_open(before, current, topics)
    groups.reports.answer(key, is_revoking and not is_open)
    partitions = {topic_id: set(epochs) for topic_id, epochs in current.assigned.items()}
    for topic_id, epochs in existing(current.pending, topics).items() if is_open else ():
        partitions.setdefault(topic_id, set()).update(epochs)
    if groups.reports.expect(key, partitions, ctx.monotonic_ms, is_new=is_new, is_revoking=is_revoking):
        groups.invalidate_replies(group.group_id)  # the next heartbeat may have to repeat the assignment
    return Assignment(
        topic_partitions=[
            WirePartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
        ]
    )


def _as_reported(owned: Owned) -> tuple[TopicPartitions, ...]:
    """The reported partitions, as the cause of an acknowledgement records them."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
        for topic_id, partitions in sorted(owned.items())
    )
