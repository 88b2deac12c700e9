"""Members of the classic protocol in a consumer group (C.15).

JoinGroup is to them what a heartbeat is to the others: it tells what the member subscribes to and what it
owns, and takes the member one step towards its target. The reply does not wait for other members. It names
the member's epoch as the generation and nobody as the leader, so that every member asks with SyncGroup for
what it may use. Heartbeat tells a member when to join again (`JOIN_AGAIN`).

A client that sends JoinGroup has ended every earlier one: it owns what the request says, and takes up nothing
that it was sent before. So the request acknowledges a revocation by itself. A client that owns partitions
under a member id that the group no longer knows is told so, and gives them up at once; Kafka admits it as a
new member.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.classic.joining import (
    MEMBER_ID_REQUIRED_SINCE,
    new_member_id,
    rebalance_timeout_ms,
    validate_join,
)
from coordinator.classic.members import validate_sync
from coordinator.classic.phases import DETAIL_CHARS_MAX, refused_join
from coordinator.group_context import GroupContext
from coordinator.limits import MigrationPolicy
from coordinator.members.regexes import drop_unsubscribed
from coordinator.members.statics import existing_member, replace_static_member
from coordinator.members.updating import reconcile_step, update_step
from coordinator.migration.downgrading import downgrade_step, plan_downgrade, turns_classic
from coordinator.migration.embedded import assignment_bytes, by_id
from coordinator.state import writes
from coordinator.state.machines import ClassicMemberFacts, GroupState, must_join_again
from coordinator.state.model import Group, Member
from coordinator.state.reconcile import Report
from coordinator.targets.epochs import Step
from coordinator.targets.target import held_by_others, topic_ids
from records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    MemberState,
    ReasonKind,
    TopicPartitions,
    Trigger,
)
from wire.embedded import CONSUMER, ConsumerProtocolSubscription, decode, version_of
from wire.errors import ErrorCode, MalformedFrame
from wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

METADATA_BYTES_MAX = 1 << 20
"""Largest metadata of one member for all its protocols: a record of the group has it."""


def join_consumer_group(
    groups: GroupContext,
    group: Group,
    request: JoinGroupRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Decide a JoinGroup to a consumer group with members; a refusal names no member id, as in Kafka."""
    try:
        return (yield from _join(groups, group, request, version, ctx, builder))
    except RequestRefused as refused:
        return refused_join("", refused.code, version)


def _join(
    groups: GroupContext,
    group: Group,
    request: JoinGroupRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """The checks and their order are Kafka's."""
    validate_join(groups, request)
    _validate_size(groups, request)
    groups.require_catalog(group, ctx)
    _require_room(groups, group, request, ctx)
    if request.group_instance_id is None and not request.member_id and version >= MEMBER_ID_REQUIRED_SINCE:
        return refused_join(new_member_id(groups, None, ctx), ErrorCode.MEMBER_ID_REQUIRED, version)
    member = _member_of(groups, group, request)
    joining = _Joining.of(request, ctx)
    group_id, member_id = group.group_id, request.member_id
    if member is None and member_id and joining.report.owned:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{member_id} is not a member of group {group_id}: it left or its session expired. Give up all "
            "partitions and join without a member id.",
        )
    if not member_id:
        member_id = new_member_id(groups, request.group_instance_id, ctx)
    key = group_id, member_id
    builder.member_id = member_id
    builder.trigger = Trigger.MEMBER_JOINED
    if member is not None and not member.is_classic:
        builder.trigger = Trigger.MEMBER_REJOINED
    elif member is not None:  # it goes on, as others do by heartbeats
        builder.trigger = Trigger.HEARTBEAT
        if joining.acknowledges(group, member):
            builder.trigger, builder.owned = Trigger.MEMBER_ACKED, joining.owned
    groups.restart_session(key, request.session_timeout_ms, ctx)
    groups.forget_joining(key)
    is_last = (
        member is not None
        and member.member_id != member_id
        and not member.is_classic
        and turns_classic(groups, group, (member.member_id,), num_joining=1)
    )
    if member is not None:
        if member.is_away or member.member_id != member_id:
            yield from replace_static_member(groups, group, member, member_id, builder)
        member = group.members[member_id]
    metadata = joining.metadata(member, request, ctx)
    if is_last:
        yield from _in_place_of_last_consumer(
            groups, group, member_id, metadata, joining.report, ctx, builder
        )
        classic = groups.classic.get(group_id)
        if classic is not None:
            return _joined(request, member_id, classic.generation)
    detail = (request.reason or "")[:DETAIL_CHARS_MAX]
    yield from update_step(groups, group_id, member_id, metadata, joining.report, ctx, builder, detail)
    groups.syncs.arm(key, ctx.monotonic_ms, ctx.wall_ms, rebalance_timeout_ms(request))
    return _joined(request, member_id, groups.projection.groups[group_id].members[member_id].current.epoch)


