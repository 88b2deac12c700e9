"""In whatever order members act, every request is answered once, and nobody waits without a timer."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from coordinator.api import Decision, Later
from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.leader_state.classic_groups import ClassicTimer
from coordinator.limits import Limits
from coordinator.state.machines import ClassicState
from tests.support.classic_member import ClassicConsumer
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode

PROTOCOLS = ({"range": b"a"}, {"range": b"b", "sticky": b"c"}, {"sticky": b"d", "range": b"e"})


class Watched(World):
    """A world that knows which requests wait for an answer."""

    def __init__(self, random: Random) -> None:
        self.unanswered: set[int] = set()
        super().__init__(
            limits=Limits(
                classic_group_size_max=random.choice([3, 10_000]),
                classic_initial_delay_ms=random.choice([0, 3_000]),
                classic_pending_max=random.choice([2, 100]),
            )
        )

    def handle(self, api_key: ApiKey, version: int, request: object, **changes: Any) -> Any:
        reply = super().handle(api_key, version, request, **changes)
        if isinstance(reply, Later) and reply.token not in self.late_answers:
            self.unanswered.add(reply.token)
        return reply

    def _append(self, decision: Decision) -> None:
        for token, _ in decision.answers:
            assert token not in self.late_answers, "answered twice"
            self.unanswered.discard(token)
        super()._append(decision)

    def failover(self) -> None:
        self.unanswered.clear()
        super().failover()

    def check(self) -> None:
        group = self.shard.groups.classic.get("g")
        if group is None:
            assert not self.unanswered
            return
        members = group.members.values()
        waiting = {token for member in members for token in (member.join, member.sync) if token is not None}
        assert waiting == self.unanswered
        self._check_timers(group)
        assert group.num_waiting == sum(member.join is not None for member in members)
        names = [name for member in members for name, _ in member.protocols]
        assert dict(group.support) == {name: names.count(name) for name in names}
        owners = {
            member.instance_id: member.member_id for member in members if member.instance_id is not None
        }
        assert owners == group.instances
        assert not members or group.leader in group.members

    def _check_timers(self, group: ClassicGroup) -> None:
        timers = self.shard.groups.classic
        if group.state is ClassicState.PREPARING_REBALANCE:
            assert timers.is_armed(ClassicTimer.JOIN, "g")
        if group.state is ClassicState.COMPLETING_REBALANCE:
            assert timers.is_armed(ClassicTimer.SYNC, "g")
        for member in group.members.values():
            if member.join is None and member.sync is None:
                assert timers.is_armed(ClassicTimer.SESSION, "g", member.member_id)
        for member_id in group.pending:
            assert timers.is_armed(ClassicTimer.SESSION, "g", member_id)


def act(world: Watched, random: Random, consumer: ClassicConsumer) -> None:
    """Let one client do something, or something happen to all."""
    match random.choices(
        ["join", "sync", "heartbeat", "leave", "restart", "sleep", "work", "renew", "failover"],
        [35, 25, 10, 5, 5, 10, 7, 2, 1],
    )[0]:
        case "join":
            if random.random() < 0.2:
                consumer.protocols = random.choice(PROTOCOLS)
            answer = consumer.send_join(rebalance_timeout_ms=random.choice([60_000, 20_000]))
            if answer is not None and answer.error_code not in (0, ErrorCode.MEMBER_ID_REQUIRED):
                consumer.member_id = ""
        case "sync":
            consumer.take_joined()
            consumer.sync(dict.fromkeys(consumer.members, b"x"))
        case "heartbeat":
            consumer.heartbeat()
        case "leave":
            consumer.leave()
        case "restart":
            consumer.member_id = ""
        case "sleep":
            world.sleep(random.choice([1, 100, 5_000, 11_000, 61_000]))
        case "work":
            world.work()
        case "renew":
            world.renew()
        case "failover":
            world.failover()
            consumer.member_id = ""


@pytest.mark.parametrize("seed", range(20))
def test_every_request_is_answered_once(seed: int) -> None:
    random = Random(seed)
    world = Watched(random)
    consumers = [
        ClassicConsumer(
            world,
            f"c{number}",
            instance_id=f"i{number % 3}" if number < 4 else None,
            version=random.choice([3, 9]),
        )
        for number in range(7)
    ]
    for _ in range(200):
        act(world, random, random.choice(consumers))
        world.check()
    world.sleep(1_000_000)
    world.check()
    assert not world.unanswered
    assert not world.shard.projection.groups, "an empty group is removed"
