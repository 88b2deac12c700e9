"""C.14: rounds by a child process, and results that are written in parts.

A group moves on while a child works: its result is used for the request that it was given, and nothing else.
"""

from __future__ import annotations

from array import array

import pytest

from coordinator.limits import Limits
from coordinator.regex.regexrounds import POSITION
from tests.kip848.expressions import by_regex, held
from tests.support.group_client import settle
from tests.support.leader_state_checks import nothing_is_left
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.delete_groups import DeleteGroupsRequest

FIRST, EIGHTH = array(POSITION, [0]).tobytes(), array(POSITION, [7]).tobytes()
"""Results that match the name at that position only."""


def test_one_round_of_a_group_is_under_way_at_a_time(by_children: World) -> None:
    """A round starts if none is in flight; expressions that arrive meanwhile are resolved in the next one."""
    world = by_children
    by_regex(world, "a").beat()
    world.work()
    by_regex(world, "b", "bill.*").beat()
    world.create_topic("orders-eu", 1)
    world.sleep(5_000)
    assert held(world).request["fresh"] == ("orders.*",)  # type: ignore[index]  # a mapping
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders",)
    world.sleep(10_000)
    request = held(world).request
    assert isinstance(request, dict)
    assert (request["fresh"], request["stale"], request["changed"]) == (
        ("bill.*",),
        ("orders.*",),
        ("orders-eu",),
    )
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders", "orders-eu")


def test_a_result_for_subscribers_who_went_is_dropped(by_children: World) -> None:
    world = by_children
    a = by_regex(world, "a")
    world.join("b", [])
    a.beat()
    world.work()
    a.subscribe((), "bills")
    a.beat()
    world.end_jobs()
    assert world.group().regexes == {}
    world.sleep(10_000)
    world.end_jobs()
    assert list(world.group().regexes) == ["bills"]


def test_a_round_that_no_member_waits_for_is_cancelled(by_children: World) -> None:
    """All subscribers left and another one joined while a child worked: it has a round of its own."""
    world = by_children
    a, b = by_regex(world, "a"), by_regex(world, "b", "bill.*")
    a.beat()
    world.work()
    job = held(world)
    b.beat()
    a.leave()
    b.leave()
    world.sleep(1_000)
    c = by_regex(world, "c")
    c.beat()
    world.end_job(job, [FIRST])
    world.sleep(1_000)
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders",)
    settle([c])
    assert sum(map(len, c.owned.values())) == 12


def test_a_result_for_a_group_that_is_gone_is_dropped(by_children: World) -> None:
    """No state is kept for the group either."""
    world = by_children
    a = by_regex(world)
    a.beat()
    world.work()
    job = held(world)
    a.leave()
    world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert world.shard.job_ended(job, [FIRST], None, world.ctx()) is None
    nothing_is_left(world)


def test_a_delta_for_an_expression_that_came_anew_is_not_taken_for_all_of_it(by_children: World) -> None:
    """Its record went with its subscriber, while a child looked at new topics only."""
    world = by_children
    a = by_regex(world, "a")
    world.join("b", [])
    a.beat()
    world.work()
    world.end_jobs()
    world.sleep(1_000)
    world.create_topic("orders-eu", 1)
    world.work()
    a.subscribe(("orders",))
    a.beat()
    a.subscribe((), "orders.*")
    a.beat()
    world.end_jobs()
    assert world.group().resolved("orders.*") == ()
    world.sleep(10_000)
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders", "orders-eu")


@pytest.mark.parametrize("result", [None, "nonsense", [], [EIGHTH], [None], [[0]], [FIRST, FIRST]])
def test_a_child_that_fails_is_shown_and_tried_again(by_children: World, result: object) -> None:
    """Failure: logged; retried after a pause. The members stay, and describe says what is wrong."""
    world = by_children
    by_regex(world).beat()
    world.work()
    error = "exited with 9: killed" if result is None else None
    job = held(world)
    decision = world.shard.job_ended(job, result, error, world.ctx())
    assert decision is not None
    assert decision.records == []
    assert "Expressions of group g were not resolved" in (decision.failure.words if decision.failure else "")
    world.jobs.clear()
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert "were not resolved" in described.error_message
    assert world.sleep(9_000) == []
    assert world.jobs == []
    world.sleep(1_001)
    again = world.shard.job_ended(held(world), result, error, world.ctx())
    assert again is not None
    assert again.failure is None, "logged once"
    world.jobs.clear()
    world.sleep(10_001)
    world.end_jobs()
    assert world.group().resolved("orders.*") == ("orders",)
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert described.error_message is None
    assert described.members[0].subscribed_topic_regex == "orders.*"


def test_very_much_is_written_a_part_at_a_time() -> None:
    """No decision takes the loop, nor the log, for longer than a named part."""
    world = World(limits=Limits(resolved_names_at_once_max=50))
    for number in range(40):
        world.create_topic(f"t-{number}", 1)
    clients = [by_regex(world, f"m{number}", f"t-.*|{number}") for number in range(5)]
    settle(clients, 1)
    entries = world.sleep(1_000)
    assert [entry.types.count(16) for entry in entries if 16 in entry.types] == [2, 2, 1]
    settle(clients)
    assert sorted(sum(map(len, client.owned.values())) for client in clients) == [8] * 5


def test_what_is_written_in_parts_is_matched_once() -> None:
    """A child's result is kept until its last part is in the log."""
    world = World(limits=Limits(resolved_names_at_once_max=50, resolve_inline_cost_max=-1))
    for number in range(40):
        world.create_topic(f"t-{number}", 1)
    clients = [by_regex(world, f"m{number}", f"t-.*|{number}") for number in range(5)]
    settle(clients, 1)
    world.holds_jobs = True
    world.sleep(1_000)
    world.end_jobs()
    entries = world.sleep(20_000)
    assert sum(entry.types.count(16) for entry in entries) == 3
    assert len(world.group().regexes) == 5
    assert world.jobs == []
