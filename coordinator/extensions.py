"""The three requests of client-side assignors: the extended heartbeat, Prepare and Install.

KIP-848 describes them and Kafka never shipped them; they travel under private keys, as
docs/protocol-extensions.md says. The heartbeat is the stock one (`coordinator.heartbeat`) with assignors
coming in, and with more going out: whether to compute, and which partitions are still held by others. Prepare
shows the group at one epoch. Install is judged by exactly that, however far the group has moved on; it is
written against the group of now, and what is due then is due at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from coordinator import clientside
from coordinator.api import Context, Draft, Refused, Steps
from coordinator.assignors.spi import AssignmentSpec, MemberAssignment, PartitionAssignorError
from coordinator.clientside import Choice, Prepared, Round, offer, offers_of
from coordinator.core import Core
from coordinator.epochs import target_step
from coordinator.heartbeat import heartbeat
from coordinator.limits import Limits
from coordinator.model import Group, Member, told_by
from coordinator.reconcile import Told
from coordinator.target import assignment_spec, install_records, subscribed_ids, topic_ids_by_name
from coordinator.validation import invalid, validate_name
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
"""The version of the stock heartbeat in which a member may join without an id, as it may here."""


def extended_heartbeat(
    core: Core,
    request: extended.ExtendedConsumerGroupHeartbeatRequest,
    version: int,
    ctx: Context,
    draft: Draft,
) -> Steps:
    """The stock heartbeat's decision, with assignors; returns the extended response."""
    offered = _offered(request.client_assignors, core.limits)
    group = core.projection.groups.get(request.group_id)
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
    reply = yield from heartbeat(core, stock, COORDINATOR_MAY_NAME, ctx, draft, offered)
    assert isinstance(reply, ConsumerGroupHeartbeatResponse)
    response = extended.ExtendedConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.member_epoch < 0:
        return response
    group = core.projection.groups[request.group_id]
    member = group.members[draft.member_id]
    response.should_compute_assignment = clientside.is_chosen(core, group, member.member_id)
    is_settled = member.current is before and member.current.state is MemberState.STABLE
    if reply.assignment is not None or not is_settled:
        response.assignment = _assignment(group, member)
    return response


def _assignment(group: Group, member: Member) -> extended.Assignment:
    """What the member may use, what it has to wait for, and what the assignor tells it."""
    current = member.current
    return extended.Assignment(
        error=current.told.error,
        assigned_topic_partitions=_wire(current.assigned.items()),
        pending_topic_partitions=_wire(_held_by_others(group, member).items()),
        metadata_version=current.told.metadata_version,
        metadata_bytes=current.told.metadata_bytes,
    )


def _held_by_others(group: Group, member: Member) -> dict[bytes, list[int]]:
    """Partitions of the member's target that their former owners have not given up yet."""
    assert member.metadata is not None
    subscribed = subscribed_ids(group, member.metadata, topic_ids_by_name(group))
    held: dict[bytes, list[int]] = {}
    for topic_id, partitions in group.target_of(member.member_id).items():
        owner_of = group.owners.get(topic_id)
        if not owner_of or topic_id not in subscribed:
            continue
        numbers = [one for one in partitions if owner_of.get(one, member.member_id) != member.member_id]
        if numbers:
            held[topic_id] = numbers
    return held


def _wire(partitions: Iterable[tuple[bytes, Iterable[int]]]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions, key=lambda topic: topic[0])
    ]


