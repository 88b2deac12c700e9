"""Known and intended differences: each a predicate on one field of one reply, and counted.

Invariants: a predicate names the situation in which it holds, so that the same field is compared everywhere
else. Each has a row under "Accepted differences" in docs/proofs/conformance.md with its name. Together they
mask at most `MASKED_MAX` of the replies (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.differential.asked import Asked
from tests.differential.compare import Difference
from tests.differential.side import RANDOM_ID
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MASKED_MAX: Final = 0.02
"""Share of all replies; with more of them masked, the comparison would prove little."""

MASKED_FROM: Final = 10_000
"""Replies from which on the share counts; in short runs the kept scripts outweigh the others."""

ALONE: Final = "answered alone"
"""In place of a path: only ours has answered the request."""

ALONE_THERE: Final = "answered by Kafka alone"
"""In place of a path: the request waits here."""

UNKNOWN_SERVER_ERROR: Final = -1
UNKNOWN_MEMBER_ID: Final = 25
GROUP_ID_NOT_FOUND: Final = 69
REBALANCE_IN_PROGRESS: Final = 27
NOT_COORDINATOR: Final = 16
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
INCONSISTENT_GROUP_PROTOCOL: Final = 23
GROUP_MAX_SIZE_REACHED: Final = 81
INVALID_REQUEST: Final = 42
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111


@dataclass(slots=True)
class Circumstances:
    """Earlier events in the script that a predicate depends on."""

    has_acted: bool = False
    """A member left, a topic changed or an expression was resolved, and no heartbeat has been sent since."""
    has_interval: bool = False
    """The script has set an assignment interval."""
    has_spaces: bool = False
    """The script has set a config to a number with spaces around it."""
    is_empty: bool = True
    """The group has no members."""
    is_classic: bool = False
    """The group is a classic one."""
    is_rebalancing: bool = False
    """The group is a classic one, between two generations."""
    has_aborted: bool = False
    """A transaction with offsets of the group was aborted, by its producer or by the next one."""
    has_refused_upgrade: bool = False
    """A consumer was refused because the group has classic members."""
    has_had_consumers: bool = False
    """The group was one of the consumer protocol."""
    has_left: bool = False
    """All consumers have left the group, and no classic member has joined it since."""
    has_returned: bool = False
    """All consumers had left the group, and then one joined it."""
    has_interrupted: bool = False
    """A consumer joined while the group was a classic one between two generations."""
    has_dropped: bool = False
    """The script has deleted a topic."""
    has_refused_join: bool = False
    """A JoinGroup was refused with UNKNOWN_MEMBER_ID by a consumer group that all members have left."""


TAKEN_UP: Final = ("told", "kept")
REBALANCING: Final = {"PreparingRebalance", "CompletingRebalance"}

OWN_TOPIC = "assignment.own"
"""Path of a script's own topic in an assignment; a script may delete only its own topics."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One difference, with the request that led to it."""

    difference: Difference
    asked: Asked
    trees: tuple[Any, Any]
    before: Circumstances


class Then(Enum):
    """The course of a script after a difference.

    If the servers may disagree about a member from here on, that member leaves on both sides.
    """

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
    """A heartbeat with the previous epoch that owns only what was assigned: Kafka accepts it once."""
    difference = situation.difference
    return (
        (difference.kafka, difference.ours) == (FENCED_MEMBER_EPOCH, 0)
        and situation.asked.facts.get("epoch") != "above"
        and situation.asked.facts.get("owned") != "null"
    )


def _assigned_again(situation: Situation) -> bool:
    """The lost reply may have contained an assignment, so we send it again with the next reply."""
    return situation.difference.kafka is None and bool(situation.asked.facts.get("lost"))


def _kept_again(situation: Situation) -> bool:
    """A member revoked what it never reported to have; our reply says once more what it keeps."""
    return situation.difference.kafka is None and situation.asked.facts.get("owned") in TAKEN_UP


