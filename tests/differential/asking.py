"""From a step to a request: what one side's client sends, with the epochs and ids that its server gave it.

What must stay true: both sides are asked the same thing, and it is derived from what each *server* said. A
step that makes no sense at the moment (an older epoch of a member that never had one) asks nothing of
either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.differential.script import Step
from tests.differential.side import MemberModel, Owned, Side
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.schema import Message

HEARTBEAT: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
REBALANCE_TIMEOUT_MS: Final = 60_000
ABOVE: Final = 1_000
"""More than any epoch of a script, also of a member that is some epochs behind."""

NAMES_VERSION: Final = 9
IDS_VERSION: Final = 10
STRANGER: Final = "stranger"
STRANGERS_EPOCH: Final = 3


@dataclass(slots=True)
class Asked:
    """A request, and what its reply means to the client model."""

    api: ApiKey
    version: int
    body: Message
    member: MemberModel | None = None
    is_positional: bool = False
    """Names other partitions on each side (the k-th that the member holds)."""
    facts: dict[str, object] = field(default_factory=dict)


def topic_name(name: str, group_id: str) -> str:
    """Topics of the script alone bear the group's name on the servers."""
    return f"{name}-{group_id}" if name.startswith("own") else name


def topic_names(names: str, group_id: str) -> list[str]:
    return [topic_name(name, group_id) for name in names.split(",") if name]


def ask_for(step: Step, side: Side, group_id: str) -> Asked | None:
    """What `side` is asked at this step; None when it makes no sense there."""
    return _ASK[step.verb](step, side, group_id)


# ---- heartbeats ----


def _wire_owned(side: Side, owned: Owned | None) -> list[TopicPartitions] | None:
    if owned is None:
        return None
    return [
        TopicPartitions(topic_id=side.topic_ids[label], partitions=partitions)
        for label, partitions in sorted(owned.items())
    ]


def _join(step: Step, side: Side, group_id: str) -> Asked | None:
    version = int(step.get("version", "1"))
    member = side.members.get(step.who)
    if member is None or (member.is_away and step.get("same") != "1"):
        side.times_joined[step.who] += 1
        member_id = f"{step.who}{side.times_joined[step.who]}-{group_id}"
        if version == 0 and not step.get("assignor"):
            member_id = ""  # the server makes one
        if member is not None:
            side.ghosts[step.who] = member
        member = side.members[step.who] = MemberModel(member_id)
    member.is_away = False
    member.topics = topic_names(step.get("topics"), group_id)
    member.assignor = step.get("assignor") or None
    member.instance_id = step.get("instance") or member.instance_id
    return _joining(member, group_id, version, step.get("rack") or None)


def _joining(member: MemberModel, group_id: str, version: int = 1, rack_id: str | None = None) -> Asked:
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=0,
        instance_id=member.instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        subscribed_topic_names=member.topics,
        server_assignor=member.assignor,
        topic_partitions=[],
    )
    return Asked(HEARTBEAT, version, body, member)


def _epoch(step: Step, member: MemberModel) -> int | None:
    which = step.get("epoch", "same")
    if which == "above":
        return member.epoch + ABOVE
    if which == "before":
        return member.before or None
    return member.epoch


def _beat(step: Step, side: Side, group_id: str) -> Asked | None:
    member = side.members.get(step.who)
    if member is None or member.is_away:
        return None
    if member.epoch == 0:
        return _joining(member, group_id)
    epoch = _epoch(step, member)
    if epoch is None:
        return None
    which = step.get("owned", "null")
    if which == "told":
        member.acknowledged()
    owned = member.owned(which)
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        instance_id=member.instance_id,
        topic_partitions=_wire_owned(side, owned),
    )
    lost = member.is_behind or step.get("epoch") == "before"
    facts: dict[str, object] = {"epoch": step.get("epoch", "same"), "owned": which, "lost": lost}
    if member.is_behind and step.get("terse") != "1":
        body.subscribed_topic_names = member.topics
        body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
    return Asked(HEARTBEAT, 1, body, member, facts=facts)


def _resubscribe(step: Step, side: Side, group_id: str) -> Asked | None:
    return _changing(step, side, group_id, topics=step.get("topics"))


def _assignor(step: Step, side: Side, group_id: str) -> Asked | None:
    return _changing(step, side, group_id, assignor=step.get("name"))


def _changing(step: Step, side: Side, group_id: str, *, topics: str = "", assignor: str = "") -> Asked | None:
    asked = _beat(step, side, group_id)
    if asked is None or asked.member is None:
        return None
    member = asked.member
    if topics:
        member.topics = topic_names(topics, group_id)
        asked.body.subscribed_topic_names = member.topics  # type: ignore[attr-defined]
    if assignor:
        member.assignor = assignor
        asked.body.server_assignor = assignor  # type: ignore[attr-defined]
    return asked


def _full(step: Step, side: Side, group_id: str) -> Asked | None:
    asked = _beat(step, side, group_id)
    if asked is None or asked.member is None:
        return None
    asked.body.subscribed_topic_names = asked.member.topics  # type: ignore[attr-defined]
    asked.body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS  # type: ignore[attr-defined]
    return asked


def _leave(step: Step, side: Side, group_id: str) -> Asked | None:
    member = side.members.get(step.who)
    if member is None or not member.member_id:
        return None
    epoch = int(step.get("epoch", "-1"))
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member.member_id, member_epoch=epoch, instance_id=member.instance_id
    )
    return Asked(HEARTBEAT, 1, body, member)


