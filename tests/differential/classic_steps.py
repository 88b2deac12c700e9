"""Plays the steps of classic members, whose JoinGroup and SyncGroup wait for other members.

Every request has a connection of its own, so that its reply can come with a later step. After each request
pings have gone through each coordinator's queue, so it was handled before the next step; replies that a
timer sends (the initial delay of 0 ms) are waited for. Both sides must answer the same requests at the same
steps, with the same replies, and describe the group alike after each step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.differential import classic_requests
from tests.differential.accepted import Then
from tests.differential.asked import Asked
from tests.differential.embedded import partitions_of
from tests.differential.script import Step
from tests.differential.side import RANDOM_ID, ClassicModel, ScriptConnection, Side
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest

ANSWERED_ALIKE_S_MAX: Final = 3.0
PINGS: Final = 3
"""The first one is read no earlier than the request, the second one is handled after it, and the third one's
reply comes after those to both."""

EXPIRED_S_MAX: Final = 15.0
NOTHING_EXPIRED: Final = f"no timer has changed the group on both sides within {EXPIRED_S_MAX:.0f} s"
HANDLED_S_MAX: Final = 0.5
LOOK_AGAIN_S: Final = 0.005
WAITS_S_MAX: Final = 120.0
EXPIRE: Final = "expire"
VERBS: Final = frozenset({*classic_requests.VERBS, EXPIRE})
ENDED: Final = "ended"
EMPTY: Final = ("Empty", "Dead")
Compare = Callable[[Step, tuple[Asked, Asked], list[Any]], bool]
"""Compares two replies and returns whether the script goes on."""

MayAnswerAlone = Callable[[Asked, tuple[Any, Any]], Then | None]
"""The consequences if it is accepted that one side has a reply to a request and the other has none."""


@dataclass(slots=True)
class Request:
    """One request of a step, to both sides, with the replies that have come."""

    step: Step
    asked: tuple[Asked, Asked]
    connections: list[ScriptConnection]
    replies: list[asyncio.Task[Any]]

    @property
    def answered_by(self) -> tuple[bool, ...]:
        return tuple(reply.done() for reply in self.replies)

    @property
    def member_id(self) -> str:
        """The id with which it was sent to Kafka."""
        return _member_id(self.asked[0])

    @property
    def is_answered(self) -> bool:
        return all(self.answered_by)


class ClassicSteps:
    """The requests of one script's classic members."""

    def __init__(
        self, sides: tuple[Side, Side], group_id: str, compare: Compare, may_answer_alone: MayAnswerAlone
    ) -> None:
        self._sides = sides
        self._group_id = group_id
        self._compare = compare
        self._open: list[Request] = []
        self._state = "Dead"
        self._may_answer_alone = may_answer_alone
        self._opened: list[ScriptConnection] = []
        self._idle: tuple[list[ScriptConnection], list[ScriptConnection]] = ([], [])
        self._ping_request = HeartbeatRequest(group_id=f"{group_id}-ping", generation_id=0, member_id="ping")

    @property
    def is_classic(self) -> bool:
        return self._state != "Dead"

    @property
    def is_rebalancing(self) -> bool:
        return self._state in ("PreparingRebalance", "CompletingRebalance")

    async def step(self, step: Step) -> str | None:
        """Play one step and return a complaint, if replies did not come alike. ENDED: the script ends."""
        if step.verb == EXPIRE:
            return await self._await_expiry(step)
        asked = [classic_requests.ask_for(step, side, self._group_id) for side in self._sides]
        if asked[0] is None or asked[1] is None:
            return None
        open_ones = [one for one in self._open if one.step.verb == step.verb]
        if step.get("again") != "1" and any(one.step.who == step.who for one in open_ones):
            return None
        older = [one for one in open_ones if one.member_id == _member_id(asked[0]) != ""]
        request = Request(step, (asked[0], asked[1]), [], [])
        for side, idle, one in zip(self._sides, self._idle, request.asked, strict=True):
            connection = idle.pop() if idle else await self._open_connection(side)
            connection.send(one.api, one.version, one.body, client_id=step.who)
            request.connections.append(connection)
            request.replies.append(asyncio.create_task(connection.take(one.api, one.version, WAITS_S_MAX)))
        self._open.append(request)
        await self._ping()
        for superseded in older:
            superseded.asked[1].facts["superseded"] = True
            await self._give_up(superseded)
        begins = step.verb == "cjoin" and self._state in EMPTY
        if begins:
            await self._until(lambda: request.is_answered, ANSWERED_ALIKE_S_MAX)
        if step.get("lost") == "1":
            self._open.remove(request)
            await self._abort(request)
        return await self._hear(step)

    async def _open_connection(self, side: Side) -> ScriptConnection:
        """Open a connection that the server reads already, so that nothing overtakes its first request."""
        connection = await ScriptConnection.open(side.address)
        self._opened.append(connection)
        await connection.ask(ApiKey.HEARTBEAT, 4, self._ping_request)
        return connection

    async def _give_up(self, request: Request) -> bool:
        """Forget a request that only ours answers, if that is accepted; return whether the script goes on."""
        if request.answered_by != (False, True):
            return True
        then = self._may_answer_alone(request.asked[1], (None, request.replies[1].result()))
        if then is not None:
            self._open.remove(request)
            await self._abort(request)
        return then in (None, Then.ON)

    async def _ping(self) -> None:
        """Return when every request so far was handled and answered, or waits."""
        for _ in range(PINGS):
            await asyncio.gather(*(side.ask(ApiKey.HEARTBEAT, 4, self._ping_request) for side in self._sides))

    async def _hear(self, step: Step) -> str | None:
        """Take the replies that have come to both sides, and compare them."""
        await self._until(self._is_alike, ANSWERED_ALIKE_S_MAX)
        for one in list(self._open):
            if not await self._give_up(one):
                return ENDED
        if not self._is_alike():
            one = next(one for one in self._open if len({*one.answered_by}) > 1)
            who = "Kafka" if one.answered_by[0] else "Quorate"
            reply = one.replies[0 if one.answered_by[0] else 1].result()
            if one.answered_by[0] and self._may_answer_alone(one.asked[0], (reply, None)):
                return ENDED
            return f"only {who} answers the request of `{one.step}`: {reply}"
        answered = [one for one in self._open if one.is_answered]
        self._open = [one for one in self._open if not one.is_answered]
        for one in answered:
            answers = [reply.result() for reply in one.replies]
            for side, idle, connection, answer in zip(
                self._sides, self._idle, one.connections, answers, strict=True
            ):
                idle.append(connection)
                _hear(side.classics[one.step.who], one.asked[0].api, answer)
                _name(side, one.asked[0], answer)
            said = one.step if one.step is step else Step(f"answer to {one.step.verb}", one.step.who)
            if not self._compare(said, one.asked, answers):
                return ENDED
        return await self._describe(step)

    def _is_alike(self) -> bool:
        return all(len({*one.answered_by}) == 1 for one in self._open)

    @staticmethod
    async def _until(holds: Callable[[], bool], within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        while not holds() and time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _describe(self, step: Step) -> str | None:
        asked = classic_requests.describe(self._group_id)
        answers = await self._described(asked)
        deadline_s = time.monotonic() + HANDLED_S_MAX
        while _outline(answers[0]) != _outline(answers[1]) and time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_AGAIN_S)  # on a busy machine pings may overtake a request
            answers = await self._described(asked)
        self._state = answers[0].groups[0].group_state
        goes_on = self._compare(Step(f"after {step}"), (asked, asked), answers)
        return None if goes_on else ENDED

    async def _described(self, asked: Asked) -> list[Any]:
        return await asyncio.gather(*(side.ask(asked.api, asked.version, asked.body) for side in self._sides))

    async def _await_expiry(self, step: Step) -> str | None:
        """Wait until a timer has changed the group on both sides: a session, or a phase's end."""
        asked = classic_requests.describe(self._group_id)
        before = [_outline(answer) for answer in await self._described(asked)]
        waiting = [one.answered_by for one in self._open]
        deadline_s = time.monotonic() + EXPIRED_S_MAX
        while time.monotonic() < deadline_s:
            now = [_outline(answer) for answer in await self._described(asked)]
            has_moved = [is_now != was for is_now, was in zip(now, before, strict=True)]
            has_answered = [
                any(one.answered_by[at] and not was[at] for one, was in zip(self._open, waiting, strict=True))
                for at in (0, 1)
            ]
            if all(moved or answered for moved, answered in zip(has_moved, has_answered, strict=True)):
                break
            await asyncio.sleep(10 * LOOK_AGAIN_S)
        else:
            return NOTHING_EXPIRED
        await self._ping()
        return await self._hear(step)

    async def close(self) -> None:
        for one in self._open:
            await self._abort(one)
        for connection in self._opened:
            await connection.close()

    @staticmethod
    async def _abort(request: Request) -> None:
        for reply, connection in zip(request.replies, request.connections, strict=True):
            reply.cancel()
            await asyncio.gather(reply, return_exceptions=True)
            await connection.close()