def _at_once_before_interval(situation: Situation) -> bool:
    """We compute the target before the interval is set; in Kafka it has to wait for the interval too."""
    return situation.before.has_acted and situation.before.has_interval


def _vanished(situation: Situation) -> bool:
    """A member that still has to revoke loses a deleted topic at once; in Kafka only after the revocation.

    Either only our reply has an assignment, or both have one and only Kafka's contains the topic.
    """
    difference = situation.difference
    is_gone = difference.ours is None and difference.path.startswith(OWN_TOPIC)
    return situation.before.has_dropped and (difference.kafka is None or is_gone)


def _stranger_in_full_group(situation: Situation) -> bool:
    """A client that is no member and does not join: we answer UNKNOWN_MEMBER_ID, whatever the size."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)


def _joins_again(situation: Situation) -> bool:
    """A static member repeats its join with the same ids because the first reply was lost."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (UNRELEASED_INSTANCE_ID, 0)


def _changes_instance(situation: Situation) -> bool:
    """An existing member joins again with another instance id that is free."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (0, INVALID_REQUEST) and bool(
        getattr(situation.asked.body, "instance_id", None)
    )


def _changes_to_taken_instance(situation: Situation) -> bool:
    """An existing member asks for another member's instance id: both sides refuse, with different errors."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (UNRELEASED_INSTANCE_ID, INVALID_REQUEST)


def _interval_of_empty(situation: Situation) -> bool:
    """In a group that all members have left, Kafka counts the interval from their last target."""
    return situation.before.has_interval and situation.before.is_empty


def _joins_by_expression(situation: Situation) -> bool:
    """A new member that subscribes only by an expression that is not resolved yet."""
    body = situation.asked.body
    return (
        bool(getattr(body, "subscribed_topic_regex", None))
        and not getattr(body, "subscribed_topic_names", None)
        and getattr(body, "member_epoch", None) == 0
    )


def _returns_to_full_group(situation: Situation) -> bool:
    """A static member rejoins a full group under another member id; only we admit it."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (GROUP_MAX_SIZE_REACHED, 0) and bool(
        getattr(situation.asked.body, "instance_id", None)
    )


def _is_uncertain(situation: Situation) -> bool:
    """The report lacks partitions to revoke that the member may never have reported.

    The report is empty, or it has what the member has taken up or was told and is a full one or the member
    has missed a reply, or a topic was deleted and the member learned of no revocation.
    """
    facts, body = situation.asked.facts, situation.asked.body
    if facts.get("epoch") != "same" or not isinstance(body, ConsumerGroupHeartbeatRequest):
        return False
    owned = facts.get("owned")
    says_all = body.subscribed_topic_names is not None and body.rebalance_timeout_ms != -1
    return (
        owned == "none"
        or (owned in TAKEN_UP and (says_all or bool(facts.get("missed"))))
        or (owned == "told" and situation.before.has_dropped)
    )


def _acknowledges_untold(situation: Situation) -> bool:
    """Only Kafka takes an uncertain report for an acknowledgement: the member's epoch rises there."""
    return _is_uncertain(situation) and situation.difference.kafka.number > situation.asked.body.member_epoch


def _revokes_further(situation: Situation) -> bool:
    """The same, when the target has changed again: in Kafka there is more to revoke, at the same epoch."""
    kafka, ours = situation.difference.kafka, situation.difference.ours
    return _is_uncertain(situation) and isinstance(ours, list) and {*(kafka or ())} < {*ours}


def _elected_by_hash(situation: Situation) -> bool:
    """The leader left or did not join again, and Kafka takes the next one of a hash map."""
    kafka, ours = (tree["leader"] for tree in situation.trees)
    return bool(kafka and ours) and number_of(situation.trees[0]["generation_id"]) > 1


def _is_led_elsewhere(situation: Situation) -> bool:
    """A member of a downgraded group joins again: on the side where it leads, it waits for the others."""
    (answer,) = (tree for tree in situation.trees if tree is not None)
    is_current = answer.error_code == 0 and answer.leader not in ("", answer.member_id)
    return situation.before.has_had_consumers and is_current


