"""A client's handling of a reply, unless the reply is lost."""

from __future__ import annotations

from typing import Any, Final

from tests.differential.asked import Asked
from tests.differential.script import Step
from tests.differential.side import Owned, Side

FENCING: Final = frozenset({25, 69, 82, 110})
"""Errors after which a client gives up all its partitions and rejoins."""


def hear(step: Step, side: Side, asked: Asked, answer: Any) -> None:
    """Update the client model from the reply, unless the reply is lost."""
    member = asked.member
    if member is None:
        return
    if step.verb == "leave":
        if not answer.error_code:
            if answer.member_epoch == -2:
                member.is_away = True
                member.kept = {}
            else:
                side.members.pop(step.who, None)
        return
    if step.get("lost") == "1":
        member.is_behind = member.has_missed = True
        return
    if answer.error_code in FENCING:
        member.fenced()
    elif not answer.error_code:
        member.heard(answer.member_epoch, _assigned(side, answer))


def _assigned(side: Side, answer: Any) -> Owned | None:
    if answer.assignment is None:
        return None
    return {
        side.label_of(topic.topic_id): sorted(topic.partitions)
        for topic in answer.assignment.topic_partitions
        if topic.partitions
    }
