"""Every order of a few steps: a member that is slow to take up what it was given, one that is quick, lost and
late replies, new leaders that are noticed or not.

Breadth first, every state once. In each, no partition is used by two members, and from each everybody comes
to rest within a few rounds. A partition is used from when the program has polled for it until it gave it up.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import pytest

from coordinator.limits import GroupSettings
from records import MemberState
from tests.support.world import FIRST_TOPIC, World, check_group
from wire.errors import ErrorCode

DEPTH: Final = 7
FAULTS_MAX: Final = 2
ROUNDS_MAX: Final = 6
FAULTS: Final = (
    "lost request", "lost reply", "forgotten reply", "late reply", "unnoticed leader", "new leader",
)  # fmt: skip
LOST: Final = FAULTS[:3]
OF_A_BEAT: Final = FAULTS[:4]
STEPS: Final = ("beat", "poll", "other beats", *FAULTS)


class OneByOne:
    """Like librdkafka: it begins the next assignment when the acknowledgement of the last is answered, and
    drops one that is equal to what it has. It sends full heartbeats until it has looked up its topics. It
    forgets a reply that takes longer than an interval, and its next heartbeat is as short as any other."""

    forgets = True

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.epoch = 0
        self.used: frozenset[int] = frozenset()
        self.reported: frozenset[int] = frozenset()
        self.newest: frozenset[int] = frozenset()
        self.begun: frozenset[int] | None = None
        self.says_all = self.looks_up = True
        self.is_done = False
        self.late: tuple[Any, bool] | None = None

    def state(self) -> tuple[Any, ...]:
        fields = {name: value for name, value in vars(self).items() if name != "world"}
        return tuple((fields | {"late": self.late is not None}).values())

    def beat(self, fault: str = "") -> None:
        """Send a heartbeat; if a reply is late, receive that instead."""
        if self.late is None:
            fields, acknowledges = self._request()
            if fault != "lost request":
                self.late = self.world.heartbeat(self.name, self.epoch, **fields), acknowledges
        if fault == "forgotten reply":
            self.late = None
        elif fault in LOST:
            self.lose()
        elif fault != "late reply":
            self._hear()

    def lose(self) -> None:
        self.late, self.says_all = None, True

    def poll(self) -> None:
        """Let its program poll: from now on it uses exactly the assignment that was begun."""
        if self.begun is None or self.is_done:
            return
        if self.looks_up:
            self.looks_up = False
        else:
            self.used, self.is_done = self.begun, True

    def _request(self) -> tuple[dict[str, Any], bool]:
        says_all = self.says_all or self.looks_up
        has = self.begun if self.is_done else self.reported if says_all else None
        return self._fields(says_all, has), self.is_done

    def _fields(self, says_all: bool, has: frozenset[int] | None) -> dict[str, Any]:
        all_ = {"subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 10_000_000} if says_all else {}
        return all_ | ({} if has is None else {"owned": {FIRST_TOPIC: has} if has else {}})

    def _hear(self) -> None:
        assert self.late is not None
        (answer, acknowledges), self.late = self.late, None
        if answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            self._join_again()
            return
        assert answer.error_code == 0
        self.epoch, self.says_all = answer.member_epoch, False
        given = None
        if answer.assignment is not None:
            given = frozenset(n for part in answer.assignment.topic_partitions for n in part.partitions)
        self._take(given, acknowledges)

    def _join_again(self) -> None:
        """Its epoch is the one before, because the reply with the new one was forgotten."""
        self.epoch, self.used, self.reported, self.newest = 0, frozenset(), frozenset(), frozenset()
        self.begun, self.is_done, self.says_all = None, False, True

    def _take(self, given: frozenset[int] | None, acknowledges: bool) -> None:
        if given is not None:
            self.newest = given
        if acknowledges and self.begun is not None:
            self.reported, self.begun, self.is_done = self.begun, None, False
        if self.begun is None and self.newest != self.reported:
            self.begun = self.newest


class OneBehind(OneByOne):
    """Like Kafka's Java client: it begins the next assignment as soon as the acknowledgement is sent, and
    acknowledges it even if it is equal to what it has. Its heartbeat after a lost reply is a full one."""

    forgets = False

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.looks_up = self.is_new = False

    def _request(self) -> tuple[dict[str, Any], bool]:
        has = self.reported if self.says_all or self.is_done else None
        fields = self._fields(self.says_all, has)
        self.is_done = False
        self._begin()
        return fields, False

    def poll(self) -> None:
        if self.begun is not None:
            self.used = self.reported = self.begun
            self.begun, self.is_done = None, True

    def _take(self, given: frozenset[int] | None, acknowledges: bool) -> None:
        if given is not None and given != self.newest:
            self.newest, self.is_new = given, True
        self._begin()

    def _begin(self) -> None:
        if self.begun is None and self.is_new and not self.is_done:
            self.begun, self.is_new = self.newest, False


class Group:
    """A slow member was given four partitions, then all eight; the other joins at its first heartbeat.

    Time stands still, and an assignment is overdue at once: it is repeated with every heartbeat."""

    def __init__(self, kind: type[OneByOne]) -> None:
        self.world = World(GroupSettings(session_timeout_ms=10_000_000, heartbeat_interval_ms=0))
        self.world.create_topic("orders", 4)
        self.slow, self.quick = kind(self.world, "a"), OneByOne(self.world, "b")
        self.quick.looks_up = False
        self.slow.beat()
        self.world.grow_topic("orders", 8)
        self.slow.beat()

    def step(self, step: str) -> None:
        if step == "beat" or step in OF_A_BEAT:
            self.slow.beat(step)
        elif step == "poll":
            self.slow.poll()
        elif step == "other beats":
            self.quick.beat()
            self.quick.poll()
        elif step == "unnoticed leader":
            self.world.lead_again()
        else:
            self.world.failover()
            self.slow.lose()
            self.quick.lose()
        assert not self.slow.used & self.quick.used, "two members use a partition"

    def state(self) -> object:
        group, reports = self.world.group(), self.world.shard.groups.reports
        members = tuple(repr(member.current) for member in group.members.values())
        untold = {
            key: (repr(one.partitions), one.repeats_left) for key, one in reports.unacknowledged.items()
        }
        heard = (
            repr(sorted(reports.last.items())),
            repr(sorted(reports.told.items())),
            repr(sorted(untold.items())),
        )
        return group.epoch, members, heard, self.slow.state(), self.quick.state()

    def rests(self) -> bool:
        current = {member_id: member.current for member_id, member in self.world.group().members.items()}
        return all(
            current[client.name].state is MemberState.STABLE
            and client.used == current[client.name].assigned.get(FIRST_TOPIC, {}).keys()
            for client in (self.slow, self.quick)
        )

    def comes_to_rest(self) -> None:
        for _ in range(ROUNDS_MAX):
            for step in ("beat", "poll", "poll", "other beats"):
                self.step(step)
            if self.rests():
                return
        raise AssertionError("somebody waits for a rebalance timeout")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [OneByOne, OneBehind])
def test_no_order_of_steps_makes_two_owners_or_leaves_a_member_waiting(kind: type[OneByOne]) -> None:
    found: set[object] = set()
    paths: deque[tuple[str, ...]] = deque([()])
    steps = [step for step in STEPS if step != "forgotten reply" or kind.forgets]
    while paths:
        path = paths.popleft()
        for step in steps:
            if sum(one in FAULTS for one in (*path, step)) > FAULTS_MAX:
                continue
            group = Group(kind)
            try:
                for one in (*path, step):
                    group.step(one)
                if (state := group.state()) in found:
                    continue
                found.add(state)
                check_group(group.world.group())
                group.comes_to_rest()
            except AssertionError as error:
                pytest.fail(f"{error}, after {', '.join((*path, step))}")
            if len(path) + 1 < DEPTH:
                paths.append((*path, step))
    print(len(found), "states")
