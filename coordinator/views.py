"""Groups as JSON-ready dictionaries, for the HTTP API and the command line.

Times are ms since the epoch, partitions are listed by topic name, and unknown values are None. A view shows
the newest projection; the sender must wait until that is committed. Values that only a leader knows, such as
when a member was told to revoke a partition, are None on other nodes.

A group may have ten thousand members, and a shard a hundred thousand groups, so views are generators that
yield from time to time. Invariant: a view of one group shows one moment, that of the first step. In that step
the generator copies whatever changes in place and keeps references to the rest; records, and values decoded
from them, never change.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any

from coordinator import admin, oldgroups
from coordinator.api import JobKind
from coordinator.group_context import GroupContext
from coordinator.limits import SettingsView
from coordinator.shard import GroupShard
from coordinator.state.machines import GroupState
from coordinator.state.model import Group, Member
from coordinator.state.projection import OldGroupValue
from coordinator.state.reconcile import Current, PartitionEpochs
from coordinator.targets import clientside
from records import (
    ClassicMember,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    GroupMetadataValue,
    PushConsumer,
    PushState,
    RewriteConsumer,
    RewriteGroupValue,
    topic_id_text,
)
from wire.embedded import CONSUMER, ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode
from wire.errors import MalformedFrame

Json = dict[str, Any]

GROUPS_AT_ONCE = 2_000
"""Group ids examined between two yields: about a millisecond."""

MEMBERS_AT_ONCE = 50
"""Members formatted between two yields: about a millisecond if each owns partitions of a hundred topics."""


def list_groups(shard: GroupShard) -> list[str]:
    """The ids of all groups, sorted, including groups that only have offsets."""
    return sorted(admin.group_ids(shard.groups))


def page_of_groups(shards: Sequence[GroupShard], after: str, limit: int) -> Generator[None, None, list[Json]]:
    """Generate the first `limit` summaries after the group id `after`, over all shards, by group id.

    Ids are collected in several steps; the selected groups are shown as they are at the last step."""
    found: list[tuple[str, int]] = []
    for position, shard in enumerate(shards):
        ids = admin.group_ids(shard.groups)
        while some := list(islice(ids, GROUPS_AT_ONCE)):
            found += [(group_id, position) for group_id in some if group_id > after]
            found = nsmallest(limit, found)
            yield
    return [
        group_summary(shards[position], group_id)
        for group_id, position in found
        if admin.exists(shards[position].groups, group_id)
    ]


def group_summary(shard: GroupShard, group_id: str) -> Json:
    """Summary of one group, as lists show it."""
    group = shard.projection.groups.get(group_id)
    summary = {
        "group_id": group_id,
        "type": admin.type_of(group),
        "state": admin.state_of(shard.groups, group_id).value,
        "epoch": group.epoch if group is not None else 0,
        "assignment_epoch": group.assignment_epoch if group is not None else 0,
        "members": _num_members(group),
        "offsets": shard.projection.offsets.count(group_id),
    }
    if group is not None and group.classic is not None:
        summary |= {"epoch": group.classic.generation, "assignment_epoch": group.classic.generation}
    if group is None:
        for key, value in shard.projection.old_groups_of(group_id):
            generation = value.generation if isinstance(value, RewriteGroupValue) else 0
            summary |= {"type": oldgroups.TYPE_NAMES[type(key)], "members": len(value.consumers)}
            summary |= {"epoch": generation, "assignment_epoch": generation}
    return summary


def group_view(
    shard: GroupShard, group_id: str, now_ms: float, settings: SettingsView
) -> Generator[None, None, Json | None]:
    """Generate the view of one group: everything known except the values of its offsets.

    None if it does not exist.

    `now_ms` is the monotonic time to which deadlines are compared."""
    groups = shard.groups
    if not admin.exists(groups, group_id):
        return None
    group = shard.projection.groups.get(group_id)
    in_force = settings.for_group(group_id)
    view = group_summary(shard, group_id) | {
        "pending_offsets": shard.projection.pending.count(group_id),
        "state_since_ms": None,
        "assignor": None,
        "assignor_error": clientside.assignor_error(groups, group_id),
        "computing": None,
        "heartbeat_interval_ms": in_force.heartbeat_interval_ms,
        "session_timeout_ms": in_force.session_timeout_ms,
        "jobs": [
            {"kind": str(kind), "deadline_ms": groups.jobs[kind, group_id].deadline_ms}
            for kind in JobKind
            if groups.is_working(kind, group_id)
        ],
        "created_ms": None,
        "catalog_version": 0,
        "topics": {},
        "regexes": [],
        "members": [],
        "num_members": _num_members(group),
    }
    numbers = dict(shard.projection.numbers.of_group(group_id).present)
    if group is None and (old := shard.projection.old_groups_of(group_id)):
        yield from _see_old(view, old[0][1], numbers)
        return view
    if group is None or not group.is_consumer:
        classic = admin.classic_value(groups, group_id, group)
        for number, one in enumerate(classic.members if classic is not None else (), 1):
            assert classic is not None
            view["members"].append(_classic_member(one, classic) | {"number": numbers.get(one.member_id)})
            view["num_members"] = number
            if not number % MEMBERS_AT_ONCE:
                yield
        return view
    names = {topic.topic_id: topic.topic_name for topic in group.topics}
    if group.metadata is not None and group.metadata.creation_time_ms >= 0:
        view["created_ms"] = group.metadata.creation_time_ms
    view["state_since_ms"] = _since_ms(groups, group)
    view["assignor"] = clientside.assignor_name(group, in_force.assignors)
    view["computing"] = _computing(groups, group, now_ms)
    view["regexes"] = _regexes(groups, group)
    view["catalog_version"] = group.catalog_version
    view["topics"] = {
        topic.topic_name: {"topic_id": topic_id_text(topic.topic_id), "num_partitions": topic.num_partitions}
        for topic in group.topics
    }
    owners = {topic_id: dict(partitions) for topic_id, partitions in group.owners.items()}
    seen = [
        _see(groups, group, member, now_ms) for member in sorted(group.joined(), key=lambda m: m.member_id)
    ]
    notices = {
        member.member_id: notice for member in seen if (notice := _notice(groups, group, member, now_ms))
    }
    for number, member in enumerate(seen, 1):
        view["members"].append(_member(member, numbers, names, _waits_for(member, owners, names, notices)))
        if not number % MEMBERS_AT_ONCE:
            yield
    return view


def _computing(groups: GroupContext, group: Group, now_ms: float) -> Json | None:
    """The member that was asked to compute the group's target, and how much time it has left."""
    round_ = clientside.round_of(groups, group)
    if round_ is None:
        return None
    return {
        "member_id": round_.chosen,
        "assignor": round_.choice.name,
        "left_ms": max(0.0, round_.deadline_ms - now_ms),
        "prepared_epoch": round_.prepared.epoch if round_.prepared is not None else None,
    }


