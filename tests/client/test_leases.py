"""The application side of leases: what is held, what a change tells, and what is acknowledged when."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.aio.leases import Leases
from client.core.env import Environment
from client.core.errors import AuthenticationError, ConfigError, FatalError, IllegalState, TimedOut
from client.core.events import (
    AckPartitionAssignedEvent,
    AckPartitionRevokedEvent,
    ApplicationEvent,
    AssignPartitionsEvent,
    BackgroundEvent,
    ErrorEvent,
    LeaveGroupEvent,
    LosePartitionsEvent,
    RevokePartitionsEvent,
)
from client.core.leases import HeldLeases, LeaseChange
from client.core.member.membership import MembershipManager
from quorate import Lease, TopicPartition, lease
from wire.errors import ErrorCode

NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}
FATAL = FatalError(ErrorCode.FENCED_INSTANCE_ID, "another one has it")


def partitions(numbers: Iterable[int]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", number) for number in numbers)


def assign(tokens: dict[int, int], number: int = 1) -> AssignPartitionsEvent:
    named = {TopicPartition("orders", partition): token for partition, token in tokens.items()}
    return AssignPartitionsEvent(partitions=frozenset(named), round=number, tokens=named)


def revoke(*numbers: int, number: int = 2) -> RevokePartitionsEvent:
    return RevokePartitionsEvent(partitions=partitions(numbers), round=number, deadline_ms=1e12)


def lose(*numbers: int, number: int = 3) -> LosePartitionsEvent:
    return LosePartitionsEvent(partitions=partitions(numbers), round=number)


class Rig:
    """A holder, and what it sent."""

    def __init__(self) -> None:
        self.events: deque[BackgroundEvent] = deque()
        self.sent: list[ApplicationEvent] = []
        env = Environment(lambda: 0.0, lambda: 0, lambda: 0.5, lambda: "id")
        self.holder = HeldLeases(env, self.events, self.sent.append)

    def tell(self, *events: BackgroundEvent) -> None:
        self.events.extend(events)
        self.holder.receive()

    def take(self) -> LeaseChange:
        change = self.holder.take()
        assert change is not None
        return change

    def acknowledged(self) -> list[int]:
        return [event.round for event in self.sent if isinstance(event, AckPartitionRevokedEvent)]


def test_what_is_gained_is_held_and_acknowledged_at_once() -> None:
    rig = Rig()
    rig.tell(assign({0: 7, 1: 7}))
    assert rig.holder.held[TopicPartition("orders", 1)] == Lease("orders", 1, 7)
    assert [type(event) for event in rig.sent] == [AckPartitionAssignedEvent]
    assert rig.take().gained == (Lease("orders", 0, 7), Lease("orders", 1, 7))
    assert rig.holder.take() is None


def test_what_is_revoked_is_held_no_more_and_acknowledged_when_its_work_has_ended() -> None:
    rig = Rig()
    rig.tell(assign({0: 7, 1: 7}))
    rig.take()
    rig.tell(revoke(1))
    assert not rig.holder.is_held(Lease("orders", 1, 7))
    change = rig.take()
    assert (change.ended, change.is_lost) == ((Lease("orders", 1, 7),), False)
    assert rig.acknowledged() == []
    for _ in range(2):
        rig.holder.acknowledge(change)
    assert rig.acknowledged() == [2]


def test_what_is_lost_during_its_revocation_is_told_again_as_lost() -> None:
    rig = Rig()
    rig.tell(assign({0: 7, 1: 7}))
    rig.take()
    rig.tell(revoke(1))
    first = rig.take()
    rig.tell(lose(0, 1))
    second = rig.take()
    assert (second.ended, second.is_lost) == ((Lease("orders", 0, 7), Lease("orders", 1, 7)), True)
    rig.holder.acknowledge(first)
    rig.holder.acknowledge(second)
    assert rig.acknowledged() == [2, 3]


def test_a_lease_that_ended_before_it_was_told_is_never_told() -> None:
    rig = Rig()
    rig.tell(assign({0: 7}), lose(0))
    assert rig.holder.take() is None
    assert rig.acknowledged() == [3]
    rig.tell(assign({0: 9}, number=4))
    assert rig.take().gained == (Lease("orders", 0, 9),)


def test_errors_come_after_the_changes_and_a_fatal_one_stays() -> None:
    rig = Rig()
    rig.tell(assign({0: 7}))
    rig.take()
    rig.tell(ErrorEvent(error=FATAL, is_fatal=True))
    change = rig.take()
    assert (change.ended, change.is_lost, rig.holder.held) == ((Lease("orders", 0, 7),), True, {})
    assert change.number >= 0, "POST /v1/leases/LEASE/acknowledge takes no other"
    for _ in range(2):
        with pytest.raises(FatalError, match="another one has it"):
            rig.holder.take()


def test_errors_that_the_member_survives_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.tell(assign({0: 7}), ErrorEvent(error=AuthenticationError("the token has expired")))
    rig.take()
    assert rig.holder.take() is None
    assert "the token has expired" in caplog.text
    assert Lease("orders", 0, 7) in rig.holder.held.values()


async def test_a_lease_that_is_closed_while_it_joins_does_not_wait_any_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("client.aio.leases.CLOSE_S", 0.05)
    leases = lease("g", "orders", **NOWHERE)
    joining = asyncio.ensure_future(leases.__aenter__())
    await turns()
    await leases.close(0.05)
    with pytest.raises(IllegalState, match="closed before it had joined"):
        await asyncio.wait_for(joining, 5)


def test_leaving_acknowledges_what_waits_and_what_comes() -> None:
    rig = Rig()
    rig.tell(assign({0: 7, 1: 7}))
    rig.take()
    rig.tell(revoke(1))
    rig.take()
    rig.holder.leave(1_000, stays=False)
    (leaving,) = (event for event in rig.sent if isinstance(event, LeaveGroupEvent))
    assert (leaving.closes, leaving.deadline_ms, rig.acknowledged()) == (False, 1_000, [2])
    rig.tell(revoke(0, 1, number=5))
    assert rig.acknowledged() == [2, 5]
    with pytest.raises(IllegalState, match="closed"):
        rig.holder.take()


# The door.


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"auto_offset_reset": "earliest"}, "auto.offset.reset is a setting of consumers"),
        ({"enable_auto_commit": False}, "enable.auto.commit is a setting of consumers"),
        ({"on_assign": print}, "on.assign is a setting of consumers"),
        ({"group_instance": "a"}, "did you mean group.instance.id"),
        ({"group_id": "b"}, "group.id is set twice"),
    ],
)
def test_settings_of_consumers_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        lease("g", "orders", **NOWHERE, **settings)


async def test_a_lease_without_a_server_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client.aio.leases.NOT_JOINED_S", 0.05)
    with pytest.raises(TimedOut, match=r"did not admit the member in time\. JOINING"):
        async with lease("g", "orders", **NOWHERE, default_api_timeout_ms=50):
            pass


def test_nothing_is_held_before_the_lease_is_open() -> None:
    with pytest.raises(IllegalState, match="async with"):
        len(lease("g", "orders", **NOWHERE))


@asynccontextmanager
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Leases, list[int]]]:
    """An open lease whose events a test sends, and the rounds that it has acknowledged."""
    rounds: list[int] = []

    def note(_self: MembershipManager, event: Any, _now_ms: float) -> None:
        if isinstance(event, AckPartitionRevokedEvent):
            rounds.append(event.round)

    async def joined(_self: Leases, _assembly: Any) -> None:
        pass

    monkeypatch.setattr(MembershipManager, "acknowledge", note)
    monkeypatch.setattr(Leases, "_join", joined)
    async with lease("g", "orders", **NOWHERE) as leases:
        yield leases, rounds


def put(leases: Leases, *events: BackgroundEvent) -> None:
    leases._require().background.background_events.extend(events)
    leases._tell()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_asking_for_the_next_change_acknowledges_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(monkeypatch) as (leases, rounds):
        put(leases, assign({0: 7}))
        assert list(leases) == [Lease("orders", 0, 7)]
        assert (await anext(leases)).gained == (Lease("orders", 0, 7),)
        put(leases, revoke(0))
        assert len(leases) == 0
        assert Lease("orders", 0, 7) not in leases
        assert (await anext(leases)).ended == (Lease("orders", 0, 7),)
        await turns()
        assert rounds == []
        waiting = asyncio.ensure_future(anext(leases))
        await turns()
        assert rounds == [2]
        with pytest.raises(IllegalState, match="taken already"):
            await leases.run(asyncio.sleep)
        waiting.cancel()


class Workers:
    """Workers that end when a test lets them."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.may_end = asyncio.Event()

    async def work(self, held: Lease) -> None:
        self.told.append(f"begin {held.partition}@{held.token}")
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.told.append(f"end {held.partition}@{held.token}")


