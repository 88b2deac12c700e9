"""ListGroups, ConsumerGroupDescribe and DescribeGroups. Deletions are in `coordinator.removal`.

A group has a type: "consumer" (KIP-848), or "classic". Classic groups are groups of the older protocol from
an imported or older log, *simple* groups, which consist only of offsets committed without membership, and
groups of the protocols before Kafka's (`coordinator.oldgroups`), which have no protocol type either.
Reads show the projection; the runtime holds the reply until everything in it is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from coordinator import oldgroups
from coordinator.api import Context, DecisionBuilder, Steps
from coordinator.group_context import GroupContext
from coordinator.members.regexes import shown
from coordinator.state.machines import ClassicState, GroupState
from coordinator.state.model import Group
from coordinator.state.projection import OldGroupValue
from coordinator.state.reconcile import Current
from coordinator.targets import clientside
from records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    GroupMetadataValue,
    RewriteConsumer,
    RewriteGroupValue,
)
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    encode,
)
from wire.errors import ErrorCode
from wire.messages import consumer_group_describe as described
from wire.messages import describe_groups as classic
from wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CONSUMER, CLASSIC = "consumer", "classic"
_CONSUMER_MEMBER_TYPE, _CLASSIC_MEMBER_TYPE = 1, 0

ERRORS_SHOWN = 3
"""Maximum number of expressions whose error a description shows; the group view shows all."""


def type_of(group: Group | None) -> str:
    return CONSUMER if group is not None and group.is_consumer else CLASSIC


def state_of(groups: GroupContext, group_id: str) -> GroupState | ClassicState:
    """The state of a group of any type; a group that only has offsets is Empty."""
    group, served = groups.projection.groups.get(group_id), groups.classic.get(group_id)
    if group is not None and group.is_consumer:
        return group.state
    if served is not None:
        return served.state
    if group is None and (old := groups.projection.old_groups_of(group_id)):
        return oldgroups.state_of(old[0][1])
    has_members = group is not None and group.classic is not None and group.classic.members
    return ClassicState.STABLE if has_members else ClassicState.EMPTY


def group_ids(groups: GroupContext) -> Iterator[str]:
    """Iterate over all group ids, including groups that only have offsets.

    Groups may be added and removed during iteration."""
    with_members = dict.fromkeys(chain(groups.projection.groups, groups.projection.old_ids))
    with_offsets = groups.projection.offsets.group_ids()
    pending = groups.projection.pending.group_ids()
    return chain(
        with_members,
        (group_id for group_id in with_offsets if group_id not in with_members),
        (
            group_id
            for group_id in pending
            if group_id not in with_members and not groups.projection.offsets.has_group(group_id)
        ),
    )


def error_of(groups: GroupContext, group_id: str) -> str | None:
    """Errors that keep the group from an up-to-date target: of its assignor, and of expressions.

    None if there are none."""
    errors = groups.resolutions.errors(group_id)
    said = [f"{shown(regex)} {error}".strip() for regex, error in sorted(errors.items())[:ERRORS_SHOWN]]
    assignor_error = clientside.assignor_error(groups, group_id)
    return "; ".join([assignor_error, *said] if assignor_error is not None else said) or None


def exists(groups: GroupContext, group_id: str) -> bool:
    projection = groups.projection
    return group_id in projection.groups or group_id in projection.old_ids or projection.has_offsets(group_id)


GROUPS_AT_ONCE = 2_000
"""Groups listed in one turn of the event loop: about 10 ms."""


def list_groups(groups: GroupContext, request: ListGroupsRequest, builder: DecisionBuilder) -> Steps:
    """List this shard's groups.

    Filters are case-insensitive: values within one are alternatives, and both must match.

    A group that exists from the first turn to the last is listed, in the state it has in its own turn."""
    return _list_on(groups, request, ListGroupsResponse(), group_ids(groups), builder)


def _protocol_type(groups: GroupContext, group_id: str) -> str:
    """The protocol type of a classic group; empty for one that never had a member."""
    group, served = groups.projection.groups.get(group_id), groups.classic.get(group_id)
    if served is not None:
        return served.protocol_type or ""
    return group.classic.protocol_type if group is not None and group.classic is not None else ""


def _list_on(
    groups: GroupContext,
    request: ListGroupsRequest,
    response: ListGroupsResponse,
    left: Iterator[str],
    builder: DecisionBuilder,
) -> Steps:
    """List the next groups; the final part returns the response."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    num_seen = 0
    for group_id in islice(left, GROUPS_AT_ONCE):
        num_seen += 1
        group = groups.projection.groups.get(group_id)
        if group is None and not exists(groups, group_id):
            continue  # removed meanwhile
        state, kind = state_of(groups, group_id).value, type_of(group)
        if (states and state.lower() not in states) or (types and kind not in types):
            continue
        protocol_type = CONSUMER
        if kind == CLASSIC:
            protocol_type = _protocol_type(groups, group_id)
        response.groups.append(
            ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind)
        )
    if num_seen == GROUPS_AT_ONCE:
        builder.continuation = lambda ctx, builder: _list_on(groups, request, response, left, builder)
    yield from ()  # writes no records
    return response