def _is_of_replaced(situation: Situation) -> bool:
    """The client id of a static member that another client has replaced."""
    return situation.difference.path.endswith(".client_id")


def _votes_are_tied(situation: Situation) -> bool:
    """Two protocols have equally many votes: Kafka takes the first one of a hash map."""
    return all(tree["error_code"] == 0 for tree in situation.trees)


def _kept_in_rebalance(situation: Situation) -> bool:
    """Members of a classic group join; no generation with members was written yet."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (0, GROUP_SUBSCRIBED_TO_TOPIC)


def _is_superseded(situation: Situation) -> bool:
    """A member sends the same request again while the first one waits; Kafka never answers the first."""
    is_older = bool(situation.asked.facts.get("superseded"))
    return is_older and situation.difference.ours.error_code == REBALANCE_IN_PROGRESS


def _returns_with_other_topics(situation: Situation) -> bool:
    """A static consumer comes back with other topics: a new generation begins here (KAFKA-12759)."""
    body, (kafka, ours) = situation.asked.body, situation.trees
    is_back = bool(kafka is not None and body.group_instance_id and not body.member_id)
    if not is_back or ours is None:
        return is_back
    return number_of(ours["generation_id"]) == number_of(kafka["generation_id"]) + 1


def _has_left(situation: Situation) -> bool:
    """A member leaves while its SyncGroup waits; Kafka never answers that."""
    return bool(situation.difference.ours.error_code == UNKNOWN_MEMBER_ID)


def _replaces_classic(situation: Situation) -> bool:
    """A consumer takes the place of a static classic member: the group is upgraded, and begins an epoch."""
    body = situation.asked.body
    return (
        isinstance(body, ConsumerGroupHeartbeatRequest)
        and body.instance_id is not None
        and body.member_epoch == 0
        and (situation.before.is_classic or situation.before.has_left)
    )


def _is_still_owned(situation: Situation) -> bool:
    """A group is upgraded in a rebalance, or again after a downgrade: a member may still own what Kafka gives
    away."""
    body, before = situation.asked.body, situation.before
    is_join = isinstance(body, ConsumerGroupHeartbeatRequest) and body.member_epoch == 0
    return is_join and (before.is_rebalancing or before.has_left)


def _owned_before_upgrade(situation: Situation) -> bool:
    """The same, described afterwards: Kafka has forgotten what the members from before it own."""
    return situation.before.has_interrupted and ".assignment" in situation.difference.path


def _was_aborted(situation: Situation) -> bool:
    """A group whose only offsets were those of an aborted transaction."""
    difference = situation.difference
    return situation.before.has_aborted and (difference.kafka, difference.ours) == (0, GROUP_ID_NOT_FOUND)


def _cannot_be_read(situation: Situation) -> bool:
    """A consumer joins a classic group whose members' metadata is no subscription."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (UNKNOWN_SERVER_ERROR, GROUP_ID_NOT_FOUND)


def _was_interrupted(situation: Situation) -> bool:
    """The same, while a member waits: Kafka has told it to join again before it refused the consumer."""
    is_told = situation.difference.kafka.error_code == REBALANCE_IN_PROGRESS
    return is_told and situation.before.has_refused_upgrade


def _waits_at_upgrade(situation: Situation) -> bool:
    """A JoinGroup waits when a consumer joins: it is answered by the code that all clients try again for."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (REBALANCE_IN_PROGRESS, NOT_COORDINATOR)


def _owns_as_stranger(situation: Situation) -> bool:
    """A client that is no member joins a consumer group, and says that it owns partitions: we fence it."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (0, UNKNOWN_MEMBER_ID)


