"""C.14: expressions end up with the topics that match, under any leader and after any compaction."""

from __future__ import annotations

import random
import re
import string

import pytest

from coordinator.limits import GroupSettings, Limits
from coordinator.shard import GroupShard
from tests.kip848.expressions import by_regex
from tests.support.group_client import Client, settle
from tests.support.replaying import every_window, load
from tests.support.schedules import Twin, snapshot
from tests.support.world import World


def test_a_new_leader_finds_what_was_missed(world: World) -> None:
    """At Ready all expressions are compared with the catalog: resolved or not, and topics that came since."""
    a, b = by_regex(world, "a"), by_regex(world, "b", "bill.*")
    a.beat()
    world.sleep(1_000)
    b.beat()  # not resolved when the leader goes
    world.shard.on_deposed()
    deposed, world.shard = world.shard, GroupShard(0)  # nobody leads while the topics come
    world.create_topic("orders-eu", 1)
    world.create_topic("bills", 1)
    world.shard = deposed
    world.failover()
    world.work()
    assert world.group().resolved("orders.*") == ("orders", "orders-eu")
    assert world.group().resolved("bill.*") == ("bills",)


def test_a_node_whose_catalog_is_behind_resolves_nothing(world: World) -> None:
    by_regex(world).beat()
    world.sleep(1_000)
    world.create_topic("orders-eu", 1)
    world.sleep(1_000)
    fresh = World()
    fresh.create_topic("orders", 12)
    fresh.log, fresh.now_ms = world.log, world.now_ms
    fresh.failover()
    assert fresh.sleep(3_000) == []
    fresh.catalog, fresh.catalog_index = world.catalog, world.catalog_index
    assert fresh.sleep(3_000) == []
    assert fresh.group().resolved("orders.*") == ("orders", "orders-eu")


def test_every_compaction_window_of_a_session_with_expressions_loads_to_the_same_state(world: World) -> None:
    """B.6, with records 16 among them."""
    a, b = by_regex(world, "a"), by_regex(world, "b", "o.*")
    settle([a, b], 1)
    world.sleep(1_000)
    world.create_topic("oranges", 2)
    world.sleep(1_000)
    settle([a, b], 2)
    b.subscribe((), "orders.*")
    b.beat()
    world.sleep(1_000)
    world.delete_topic("orders")
    world.sleep(1_000)
    a.leave()
    b.leave()
    assert {16, -16} <= {kind for entry in world.log for kind in entry.types}
    for window in every_window(world.stamped()):
        assert load(window).state_hash == world.shard.state_hash


REGEXES = ["orders.*", "o.*", ".*s", "bills|news", "(orders|bills)-.*", "nothing", ""]


@pytest.mark.parametrize("seed", range(25))
def test_schedules_of_members_topics_and_failovers_end_where_the_expressions_say(seed: int) -> None:
    """Whatever the order: in the end each expression has what matches, the members have it all, and a replay
    has the same state as the leader at every entry."""
    rng = random.Random(seed)
    world = World(
        GroupSettings(session_timeout_ms=20_000, regex_refresh_interval_ms=rng.choice([10_000, 600_000])),
        limits=Limits(resolve_inline_cost_max=rng.choice([-1, 30, 5_000])),
    )
    world.holds_jobs = rng.random() < 0.5
    world.after_entry.append(Twin(seed))
    clients = [Client(world, name) for name in string.ascii_lowercase[:4]]
    for client in clients:
        client.topics, client.regex = (), rng.choice(REGEXES)
    names = ["orders", "orders-eu", "oranges", "bills", "bills-1", "news"]
    for _ in range(150):
        what = rng.random()
        name = rng.choice(names)
        exists = world.catalog.view.topic(name) is not None
        if what < 0.45:
            rng.choice(clients).beat(lose_reply=rng.random() < 0.1)
        elif what < 0.55:
            rng.choice(clients).subscribe(rng.sample(names, rng.randrange(2)), rng.choice(REGEXES))
        elif what < 0.7:
            world.delete_topic(name) if exists else world.create_topic(name, rng.randrange(1, 5))
        elif what < 0.75:
            rng.choice([client for client in clients if client.epoch] or [None]) and clients[0].leave()  # type: ignore[func-returns-value]
        elif what < 0.8:
            world.failover()
        elif world.jobs and what < 0.9:
            failed = rng.random() < 0.3
            world.end_job(world.jobs[0], error="killed") if failed else world.end_jobs()
        else:
            world.sleep(rng.choice([1, 50, 500, 3_000]))
    world.holds_jobs = False
    world.end_jobs()
    for _ in range(15):
        for client in clients:
            client.beat()
        world.sleep(2_000)
    group = world.group()
    catalog = world.catalog.view
    for regex in group.regex_subscribers:
        assert list(group.resolved(regex)) == [
            t.name for t in catalog.topics() if re.fullmatch(regex, t.name)
        ]
    assert group.regexes.keys() == group.regex_subscribers.keys()
    wanted = {
        (topic.topic_id, partition)
        for topic in catalog
        if topic.name in group.subscriptions
        for partition in range(topic.num_partitions)
    }
    owned = [(t, p) for client in clients for t, numbers in client.owned.items() for p in numbers]
    assert sorted(owned) == sorted(wanted)
    assert snapshot(world.replayed(len(world.log))) == snapshot(world.shard)
