"""Plays one script to both sides, in step, and reports where their replies differ.

Each step sends to both servers at once and waits for both. Changes of topics end with a barrier: a probe
group on each side joins until it is assigned the topic as it now is, so that both coordinators know of the
change before the next step. The first difference that is not accepted ends the script.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tests.differential import settled, topics, transactions
from tests.differential.accepted import ALONE, ALONE_THERE, Circumstances, Situation, Then, accepted
from tests.differential.asked import Asked
from tests.differential.asking import ask_for
from tests.differential.classic_steps import ENDED, ClassicSteps
from tests.differential.classic_steps import VERBS as CLASSIC_VERBS
from tests.differential.compare import (
    Detail,
    Difference,
    EpochMap,
    differences,
    tree_of,
)
from tests.differential.hearing import hear
from tests.differential.script import SETTLE, Script, Step
from tests.differential.settled import Placed
from tests.differential.settling import settle
from tests.differential.side import KAFKAS, OURS, Manners, Side, TopicIds
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.schema import Message

REFUSED_UPGRADE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_MAX_SIZE_REACHED)
Address = tuple[str, int]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Arena:
    """The two servers, their shared topics, and the prefix of this run's group ids."""

    addresses: tuple[Address, Address]
    """Kafka's address first."""
    shared_ids: tuple[TopicIds, TopicIds]
    name: str
    manners: tuple[Manners, Manners] = (KAFKAS, OURS)

    def group_id(self) -> str:
        return f"{self.name}-{next(_numbers)}"


@dataclass(slots=True)
class Played:
    """The result of playing one script."""

    script: Script
    group_id: str
    ended_ms: float = 0.0
    """Wall-clock milliseconds; later records are those of expiring sessions."""
    replies: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    complaint: str | None = None
    """The first difference that is not accepted, with its step."""
    transcript: list[str] = field(default_factory=list)
    apis: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


async def play(arena: Arena, script: Script) -> Played:
    """Play the script in a new group; every failure is reported in the result."""
    group_id = arena.group_id()
    sides = tuple(
        Side(name, address, ids, manners)
        for name, address, ids, manners in zip(
            ("Kafka", "Quorate"), arena.addresses, arena.shared_ids, arena.manners, strict=True
        )
    )
    performance = _Performance(script, group_id, (sides[0], sides[1]))
    try:
        for side in sides:
            await side.connect()
        for step in script.steps:
            if not await performance.step(step):
                break
    except Exception as error:  # a lost connection, a time-out, a reply that cannot be read: all are findings
        performance.played.complaint = f"{error!r} at the step after {performance.played.transcript[-1:]}"
    finally:
        performance.played.ended_ms = time.time() * 1_000
        await performance.clean_up()
        for side in sides:
            await side.close()
    return performance.played


@dataclass(frozen=True, slots=True)
class Told:
    """A member's subscription, according to the requests it has sent."""

    names: tuple[str, ...] = ()
    regex: str = ""

    @staticmethod
    def after(told: Told | None, body: Message) -> Told:
        before = told or Told()
        names = getattr(body, "subscribed_topic_names", None)
        regex = getattr(body, "subscribed_topic_regex", None)
        return Told(before.names if names is None else tuple(names), before.regex if regex is None else regex)


