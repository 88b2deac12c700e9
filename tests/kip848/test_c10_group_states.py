"""C.10 Group states: computed from the group on each update, never stored."""

from __future__ import annotations

from tests.support.group_client import Client, settle
from tests.support.world import World


def test_empty_assigning_reconciling_stable(world: World) -> None:
    """EMPTY → ASSIGNING (epoch > assignment epoch) → RECONCILING → STABLE → … → EMPTY."""
    seen = []
    world.turn = 1
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    seen.append(world.group().state.value)
    b.beat()
    seen.append(world.group().state.value)
    world.turn = 2
    a.beat()
    seen.append(world.group().state.value)
    settle([a, b])
    seen.append(world.group().state.value)
    world.turn = 3
    a.leave()
    seen.append(world.group().state.value)
    b.leave()
    seen.append(world.group().state.value)
    assert seen == ["Stable", "Assigning", "Reconciling", "Stable", "Reconciling", "Empty"]


def test_three_rounds_of_heartbeats_settle_any_group(world: World) -> None:
    """Three heartbeats of everybody after the last change every group is stable."""
    members = [Client(world, f"m{number}") for number in range(7)]
    for client in members:
        client.beat()
    settle(members)
    assert world.group().state.value == "Stable"
    topic = world.catalog.view.topic("orders").topic_id
    assert sorted(len(client.partitions(topic)) for client in members) == [1, 1, 2, 2, 2, 2, 2]


def test_three_members_share_ten_partitions() -> None:
    """Sizes 4, 3, 3; every member STABLE, all at one epoch."""
    world = World()
    topic = world.create_topic("orders", 10)
    members = [Client(world, name) for name in "abc"]
    settle(members, rounds=4)
    assert sorted(len(client.partitions(topic)) for client in members) == [3, 3, 4]
    assert {client.epoch for client in members} == {world.group().epoch} == {3}
    assert {member.current.state.name for member in world.group().members.values()} == {"STABLE"}
