"""The fast path of heartbeats: which members of a classic group may use it, and everything that ends it.

`World.beat` compares the answer of the slow path with the cached one at every heartbeat of these tests.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.leader_state.classic_groups import ClassicEntry
from tests.support.classic_member import SESSION_MS, ClassicConsumer
from tests.support.world import World

Make = Callable[..., list[ClassicConsumer]]


def entry_of(world: World, member: ClassicConsumer) -> ClassicEntry:
    entry = world.shard.fast_entry("g", member.member_id)
    assert isinstance(entry, ClassicEntry)
    assert entry.is_valid()
    return entry


ENDS: dict[str, Callable[[World, list[ClassicConsumer]], object]] = {
    "another member joins": lambda world, members: ClassicConsumer(world, "c").join(),
    "the leader joins again": lambda world, members: members[0].send_join(),
    "the member leaves": lambda world, members: members[1].leave(),
    "another member leaves": lambda world, members: members[0].leave(),
    "its session ends": lambda world, members: world.sleep(SESSION_MS),
    "leadership is lost": lambda world, members: world.shard.on_deposed(),
    "the group is forgotten": lambda world, members: world.shard.groups.classic.forget("g"),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_ends_it(world: World, stable: Make, what: str) -> None:
    members = stable("a", "b")
    entry = entry_of(world, members[1])
    ENDS[what](world, members)
    assert not entry.is_valid()


def test_what_does_not_end_it(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    entry = entry_of(world, b)
    assert a.heartbeat() == b.heartbeat() == 0
    world.commit({("orders", 0): 1}, member_id=b.member_id, epoch=b.generation)
    world.create_topic("unrelated", 3)
    ClassicConsumer(world, "z", group_id="other").join()
    assert entry.is_valid()
    assert b.heartbeat() == 0


def test_a_member_that_has_to_join_has_none(world: World, stable: Make) -> None:
    a, _ = stable("a", "b")
    assert world.shard.fast_entry("g", "nobody") is None
    c = ClassicConsumer(world, "c")
    c.send_join()
    assert world.shard.fast_entry("g", c.member_id) is None, "it has a member id and has not joined"
    c.send_join()
    assert world.shard.fast_entry("g", a.member_id) is None, "it has to join again"


def test_a_touch_restarts_the_session(world: World, stable: Make) -> None:
    a, b = stable("a", "b")
    world.sleep(SESSION_MS - 1)
    entry_of(world, b).touch(world.now_ms, 123)
    world.sleep(SESSION_MS - 1)
    group = world.shard.groups.classic.get("g")
    assert group is not None
    assert list(group.members) == [b.member_id], "only the other one's session is over"
    assert a.member_id not in group.members