class _Performance:
    def __init__(self, script: Script, group_id: str, sides: tuple[Side, Side]) -> None:
        self.played = Played(script, group_id)
        self._sides = sides
        self._detail = _detail(script)
        self._epochs = EpochMap()
        self._circumstances = Circumstances()
        self._told: dict[str, Told] = {}
        self._placed: list[Placed] = [{}, {}]
        self._is_refused = False
        """The step's JoinGroup was refused with UNKNOWN_MEMBER_ID."""
        self._probes = topics.Probes(group_id)
        self._classic = ClassicSteps(sides, group_id, self._goes_on_after, self._may_answer_alone)

    async def step(self, step: Step) -> bool:
        """Play one step and return whether the script goes on."""
        if step.verb in topics.VERBS:
            return self._goes_on(step, await self._change(step))
        if step.verb == SETTLE:
            return self._goes_on(step, await self._settle())
        if step.verb in CLASSIC_VERBS:
            return self._played_on(step, await self._classic.step(step))
        if step.verb in transactions.VERBS:
            return await self._transact(step)
        self._circumstances.is_classic = self._classic.is_classic
        self._circumstances.is_rebalancing = self._classic.is_rebalancing
        asked = [ask_for(step, side, self.played.group_id) for side in self._sides]
        if asked[0] is None or asked[1] is None:
            return True
        both = (asked[0], asked[1])
        told = self._told.get(step.who)
        now = Told.after(told, both[0].body)
        epochs = None
        if now.regex and now.regex not in {one.regex for one in self._told.values()}:
            epochs = [await topics.group_epoch(side, self.played.group_id) for side in self._sides]
        answers = await asyncio.gather(
            *(
                side.ask(one.api, one.version, one.body, has_unknown_field=one.has_unknown_field)
                for side, one in zip(self._sides, both, strict=True)
            )
        )
        self._name_members(both, answers)
        then = self._compare(step, both, answers)
        for side, one, answer in zip(self._sides, both, answers, strict=True):
            if one.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
                hear(step, side, one, answer)
            if step.get("lost") == "1":
                await side.reconnect()
        self._notice(step, both[0], answers)
        if step.get("settled") == "1" and then is Then.ON:
            return self._goes_on(step, self._judge(answers))
        if epochs is not None and not answers[0].error_code and then is not Then.ENDS:
            return await self._await_resolution(step.who, epochs, told, now)
        if then is Then.LEAVES:
            return await self.step(Step("leave", step.who, {"epoch": "-1"}))
        return then is Then.ON

    async def _transact(self, step: Step) -> bool:
        group_id = self.played.group_id
        asked = [transactions.ask_for(step, side, group_id) for side in self._sides]
        if asked[0] is None or asked[1] is None:
            return True
        both = (asked[0], asked[1])
        answers = await asyncio.gather(
            *(
                transactions.answer_of(step, side, one, group_id)
                for side, one in zip(self._sides, both, strict=True)
            )
        )
        self._circumstances.has_aborted |= step.verb == "tinit" or step.get("result") == "abort"
        return self._compare(step, both, answers) is Then.ON

    def _goes_on_after(self, step: Step, both: tuple[Asked, Asked], answers: list[Any]) -> bool:
        if self._circumstances.has_left and self._is_new_classic(both[0], answers[0]):
            self._epochs = EpochMap()
        then = self._compare(step, both, answers)
        match both[0].api:
            case ApiKey.LEAVE_GROUP:
                self._circumstances.has_acted = True
            case ApiKey.JOIN_GROUP:
                self._circumstances.has_acted &= bool(answers[0].error_code)
                self._is_refused = answers[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
            case ApiKey.DESCRIBE_GROUPS:  # after each step
                self._circumstances.has_left &= bool(answers[0].groups[0].error_code)
                self._circumstances.has_refused_join |= self._is_refused and self._circumstances.has_left
                self._is_refused = False
        return then is Then.ON

    @staticmethod
    def _is_new_classic(asked: Asked, answer: Any) -> bool:
        """Return whether a classic group has begun in place of an empty consumer group."""
        if asked.api is ApiKey.JOIN_GROUP:
            return bool(answer.generation_id == 1)
        is_described = asked.api is ApiKey.DESCRIBE_GROUPS and not answer.groups[0].error_code
        return is_described and answer.groups[0].group_state in ("Empty", "CompletingRebalance")

    def _may_answer_alone(self, asked: Asked, answers: tuple[Any, Any]) -> Then | None:
        path = ALONE if answers[0] is None else ALONE_THERE
        one = accepted(self._situation(Difference(asked.api.name, path, *answers), asked, answers))
        if one is None:
            return None
        self.played.masked[one.name] += 1
        return one.then

    def _played_on(self, step: Step, complaint: str | None) -> bool:
        if complaint == ENDED:
            return False
        return self._goes_on(step, complaint)

    def _goes_on(self, step: Step, complaint: str | None) -> bool:
        if complaint:
            self.played.complaint = f"{step}: {complaint}"
        return complaint is None

    def _name_members(self, both: tuple[Asked, Asked], answers: list[Any]) -> None:
        for one, answer in zip(both, answers, strict=True):
            if one.member is not None and not one.member.member_id:
                one.member.member_id = answer.member_id or ""

    def _compare(self, step: Step, both: tuple[Asked, Asked], answers: list[Any]) -> Then:
        played = self.played
        kafka, ours = (
            tree_of(side, one, answer, played.group_id, self._detail, is_mixed=self.played.script.is_mixed)
            for side, one, answer in zip(self._sides, both, answers, strict=True)
        )
        played.replies += 1
        played.apis[both[0].api.name] += 1
        found = differences(both[0], (kafka, ours), self._epochs, is_mixed=played.script.is_mixed)
        played.transcript.append(f"{step}\n    Kafka   {_short(kafka)}\n    Quorate {_short(ours)}")
        then, masks = Then.ON, set()
        for difference in found:
            one = accepted(self._situation(difference, both[0], (kafka, ours)))
            if one is None:
                played.complaint = f"{step}: {difference}   (epochs {self._epochs})"
                return Then.ENDS
            masks.add(one.name)
            if one.then is not Then.ON:
                then = one.then
                break
        played.masked.update(masks)
        return then

    def _situation(self, difference: Difference, asked: Asked, trees: tuple[Any, Any]) -> Situation:
        return Situation(difference, asked, trees, self._circumstances)

    async def _await_resolution(self, who: str, before: list[int], told: Told | None, now: Told) -> bool:
        """Wait until both sides have resolved a new expression, which raises the group epoch once more.

        Changed names have raised it already, and so has a new member on our side; that member's next
        heartbeat then brings both sides to the same state.
        """
        by_names = int(set(now.names) != set(told.names if told else ()))
        is_new = told is None and not by_names
        for side, epoch in zip(self._sides, before, strict=True):
            by_joining = int(is_new and side.manners.every_join_moves)
            await topics.await_epoch(side, self.played.group_id, epoch + by_names + by_joining + 1)
        self._circumstances.has_acted = True
        return not is_new or await self.step(Step("beat", who, {"owned": "told"}))

    async def _settle(self) -> str | None:
        answers = [await settle(side, self.played.group_id) for side in self._sides]
        return self._judge(answers)

    def _judge(self, answers: list[Any]) -> str | None:
        found = []
        for position, (side, answer) in enumerate(zip(self._sides, answers, strict=True)):
            after = settled.placed(side, answer)
            complaints = settled.complaints(
                self._placed[position], after, settled.subscriptions(side, answer), is_ours=position == 1
            )
            found += [f"{side.name}: {complaint}" for complaint in complaints]
            self._placed[position] = after
        return "; ".join(found) or None

    def _notice(self, step: Step, asked: Asked, answers: list[Any]) -> None:
        if step.verb == "join" and answers[0].error_code in REFUSED_UPGRADE:
            self._circumstances.has_refused_upgrade = True
        if asked.api is ApiKey.CONSUMER_GROUP_HEARTBEAT and not answers[0].error_code:
            self._circumstances.has_acted = step.verb == "leave"
            if step.verb == "leave" and step.get("epoch") != "-2":
                self._told.pop(step.who, None)
            elif asked.member is not None:
                self._told[step.who] = Told.after(self._told.get(step.who), asked.body)
            known = self._circumstances
            is_back = known.has_left or (known.is_rebalancing and known.has_had_consumers)
            known.has_returned |= is_back and step.verb == "join"
            known.has_interrupted |= known.is_rebalancing and step.verb == "join"
            known.has_left = known.is_empty = not self._told
            known.has_had_consumers = True
        if step.verb == "delete" and not answers[0].results[0].error_code:
            self._epochs = EpochMap()

    async def _change(self, step: Step) -> str | None:
        codes = await asyncio.gather(
            *(topics.change(step, side, self.played.group_id, self._probes) for side in self._sides)
        )
        self.played.transcript.append(f"{step}\n    {codes}")
        if step.verb == "drop":
            self._circumstances.has_dropped = True
        if step.verb in ("grow", "drop", "create"):
            self._circumstances.has_acted = True
        if any(value != value.strip() for value in step.args.values()):
            self._circumstances.has_spaces = True
        if step.get("interval"):
            self._circumstances.has_interval = True
        return None if codes[0] == codes[1] else f"Kafka answered {codes[0]}, Quorate {codes[1]}"

    async def clean_up(self) -> None:
        """Delete the script's own topics; its groups are too cheap to delete."""
        await self._classic.close()
        for side in self._sides:
            await topics.drop_own(side, self.played.group_id)


def _detail(script: Script) -> Detail:
    if script.has_settling:
        return Detail.SETTLED
    return Detail.PARTITIONS if script.is_exact else Detail.SIZES


def _short(tree: Any) -> str:
    """Return a reply on one line, without empty fields."""
    if isinstance(tree, dict):
        return (
            "{"
            + ", ".join(f"{k}={_short(v)}" for k, v in tree.items() if v not in (0, None, "", [], False))
            + "}"
        )
    if isinstance(tree, list):
        return "[" + ", ".join(map(_short, tree)) + "]"
    return str(tree)