def _was_consumer(situation: Situation) -> bool:
    """A consumer whose group went back to the classic protocol: it may join again, in Kafka it stops."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID)


def _has_generation_0(situation: Situation) -> bool:
    """A classic process with other topics takes the place of the last consumer: Kafka says generation 0."""
    return number_of(situation.difference.kafka) == 0 < number_of(situation.difference.ours)


def _goes_on_unsettled(situation: Situation) -> bool:
    """A classic process takes the place of the last consumer; not all members have reached their targets."""
    return (situation.difference.kafka, situation.difference.ours) == ("Stable", "PreparingRebalance")


def _has_target(situation: Situation) -> bool:
    """The assignments of a group that was downgraded, before its next generation."""
    states = {tree["groups"][0]["group_state"] for tree in situation.trees}
    return ".member_assignment" in situation.difference.path and states <= REBALANCING


def _was_not_reached(situation: Situation) -> bool:
    """The same, after the group was upgraded again."""
    return situation.before.has_returned and ".assignment" in situation.difference.path


def _owns_other_partitions(situation: Situation) -> bool:
    """The same, for other classic members: they get or wait for what that member owns on one side only."""
    return situation.before.has_returned


def number_of(epoch: Any) -> int:
    """The number of a generation, which is an epoch in a mixed group."""
    return int(getattr(epoch, "number", epoch))


def _forgot_group(situation: Situation) -> bool:
    """Kafka removes a consumer group without members before it refuses a JoinGroup, and only from memory."""
    return situation.before.has_refused_join


def _told_at_once(situation: Situation) -> bool:
    """A member left, so we computed a target, and tell a classic member to join again at once."""
    difference = situation.difference
    return situation.before.has_acted and (difference.kafka, difference.ours) == (0, REBALANCE_IN_PROGRESS)


def _has_random_id(situation: Situation) -> bool:
    """A dynamic classic member joins a consumer group: its id is random, and so is the order of members."""
    return RANDOM_ID.fullmatch(str(situation.difference.kafka)) is not None


HEARTBEAT: Final = ("CONSUMER_GROUP_HEARTBEAT",)
DESCRIBED: Final = ("CONSUMER_GROUP_DESCRIBE",)
CLASSIC: Final = ("DESCRIBE_GROUPS",)
LISTED: Final = ("LIST_GROUPS",)
JOINED: Final = ("JOIN_GROUP",)
ANY_OF_GROUP: Final = (*HEARTBEAT, *DESCRIBED, *LISTED)
FORGOTTEN: Final = (*ANY_OF_GROUP, *CLASSIC, "OFFSET_COMMIT", "OFFSET_DELETE", "DELETE_GROUPS")

ACCEPTED: Final = (
    Accepted("classic-told-at-once", ("HEARTBEAT",), "error_code", _told_at_once),
    Accepted("classic-told-at-once", ("SYNC_GROUP",), "error_code", _told_at_once, Then.ENDS),
    Accepted("target-at-once", DESCRIBED, "groups[0].", lambda situation: situation.before.has_acted),
    Accepted("listed-at-once", LISTED, "groups", lambda situation: situation.before.has_acted),
    Accepted("number-with-spaces", ANY_OF_GROUP, "", lambda it: it.before.has_spaces, Then.ENDS),
    Accepted("interval-of-empty-group", HEARTBEAT, "", _interval_of_empty, Then.ENDS),
    Accepted("target-at-once-then-interval", HEARTBEAT, "member_epoch", _at_once_before_interval, Then.ENDS),
    Accepted("joins-by-expression", HEARTBEAT, "member_epoch", _joins_by_expression),
    Accepted("told-first", HEARTBEAT, "member_epoch", _acknowledges_untold, Then.LEAVES),
    Accepted("told-first", HEARTBEAT, "assignment.", _revokes_further, Then.LEAVES),
    Accepted("assigned-again", HEARTBEAT, "assignment", _assigned_again, Then.LEAVES),
    Accepted("assigned-again", HEARTBEAT, "assignment", _kept_again),
    Accepted("stranger-in-full-group", HEARTBEAT, "error_code", _stranger_in_full_group),
    Accepted("static-into-full-group", HEARTBEAT, "error_code", _returns_to_full_group, Then.ENDS),
    Accepted("instance-id-stays", HEARTBEAT, "error_code", _changes_instance, Then.ENDS),
    Accepted("instance-id-stays-taken", HEARTBEAT, "error_code", _changes_to_taken_instance),
    Accepted("static-join-again", HEARTBEAT, "error_code", _joins_again, Then.LEAVES),
    Accepted("deleted-topics-vanish", HEARTBEAT, "assignment", _vanished, Then.LEAVES),
    Accepted("upgraded-by-static-member", HEARTBEAT, "member_epoch", _replaces_classic, Then.ENDS),
    Accepted("refused-join-forgets-group", FORGOTTEN, "", _forgot_group, Then.ENDS),
    Accepted("aborted-leaves-nothing", ("DELETE_GROUPS", "OFFSET_DELETE"), "", _was_aborted, Then.ENDS),
    Accepted("unreadable-subscription", HEARTBEAT, "error_code", _cannot_be_read, Then.ENDS),
    Accepted("unreadable-subscription", ("JOIN_GROUP", "SYNC_GROUP"), ALONE_THERE, _was_interrupted),
    Accepted("joining-at-upgrade", JOINED, "error_code", _waits_at_upgrade),
    Accepted("stranger-that-owns", JOINED, "error_code", _owns_as_stranger, Then.ENDS),
    Accepted("upgraded-in-rebalance", HEARTBEAT, "assignment", _is_still_owned, Then.ENDS),
    Accepted("upgraded-in-rebalance", DESCRIBED, "groups[0].members", _owned_before_upgrade, Then.ENDS),
    Accepted("consumer-of-downgraded", HEARTBEAT, "error_code", _was_consumer),
    Accepted("downgraded-generation", JOINED, "generation_id", _has_generation_0, Then.ENDS),
    Accepted("downgraded-before-settled", CLASSIC, "groups[0].group_state", _goes_on_unsettled, Then.ENDS),
    Accepted("downgraded-assignments", CLASSIC, "groups[0].members", _has_target, Then.ON),
    Accepted("downgraded-assignments", DESCRIBED, "groups[0].members", _was_not_reached, Then.ENDS),
    Accepted("downgraded-assignments", ("HEARTBEAT", "SYNC_GROUP"), "", _owns_other_partitions, Then.ENDS),
    Accepted("random-member-id", JOINED, "member_id", _has_random_id, Then.ENDS),
    Accepted("leader-by-hash", JOINED, "leader", _elected_by_hash, Then.ENDS),
    Accepted("leader-by-hash", JOINED, ALONE, _is_led_elsewhere, Then.ENDS),
    Accepted("leader-by-hash", JOINED, ALONE_THERE, _is_led_elsewhere, Then.ENDS),
    Accepted("replaced-clients-id", CLASSIC, "groups[0].members", _is_of_replaced),
    Accepted("tied-votes", JOINED, "protocol_name", _votes_are_tied, Then.ENDS),
    Accepted("offsets-kept-in-rebalance", ("OFFSET_DELETE",), "topics", _kept_in_rebalance, Then.ENDS),
    Accepted("superseded-requests", ("JOIN_GROUP", "SYNC_GROUP"), ALONE, _is_superseded),
    Accepted("left-while-syncing", ("SYNC_GROUP",), ALONE, _has_left),
    Accepted("returned-with-other-topics", JOINED, "", _returns_with_other_topics, Then.ENDS),
    Accepted("repeated-lost-replies", HEARTBEAT, "error_code", _fenced_there_only, Then.LEAVES),
)


def accepted(situation: Situation) -> Accepted | None:
    """Return the predicate that accepts a difference; None if it is a defect."""
    difference = situation.difference
    for one in ACCEPTED:
        if difference.api in one.apis and difference.path.startswith(one.field) and one.holds(situation):
            return one
    return None
