"""Classic groups whose members act in any order, and what must hold after each of their requests.

Invariants: every request is answered at most once, and nobody waits without a timer; the state equals what
the log replays to; the assignments of a generation come from one SyncGroup.
"""

from __future__ import annotations

from random import Random
from typing import Any

from coordinator.api import Decision, Later
from coordinator.leader_state.classic_group import ClassicGroup
from coordinator.leader_state.classic_groups import ClassicTimer
from coordinator.limits import Limits
from coordinator.shard import GroupShard
from coordinator.state.machines import ClassicState
from records import RecordType
from tests.support.classic_member import ClassicConsumer
from tests.support.world import Entry, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.join_group import JoinGroupResponse
from wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"
PROTOCOLS = ({"range": b"a"}, {"range": b"b", "sticky": b"c"}, {"sticky": b"d", "range": b"e"})


class Watched(World):
    """A world that knows which requests wait for an answer, and what members were told."""

    def __init__(self, random: Random) -> None:
        self.unanswered: dict[int, object] = {}
        """Requests that wait, by number."""
        self.told: set[tuple[str, int]] = set()
        """The member id and generation of every reply to JoinGroup."""
        self.assigned: dict[int, bytes] = {}
        """The SyncGroup from which the assignments of a generation come."""
        self.syncs = 0
        limits = Limits(
            classic_group_size_max=random.choice([3, 10_000]),
            classic_initial_delay_ms=random.choice([0, 3_000]),
            classic_pending_max=random.choice([2, 100]),
        )
        self.follower = GroupShard(0, limits)
        super().__init__(limits=limits)
        self.create_topic("orders", 1)
        self.after_entry.append(Watched._follow)

    def _follow(self, entry: Entry) -> None:
        """Apply an entry as a follower does, and compare."""
        for raw in entry.records:
            self.follower.apply(raw, entry.index)
            if raw.type == RecordType.GROUP_METADATA and raw.value is None:
                self.assigned.clear()  # a group that is created again begins with generation 0
        assert self.follower.state_hash == self.shard.state_hash

    def handle(self, api_key: ApiKey, version: int, request: object, **changes: Any) -> Any:
        reply = super().handle(api_key, version, request, **changes)
        if not isinstance(reply, Later):
            self._hear(request, reply)
        elif reply.token in self.late_answers:
            self._hear(request, self.late_answers[reply.token])
        else:
            self.unanswered[reply.token] = request
        return reply

    def _append(self, decision: Decision) -> None:
        for token, answer in decision.answers:
            assert token not in self.late_answers, "answered twice"
            if token in self.unanswered:
                self._hear(self.unanswered.pop(token), answer)
        super()._append(decision)

    def _hear(self, request: object, answer: object) -> None:
        if isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.NONE:
            self.told.add((answer.member_id, answer.generation_id))
        elif isinstance(answer, SyncGroupResponse) and answer.assignment:
            assert isinstance(request, SyncGroupRequest)
            sync = self.assigned.setdefault(request.generation_id, answer.assignment)
            assert answer.assignment == sync, "two leaders assigned one generation"

    def failover(self) -> None:
        self.unanswered.clear()
        super().failover()

    def next_assignment(self) -> bytes:
        """A leader's assignment, which says which SyncGroup it comes from."""
        self.syncs += 1
        return b"sync %d" % self.syncs

    def accepted(self) -> list[tuple[str, int]]:
        """The members and generations that may commit, of all that were ever told."""
        return [
            (member_id, generation)
            for member_id, generation in sorted(self.told)
            if self.commit(
                {("orders", 0): 1}, group_id=GROUP, member_id=member_id, epoch=generation, version=8
            )
            == {("orders", 0): ErrorCode.NONE}
        ]

    def check(self) -> None:
        group = self.shard.groups.classic.get(GROUP)
        if group is None:
            assert not self.unanswered
            return
        members = group.members.values()
        waiting = {token for member in members for token in (member.join, member.sync) if token is not None}
        assert waiting == self.unanswered.keys()
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
            assert timers.is_armed(ClassicTimer.JOIN, GROUP)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            assert timers.is_armed(ClassicTimer.SYNC, GROUP)
        for member in group.members.values():
            if member.join is None and member.sync is None:
                assert timers.is_armed(ClassicTimer.SESSION, GROUP, member.member_id)
        for member_id in group.pending:
            assert timers.is_armed(ClassicTimer.SESSION, GROUP, member_id)


def act(world: Watched, random: Random, consumers: list[ClassicConsumer]) -> None:
    """Let one client do something, or something happen to all."""
    consumer = random.choice(consumers)
    match random.choices(
        [
            "round",
            "join",
            "sync",
            "heartbeat",
            "commit",
            "leave",
            "restart",
            "sleep",
            "work",
            "renew",
            "failover",
        ],
        [4, 35, 25, 10, 5, 5, 5, 10, 7, 2, 1],
    )[0]:
        case "round":
            rebalance(world, random.sample(consumers, random.randrange(1, len(consumers))))
        case "join":
            if random.random() < 0.2:
                consumer.protocols = random.choice(PROTOCOLS)
            answer = consumer.send_join(rebalance_timeout_ms=random.choice([60_000, 20_000]))
            if answer is not None and answer.error_code not in (0, ErrorCode.MEMBER_ID_REQUIRED):
                consumer.member_id = ""
        case "sync":
            consumer.take_joined()
            consumer.sync(dict.fromkeys(consumer.members, world.next_assignment()))
        case "heartbeat":
            consumer.heartbeat()
        case "commit":
            consumer.commit({("orders", 0): random.randrange(100)})
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


def rebalance(world: Watched, consumers: list[ClassicConsumer]) -> None:
    """Let these clients join, and sync as soon as they are answered."""
    for consumer in consumers:
        answer = consumer.join()
        if answer is not None and answer.error_code:
            consumer.member_id = ""
    world.sleep(3_001)
    for consumer in consumers:
        consumer.take_joined()
        consumer.sync(dict.fromkeys(consumer.members, world.next_assignment()))


def consumers_of(world: Watched, random: Random) -> list[ClassicConsumer]:
    """Seven clients, of which some claim the same instance id."""
    return [
        ClassicConsumer(
            world,
            f"c{number}",
            instance_id=f"i{number % 3}" if number < 4 else None,
            version=random.choice([3, 9]),
        )
        for number in range(7)
    ]