MEMBERS_AT_ONCE = 300
"""Members described in one turn of the event loop: about 5 ms. All parts describe the state of the first
turn."""


class _Described(NamedTuple):
    """A member's state at the time of the request."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue
    current: Current
    target: ConsumerGroupTargetAssignmentMemberValue | None


def describe_consumer_groups(
    groups: GroupContext,
    request: described.ConsumerGroupDescribeRequest,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Describe all requested groups as they are now. Formatting many members takes several turns."""
    response = described.ConsumerGroupDescribeResponse()
    members: list[tuple[described.DescribedGroup, _Described]] = []
    for group_id in request.group_ids:
        answer = _describe_consumer_group(groups, group_id, ctx)
        response.groups.append(answer)
        group = groups.projection.groups.get(group_id)
        if group is not None and answer.error_code == ErrorCode.NONE:
            members += [
                (answer, _Described(member_id, member.metadata, member.current, group.target.get(member_id)))
                for member_id, member in sorted(group.members.items())
                if member.metadata is not None
            ]
    return _describe_members(response, iter(members), ctx, builder)


def _describe_members(
    response: described.ConsumerGroupDescribeResponse,
    left: Iterator[tuple[described.DescribedGroup, _Described]],
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Format the next members; the final part returns the response."""
    num_described = 0
    for answer, member in islice(left, MEMBERS_AT_ONCE):
        answer.members.append(_describe_member(member, ctx))
        num_described += 1
    if num_described == MEMBERS_AT_ONCE:
        builder.continuation = lambda ctx, builder: _describe_members(response, left, ctx, builder)
    yield from ()  # writes no records
    return response


def _describe_consumer_group(groups: GroupContext, group_id: str, ctx: Context) -> described.DescribedGroup:
    if not group_id:
        return described.DescribedGroup(
            error_code=ErrorCode.INVALID_GROUP_ID, error_message="GroupId can't be empty."
        )
    group = groups.projection.groups.get(group_id)
    if group is None or not group.is_consumer:
        message = (
            f"Group {group_id} {'is not a consumer group' if exists(groups, group_id) else 'not found'}."
        )
        if group is None and group_id in groups.projection.old_ids:
            message = oldgroups.described(groups.projection, group_id)
        return described.DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
        )
    configured = ctx.settings.for_group(group_id).assignors
    return described.DescribedGroup(
        group_id=group_id,
        error_message=error_of(groups, group_id),
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=clientside.assignor_name(group, configured),
    )


def _describe_member(member: _Described, ctx: Context) -> described.Member:
    metadata, current = member.metadata, member.current
    parts = member.target.topic_partitions if member.target is not None else ()
    return described.Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        subscribed_topic_regex=metadata.subscribed_topic_regex or "",  # never null, as in Kafka
        assignment=_describe_assignment(_owned(current), ctx),
        target_assignment=_describe_assignment({part.topic_id: part.partitions for part in parts}, ctx),
        member_type=_CLASSIC_MEMBER_TYPE
        if metadata.classic_member_metadata is not None
        else _CONSUMER_MEMBER_TYPE,
    )


def _owned(current: Current) -> Mapping[bytes, Collection[int]]:
    """All partitions that no other member may have yet: as in Kafka, including those pending revocation."""
    if not current.pending:
        return current.assigned
    owned = {topic_id: dict(epochs) for topic_id, epochs in current.assigned.items()}
    for topic_id, epochs in current.pending.items():
        owned.setdefault(topic_id, {}).update(epochs)
    return owned


def _describe_assignment(partitions: Mapping[bytes, Collection[int]], ctx: Context) -> described.Assignment:
    """Format an assignment. Topics that the catalog no longer has are left out, as in Kafka."""
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
            if (topic := ctx.catalog.topic_by_id(topic_id)) is not None
        ]
    )


MESSAGES_SINCE = 6


def describe_groups(
    groups: GroupContext, request: classic.DescribeGroupsRequest, version: int, builder: DecisionBuilder
) -> Steps:
    """Describe groups of the classic protocol, in several turns if they have many members.

    Any other group is reported as Dead, from version 6 on with an error."""
    response = classic.DescribeGroupsResponse()
    return _describe_groups(groups, iter(request.groups), response, version, builder)


def _describe_groups(
    groups: GroupContext,
    left: Iterator[str],
    response: classic.DescribeGroupsResponse,
    version: int,
    builder: DecisionBuilder,
) -> Steps:
    answers = response.groups
    num_described = 0
    for group_id in left:
        group = groups.projection.groups.get(group_id)
        if (group is not None and group.is_consumer) or not exists(groups, group_id):
            answer = classic.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if version >= MESSAGES_SINCE:
                answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                answer.error_message = (
                    f"Group {group_id} is not a classic group."
                    if group is not None
                    else f"Group {group_id} not found."
                )
            answers.append(answer)
        else:
            answers.append(_describe_classic(groups, group_id, group))
        num_described += 1 + len(answers[-1].members)
        if num_described >= MEMBERS_AT_ONCE:
            builder.continuation = lambda ctx, builder: _describe_groups(
                groups, left, response, version, builder
            )
            break
    yield from ()  # writes no records
    return response


def classic_value(groups: GroupContext, group_id: str, group: Group | None) -> GroupMetadataValue | None:
    """The members of a classic group and what they have, as its coordinator or else the log knows them."""
    served = groups.classic.get(group_id)
    if served is not None:
        return served.value(0)
    return group.classic if group is not None else None


def _describe_classic(groups: GroupContext, group_id: str, group: Group | None) -> classic.DescribedGroup:
    """Describe a classic group; protocol and metadata only when it is stable, as in Kafka."""
    answer = classic.DescribedGroup(group_id=group_id, group_state=state_of(groups, group_id).value)
    value = classic_value(groups, group_id, group)
    if value is None:
        for _, old in groups.projection.old_groups_of(group_id):
            _describe_old(answer, old)
        return answer
    served = groups.classic.get(group_id)
    is_stable = served is None or served.state is ClassicState.STABLE
    answer.protocol_type = value.protocol_type
    answer.protocol_data = (value.protocol or "") if is_stable else ""
    answer.members = [
        classic.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in value.members
    ]
    return answer


EMBEDDED_VERSION = 0
"""Version of the consumers' protocol that every client reads."""


def _describe_old(answer: classic.DescribedGroup, value: OldGroupValue) -> None:
    """Describe the consumers of a group of an old protocol.

    What they subscribe to and own has the form that consumers of the classic protocol give it, which clients
    can read. Register names no client, so that of a push consumer is not known."""
    if isinstance(value, RewriteGroupValue):
        answer.protocol_data = value.strategy
    for one in value.consumers:
        assigned = [
            TopicPartitionsByName(topic=part.topic, partitions=list(part.partitions)) for part in one.owned
        ]
        member = classic.DescribedGroupMember(
            member_id=one.consumer_id,
            member_assignment=encode(
                ConsumerProtocolAssignment(assigned_partitions=assigned), EMBEDDED_VERSION
            ),
        )
        topics = [topic.name for topic in value.topics]
        if isinstance(one, RewriteConsumer):
            topics = [*one.topics, *(part.topic for part in one.fixed)]
            member.client_id, member.client_host = one.client_id, one.client_host
        member.member_metadata = encode(ConsumerProtocolSubscription(topics=topics), EMBEDDED_VERSION)
        answer.members.append(member)
