"""Plays the steps of classic members, whose JoinGroup and SyncGroup wait for other members.

Every request has a connection of its own, so that its reply can come with a later step. After each request
two pings have gone through each coordinator's queue, so it was handled before the next step; replies that a
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
from tests.differential.asked import Asked
from tests.differential.script import Step
from tests.differential.side import ClassicModel, Connection, Side
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest

ANSWERED_ALIKE_S_MAX: Final = 3.0
EXPIRED_S_MAX: Final = 15.0
LOOK_AGAIN_S: Final = 0.005
WAITS_S_MAX: Final = 120.0
EXPIRE: Final = "expire"
VERBS: Final = frozenset({*classic_requests.VERBS, EXPIRE})
ENDED: Final = "ended"
EMPTY: Final = ("Empty", "Dead")
Compare = Callable[[Step, tuple[Asked, Asked], list[Any]], bool]
"""Compares two replies and returns whether the script goes on."""


@dataclass(slots=True)
class Request:
    """One request of a step, to both sides, with the replies that have come."""

    step: Step
    asked: tuple[Asked, Asked]
    connections: list[Connection]
    replies: list[asyncio.Task[Any]]

    @property
    def answered_by(self) -> tuple[bool, ...]:
        return tuple(reply.done() for reply in self.replies)

    @property
    def is_answered(self) -> bool:
        return all(self.answered_by)


class Rounds:
    """The requests of one script's classic members."""

    def __init__(self, sides: tuple[Side, Side], group_id: str, compare: Compare) -> None:
        self._sides = sides
        self._group_id = group_id
        self._compare = compare
        self._open: list[Request] = []
        self._state = "Dead"
        self.superseded = 0

    async def step(self, step: Step) -> str | None:
        """Play one step and return a complaint, if replies did not come alike. ENDED: the script ends."""
        if step.verb == EXPIRE:
            return await self._await_expiry(step)
        asked = [classic_requests.ask_for(step, side, self._group_id) for side in self._sides]
        if asked[0] is None or asked[1] is None:
            return None
        older = [one for one in self._open if (one.step.who, one.step.verb) == (step.who, step.verb)]
        if older and step.get("again") != "1":
            return None
        request = Request(step, (asked[0], asked[1]), [], [])
        for side, one in zip(self._sides, request.asked, strict=True):
            connection = await Connection.open(side.address)
            connection.send(one.api, one.version, one.body, client_id=step.who)
            request.connections.append(connection)
            request.replies.append(asyncio.create_task(connection.take(one.api, one.version, WAITS_S_MAX)))
        self._open.append(request)
        await self._ping()
        for one in older:
            self._give_up(one)
        begins = step.verb == "cjoin" and self._state in EMPTY
        return await self._hear(step, must_be_answered=request if begins else None)

    def _give_up(self, older: Request) -> None:
        """Take note that a later request has taken the place of one that waits.

        Kafka never answers that one; ours answers it with REBALANCE_IN_PROGRESS."""
        if older.answered_by != (False, True):
            return
        answer = older.replies[1].result()
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._open.remove(older)
            self.superseded += 1
            self._abort(older)

    async def _ping(self) -> None:
        """Return when every request so far was handled and answered, or waits."""
        body = HeartbeatRequest(group_id=f"{self._group_id}-ping", generation_id=0, member_id="ping")
        for _ in range(3):
            await asyncio.gather(*(side.ask(ApiKey.HEARTBEAT, 4, body) for side in self._sides))

    async def _hear(self, step: Step, must_be_answered: Request | None = None) -> str | None:
        """Take the replies that have come to both sides, and compare them."""
        await self._until(
            lambda: self._is_alike() and (must_be_answered is None or must_be_answered.is_answered),
            ANSWERED_ALIKE_S_MAX,
        )
        if not self._is_alike():
            one = next(one for one in self._open if len({*one.answered_by}) > 1)
            who = "Kafka" if one.answered_by[0] else "Quorate"
            reply = one.replies[0 if one.answered_by[0] else 1].result()
            return f"only {who} answers the request of `{one.step}`: {reply}"
        answered = [one for one in self._open if one.is_answered]
        self._open = [one for one in self._open if not one.is_answered]
        for one in answered:
            answers = [reply.result() for reply in one.replies]
            for connection in one.connections:
                await connection.close()
            for side, answer in zip(self._sides, answers, strict=True):
                _hear(side.classics[one.step.who], one.asked[0].api, answer)
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
        self._state = answers[0].groups[0].group_state
        goes_on = self._compare(Step(f"after {step}"), (asked, asked), answers)
        return None if goes_on else ENDED

    async def _described(self, asked: Asked) -> list[Any]:
        return await asyncio.gather(*(side.ask(asked.api, asked.version, asked.body) for side in self._sides))

    async def _await_expiry(self, step: Step) -> str | None:
        """Wait until a timer has changed the group on both sides: a session, or the wait for a phase's end."""
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
        await self._ping()
        return await self._hear(step)

    async def close(self) -> None:
        for one in self._open:
            self._abort(one)

    @staticmethod
    def _abort(request: Request) -> None:
        for reply, connection in zip(request.replies, request.connections, strict=True):
            reply.cancel()
            connection.abort()


def _outline(answer: Any) -> tuple[str, int]:
    group = answer.groups[0]
    return group.group_state, len(group.members)


def _hear(model: ClassicModel, api: ApiKey, answer: Any) -> None:
    """Update the client model from a reply."""
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
        model.members = [member.member_id for member in answer.members]