def _member_id(asked: Asked) -> str:
    return str(getattr(asked.body, "member_id", ""))


def _outline(answer: Any) -> tuple[str, int]:
    group = answer.groups[0]
    return group.group_state, len(group.members)


def _name(side: Side, asked: Asked, answer: Any) -> None:
    """Name the id that a static member was given in a consumer group, where Kafka's says nothing of it."""
    if asked.api is ApiKey.JOIN_GROUP and RANDOM_ID.fullmatch(answer.member_id):
        instance_id = getattr(asked.body, "group_instance_id", None)
        if instance_id is not None:
            side.name_made(answer.member_id, instance_id)


def _hear(model: ClassicModel, api: ApiKey, answer: Any) -> None:
    """Update the client model from a reply."""
    if api is ApiKey.SYNC_GROUP and answer.error_code == ErrorCode.NONE:
        model.owned = partitions_of(answer.assignment) or {}
    if api is not ApiKey.JOIN_GROUP:
        return
    if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        model.member_id = answer.member_id
    if answer.error_code == ErrorCode.NONE:
        if answer.generation_id != model.generation:
            model.before, model.generation = model.generation, answer.generation_id
        model.leader = answer.leader
        model.protocol_type = answer.protocol_type or model.protocol_type or "consumer"
        model.protocol = answer.protocol_name
        model.members = {member.member_id: member.metadata for member in answer.members}