def _in_place_of_last_consumer(
    groups: GroupContext,
    group: Group,
    member_id: str,
    metadata: ConsumerGroupMemberMetadataValue,
    report: Report,
    ctx: Context,
    builder: DecisionBuilder,
) -> Step:
    """Make the group a classic group, unless it is too large for one entry.

    The members go on as they are if all of them are at their target and this one wants the same topics;
    otherwise they rebalance, at the generation that they know."""
    before = group.members[member_id].metadata
    assert before is not None
    yield [writes.member_metadata(group.group_id, member_id, metadata)]
    yield from drop_unsubscribed(groups, group.group_id)
    is_same = before.subscribed_topic_names == metadata.subscribed_topic_names
    if not is_same or before.subscribed_topic_regex is not None:
        builder.because(ReasonKind.SUBSCRIPTION_CHANGED, member_id=member_id)
    elif (records := reconcile_step(group, group.members[member_id], report)) != []:
        yield records
    goes_on = not builder.reasons and group.state is GroupState.STABLE
    downgrade = plan_downgrade(groups, group, (), ctx, rebalances=not goes_on)
    if downgrade is not None:
        yield from downgrade_step(groups, group, downgrade, ctx, builder)
    groups.checked_version.pop(group.group_id, None)  # for the step that follows if it stays


def _joined(request: JoinGroupRequest, member_id: str, generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )


def _validate_size(groups: GroupContext, request: JoinGroupRequest) -> None:
    """Bound what would become a record."""
    limits = groups.limits
    if len(request.member_id.encode()) > limits.member_id_bytes_max:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"MemberId is longer than {limits.member_id_bytes_max} bytes."
        )
    size = sum(len(one.name.encode()) + len(one.metadata) for one in request.protocols)
    if size > METADATA_BYTES_MAX:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"The protocols have {size} bytes of metadata, more than {METADATA_BYTES_MAX}.",
        )


def _require_room(groups: GroupContext, group: Group, request: JoinGroupRequest, ctx: Context) -> None:
    """Raise `RequestRefused` for a member too many, or one with which the others share no protocol."""
    is_known = (
        group.member(request.member_id) is not None or request.group_instance_id in group.static_members
    )
    max_size = ctx.settings.for_group(group.group_id).max_size
    if not is_known and group.num_members >= max_size:
        raise RequestRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"Group {group.group_id} already has the maximum of {max_size} members (group.consumer.max.size)",
        )
    names = {one.name for one in request.protocols}
    common = {name for name in names if group.classic_protocols[name] == group.num_classic}
    if request.protocol_type != CONSUMER or not common:
        raise RequestRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"None of the protocols ({', '.join(sorted(names))}) of type {request.protocol_type} is "
            f"supported by all classic members of group {group.group_id}, which are consumers.",
        )
    if not is_known and groups.limits.migration_policy == MigrationPolicy.DISABLED:
        raise RequestRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Group {group.group_id} has members of the consumer protocol, and "
            "group.consumer.migration.policy is disabled: set group.protocol=consumer, or stop them first.",
        )


def _member_of(groups: GroupContext, group: Group, request: JoinGroupRequest) -> Member | None:
    """The member that joins again, or whose place the request takes; None for a new member."""
    instance_id = request.group_instance_id
    if request.member_id:
        if instance_id is None:
            return group.member(request.member_id)
        return existing_member(groups, group, request.member_id, instance_id)
    owner_id = group.static_members.get(instance_id) if instance_id is not None else None
    return None if owner_id is None else group.members[owner_id]


