"""C.14: the answer of a round is written to the log in parts, over many turns."""

from __future__ import annotations

from array import array

import pytest

from coordinator.api import Job
from coordinator.limits import GroupSettings, Limits
from coordinator.regex.regexrounds import POSITION, answer_round
from tests.kip848.expressions import by_regex, held
from tests.support.group_client import Client, settle
from tests.support.leader_state_checks import nothing_is_left
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

NUM_EXPRESSIONS = 12
LOOKS = 6
"""Turns that it takes to check an answer for all members, two at a time."""


def regex_of(number: int) -> str:
    return f"t-{number}-.*"


@pytest.fixture
def world() -> World:
    """Twelve members with an expression each, whose round the child process has not answered yet."""
    world = World(
        GroupSettings(session_timeout_ms=10**9, regex_refresh_interval_ms=60_000),
        Limits(resolve_inline_cost_max=-1, resolved_names_look_max=15),
    )
    for number in range(NUM_EXPRESSIONS):
        world.create_topic(f"t-{number}-x", 2)
    world.holds_jobs = True
    for number in range(NUM_EXPRESSIONS):
        by_regex(world, f"m{number:02}", regex_of(number)).beat()
    world.sleep(1_000)
    return world


def end_with(world: World, *answers: object) -> Job:
    """Let the child answer; the first part of its answer is checked in the same turn."""
    job = held(world)
    world.end_job(job, list(answers))
    return job


def right(world: World) -> list[object]:
    return list(answer_round(held(world).request, lambda: 0.0))  # type: ignore[arg-type]  # a mapping


def resolve_all(world: World) -> None:
    end_with(world, *right(world))
    world.sleep(1_000)
    assert len(world.group().regexes) == NUM_EXPRESSIONS


def next_full_round(world: World) -> None:
    world.sleep(world.settings.settings.regex_refresh_interval_ms)
    assert len(held(world).context.fresh) == NUM_EXPRESSIONS  # type: ignore[attr-defined]  # a Round