def _offered(assignors: list[extended.Assignor] | None, limits: Limits) -> tuple[ClientAssignor, ...] | None:
    """The assignors of a request, in order; raises `Refused` for what cannot be meant."""
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
            raise invalid(f"ClientAssignors: Name {one.name} is there twice; each assignor may stand once.")
        names.add(one.name)
        if not 0 <= one.minimum_version <= one.maximum_version:
            raise invalid(
                f"ClientAssignors: {one.name} has MinimumVersion {one.minimum_version} and MaximumVersion "
                f"{one.maximum_version}; versions begin with 0, the minimum first."
            )
        fault = _metadata_fault(
            one.metadata_version, one.metadata_bytes, one.minimum_version, one.maximum_version
        )
        if fault is not None:
            raise invalid(f"ClientAssignors: {fault}, at {one.name}.")
    size = sum(len(one.metadata_bytes) for one in assignors)
    if size > limits.client_metadata_bytes_max:
        raise invalid(
            f"ClientAssignors: MetadataBytes are {size} bytes together; at most "
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


def _metadata_fault(version: int, metadata: bytes, low: int, high: int) -> str | None:
    """What is wrong with versioned metadata, if anything."""
    if version == -1:
        return f"MetadataVersion -1 means none, but there are {len(metadata)} bytes" if metadata else None
    if not low <= version <= high:
        return f"MetadataVersion is {version}, outside {low} to {high}"
    return None


def prepare_assignment(
    core: Core, request: prepare.ConsumerGroupPrepareAssignmentRequest, ctx: Context
) -> prepare.ConsumerGroupPrepareAssignmentResponse:
    """Shows the group to the chosen member. Asked again it shows the group as it is then."""
    group, member = _member(core, request)
    round_ = _round(core, group, member, ctx)
    spec = assignment_spec(group)
    round_.prepared = Prepared(group.epoch, spec, core.pacing.bumped_at.get(group.group_id))
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
    assert own is not None, "the assignor is common to all"
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
    core: Core,
    request: install.ConsumerGroupInstallAssignmentRequest,
    version: int,
    ctx: Context,
    draft: Draft,
) -> Steps:
    """Makes what the chosen member computed the target, for the epoch that it was shown. If the group has
    moved on meanwhile, the next member is chosen at once."""
    group, member = _member(core, request)
    if _is_installed(group, request):  # its reply was lost
        return install.ConsumerGroupInstallAssignmentResponse()
    round_ = _round(core, group, member, ctx)
    prepared = round_.prepared
    if prepared is None:
        raise _not_chosen(group, member, "it has not prepared one with this coordinator; prepare first")
    if request.group_epoch != prepared.epoch:
        raise Refused(
            ErrorCode.INVALID_ASSIGNMENT,
            f"GroupEpoch is {request.group_epoch}; what was prepared is of epoch {prepared.epoch}. "
            "Prepare again.",
        )
    started_ms = ctx.stopwatch_ms()
    try:
        answer = _answer(request, prepared.spec, round_.choice, core.limits)
        records = install_records(
            group, prepared.spec, answer, prepared.epoch, ctx, core.limits, round_.choice.name
        )
    except PartitionAssignorError as error:
        clientside.fail(core, group, round_, f"computed a target that is not valid: {error}", ctx)
        core.pacing.defer(group.group_id, ctx)  # whoever is next, or the server assignor
        raise Refused(ErrorCode.INVALID_ASSIGNMENT, str(error)) from None
    draft.trigger = Trigger.ASSIGNMENT_INSTALLED
    draft.member_id, draft.member_epoch = request.member_id, request.member_epoch
    if prepared.bumped_at is not None:
        draft.refer(core.shard_id, prepared.bumped_at)
    yield records
    core.client_side.forget(group.group_id)
    bumped_at = core.pacing.bumped_at.get(group.group_id)
    core.pacing.computed(group.group_id, ctx, ctx.stopwatch_ms() - started_ms)
    if group.epoch > group.assignment_epoch:
        if bumped_at is not None:
            core.pacing.bumped_at[group.group_id] = bumped_at
        yield from target_step(core, group.group_id, ctx, draft)
    return install.ConsumerGroupInstallAssignmentResponse()


# The checks that both have in common, in the order of KIP-848.


def _member(
    core: Core,
    request: prepare.ConsumerGroupPrepareAssignmentRequest | install.ConsumerGroupInstallAssignmentRequest,
) -> tuple[Group, Member]:
    validate_name("GroupId", request.group_id, core.limits.group_id_bytes_max)
    validate_name("MemberId", request.member_id, core.limits.member_id_bytes_max)
    group = core.consumer_group(request.group_id)
    member = core.consumer_member(group, request.member_id)
    if request.member_epoch != member.current.epoch:
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"MemberEpoch is {request.member_epoch}; member {member.member_id} has epoch "
            f"{member.current.epoch}. Heartbeat first.",
        )
    return group, member


def _round(core: Core, group: Group, member: Member, ctx: Context) -> Round:
    """The round in which the member is the chosen one."""
    if clientside.round_of(core, group) is not None and clientside.wait_ms(core, group, ctx) is None:
        core.pacing.defer(group.group_id, ctx)  # the round has just ended: the server assignor's turn
    round_ = clientside.round_of(core, group)
    if round_ is None or round_.chosen != member.member_id:
        raise _not_chosen(group, member, "ShouldComputeAssignment in a heartbeat says who is")
    return round_


def _not_chosen(group: Group, member: Member, why: str) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member.member_id} is not the one to compute a target for group {group.group_id}: {why}.",
    )


