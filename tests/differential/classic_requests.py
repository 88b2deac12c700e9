"""Requests of classic members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit with a generation.

Invariant: both sides get the same request, with the ids and generations that each one's own server gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential.asked import ABOVE, Asked
from tests.differential.embedded import assigned_by_range, metadata
from tests.differential.script import Step
from tests.differential.side import ClassicModel, Side
from wire.apis import ApiKey
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.leave_group import MEMBERS_SINCE, LeaveGroupRequest, MemberIdentity
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

STRANGER: Final = "stranger"
TIMEOUT_MS: Final = "60000"
"""Longer than any script takes."""


def ask_for(step: Step, side: Side, group_id: str) -> Asked | None:
    """Return the request to `side` at this step; None if the step makes no sense there."""
    model = side.classics.setdefault(step.who, ClassicModel())
    return VERBS[step.verb](step, side, model, "" if step.get("group") == "none" else group_id)


def _join(step: Step, side: Side, model: ClassicModel, group_id: str) -> Asked | None:
    version = int(step.get("version", "9"))
    model.instance_id = step.get("instance") or None
    pairs = [pair.split(":") for pair in step.get("protocols", "range:x").split(",") if pair]
    body = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=int(step.get("session", TIMEOUT_MS)),
        rebalance_timeout_ms=int(step.get("rebalance", TIMEOUT_MS)),
        member_id=_member_id(step, side, model),
        group_instance_id=model.instance_id,
        protocol_type="" if step.get("type") == "none" else step.get("type", "consumer"),
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata(said, model)) for name, said in pairs
        ],
        reason=step.get("reason") or None,
    )
    return Asked(ApiKey.JOIN_GROUP, version, body)


def _sync(step: Step, side: Side, model: ClassicModel, group_id: str) -> Asked | None:
    generation = _generation(step, model)
    if generation is None:
        return None
    members = model.members if model.is_leader or step.get("assign") == "always" else {}
    what = step.get("assign", "p")
    if what == "range":
        given = assigned_by_range(members, side)
    else:
        given = {one: f"{what}-{side.who_is(one)}".encode() for one in members if what != "none"}
    body = SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=_member_id(step, side, model),
        group_instance_id=_instance_id(step, model),
        protocol_type=_said(step.get("type"), model.protocol_type),
        protocol_name=_said(step.get("protocol"), model.protocol),
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in given.items()
        ],
    )
    return Asked(ApiKey.SYNC_GROUP, int(step.get("version", "5")), body)


def _beat(step: Step, side: Side, model: ClassicModel, group_id: str) -> Asked | None:
    generation = _generation(step, model)
    if generation is None:
        return None
    body = HeartbeatRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=_member_id(step, side, model),
        group_instance_id=_instance_id(step, model),
    )
    return Asked(ApiKey.HEARTBEAT, int(step.get("version", "4")), body)


def _leave(step: Step, side: Side, model: ClassicModel, group_id: str) -> Asked | None:
    """`members=a,b@i-b,@i-c`: by member id, by both ids, by instance id alone. Without it: itself."""
    version = int(step.get("version", "5"))
    members = []
    for one in step.get("members", step.who).split(","):
        who, _, instance_id = one.partition("@")
        member_id = side.classics[who].member_id if who in side.classics else who
        reason = step.get("reason") or None
        members.append(
            MemberIdentity(member_id=member_id, group_instance_id=instance_id or None, reason=reason)
        )
    if version < MEMBERS_SINCE:
        return Asked(
            ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(group_id=group_id, member_id=members[0].member_id)
        )
    return Asked(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(group_id=group_id, members=members))


def _commit(step: Step, side: Side, model: ClassicModel, group_id: str) -> Asked | None:
    generation = _generation(step, model)
    if generation is None:
        return None
    part = OffsetCommitRequestPartition(
        partition_index=int(step.get("partition", "0")),
        committed_offset=int(step.get("offset", "0")),
        committed_metadata="",
    )
    body = OffsetCommitRequest(
        group_id=group_id,
        member_id=_member_id(step, side, model),
        generation_id_or_member_epoch=generation,
        group_instance_id=_instance_id(step, model),
        topics=[OffsetCommitRequestTopic(name=step.get("topic", "t3"), partitions=[part])],
    )
    return Asked(ApiKey.OFFSET_COMMIT, int(step.get("version", "9")), body)


VERBS: Final[dict[str, Callable[[Step, Side, ClassicModel, str], Asked | None]]] = {
    "cjoin": _join,
    "csync": _sync,
    "cbeat": _beat,
    "cleave": _leave,
    "ccommit": _commit,
}


def describe(group_id: str) -> Asked:
    return Asked(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[group_id]))


def _member_id(step: Step, side: Side, model: ClassicModel) -> str:
    """The member id that a step says: the member's own, another's, none, or one that was never given out."""
    which = step.get("id", "own")
    if which == "own":
        return model.member_id
    if which == "none":
        return ""
    return side.classics[which].member_id if which in side.classics else STRANGER


def _instance_id(step: Step, model: ClassicModel) -> str | None:
    which = step.get("instance", "own")
    return model.instance_id if which == "own" else None if which == "none" else which


def _said(which: str, told: str | None) -> str | None:
    """The protocol that a step names: the one that the member was told, unless the step has its own."""
    return None if which == "none" else which or told


def _generation(step: Step, model: ClassicModel) -> int | None:
    """The generation that a step says; None if the member never had it."""
    match step.get("generation", "same"):
        case "same":
            return model.generation
        case "above":
            return model.generation + ABOVE
        case "before":
            return model.before if model.before >= 0 else None
        case _:
            return -1
