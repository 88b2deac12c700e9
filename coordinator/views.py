"""Groups as JSON-ready dictionaries, for the HTTP API and the command line.

Times are ms since the epoch, partitions are by topic name, and what is not known is None. A view shows the
newest projection; whoever sends it waits until that is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any

from coordinator import admin
from coordinator.model import Group, Member
from coordinator.reconcile import PartitionEpochs
from coordinator.shard import GroupShard
from records import topic_id_text

Json = dict[str, Any]


def list_groups(shard: GroupShard) -> list[str]:
    """The ids of all groups, in order; groups that are only offsets included."""
    return sorted(admin.group_ids(shard.core))


def page_of_groups(shards: Sequence[GroupShard], after: str, limit: int) -> list[Json]:
    """The first `limit` summaries after the group id `after`, over all shards, by group id."""
    following = (
        (group_id, position)
        for position, shard in enumerate(shards)
        for group_id in admin.group_ids(shard.core)
        if group_id > after
    )
    return [group_summary(shards[position], group_id) for group_id, position in nsmallest(limit, following)]


def group_summary(shard: GroupShard, group_id: str) -> Json:
    """What a list shows of one group."""
    group = shard.projection.groups.get(group_id)
    return {
        "group_id": group_id,
        "type": admin.type_of(group),
        "state": admin.state_of(group).value,
        "epoch": group.epoch if group is not None else 0,
        "assignment_epoch": group.assignment_epoch if group is not None else 0,
        "members": _num_members(group),
        "offsets": shard.projection.offsets.count(group_id),
    }


def group_view(shard: GroupShard, group_id: str) -> Json | None:
    """All that is known of one group but its offsets' values; None if there is no such group."""
    if not admin.exists(shard.core, group_id):
        return None
    view = group_summary(shard, group_id)
    group = shard.projection.groups.get(group_id)
    names = {} if group is None else {topic.topic_id: topic.topic_name for topic in group.topics}
    view["assignor_error"] = shard.core.pacing.errors.get(group_id)
    view["created_ms"] = None
    view["catalog_version"] = group.catalog_version if group is not None else 0
    view["topics"] = {}
    view["members"] = []
    view["num_members"] = _num_members(group)
    if group is not None:
        if group.metadata is not None and group.metadata.creation_time_ms >= 0:
            view["created_ms"] = group.metadata.creation_time_ms
        view["topics"] = {
            topic.topic_name: {
                "topic_id": topic_id_text(topic.topic_id),
                "num_partitions": topic.num_partitions,
            }
            for topic in group.topics
        }
        view["members"] = [
            _member(shard, group, member, names)
            for member in sorted(group.joined(), key=lambda m: m.member_id)
        ]
    return view


def _num_members(group: Group | None) -> int:
    if group is None:
        return 0
    return group.num_members or (len(group.classic.members) if group.classic is not None else 0)


def _member(shard: GroupShard, group: Group, member: Member, names: Mapping[bytes, str]) -> Json:
    metadata = member.metadata
    assert metadata is not None
    timer = shard.core.sessions.get((group.group_id, member.member_id))
    heartbeat_ms = timer.last_heartbeat_wall_ms if timer is not None else -1
    target = group.target_of(member.member_id)
    return {
        "member_id": member.member_id,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "rack_id": metadata.rack_id,
        "subscribed_topics": list(metadata.subscribed_topic_names),
        "server_assignor": metadata.server_assignor,
        "state": member.current.state.name,
        "member_epoch": member.current.epoch,
        "previous_member_epoch": member.current.previous_epoch,
        "assigned": _by_name(member.current.assigned, names),
        "pending_revocation": _by_name(member.current.pending, names),
        "target": {_name(topic_id, names): list(partitions) for topic_id, partitions in target.items()},
        "blocked_by": _blocked_by(group, member, target, names),
        "rebalance_timeout_ms": metadata.rebalance_timeout_ms,
        "last_heartbeat_ms": heartbeat_ms if heartbeat_ms >= 0 else None,
    }


def _blocked_by(
    group: Group, member: Member, target: Mapping[bytes, Iterable[int]], names: Mapping[bytes, str]
) -> list[Json]:
    """The partitions of the member's target that somebody else still owns, and who that is."""
    blocked: list[Json] = []
    own = member.member_id
    for topic_id, partitions in target.items():
        owners = group.owners.get(topic_id, {})
        blocked += [
            {"topic": _name(topic_id, names), "partition": partition, "owner": owner}
            for partition in partitions
            if (owner := owners.get(partition, own)) != own
        ]
    return blocked


def _by_name(partitions: PartitionEpochs, names: Mapping[bytes, str]) -> dict[str, list[int]]:
    return {_name(topic_id, names): sorted(epochs) for topic_id, epochs in sorted(partitions.items())}


def _name(topic_id: bytes, names: Mapping[bytes, str]) -> str:
    """A topic's name, or its id where the topic is gone."""
    return names.get(topic_id) or topic_id_text(topic_id)
