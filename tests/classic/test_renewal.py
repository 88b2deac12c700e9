"""A node without room for a while renews all sessions; classic groups go on where they are."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.classic_member import REBALANCE_MS, SESSION_MS, ClassicConsumer, rebalanced
from tests.support.world import World
from wire.errors import ErrorCode

Make = Callable[..., list[ClassicConsumer]]
PAUSE_MS = 60_000


def test_a_rebalance_goes_on_and_who_waits_is_answered(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    b.join()
    world.renew()
    assert a.join() is None
    rebalanced(a, b)
    world.renew()
    assert a.heartbeat() == b.heartbeat() == 0


def test_every_timer_restarts_in_full(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    b.join()
    world.sleep(SESSION_MS - 1)
    world.renew()
    world.sleep(SESSION_MS - 1)
    assert a.join() is None
    rebalanced(a, b)
    c = ClassicConsumer(world, "c")
    c.join()
    a.join()
    world.now_ms += REBALANCE_MS - 1  # nobody could join
    world.renew()
    world.sleep(2)
    assert a.joined() is None
    b.join()
    rebalanced(a, b, c)


def test_a_node_that_leads_again_goes_on_from_the_log(world: World, stable: Make) -> None:
    (a,) = stable("a")
    b = ClassicConsumer(world, "b")
    b.join()
    world.lead_again()
    group = world.shard.groups.classic.get("g")
    assert group is not None
    assert list(group.members) == [a.member_id]
    assert a.heartbeat() == 0
    assert b.heartbeat() != 0


def test_a_pause_of_the_node_ends_no_session_that_it_had_begun_to_end(world: World, stable: Make) -> None:
    """Several sessions end at once; after the first of them the process stands still for a minute."""
    members = stable("a", "b", "c")
    world.now_ms += SESSION_MS
    assert world.work_once()
    world.now_ms += PAUSE_MS - 1
    world.shard.shift_deadlines(PAUSE_MS)
    world.work()
    group = world.shard.groups.classic.get("g")
    assert group is not None
    assert len(group.members) == 2
    alive = [one for one in members if one.member_id in group.members]
    assert {one.heartbeat() for one in alive} == {ErrorCode.REBALANCE_IN_PROGRESS}
    world.sleep(SESSION_MS)
    assert not group.members
