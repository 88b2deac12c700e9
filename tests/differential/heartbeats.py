"""Heartbeats of a member, a former member, or a client that is no member."""

from __future__ import annotations

from typing import Final

from tests.differential.asked import Asked, epoch_of, topic_name, topic_names
from tests.differential.script import Step
from tests.differential.side import MemberModel, Owned, Side
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

HEARTBEAT: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
REBALANCE_TIMEOUT_MS: Final = 60_000
STRANGER: Final = "stranger"
STRANGERS_EPOCH: Final = 3


def _wire_owned(side: Side, owned: Owned | None) -> list[TopicPartitions] | None:
    if owned is None:
        return None
    return [
        TopicPartitions(topic_id=side.topic_ids[label], partitions=partitions)
        for label, partitions in sorted(owned.items())
    ]


def expression(step: Step, group_id: str) -> str | None:
    """Return an expression of alternative names; `own` topics carry the group's name on the servers."""
    names = [topic_name(name, group_id) for name in step.get("regex").split("|")]
    return "|".join(names) or None


def join(step: Step, side: Side, group_id: str) -> Asked | None:
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
    member.regex = expression(step, group_id)
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
        subscribed_topic_regex=member.regex if version >= 1 else None,
        server_assignor=member.assignor,
        topic_partitions=[],
    )
    return Asked(HEARTBEAT, version, body, member)


def beat(step: Step, side: Side, group_id: str) -> Asked | None:
    member = side.members.get(step.who)
    if member is None or member.is_away:
        return None
    if member.epoch == 0:
        return _joining(member, group_id)
    epoch = epoch_of(step, member)
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
    facts["missed"] = member.has_missed
    if member.is_behind and step.get("terse") != "1":
        body.subscribed_topic_names = member.topics
        body.subscribed_topic_regex = member.regex
        body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
    return Asked(HEARTBEAT, 1, body, member, facts=facts)


def resubscribe(step: Step, side: Side, group_id: str) -> Asked | None:
    asked = _changing(step, side, group_id, topics=step.get("topics"))
    if asked is not None and asked.member is not None and "regex" in step.args:
        asked.member.regex = expression(step, group_id)
        asked.body.subscribed_topic_regex = asked.member.regex or ""  # type: ignore[attr-defined]
    return asked


def assignor(step: Step, side: Side, group_id: str) -> Asked | None:
    return _changing(step, side, group_id, assignor=step.get("name"))


def _changing(step: Step, side: Side, group_id: str, *, topics: str = "", assignor: str = "") -> Asked | None:
    asked = beat(step, side, group_id)
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


def full(step: Step, side: Side, group_id: str) -> Asked | None:
    asked = beat(step, side, group_id)
    if asked is None or asked.member is None:
        return None
    asked.body.subscribed_topic_names = asked.member.topics  # type: ignore[attr-defined]
    asked.body.subscribed_topic_regex = asked.member.regex  # type: ignore[attr-defined]
    asked.body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS  # type: ignore[attr-defined]
    return asked


def leave(step: Step, side: Side, group_id: str) -> Asked | None:
    member = side.members.get(step.who)
    if member is None or not member.member_id:
        return None
    epoch = int(step.get("epoch", "-1"))
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member.member_id, member_epoch=epoch, instance_id=member.instance_id
    )
    return Asked(HEARTBEAT, 1, body, member)


def ghost(step: Step, side: Side, group_id: str) -> Asked | None:
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


def stray(step: Step, side: Side, group_id: str) -> Asked | None:
    """Send a valid request with one wrong field; the group must not change."""
    body = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=STRANGER,
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        subscribed_topic_names=["t1"],
        topic_partitions=[],
    )
    match step.get("what"):
        case "bad-regex":
            body.subscribed_topic_regex = "("
        case "lookaround":
            body.subscribed_topic_regex = "t(?!1)"
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