@dataclass(frozen=True, slots=True)
class _Joining:
    """The content of a JoinGroup: the subscription, and the partitions that the member owns."""

    subscription: ConsumerProtocolSubscription
    report: Report

    @classmethod
    def of(cls, request: JoinGroupRequest, ctx: Context) -> _Joining:
        """Read the metadata of the first protocol: all of them have the same, as in Kafka."""
        try:
            subscription = decode(ConsumerProtocolSubscription, request.protocols[0].metadata)
        except MalformedFrame as error:
            raise RequestRefused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The metadata of protocol {request.protocols[0].name} is no subscription: {error}",
            ) from None
        # The epoch 0 says that the member will not take up what it was sent before.
        return cls(subscription, Report(by_id(subscription.owned_partitions, ctx.catalog), 0, is_full=True))

    def acknowledges(self, group: Group, member: Member) -> bool:
        """Whether the member has given up what it had to."""
        current = member.current
        is_to_revoke = current.state is MemberState.UNREVOKED_PARTITIONS
        return is_to_revoke and self.report.acknowledges(current, topic_ids(group))

    @property
    def owned(self) -> tuple[TopicPartitions, ...]:
        """The partitions that the member reports, as the cause of an acknowledgement records them."""
        return tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in sorted((self.report.owned or {}).items())
        )

    def metadata(
        self, member: Member | None, request: JoinGroupRequest, ctx: Context
    ) -> ConsumerGroupMemberMetadataValue:
        """The member's metadata after this request."""
        old = member.metadata if member is not None else None
        new = ConsumerGroupMemberMetadataValue(
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            client_id=ctx.client_id,
            client_host=ctx.client_host,
            instance_id=request.group_instance_id,
            rack_id=self.subscription.rack_id or None,
            subscribed_topic_names=tuple(sorted(set(self.subscription.topics))),
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=request.session_timeout_ms,
                supported_protocols=tuple(
                    ClassicProtocol(name=one.name, metadata=one.metadata) for one in request.protocols
                ),
            ),
        )
        if old is None:
            return new
        return replace(
            new,
            instance_id=old.instance_id if new.instance_id is None else new.instance_id,
            rack_id=old.rack_id if new.rack_id is None else new.rack_id,
            server_assignor=old.server_assignor,
            group_epoch=old.group_epoch,
        )


def sync_consumer_group(
    groups: GroupContext, group: Group, request: SyncGroupRequest, version: int, ctx: Context
) -> SyncGroupResponse:
    """Tell a classic member which partitions it may use."""
    validate_sync(request, version)
    groups.require_catalog(group, ctx)
    member, classic = _classic_member(groups, group, request.member_id, request.group_instance_id)
    _require_epoch(member, request.generation_id)
    protocol = classic.supported_protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol.name):
        raise RequestRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member.member_id} joined with the protocol {protocol.name} of type {CONSUMER}, not "
            f"{request.protocol_name} of type {request.protocol_type}.",
        )
    current = member.current
    if current.epoch < group.assignment_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(groups, group, member, ctx)
        raise RequestRefused(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"Group {group.group_id} has a newer target, of epoch {group.assignment_epoch}: join again.",
        )
    key = group.group_id, member.member_id
    groups.stop_waiting_for_sync(key)
    groups.restart_session(key, classic.session_timeout_ms, ctx)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes([current.assigned], version_of(protocol.metadata), ctx.catalog),
    )


def heartbeat_consumer_group(
    groups: GroupContext, group: Group, request: HeartbeatRequest, ctx: Context
) -> HeartbeatResponse:
    """Continue the session of a classic member, and tell it whether to join again."""
    member, classic = _classic_member(groups, group, request.member_id, request.group_instance_id)
    _require_epoch(member, request.generation_id)
    groups.restart_session((group.group_id, member.member_id), classic.session_timeout_ms, ctx)
    current = member.current
    waits = current.state is MemberState.UNRELEASED_PARTITIONS and bool(held_by_others(group, member))
    facts = ClassicMemberFacts(current.epoch, group.assignment_epoch, current.state, waits)
    if not must_join_again(facts):
        return HeartbeatResponse()
    _expect_join(groups, group, member, ctx)
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def _expect_join(groups: GroupContext, group: Group, member: Member, ctx: Context) -> None:
    """Begin to wait for the member's JoinGroup, unless this leader waits already."""
    key = group.group_id, member.member_id
    metadata = member.metadata
    assert metadata is not None
    if groups.joins.get(key) is None:
        groups.joins.arm(key, ctx.monotonic_ms, ctx.wall_ms, metadata.rebalance_timeout_ms)


def _classic_member(
    groups: GroupContext, group: Group, member_id: str, instance_id: str | None
) -> tuple[Member, ClassicMemberMetadata]:
    member = existing_member(groups, group, member_id, instance_id)
    if member.classic is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} of group {group.group_id} speaks the consumer protocol.",
        )
    return member, member.classic


def _require_epoch(member: Member, generation: int) -> None:
    if generation != member.current.epoch:
        raise RequestRefused(
            ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is at epoch {member.current.epoch}, not at generation {generation}. "
            "Join again.",
        )