async def test_a_revocation_is_acknowledged_when_its_worker_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers()
    async with opened(monkeypatch) as (leases, rounds):
        running = asyncio.ensure_future(leases.run(workers.work))
        put(leases, assign({0: 7, 1: 7}))
        await turns()
        put(leases, revoke(1))
        await turns()
        assert rounds == []
        workers.may_end.set()
        await turns()
        assert (rounds, workers.told) == ([2], ["begin 0@7", "begin 1@7", "end 1@7"])
        running.cancel()
        await asyncio.wait({running})
        assert workers.told[-1] == "end 0@7"


async def test_the_same_partition_is_worked_on_by_one_worker_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lost while its worker still ends: the member joins again only after that."""
    workers = Workers()
    async with opened(monkeypatch) as (leases, rounds):
        running = asyncio.ensure_future(leases.run(workers.work))
        put(leases, assign({0: 7, 1: 7}))
        await turns()
        put(leases, revoke(1))
        await turns()
        put(leases, lose(0, 1))
        await turns()
        assert rounds == []
        workers.may_end.set()
        await turns()
        assert rounds == [2, 3]
        put(leases, assign({1: 9}, number=4))
        await turns()
        assert workers.told == ["begin 0@7", "begin 1@7", "end 1@7", "end 0@7", "begin 1@9"]
        running.cancel()


async def test_a_worker_that_raises_ends_the_others_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    async def work(held: Lease) -> None:
        if held.partition == 1:
            raise ValueError("no ink")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(held.partition)

    async with opened(monkeypatch) as (leases, _):
        put(leases, assign({0: 7, 1: 7}))
        with pytest.raises(ValueError, match="no ink"):
            await leases.run(work)
        assert ended == [0]


async def test_run_may_be_called_again_and_begins_with_what_is_still_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_held: Lease) -> None:
        raise ValueError("no ink")

    workers = Workers()
    workers.may_end.set()
    async with opened(monkeypatch) as (leases, rounds):
        put(leases, assign({0: 7, 1: 7, 2: 7}))
        with pytest.raises(ValueError, match="no ink"):
            await leases.run(fail)
        put(leases, revoke(1), assign({3: 9}, number=4))
        running = asyncio.ensure_future(leases.run(workers.work))
        await turns()
        assert (rounds, workers.told) == ([2], ["begin 0@7", "begin 2@7", "begin 3@9"])
        running.cancel()
        await asyncio.wait({running})
        assert sorted(workers.told[3:]) == ["end 0@7", "end 2@7", "end 3@9"]


async def test_closing_ends_the_run_of_another_task_first(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers()
    async with opened(monkeypatch) as (leases, _):
        running = asyncio.ensure_future(leases.run(workers.work))
        put(leases, assign({0: 7}))
        await turns()
        workers.may_end.set()
    assert running.cancelled()
    assert workers.told == ["begin 0@7", "end 0@7"]


async def test_a_worker_that_does_not_end_keeps_the_member_from_leaving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To leave would be to say that its work has ended."""
    left: list[LeaveGroupEvent] = []
    monkeypatch.setattr(MembershipManager, "leave", lambda _self, event, _now_ms: left.append(event))
    workers = Workers()
    async with opened(monkeypatch) as (leases, _):
        running = asyncio.ensure_future(leases.run(workers.work))
        put(leases, assign({0: 7}))
        await turns()
        await leases.close(timeout=0.01)
        assert (left, list(leases)) == ([], [])
        assert "a worker did not end" in caplog.text
        workers.may_end.set()
        await asyncio.wait({running})


async def test_a_second_cancellation_neither_tears_a_worker_that_ends_nor_forgets_its_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers()
    async with opened(monkeypatch) as (leases, rounds):
        running = asyncio.ensure_future(leases.run(workers.work))
        put(leases, assign({0: 7, 1: 7}))
        await turns()
        put(leases, revoke(1))
        await turns()
        for _ in range(2):
            running.cancel()
            await turns()
        assert (running.done(), rounds) == (False, [])
        workers.may_end.set()
        await asyncio.wait({running})
        await turns()
        assert running.cancelled()
        assert (sorted(workers.told[2:]), rounds) == (["end 0@7", "end 1@7"], [2])


async def test_nothing_is_held_after_a_close_that_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No heartbeat is sent from then on, so others get the partitions."""
    workers = Workers()
    async with opened(monkeypatch) as (leases, _):
        running = asyncio.ensure_future(leases.run(workers.work))
        put(leases, assign({0: 7}))
        await turns()
        closing = asyncio.ensure_future(leases.close())
        await turns()
        assert len(leases) == 1
        closing.cancel()
        await asyncio.wait({closing})
        assert list(leases) == []
        workers.may_end.set()
        await asyncio.wait({running})
