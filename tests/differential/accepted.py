"""Differences that are known and wanted: each a predicate on one field of one reply, and counted.

Invariants: a predicate says in which situation it holds, so that the same field is compared
everywhere else; each has its row under "Accepted differences" in docs/conformance.md, found by its name;
together they mask at most `MASKED_MAX` of the replies (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.differential.asked import Asked
from tests.differential.compare import Difference
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MASKED_MAX: Final = 0.02
"""Of all replies: beyond it the comparison would no longer say much."""

UNKNOWN_MEMBER_ID: Final = 25
GROUP_MAX_SIZE_REACHED: Final = 81
INVALID_REQUEST: Final = 42
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111


@dataclass(slots=True)
class Circumstances:
    """What happened in the script before."""

    has_acted: bool = False
    """A member left, a topic changed or an expression was resolved, and nobody has sent a heartbeat since."""
    has_interval: bool = False
    """The script has set an assignment interval."""
    has_spaces: bool = False
    """The script has set a config to a number with spaces around it."""
    is_empty: bool = True
    """The group has no members."""
    has_dropped: bool = False
    """The script has deleted a topic."""


OWN_TOPIC = "assignment.own"
"""Where an assignment has a topic that is a script's own, which only such may delete."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One difference with what it was the answer to."""

    difference: Difference
    asked: Asked
    trees: tuple[Any, Any]
    before: Circumstances


class Then(Enum):
    """How a script goes on after a difference. What a server thinks of a member may not be the same any more:
    then the member leaves on both sides."""

    ON = "on"
    LEAVES = "leaves"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted difference, in replies of `apis`, in fields whose path begins with `field`."""

    name: str
    apis: tuple[str, ...]
    field: str
    holds: Callable[[Situation], bool]
    then: Then = Then.ON


def _fenced_there_only(situation: Situation) -> bool:
    """A heartbeat with the epoch before, that owns nothing it was not given: Kafka takes it once."""
    difference = situation.difference
    return (
        (difference.kafka, difference.ours) == (FENCED_MEMBER_EPOCH, 0)
        and situation.asked.facts.get("epoch") != "above"
        and situation.asked.facts.get("owned") != "null"
    )


def _assigned_again(situation: Situation) -> bool:
    """The reply that was lost may have brought an assignment, so ours brings it with the next one."""
    return situation.difference.kafka is None and bool(situation.asked.facts.get("lost"))


def _at_once_before_interval(situation: Situation) -> bool:
    """The target of what happened is there when the interval is set; in Kafka it has to wait for it too."""
    return situation.before.has_acted and situation.before.has_interval


def _vanished(situation: Situation) -> bool:
    """A member that still has something to give up loses a deleted topic now, and in Kafka after that.

    Where nobody asks for the whole assignment that is one of ours alone, else a topic of Kafka's alone.
    """
    difference = situation.difference
    is_gone = difference.ours is None and difference.path.startswith(OWN_TOPIC)
    return situation.before.has_dropped and (difference.kafka is None or is_gone)


def _stranger_in_full_group(situation: Situation) -> bool:
    """Who is no member and does not ask to become one: the group's size is not what is wrong."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)


def _joins_again(situation: Situation) -> bool:
    """A static member repeats its join with the same ids: the reply of the first one was lost."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (UNRELEASED_INSTANCE_ID, 0)


def _changes_instance(situation: Situation) -> bool:
    """A member that is there joins again with another instance id, a free one."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (0, INVALID_REQUEST) and bool(
        getattr(situation.asked.body, "instance_id", None)
    )


def _changes_to_taken_instance(situation: Situation) -> bool:
    """The same with the instance id of somebody else: both refuse."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (UNRELEASED_INSTANCE_ID, INVALID_REQUEST)


def _interval_of_empty(situation: Situation) -> bool:
    """The last target before was that of a group that everybody had left."""
    return situation.before.has_interval and situation.before.is_empty


def _joins_by_expression(situation: Situation) -> bool:
    """A new member with nothing but an expression that is not resolved yet."""
    body = situation.asked.body
    return (
        bool(getattr(body, "subscribed_topic_regex", None))
        and not getattr(body, "subscribed_topic_names", None)
        and getattr(body, "member_epoch", None) == 0
    )


def _returns_to_full_group(situation: Situation) -> bool:
    """A static member joins again under another member id: its place is its own."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (GROUP_MAX_SIZE_REACHED, 0) and bool(
        getattr(situation.asked.body, "instance_id", None)
    )


def _acknowledges_untold(situation: Situation) -> bool:
    """The report acknowledges nothing here, and Kafka moves the member on: of nothing, or without what a
    topic had that has gone, by a member that was told of no revocation; or a full one, as the one before."""
    difference, facts, body = situation.difference, situation.asked.facts, situation.asked.body
    if facts.get("epoch") != "same" or not isinstance(body, ConsumerGroupHeartbeatRequest):
        return False
    says_all = body.subscribed_topic_names is not None and body.rebalance_timeout_ms != -1
    says_no_more = facts.get("owned") == "told" and (says_all or situation.before.has_dropped)
    return (facts.get("owned") == "none" or says_no_more) and difference.kafka.number > body.member_epoch


HEARTBEAT: Final = ("CONSUMER_GROUP_HEARTBEAT",)
DESCRIBED: Final = ("CONSUMER_GROUP_DESCRIBE",)
LISTED: Final = ("LIST_GROUPS",)
ANY_OF_GROUP: Final = (*HEARTBEAT, *DESCRIBED, *LISTED)

ACCEPTED: Final = (
    Accepted("target-at-once", DESCRIBED, "groups[0].", lambda situation: situation.before.has_acted),
    Accepted("listed-at-once", LISTED, "groups", lambda situation: situation.before.has_acted),
    Accepted("number-with-spaces", ANY_OF_GROUP, "", lambda it: it.before.has_spaces, Then.ENDS),
    Accepted("interval-of-empty-group", HEARTBEAT, "", _interval_of_empty, Then.ENDS),
    Accepted("target-at-once-then-interval", HEARTBEAT, "member_epoch", _at_once_before_interval, Then.ENDS),
    Accepted("joins-by-expression", HEARTBEAT, "member_epoch", _joins_by_expression),
    Accepted("told-first", HEARTBEAT, "member_epoch", _acknowledges_untold, Then.LEAVES),
    Accepted("assigned-again", HEARTBEAT, "assignment", _assigned_again, Then.LEAVES),
    Accepted("stranger-in-full-group", HEARTBEAT, "error_code", _stranger_in_full_group),
    Accepted("static-into-full-group", HEARTBEAT, "error_code", _returns_to_full_group, Then.ENDS),
    Accepted("instance-id-stays", HEARTBEAT, "error_code", _changes_instance, Then.ENDS),
    Accepted("instance-id-stays-taken", HEARTBEAT, "error_code", _changes_to_taken_instance),
    Accepted("static-join-again", HEARTBEAT, "error_code", _joins_again, Then.LEAVES),
    Accepted("deleted-topics-vanish", HEARTBEAT, "assignment", _vanished, Then.LEAVES),
    Accepted("repeated-lost-replies", HEARTBEAT, "error_code", _fenced_there_only, Then.LEAVES),
)


def accepted(situation: Situation) -> Accepted | None:
    """The predicate that accepts a difference; None: it is a defect."""
    difference = situation.difference
    for one in ACCEPTED:
        if difference.api in one.apis and difference.path.startswith(one.field) and one.holds(situation):
            return one
    return None