def _ghost(step: Step, side: Side, group_id: str) -> Asked | None:
    ghost = side.ghosts.get(step.who)
    if ghost is None or not ghost.epoch:
        return None
    which = step.get("epoch", "same")
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=ghost.member_id,
        member_epoch=ghost.epoch if which == "same" else int(which),
        instance_id=ghost.instance_id,
    )
    return Asked(HEARTBEAT, 1, body)


def _stray(step: Step, side: Side, group_id: str) -> Asked | None:
    """One field of a good request is wrong; nothing may change."""
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=STRANGER,
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        subscribed_topic_names=["t1"],
        topic_partitions=[],
    )
    match step.get("what"):
        case "stranger":
            body.member_epoch = STRANGERS_EPOCH
        case "stranger-leaves":
            body.member_epoch = -1
        case "no-group":
            body.group_id = ""
        case "no-member":
            body.member_id = ""
        case "no-timeout":
            body.rebalance_timeout_ms = -1
        case "owning-join":
            body.topic_partitions = [TopicPartitions(topic_id=side.topic_ids["t1"], partitions=[0])]
        case "no-topics":
            body.subscribed_topic_names = None
        case "low-epoch":
            body.member_epoch = -3
        case "assignor":
            body.server_assignor = "nobody"
        case "no-instance":
            body.member_epoch = -2
        case "blank-rack":
            body.rack_id = ""
        case what:
            raise ValueError(f"no stray heartbeat is called {what!r}")
    return Asked(HEARTBEAT, 1, body)


# ---- offsets ----


def _commit(step: Step, side: Side, group_id: str) -> Asked | None:
    member = side.members.get(step.who)
    if step.who != "-" and (member is None or not member.member_id):
        return None
    epoch, member_id = -1, ""
    if member is not None:
        member_id = member.member_id
        found = -1 if step.get("epoch") == "none" else _epoch(step, member)
        if found is None:
            return None
        epoch = found
    name, partition, is_positional = (
        topic_name(step.get("topic"), group_id),
        int(step.get("partition")),
        False,
    )
    if step.get("held"):
        held = (
            [(label, number) for label in sorted(member.told) for number in member.told[label]]
            if member
            else []
        )
        if not held:
            return None
        label, partition = held[int(step.get("held")) % len(held)]
        name, is_positional = label.partition("#")[0], True
    version = int(step.get("version", str(NAMES_VERSION)))
    if version >= IDS_VERSION and name not in side.topic_ids:
        return None
    part = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=int(step.get("offset", "0")),
        committed_metadata="x" * int(step.get("metadata", "0")),
    )
    topic = OffsetCommitRequestTopic(
        name=name, topic_id=side.topic_ids.get(name, bytes(16)), partitions=[part]
    )
    body = OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        group_instance_id=member.instance_id if member is not None else None,
        topics=[topic],
    )
    return Asked(ApiKey.OFFSET_COMMIT, version, body, is_positional=is_positional)


def _fetch(step: Step, side: Side, group_id: str) -> Asked | None:
    version = int(step.get("version", str(NAMES_VERSION)))
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    if step.get("topic"):
        name = topic_name(step.get("topic"), group_id)
        if version >= IDS_VERSION and name not in side.topic_ids:
            return None
        topic_id = side.topic_ids.get(name, bytes(16))
        wanted = OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0, 1, 2, 3, 4, 5])
        group.topics = [wanted]
    if step.who != "-":
        member = side.members.get(step.who)
        if member is None or not member.member_id or version < NAMES_VERSION:
            return None
        epoch = _epoch(step, member)
        if epoch is None:
            return None
        group.member_id, group.member_epoch = member.member_id, epoch
    return Asked(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=[group]))


def _forget(step: Step, side: Side, group_id: str) -> Asked | None:
    part = OffsetDeleteRequestPartition(partition_index=int(step.get("partition")))
    topic = OffsetDeleteRequestTopic(name=topic_name(step.get("topic"), group_id), partitions=[part])
    return Asked(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group_id, topics=[topic]))


# ---- groups ----


def _describe(step: Step, side: Side, group_id: str) -> Asked | None:
    facts: dict[str, object] = {"settled": step.get("settled") == "1"}
    body = ConsumerGroupDescribeRequest(group_ids=[group_id])
    return Asked(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body, facts=facts)


def _list(step: Step, side: Side, group_id: str) -> Asked | None:
    states = [state for state in step.get("states").split(",") if state]
    types = [kind for kind in step.get("types").split(",") if kind]
    return Asked(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states_filter=states, types_filter=types))


def _delete(step: Step, side: Side, group_id: str) -> Asked | None:
    return Asked(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group_id]))


def _classic(step: Step, side: Side, group_id: str) -> Asked | None:
    return Asked(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[group_id]))


_ASK = {
    "join": _join,
    "beat": _beat,
    "resubscribe": _resubscribe,
    "assignor": _assignor,
    "full": _full,
    "leave": _leave,
    "ghost": _ghost,
    "stray": _stray,
    "commit": _commit,
    "fetch": _fetch,
    "forget": _forget,
    "describe": _describe,
    "list": _list,
    "delete": _delete,
    "classic": _classic,
}
