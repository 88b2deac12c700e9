"""C.14, C.9: topics come and go under expressions, also so many that one of them matches too much."""

from __future__ import annotations

import pytest

from coordinator.limits import GroupSettings, Limits
from coordinator.regex.expressions import match
from records import METADATA_SHARD, ReasonKind, Ref
from tests.kip848.expressions import by_regex
from tests.support.group_client import settle
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest


def test_a_new_topic_is_found_without_a_heartbeat(world: World) -> None:
    """C.9: new topic matching a regex. The change of the catalog is what starts the round; the cause refers
    to it."""
    a = by_regex(world)
    a.beat()
    world.sleep(1_000)
    a.beat()
    world.create_topic("orders-eu", 2)
    (entry,) = world.work()
    assert entry.types == [16, 4, 3, 7, 6]
    (reason,) = entry.cause.reasons
    assert reason.detail == "orders.* now matches orders-eu"
    assert entry.cause.refs == (Ref(shard=METADATA_SHARD, index=world.catalog.view.version),)
    a.beat()
    assert sum(map(len, a.owned.values())) == 14


def test_a_topic_that_no_expression_matches_changes_nothing(world: World) -> None:
    """Neither a record nor an epoch."""
    by_regex(world).beat()
    world.sleep(1_000)
    world.create_topic("bills", 1)
    assert world.sleep(1_000) == []
    world.grow_topic("bills", 3)
    assert world.sleep(1_000) == []


def test_many_topics_in_a_row_share_a_few_rounds(world: World) -> None:
    """A named pause: a thousand creations in a second are about ten rounds."""
    by_regex(world).beat()
    world.sleep(1_000)
    before = len(world.log)
    for number in range(1_000):
        world.create_topic(f"orders-{number}", 1)
        world.sleep(1)
    world.sleep(1_000)
    written = [entry for entry in world.log[before:] if 16 in entry.types]
    assert len(world.group().resolved("orders.*")) == 1_001
    assert 9 <= len(written) <= 12


def test_a_deleted_topic_leaves_the_resolution_and_bumps_once(world: World) -> None:
    a = by_regex(world)
    a.beat()
    world.sleep(1_000)
    world.create_topic("orders-eu", 2)
    world.sleep(1_000)
    a.beat()
    epoch = world.group().epoch
    world.delete_topic("orders-eu")
    entries = world.sleep(1_000)
    assert world.group().resolved("orders.*") == ("orders",)
    assert world.group().epoch == epoch + 1
    assert [ReasonKind(r.kind).name for e in entries for r in e.cause.reasons] == ["TOPIC_DELETED"]
    a.beat()
    assert sum(map(len, a.owned.values())) == 12


def test_a_topic_that_is_made_again_is_another_topic(world: World) -> None:
    a = by_regex(world)
    a.beat()
    world.sleep(1_000)
    a.beat()
    world.delete_topic("orders")
    new_id = world.create_topic("orders", 3)
    world.sleep(1_000)
    settle([a])
    assert a.partitions(new_id) == [0, 1, 2]
    assert list(a.owned) == [new_id]


def test_all_is_resolved_anew_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Last refresh > `group.consumer.regex.refresh.interval.ms`: every expression against every topic."""
    world = World(GroupSettings(regex_refresh_interval_ms=20_000, session_timeout_ms=10_000_000))
    world.create_topic("orders", 1)
    by_regex(world).beat()
    world.sleep(1_000)
    asked: list[tuple[int, int]] = []

    def counted(regexes: list[str], names: list[str], *rest: object) -> object:
        asked.append((len(regexes), len(names)))
        return match(regexes, names, *rest)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("coordinator.regex.expressions.match", counted)
    world.sleep(18_000)
    assert asked == []
    world.sleep(42_000)
    assert asked == [(1, 1), (0, 0)] * 3
    assert world.group().regexes["orders.*"].version == world.catalog.view.version


def test_an_expression_that_matches_too_much_is_an_error_of_its_own(world: World) -> None:
    """It keeps what it had; the others are resolved; describe names it."""
    world = World(limits=Limits(resolved_topics_max=3))
    for number in range(3):
        world.create_topic(f"t-{number}", 1)
    a, b = by_regex(world, "a", "t-.*"), by_regex(world, "b", "t-1")
    settle([a, b], 1)
    world.sleep(1_000)
    for number in range(3, 6):
        world.create_topic(f"t-{number}", 1)
        world.sleep(1_000)
    assert len(world.group().resolved("t-.*")) == 3
    assert world.group().resolved("t-1") == ("t-1",)
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert described.error_message == "t-.* matches 6 topics; at most 3 are allowed"
    world.delete_topic("t-5")
    world.delete_topic("t-4")
    world.delete_topic("t-0")
    world.sleep(1_000)
    assert world.group().resolved("t-.*") == ("t-1", "t-2", "t-3")
