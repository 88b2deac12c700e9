"""A group that moves from the classic protocol to the consumer protocol and back, member by member."""

from __future__ import annotations

from tests.support.embedded_member import EmbeddedConsumer
from tests.support.incidents.world import GROUP, IncidentWorld

STEP_MS = 1_000


def mixed_world() -> IncidentWorld:
    """Three classic members; a consumer member joins, a classic one leaves, the consumer member leaves."""
    world = IncidentWorld(1)
    world.create_topic("orders", 6)
    members = [EmbeddedConsumer(world, f"app-{number}", group_id=GROUP) for number in (1, 2, 3)]
    _live(world, members, 10)
    newcomer = world.start()
    _live(world, members, 10)
    members.pop().leave(reason="the consumer is being closed")
    _live(world, members, 10)
    newcomer.leave()
    _live(world, members, 10)
    return world


def late_world() -> IncidentWorld:
    """A consumer member joins a classic group, and one of the classic members never joins again."""
    world = IncidentWorld(2)
    world.create_topic("orders", 6)
    members = [EmbeddedConsumer(world, f"app-{number}", group_id=GROUP) for number in (1, 2, 3)]
    _live(world, members, 10)
    world.start()
    late = members.pop()
    for _ in range(70):
        _live(world, members, 1)
        late.heartbeat()
    return world


def _live(world: IncidentWorld, members: list[EmbeddedConsumer], steps: int) -> None:
    for _ in range(steps):
        world.live(STEP_MS)
        for member in members:
            member.poll()
