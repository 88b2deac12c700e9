"""The three requests of client-side assignors: the extended heartbeat, Prepare and Install.

KIP-848 describes them and Kafka never shipped them; they use private API keys, see
docs/protocol-extensions.md. The extended heartbeat is the stock one (`coordinator.members.heartbeat`) plus
assignors in the request, and in the response whether to compute a target and which partitions other members
still hold. Prepare returns the group at one epoch. Install is validated against exactly that snapshot,
however far the group has moved on. It is written against the group's present state, and if the next target is
due by then, it is due at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.assignors.spi import AssignmentSpec, PartitionAssignorError
from coordinator.group_context import GroupContext
from coordinator.leader_state.clientrounds import Choice, ClientRound, Prepared
from coordinator.limits import Limits
from coordinator.members.heartbeat import heartbeat
from coordinator.members.leases import require_leases
from coordinator.members.validation import invalid, validate_name
from coordinator.state.model import Group, Member
from coordinator.targets import clientside
from coordinator.targets.clientside import offer, offers_of
from coordinator.targets.clienttargets import answer_of, is_installed, metadata_fault
from coordinator.targets.epochs import target_step
from coordinator.targets.target import assignment_spec, held_by_others, install_records
from records import ClientAssignor, MemberState, Trigger
from wire.errors import ErrorCode
from wire.messages import consumer_group_install_assignment as install
from wire.messages import consumer_group_prepare_assignment as prepare
from wire.messages import extended_consumer_group_heartbeat as extended
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

COORDINATOR_MAY_NAME = 0
"""Version of the stock heartbeat in which a member may join without an id, which the extended one allows
too."""


NO_TOKEN = -1
"""The token of a partition without a lease, and of one that the member is still asked to take up first."""


def extended_heartbeat(
    groups: GroupContext,
    request: extended.ExtendedConsumerGroupHeartbeatRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Decide the stock heartbeat with the member's assignors and leases, and return the extended response."""
    if request.fencing_tokens:
        require_leases(ctx)
    offered = _offered(request.client_assignors, groups.limits)
    group = groups.projection.groups.get(request.group_id)
    member = group.member(request.member_id) if group is not None else None
    before = member.current if member is not None else None
    stock = ConsumerGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=request.topic_partitions,
    )
    reply = yield from heartbeat(
        groups, stock, COORDINATOR_MAY_NAME, ctx, builder, offered, asks_tokens=request.fencing_tokens
    )
    assert isinstance(reply, ConsumerGroupHeartbeatResponse)
    response = extended.ExtendedConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.member_epoch < 0:
        return response
    group = groups.projection.groups[request.group_id]
    member = group.members[builder.member_id]
    response.should_compute_assignment = clientside.is_chosen(groups, group, member.member_id)
    if reply.assignment is not None:
        response.assignment = _assignment(group, member, reply.assignment.topic_partitions)
    elif member.current is not before or member.current.state is MemberState.UNRELEASED_PARTITIONS:
        response.assignment = _assignment(group, member, _wire(member.current.assigned.items()))
    return response


def _assignment(group: Group, member: Member, assigned: list[TopicPartitions]) -> extended.Assignment:
    """The partitions that the member may use, those it has to wait for, and the assignor's data for it."""
    current, tokens = member.current, member.tokens
    return extended.Assignment(
        error=current.assignor_metadata.error,
        assigned_topic_partitions=[
            extended.AssignedTopicPartitions(
                topic_id=one.topic_id,
                partitions=one.partitions,
                fencing_tokens=[of_topic.get(number, NO_TOKEN) for number in one.partitions],
            )
            for one, of_topic in ((one, tokens.get(one.topic_id, {})) for one in assigned)
        ],
        pending_topic_partitions=_wire(held_by_others(group, member).items()),
        metadata_version=current.assignor_metadata.metadata_version,
        metadata_bytes=current.assignor_metadata.metadata_bytes,
    )


def _wire(partitions: Iterable[tuple[bytes, Iterable[int]]]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions, key=lambda topic: topic[0])
    ]


def _offered(assignors: list[extended.Assignor] | None, limits: Limits) -> tuple[ClientAssignor, ...] | None:
    """The assignors of a request, in order. Raises `RequestRefused` if they are not valid."""
    if assignors is None:
        return None
    if len(assignors) > limits.client_assignors_max:
        raise invalid(
            f"ClientAssignors has {len(assignors)} assignors; "
            f"at most {limits.client_assignors_max} are allowed."
        )
    names: set[str] = set()
    for one in assignors:
        validate_name("ClientAssignors.Name", one.name, limits.client_assignor_name_bytes_max)
        if one.name in names:
            raise invalid(f"ClientAssignors: Name {one.name} occurs twice; list each assignor once.")
        names.add(one.name)
        if not 0 <= one.minimum_version <= one.maximum_version:
            raise invalid(
                f"ClientAssignors: {one.name} has MinimumVersion {one.minimum_version} and MaximumVersion "
                f"{one.maximum_version}; versions start at 0, and the minimum must not exceed the maximum."
            )
        fault = metadata_fault(
            one.metadata_version, one.metadata_bytes, one.minimum_version, one.maximum_version
        )
        if fault is not None:
            raise invalid(f"ClientAssignors: {fault}, at {one.name}.")
    size = sum(len(one.metadata_bytes) for one in assignors)
    if size > limits.client_metadata_bytes_max:
        raise invalid(
            f"ClientAssignors: MetadataBytes have {size} bytes in total; at most "
            f"{limits.client_metadata_bytes_max} are allowed."
        )
    return tuple(
        ClientAssignor(
            reason=one.reason,
            minimum_version=one.minimum_version,
            maximum_version=one.maximum_version,
            version=one.metadata_version,
            name=one.name,
            metadata=one.metadata_bytes,
        )
        for one in assignors
    )