def _since_ms(groups: GroupContext, group: Group) -> int | None:
    """Time at which the group entered its state.

    This is when its epoch was bumped, its target was computed, its last member settled, or a settled member
    went away or began anew. None if it is not known."""
    begun_ms = groups.bumped_ms.get(group.group_id)
    if group.state is GroupState.RECONCILING and group.target_metadata is not None:
        relapsed_ms = groups.relapsed_ms.get(group.group_id, 0)
        return max(group.target_metadata.assignment_timestamp_ms, begun_ms or 0, relapsed_ms)
    if group.state is not GroupState.STABLE:
        return begun_ms
    moved = [groups.moved_ms.get((group.group_id, member.member_id)) for member in group.joined()]
    known = [moment for moment in moved if moment is not None]
    return max(known) if len(known) == len(moved) else None


def _regexes(groups: GroupContext, group: Group) -> list[Json]:
    """The expressions that members subscribe to, and how each was resolved."""
    is_resolving = groups.is_working(JobKind.RESOLVE, group.group_id)
    errors = groups.resolutions.errors(group.group_id)
    rows: list[Json] = []
    for regex in sorted(group.regex_subscribers):
        resolved = group.regexes.get(regex)
        rows.append(
            {
                "regex": regex,
                "topics": [] if resolved is None else list(resolved.topics),
                "catalog_version": None if resolved is None else resolved.version,
                "resolved_ms": None if resolved is None else resolved.timestamp_ms,
                "is_resolving": is_resolving,
                "error": errors.get(regex) or errors.get(""),
            }
        )
    return rows