def described_error(world: World) -> str | None:
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = world.handle(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    error: str | None = described.error_message
    return error


def test_an_answer_is_looked_through_in_many_turns_and_written_as_one_change(world: World) -> None:
    """Other work runs between these turns, and yet the group moves by one epoch."""
    entries = len(world.log)
    end_with(world, *right(world))
    turns = 1
    while len(world.log) == entries:
        assert not world.work_once(), "the next turn is not at once"
        world.now_ms += world.limits.resolved_pause_ms
        assert world.work_once()
        turns += 1
    assert turns >= LOOKS
    (entry,) = world.log[entries:]
    assert entry.types.count(16) == NUM_EXPRESSIONS
    assert world.group().resolved("t-7-.*") == ("t-7-x",)


def test_an_answer_that_is_no_news_writes_nothing(world: World) -> None:
    resolve_all(world)
    next_full_round(world)
    end_with(world, *right(world))
    assert world.sleep(10_000) == []
    assert world.jobs == []
    next_full_round(world)


def test_what_a_topic_changed_meanwhile_is_found_by_the_next_round(world: World) -> None:
    """The positions are those of the names that were asked; and what went is in no record for long."""
    resolve_all(world)
    next_full_round(world)
    answers = right(world)
    world.create_topic("t-0-y", 1)
    world.delete_topic("t-1-x")
    end_with(world, *answers)
    world.create_topic("t-2-y", 1)
    world.delete_topic("t-11-x")
    world.sleep(20)
    world.holds_jobs = False
    world.end_jobs()
    world.sleep(20_000)
    expected: dict[str, tuple[str, ...]] = {
        regex_of(number): (f"t-{number}-x",) for number in range(NUM_EXPRESSIONS)
    }
    expected["t-0-.*"], expected["t-2-.*"] = ("t-0-x", "t-0-y"), ("t-2-x", "t-2-y")
    expected["t-1-.*"] = expected["t-11-.*"] = ()
    assert {regex: value.topics for regex, value in world.group().regexes.items()} == expected


@pytest.mark.parametrize("bad", [None, 7, [0], b"\0", array(POSITION, [NUM_EXPRESSIONS]).tobytes()])
def test_nonsense_at_the_end_of_an_answer_spoils_all_of_it(world: World, bad: object) -> None:
    """Nothing of it is written; the child is asked again after a pause."""
    entries = len(world.log)
    answers = right(world)
    end_with(world, *answers[:-1], bad)
    assert described_error(world) is None, "not looked at yet"
    world.sleep(100)
    assert "the child process returned an invalid result" in (described_error(world) or "")
    assert (len(world.log), world.jobs) == (entries, [])
    world.sleep(world.limits.regex_retry_ms)
    resolve_all(world)
    assert described_error(world) is None


@pytest.mark.parametrize("result", ["nonsense", {}, [], [b""], [b""] * (NUM_EXPRESSIONS + 1)])
def test_an_answer_to_another_question_is_none(world: World, result: object) -> None:
    world.end_job(held(world), result)
    assert "the child process returned an invalid result" in (described_error(world) or "")
    world.sleep(world.limits.regex_retry_ms)
    resolve_all(world)


def test_who_leaves_or_comes_while_an_answer_is_taken(world: World) -> None:
    """No record is written for an expression without subscribers; one that came anew has its own round."""
    answers = right(world)
    end_with(world, *answers)
    leaver = Client(world, "m00", topics=(), regex=regex_of(0))
    leaver.epoch = 1
    leaver.leave()
    by_regex(world, "late", "t-3-.*|t-4-.*").beat()
    world.sleep(100)
    assert len(world.group().regexes) == NUM_EXPRESSIONS - 1
    assert regex_of(0) not in world.group().regexes
    world.sleep(10_000)
    (job,) = world.jobs
    world.end_job(job, list(answer_round(job.request, lambda: 0.0)))  # type: ignore[arg-type]  # a mapping
    world.sleep(100)
    assert world.group().resolved("t-3-.*|t-4-.*") == ("t-3-x", "t-4-x")


def test_an_expression_that_came_anew_while_an_answer_was_taken_is_resolved(world: World) -> None:
    """It was unchanged when it was checked, and its record went with its subscriber after that."""
    resolve_all(world)
    next_full_round(world)
    end_with(world, *right(world))
    member = Client(world, "m00", topics=(), regex=regex_of(0))
    member.epoch = world.group().epoch
    member.leave()
    assert regex_of(0) not in world.group().regexes
    by_regex(world, "again", regex_of(0)).beat()
    world.holds_jobs = False
    world.sleep(20_000)
    assert world.group().resolved(regex_of(0)) == ("t-0-x",)


def test_a_lead_that_is_lost_takes_what_was_not_written_with_it(world: World) -> None:
    end_with(world, *right(world))
    world.failover()
    assert world.group().regexes == {}
    world.work()
    resolve_all(world)


def test_a_group_that_goes_while_its_answer_is_taken_leaves_nothing(world: World) -> None:
    end_with(world, *right(world))
    for number in range(NUM_EXPRESSIONS):
        world.heartbeat(f"m{number:02}", -1)
    world.sleep(10**10)
    nothing_is_left(world)


def test_an_error_goes_when_the_answer_is_what_was_known_before() -> None:
    """Only the error changed: the records stay as they are."""
    world = World(limits=Limits(resolved_topics_max=2))
    world.create_topic("t-0", 1)
    world.create_topic("t-1", 1)
    a = by_regex(world, "a", "t-.*")
    settle([a], 1)
    world.sleep(1_000)
    world.create_topic("t-2", 1)
    world.sleep(1_000)
    assert described_error(world) == "t-.* matches 3 topics; at most 2 are allowed"
    world.delete_topic("t-2")
    world.sleep(1_000)
    assert described_error(world) is None
    assert world.group().resolved("t-.*") == ("t-0", "t-1")


def test_the_pause_between_rounds_is_counted_from_the_round() -> None:
    """The pause begins with the round, not with its last turn."""
    world = World(limits=Limits(resolve_inline_cost_max=-1, resolved_names_at_once_max=2))
    for number in range(3):
        world.create_topic(f"t-{number}", 1)
    a, b = by_regex(world, "a", "t-.*"), by_regex(world, "b", "t.*")
    world.holds_jobs = True
    a.beat()
    b.beat()
    world.work()
    world.now_ms += 1_000
    world.end_job(held(world), list(answer_round(held(world).request, lambda: 0.0)))  # type: ignore[arg-type]
    world.create_topic("t-3", 1)
    world.sleep(1_000)
    assert len(world.group().regexes) == 2, "written in two parts"
    assert world.jobs == [], "a round that took a second rests for ten"
    world.sleep(10_000)
    assert len(world.jobs) == 1


def test_a_failure_is_over_when_the_next_round_needs_no_child() -> None:
    world = World(limits=Limits(resolve_inline_cost_max=25))
    for number in range(20):
        world.create_topic(f"t-{number}", 1)
    world.holds_jobs = True
    by_regex(world, "a", "t-.*").beat()
    world.work()
    world.end_job(held(world), None, "was killed by signal 9")
    assert "was killed" in (described_error(world) or "")
    for number in range(10):
        world.delete_topic(f"t-{number}")
    world.sleep(20_000)
    assert world.jobs == []
    assert len(world.group().resolved("t-.*")) == 10
    assert described_error(world) is None