def prepare_assignment(
    groups: GroupContext,
    request: prepare.ConsumerGroupPrepareAssignmentRequest,
    ctx: Context,
    builder: DecisionBuilder,
) -> prepare.ConsumerGroupPrepareAssignmentResponse:
    """Return the group to the chosen member. A repeated request returns the group as it is then."""
    group, member = _member(groups, request)
    round_ = _round(groups, group, member, ctx, builder)
    spec = assignment_spec(group)
    round_.prepared = Prepared(group.epoch, spec, groups.pacing.bumped_at.get(group.group_id))
    return prepare.ConsumerGroupPrepareAssignmentResponse(
        group_epoch=group.epoch,
        assignor_name=round_.choice.name,
        assignor_version=round_.choice.version,
        members=[_shown(group.members[member_id], spec, round_.choice) for member_id in sorted(spec.members)],
        topics=[
            prepare.Topic(topic_id=topic_id, topic_name=topic.topic_name, num_partitions=topic.num_partitions)
            for topic_id, topic in sorted(spec.topics.items())
        ],
    )


def _shown(member: Member, spec: AssignmentSpec, choice: Choice) -> prepare.Member:
    own = offer(offers_of(member), choice.name)
    assert own is not None, "all members must support the assignor"
    part = spec.members[member.member_id]
    return prepare.Member(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        instance_id=part.instance_id,
        rack_id=part.rack_id,
        subscribed_topic_ids=sorted(part.subscribed_topics),
        reason=own.reason,
        metadata_version=own.version,
        metadata_bytes=own.metadata,
        topic_partitions=_wire(part.target_partitions.items()),
    )


def install_assignment(
    groups: GroupContext,
    request: install.ConsumerGroupInstallAssignmentRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Install the target that the chosen member computed, for the epoch that it was shown.

    If the group has moved on in the meantime, a member for the next target is chosen at once."""
    group, member = _member(groups, request)
    if is_installed(group, request):  # the first reply was lost
        return install.ConsumerGroupInstallAssignmentResponse()
    round_ = _round(groups, group, member, ctx, builder)
    prepared = round_.prepared
    if prepared is None:
        raise _not_chosen(
            group, member, "it has not sent PrepareAssignment to this coordinator; prepare first"
        )
    if request.group_epoch != prepared.epoch:
        raise RequestRefused(
            ErrorCode.INVALID_ASSIGNMENT,
            f"GroupEpoch is {request.group_epoch}, but epoch {prepared.epoch} was prepared. Prepare again.",
        )
    started_ms = ctx.stopwatch_ms()
    try:
        answer = answer_of(request, prepared.spec, round_.choice, groups.limits)
        records = install_records(
            group, prepared.spec, answer, prepared.epoch, ctx, groups.limits, round_.choice.name
        )
    except PartitionAssignorError as error:
        clientside.fail(groups, group, round_, f"computed an invalid target: {error}", ctx, builder)
        groups.pacing.defer(group.group_id, ctx)  # for the next member, or the server assignor
        raise RequestRefused(ErrorCode.INVALID_ASSIGNMENT, str(error)) from None
    builder.trigger = Trigger.ASSIGNMENT_INSTALLED
    builder.member_id, builder.member_epoch = request.member_id, request.member_epoch
    if prepared.bumped_at is not None:
        builder.refer(groups.shard_id, prepared.bumped_at)
    yield records
    groups.client_side.forget(group.group_id)
    bumped_at = groups.pacing.bumped_at.get(group.group_id)
    groups.pacing.computed(group.group_id, ctx, ctx.stopwatch_ms() - started_ms)
    if group.epoch > group.assignment_epoch:
        if bumped_at is not None:
            groups.pacing.bumped_at[group.group_id] = bumped_at
        yield from target_step(groups, group.group_id, ctx, builder)
    return install.ConsumerGroupInstallAssignmentResponse()


# Checks common to both requests, in the order of KIP-848.


def _member(
    groups: GroupContext,
    request: prepare.ConsumerGroupPrepareAssignmentRequest | install.ConsumerGroupInstallAssignmentRequest,
) -> tuple[Group, Member]:
    validate_name("GroupId", request.group_id, groups.limits.group_id_bytes_max)
    validate_name("MemberId", request.member_id, groups.limits.member_id_bytes_max)
    group = groups.consumer_group(request.group_id)
    member = groups.consumer_member(group, request.member_id)
    if request.member_epoch != member.current.epoch:
        raise RequestRefused(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"MemberEpoch is {request.member_epoch}; member {member.member_id} has epoch "
            f"{member.current.epoch}. Heartbeat first.",
        )
    return group, member


def _round(
    groups: GroupContext, group: Group, member: Member, ctx: Context, builder: DecisionBuilder
) -> ClientRound:
    """The round in which this member is the chosen one. Raises `RequestRefused` if there is none."""
    if (
        clientside.round_of(groups, group) is not None
        and clientside.wait_ms(groups, group, ctx, builder) is None
    ):
        groups.pacing.defer(group.group_id, ctx)  # the round has just ended: the server assignor is next
    round_ = clientside.round_of(groups, group)
    if round_ is None or round_.chosen != member.member_id:
        raise _not_chosen(group, member, "wait for ShouldComputeAssignment in a heartbeat response")
    return round_


def _not_chosen(group: Group, member: Member, why: str) -> RequestRefused:
    return RequestRefused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member.member_id} must not compute a target for group {group.group_id}: {why}.",
    )
