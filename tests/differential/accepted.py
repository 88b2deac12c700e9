"""Differences that are known and wanted: each a predicate on one field of one reply, and counted.

What must stay true: a predicate says in which situation it holds, so that the same field is compared
everywhere else; each has its row under "Accepted differences" in docs/conformance.md, found by its name;
together they mask at most `MASKED_MAX` of the replies (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.asking import Asked
from tests.differential.compare import Difference

MASKED_MAX: Final = 0.02
"""Of all replies: beyond it the comparison would no longer say much."""

UNKNOWN_MEMBER_ID: Final = 25
GROUP_MAX_SIZE_REACHED: Final = 81
INVALID_REQUEST: Final = 42
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111


@dataclass(frozen=True, slots=True)
class Situation:
    """One difference with what it was the answer to."""

    difference: Difference
    asked: Asked
    trees: tuple[Any, Any]
    left_since_beat: bool
    """A member left, and nobody has sent a heartbeat since."""
    has_dropped: bool
    """The script has deleted a topic."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted difference. `ends`: the two sides go different ways after it, so the script ends there."""

    name: str
    api: str
    field: str
    holds: Callable[[Situation], bool]
    ends: bool = False


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


def _vanished(situation: Situation) -> bool:
    """A member that still has something to give up loses a deleted topic now, and in Kafka after that."""
    return situation.has_dropped and situation.difference.kafka is None


def _stranger_in_full_group(situation: Situation) -> bool:
    """Who is no member and does not ask to become one: the group's size is not what is wrong."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)


def _joins_again(situation: Situation) -> bool:
    """A static member repeats its join with the same ids: the reply of the first one was lost."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (UNRELEASED_INSTANCE_ID, 0)


def _changes_instance(situation: Situation) -> bool:
    """A member that is there joins again with another instance id."""
    difference = situation.difference
    return (difference.kafka, difference.ours) == (0, INVALID_REQUEST) and bool(
        getattr(situation.asked.body, "instance_id", None)
    )


ACCEPTED: Final = (
    Accepted(
        "target-at-once",
        "CONSUMER_GROUP_DESCRIBE",
        "groups[0].",
        lambda situation: situation.left_since_beat,
    ),
    Accepted("assigned-again", "CONSUMER_GROUP_HEARTBEAT", "assignment", _assigned_again, ends=True),
    Accepted("stranger-in-full-group", "CONSUMER_GROUP_HEARTBEAT", "error_code", _stranger_in_full_group),
    Accepted("instance-id-stays", "CONSUMER_GROUP_HEARTBEAT", "error_code", _changes_instance, ends=True),
    Accepted("static-join-again", "CONSUMER_GROUP_HEARTBEAT", "error_code", _joins_again, ends=True),
    Accepted("deleted-topics-vanish", "CONSUMER_GROUP_HEARTBEAT", "assignment", _vanished, ends=True),
    Accepted(
        "repeated-lost-replies", "CONSUMER_GROUP_HEARTBEAT", "error_code", _fenced_there_only, ends=True
    ),
)


def accepted(situation: Situation) -> Accepted | None:
    """The predicate that accepts a difference; None: it is a defect."""
    for one in ACCEPTED:
        difference = situation.difference
        if (one.api, True) == (difference.api, difference.path.startswith(one.field)) and one.holds(
            situation
        ):
            return one
    return None
