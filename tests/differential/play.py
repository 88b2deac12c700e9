"""Plays one script to both sides, in step, and says where their replies differ.

Each step asks both servers at once and waits for both. Changes of topics end with a barrier: a probe group
on each side joins until it is assigned the topic as it now is, so that every later step finds both
coordinators at the same knowledge. The first difference that nobody accepts ends the script.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tests.differential import topics
from tests.differential.accepted import Situation, accepted
from tests.differential.asking import Asked, ask_for
from tests.differential.compare import (
    Difference,
    EpochMap,
    Placed,
    differences,
    placed,
    settled_complaints,
    tree_of,
)
from tests.differential.script import UNIFORM_TOPIC, Script, Step
from tests.differential.side import Owned, Side, TopicIds
from wire.apis import ApiKey

FENCING: Final = frozenset({25, 69, 82, 110})
"""Errors after which a client gives up all it owns and joins anew."""

Address = tuple[str, int]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Arena:
    """The two servers, their shared topics, and what tells this run's groups from those of others."""

    addresses: tuple[Address, Address]
    """Kafka's first."""
    shared_ids: tuple[TopicIds, TopicIds]
    name: str

    def group_id(self) -> str:
        return f"{self.name}-{next(_numbers)}"


@dataclass(slots=True)
class Played:
    """What came of one script."""

    script: Script
    group_id: str
    replies: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    complaint: str | None = None
    """The first difference that nobody accepts, with its step."""
    transcript: list[str] = field(default_factory=list)
    apis: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


async def play(arena: Arena, script: Script) -> Played:
    """Plays it in a new group; whatever goes wrong is in the result."""
    group_id = arena.group_id()
    sides = tuple(
        Side(name, address, ids)
        for name, address, ids in zip(("Kafka", "Quorate"), arena.addresses, arena.shared_ids, strict=True)
    )
    stage = _Stage(script, group_id, (sides[0], sides[1]))
    try:
        for side in sides:
            await side.connect()
        for step in script.steps:
            if not await stage.step(step):
                break
    except Exception as error:  # a lost connection, a time-out, a reply that cannot be read: all are findings
        stage.played.complaint = f"{error!r} at the step after {stage.played.transcript[-1:]}"
    finally:
        await stage.clean_up()
        for side in sides:
            await side.close()
    return stage.played


class _Stage:
    def __init__(self, script: Script, group_id: str, sides: tuple[Side, Side]) -> None:
        self.played = Played(script, group_id)
        self._sides = sides
        self._is_exact = script.is_exact
        self._epochs = EpochMap()
        self._left_since_beat = False
        self._has_dropped = False
        self._placed: tuple[Placed, Placed] = ({}, {})
        self._probes = topics.Probes(group_id)

    async def step(self, step: Step) -> bool:
        """False when the script ends here."""
        if step.verb in topics.VERBS:
            complaint = await self._change(step)
            if complaint:
                self.played.complaint = f"{step}: {complaint}"
            return complaint is None
        asked = [ask_for(step, side, self.played.group_id) for side in self._sides]
        if asked[0] is None or asked[1] is None:
            return True
        both = (asked[0], asked[1])
        answers = await asyncio.gather(
            *(side.ask(one.api, one.version, one.body) for side, one in zip(self._sides, both, strict=True))
        )
        self._name_members(both, answers)
        goes_on = self._compare(step, both, answers)
        for side, one, answer in zip(self._sides, both, answers, strict=True):
            if one.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
                _hear(step, side, one, answer)
        self._notice(step, both[0], answers)
        return goes_on

    def _name_members(self, both: tuple[Asked, Asked], answers: list[Any]) -> None:
        for one, answer in zip(both, answers, strict=True):
            if one.member is not None and not one.member.member_id:
                one.member.member_id = answer.member_id or ""

    def _compare(self, step: Step, both: tuple[Asked, Asked], answers: list[Any]) -> bool:
        played = self.played
        kafka, ours = (
            tree_of(side, one, answer, played.group_id, is_exact=self._is_exact)
            for side, one, answer in zip(self._sides, both, answers, strict=True)
        )
        played.replies += 1
        played.apis[both[0].api.name] += 1
        found = differences(both[0], (kafka, ours), self._epochs)
        played.transcript.append(f"{step}\n    Kafka   {_short(kafka)}\n    Quorate {_short(ours)}")
        ends, masks = False, set()
        for difference in found:
            one = accepted(self._situation(difference, both[0], (kafka, ours)))
            if one is None:
                played.complaint = f"{step}: {difference}   (epochs {self._epochs})"
                return False
            masks.add(one.name)
            ends = ends or one.ends
            if one.ends:
                break
        played.masked.update(masks)
        if step.get("settled") == "1":
            return self._settled(step, answers) and not ends
        return not ends

    def _situation(self, difference: Difference, asked: Asked, trees: tuple[Any, Any]) -> Situation:
        return Situation(difference, asked, trees, self._left_since_beat, self._has_dropped)

    def _settled(self, step: Step, answers: list[Any]) -> bool:
        after = (placed(self._sides[0], answers[0]), placed(self._sides[1], answers[1]))
        complaints = list(settled_complaints(self._placed, after, int(UNIFORM_TOPIC[1:])))
        self._placed = after
        if complaints:
            self.played.complaint = f"{step}: {'; '.join(complaints)}"
        return not complaints

    def _notice(self, step: Step, asked: Asked, answers: list[Any]) -> None:
        if asked.api is ApiKey.CONSUMER_GROUP_HEARTBEAT and not answers[0].error_code:
            self._left_since_beat = step.verb == "leave"
            if step.verb == "leave":
                self._placed = tuple(
                    {place: who for place, who in where.items() if who != step.who} for where in self._placed
                )  # type: ignore[assignment]
        if step.verb == "delete" and not answers[0].results[0].error_code:
            self._epochs = EpochMap()

    async def _change(self, step: Step) -> str | None:
        codes = await asyncio.gather(
            *(topics.change(step, side, self.played.group_id, self._probes) for side in self._sides)
        )
        self.played.transcript.append(f"{step}\n    {codes}")
        self._has_dropped = self._has_dropped or step.verb == "drop"
        return None if codes[0] == codes[1] else f"Kafka answered {codes[0]}, Quorate {codes[1]}"

    async def clean_up(self) -> None:
        """Topics of its own go; groups cost too little to ask for."""
        for side in self._sides:
            await topics.drop_own(side, self.played.group_id)


def _hear(step: Step, side: Side, asked: Asked, answer: Any) -> None:
    """What the client makes of the reply, unless it is lost."""
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
        member.is_behind = True
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


def _short(tree: Any) -> str:
    """A reply on one line, without what is nothing."""
    if isinstance(tree, dict):
        return (
            "{"
            + ", ".join(f"{k}={_short(v)}" for k, v in tree.items() if v not in (0, None, "", [], False))
            + "}"
        )
    if isinstance(tree, list):
        return "[" + ", ".join(map(_short, tree)) + "]"
    return str(tree)