def _num_members(group: Group | None) -> int:
    if group is None:
        return 0
    return group.num_members or (len(group.classic.members) if group.classic is not None else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Snapshot of a member at the time of the view."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue
    current: Current
    target: ConsumerGroupTargetAssignmentMemberValue | None
    is_away: bool
    since_ms: int | None
    heartbeat_ms: int
    session_left_ms: float | None


def _see(groups: GroupContext, group: Group, member: Member, now_ms: float) -> _Seen:
    key = (group.group_id, member.member_id)
    timer = groups.sessions.get(key)
    assert member.metadata is not None
    return _Seen(
        member_id=member.member_id,
        metadata=member.metadata,
        current=member.current,
        target=group.target.get(member.member_id),
        is_away=member.is_away,
        since_ms=groups.moved_ms.get(key),
        heartbeat_ms=timer.last_heartbeat_wall_ms if timer is not None else -1,
        session_left_ms=timer.left_ms(now_ms) if timer is not None else None,
    )


def _member(
    member: _Seen, numbers: Mapping[str, int], names: Mapping[bytes, str], waits_for: list[Json]
) -> Json:
    metadata, current = member.metadata, member.current
    return {
        "member_id": member.member_id,
        "number": numbers.get(member.member_id),
        "instance_id": metadata.instance_id,
        "is_away": member.is_away,
        "client_id": metadata.client_id,
        "client_host": _host(metadata.client_host),
        "rack_id": metadata.rack_id,
        "subscribed_topics": list(metadata.subscribed_topic_names),
        "regex": metadata.subscribed_topic_regex,
        "server_assignor": metadata.server_assignor,
        "client_assignors": [one.name for one in metadata.assignors],
        "assignment_error": current.assignor_metadata.error,
        "state": current.state.name,
        "since_ms": member.since_ms,
        "member_epoch": current.epoch,
        "previous_member_epoch": current.previous_epoch,
        "assigned": _by_name(current.assigned, names),
        "pending_revocation": _by_name(current.pending, names),
        "target": {_name(topic_id, names): list(partitions) for topic_id, partitions in _parts(member)},
        "waits_for": waits_for,
        "rebalance_timeout_ms": metadata.rebalance_timeout_ms,
        "last_heartbeat_ms": member.heartbeat_ms if member.heartbeat_ms >= 0 else None,
        "session_left_ms": member.session_left_ms,
    }


def _see_old(view: Json, value: OldGroupValue, numbers: Mapping[str, int]) -> Generator[None, None, None]:
    """Add the topics and consumers of a group of an old protocol to its view."""
    view["topics"] = {
        topic.name: {"topic_id": topic_id_text(topic.topic_id), "num_partitions": topic.num_partitions}
        for topic in value.topics
    }
    view["num_members"] = len(value.consumers)
    if isinstance(value, RewriteGroupValue):
        view["assignor"] = value.strategy or None
    consumers: Sequence[RewriteConsumer | PushConsumer] = value.consumers
    for number, one in enumerate(consumers, 1):
        view["members"].append(_old_member(one, value) | {"number": numbers.get(one.consumer_id)})
        if not number % MEMBERS_AT_ONCE:
            yield


def _old_member(one: RewriteConsumer | PushConsumer, value: OldGroupValue) -> Json:
    """A consumer of an old protocol. A push consumer subscribes to the topics of its group."""
    member = _MEMBER_OF_NO_GROUP | {
        "member_id": one.consumer_id,
        "assigned": {part.topic: list(part.partitions) for part in one.owned},
    }
    if isinstance(one, PushConsumer):
        topics = [topic.name for topic in value.topics]
        return member | {"state": PushState(one.state).name, "subscribed_topics": topics}
    assert isinstance(value, RewriteGroupValue)
    return member | {
        "client_id": one.client_id,
        "client_host": _host(one.client_host),
        "subscribed_topics": sorted({*one.topics, *(part.topic for part in one.fixed)}),
        "member_epoch": value.generation,
    }


_MEMBER_OF_NO_GROUP: Json = {
    "number": None,
    "instance_id": None,
    "is_away": False,
    "client_id": "",
    "client_host": "",
    "rack_id": None,
    "regex": None,
    "server_assignor": None,
    "client_assignors": [],
    "assignment_error": 0,
    "state": None,
    "since_ms": None,
    "member_epoch": -1,
    "previous_member_epoch": None,
    "pending_revocation": {},
    "target": {},
    "waits_for": [],
    "rebalance_timeout_ms": None,
    "last_heartbeat_ms": None,
    "session_left_ms": None,
}
"""The value of a member's field in a view where its protocol or the log has no such thing."""


def _host(client_host: str) -> str:
    """A client's address; Kafka writes a slash before it, on the wire and in records."""
    return client_host.removeprefix("/")


def _classic_member(member: ClassicMember, group: GroupMetadataValue) -> Json:
    """A member of a classic group, as far as its consumer's embedded protocol can be read."""
    subscription = ConsumerProtocolSubscription()
    if group.protocol_type == CONSUMER:
        with suppress(MalformedFrame):
            subscription = decode(ConsumerProtocolSubscription, member.subscription)
    return _MEMBER_OF_NO_GROUP | {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": _host(member.client_host),
        "rack_id": subscription.rack_id or None,
        "subscribed_topics": sorted(subscription.topics),
        "client_assignors": [group.protocol] if group.protocol else [],
        "member_epoch": group.generation,
        "assigned": classic_assigned(member, group),
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
    }


def classic_assigned(member: ClassicMember, group: GroupMetadataValue) -> dict[str, list[int]]:
    """The partitions that a member of a classic group was assigned, by topic; none if it is no consumer."""
    assignment = ConsumerProtocolAssignment()
    if group.protocol_type == CONSUMER:
        with suppress(MalformedFrame):
            assignment = decode(ConsumerProtocolAssignment, member.assignment)
    return {one.topic: sorted(one.partitions) for one in assignment.assigned_partitions}


def _parts(member: _Seen) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """Iterate over the member's target: topic ids, each with its partitions."""
    if member.target is not None:
        for part in member.target.topic_partitions:
            yield part.topic_id, part.partitions


@dataclass(frozen=True, slots=True)
class _Notice:
    """The time for which a member has been revoking partitions, and the time it has left."""

    pending: PartitionEpochs | None
    """None for a static member that is away: it may release any of its partitions when its session ends."""
    told_ms_ago: float | None
    left_ms: float | None


def _waits_for(
    member: _Seen,
    owners: Mapping[bytes, Mapping[int, str]],
    names: Mapping[bytes, str],
    notices: Mapping[str, _Notice],
) -> list[Json]:
    """Partitions of the member's target that another member still owns.

    Each comes with the owner, how long ago it was told to revoke the partition, and how much time it has
    left."""
    waits: list[Json] = []
    own = member.member_id
    for topic_id, partitions in _parts(member):
        owners_of_topic = owners.get(topic_id, {})
        for partition in partitions:
            owner = owners_of_topic.get(partition, own)
            if owner != own:
                notice = notices.get(owner)
                if notice is not None and notice.pending is not None:
                    notice = notice if partition in notice.pending.get(topic_id, ()) else None
                waits.append(
                    {
                        "topic": _name(topic_id, names),
                        "partition": partition,
                        "owner": owner,
                        "told_ms_ago": None if notice is None else notice.told_ms_ago,
                        "left_ms": None if notice is None else notice.left_ms,
                    }
                )
    return waits


def _notice(groups: GroupContext, group: Group, owner: _Seen, now_ms: float) -> _Notice | None:
    """The time since the owner was told to revoke partitions, and the time it has left.

    None if it was not told. Its rebalance timer started with the reply that told it. A new leader restarts
    all of these timers and does not know when the previous leader sent that reply. A static member that is
    away receives no replies, and has until the end of its session."""
    if owner.is_away:
        return _Notice(None, None, owner.session_left_ms)
    is_classic = owner.metadata.classic_member_metadata is not None
    timers = groups.joins if is_classic else groups.rebalances
    timer = timers.get((group.group_id, owner.member_id)) if owner.current.pending else None
    if timer is None:
        return None
    told_ms_ago = max(now_ms - timer.armed_ms, 0.0) if timer.armed_ms > groups.began_ms else None
    return _Notice(owner.current.pending, told_ms_ago, timer.left_ms(now_ms))


def _by_name(partitions: PartitionEpochs, names: Mapping[bytes, str]) -> dict[str, list[int]]:
    return {_name(topic_id, names): sorted(epochs) for topic_id, epochs in sorted(partitions.items())}


def _name(topic_id: bytes, names: Mapping[bytes, str]) -> str:
    """A topic's name, or its id if the topic no longer exists."""
    return names.get(topic_id) or topic_id_text(topic_id)
