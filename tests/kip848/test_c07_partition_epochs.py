"""C.7 Ownership: a target is reachable only through partitions that nobody else owns."""

from __future__ import annotations

from tests.support.group_client import Client, settle
from tests.support.world import World


def test_a_partition_moves_only_after_it_was_given_up(world: World) -> None:
    """A partition moves only after the old owner's owned list lacks it: one owner, and no barrier."""
    topic = world.catalog.view.topic("orders").topic_id
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    moving = set(range(12)) - a.owned[topic]
    b.beat()
    assert not b.owned.get(topic), "pending revocation is still owned"
    assert all(world.group().owners[topic][partition] == "a" for partition in moving)
    a.beat()
    assert not moving & world.group().owners[topic].keys(), "given up, and not taken yet"
    b.beat()
    assert b.owned[topic] == moving


def test_others_go_on_without_a_pause(world: World) -> None:
    """Incremental: a joiner makes only the moved partitions be revoked."""
    topic = world.catalog.view.topic("orders").topic_id
    members = [Client(world, name) for name in "abc"]
    settle(members, rounds=4)
    before = {client.member_id: set(client.owned[topic]) for client in members}
    late = Client(world, "d")
    late.beat()
    for client in members:
        client.beat()
        assert client.owned[topic] <= before[client.member_id]
        assert len(before[client.member_id] - client.owned[topic]) == 1


def test_a_leaver_frees_its_partitions_at_once(world: World) -> None:
    """Tombstones release what the member owned, assigned and pending."""
    topic = world.catalog.view.topic("orders").topic_id
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    assert world.group().members["a"].current.pending
    a.leave()
    assert topic not in world.group().owners
    b.beat()
    assert b.partitions(topic) == list(range(12))