def _is_installed(group: Group, request: install.ConsumerGroupInstallAssignmentRequest) -> bool:
    """Whether the group's target is this very one already."""
    if request.group_epoch != group.assignment_epoch or not request.members:
        return False
    parts = {part.member_id: part for part in request.members}
    for member in group.joined():
        part = parts.get(member.member_id, install.Member(member_id=member.member_id))
        told = Told(part.error, part.metadata_version, part.metadata_bytes)
        if told_by(group.target.get(member.member_id)) != told:
            return False
        given = {topic.topic_id: sorted(topic.partitions) for topic in part.topic_partitions}
        target = group.target_of(member.member_id)
        if not part.error and given != {topic_id: list(numbers) for topic_id, numbers in target.items()}:
            return False
    return True


# What a member installs, judged by what it was shown.


def _answer(
    request: install.ConsumerGroupInstallAssignmentRequest,
    spec: AssignmentSpec,
    choice: Choice,
    limits: Limits,
) -> Mapping[str, MemberAssignment]:
    """The request in the form of an assignor's answer; raises `PartitionAssignorError`, which names the
    member and the partition."""
    owners: dict[bytes, dict[int, str]] = {topic_id: {} for topic_id in spec.topics}
    answer: dict[str, MemberAssignment] = {}
    for part in request.members:
        member_id = part.member_id
        if member_id not in spec.members:
            raise PartitionAssignorError(
                f"Members: {member_id} is not a member of epoch {request.group_epoch}."
            )
        if member_id in answer:
            raise PartitionAssignorError(f"Members: {member_id} is there twice.")
        if len(part.metadata_bytes) > limits.client_metadata_bytes_max:
            raise PartitionAssignorError(
                f"Members: MetadataBytes of {member_id} are {len(part.metadata_bytes)} bytes; at most "
                f"{limits.client_metadata_bytes_max} are allowed."
            )
        fault = _metadata_fault(
            part.metadata_version, part.metadata_bytes, choice.version_min, choice.version
        )
        if fault is not None:
            raise PartitionAssignorError(f"Members: {fault}, at {member_id}.")
        if part.error:
            if part.topic_partitions:
                raise PartitionAssignorError(
                    f"Members: {member_id} has error {part.error}, so it keeps what it has; "
                    "give it no partitions."
                )
            partitions = _kept(spec, member_id)
        else:
            partitions = _given(part)
        _own(spec, owners, member_id, partitions)
        answer[member_id] = MemberAssignment(
            partitions, part.error, part.metadata_version, part.metadata_bytes
        )
    return answer


def _given(part: install.Member) -> dict[bytes, tuple[int, ...]]:
    given: dict[bytes, list[int]] = {}
    for topic in part.topic_partitions:
        given.setdefault(topic.topic_id, []).extend(topic.partitions)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in given.items() if numbers}


def _kept(spec: AssignmentSpec, member_id: str) -> dict[bytes, tuple[int, ...]]:
    """The member's old target, as far as it subscribes to it and it still exists."""
    member = spec.members[member_id]
    kept = {
        topic_id: tuple(one for one in numbers if one < spec.topics[topic_id].num_partitions)
        for topic_id, numbers in member.target_partitions.items()
        if topic_id in member.subscribed_topics
    }
    return {topic_id: numbers for topic_id, numbers in kept.items() if numbers}


def _own(
    spec: AssignmentSpec,
    owners: dict[bytes, dict[int, str]],
    member_id: str,
    partitions: Mapping[bytes, tuple[int, ...]],
) -> None:
    """Notes who gets what, once."""
    subscribed = spec.members[member_id].subscribed_topics
    for topic_id, numbers in partitions.items():
        if topic_id not in subscribed:
            raise PartitionAssignorError(
                f"Members: {member_id} is given topic id {topic_id.hex()}, to which it does not subscribe."
            )
        topic = spec.topics[topic_id]
        owner_of = owners[topic_id]
        for number in numbers:
            if not 0 <= number < topic.num_partitions:
                raise PartitionAssignorError(
                    f"Members: {member_id} is given {topic.topic_name}-{number}; "
                    f"the topic has partitions 0 to {topic.num_partitions - 1}."
                )
            other = owner_of.setdefault(number, member_id)
            if other != member_id:
                raise PartitionAssignorError(
                    f"Members: {topic.topic_name}-{number} is given to both {other} and {member_id}."
                )
        if len(set(numbers)) != len(numbers):
            twice = next(one for one, two in pairwise(numbers) if one == two)
            raise PartitionAssignorError(
                f"Members: {topic.topic_name}-{twice} is given to {member_id} twice."
            )
