"""The five failover cases of seed 000 and its slow consumer, for both variants, over the protocol's bytes.

`golden/` has what these ten stories sent: every frame of each variant, and what it says. The thread has no
story in which a rebalance is cancelled: who was found dead is unknown to it at once, and joins anew.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lineage.rewrite.consumer import RewriteConsumerSettings
from lineage.rewrite.machines import RewriteConsumerEvent, RewriteConsumerState, RewriteEvent, RewriteState
from lineage.rewrite.messages import JoinGroupRequest
from records import ReasonKind
from tests.support.golden_texts import golden
from tests.support.rewrite_playing import VARIANTS

from .rewrite_play import GROUP, SESSION_MS, RewriteStory

both = pytest.mark.parametrize("variant", VARIANTS)


def two_consumers(variant: str, sessions_of_a: int = 1) -> RewriteStory:
    """Consumers a and b in generation 2, with three partitions each; a heartbeats every 1.5 s, b each s.

    The session of a is so many times that of b."""
    story = RewriteStory(variant)
    story.join(
        "a",
        settings=RewriteConsumerSettings(
            group_id=GROUP,
            session_timeout_ms=sessions_of_a * SESSION_MS,
            heartbeat_frequency=2 * sessions_of_a,
        ),
    )
    story.play.run(100)
    story.join("b")
    until(story, lambda: sorted(story.owners()) == list(range(6)) and story.log.value.generation == 2)
    assert sorted(story.owners().values()) == ["a", "a", "a", "b", "b", "b"]
    return story


def until(story: RewriteStory, holds: Callable[[], bool]) -> None:
    """Let time pass in steps of a ms until the condition holds."""
    for _ in range(5 * SESSION_MS):
        if holds():
            return
        story.play.run(1)
    raise AssertionError("the condition never held")


def group(story: RewriteStory):
    return story.play.coordinator._groups[GROUP]


def all_join(story: RewriteStory) -> bool:
    """Whether JoinGroup of both consumers is under way or waits."""
    consumers = [process.consumer for process in story.play.processes.values()]
    return all(one._sent and isinstance(one._sent.request, JoinGroupRequest) for one in consumers)


def ends_in(story: RewriteStory, generation: int, partitions: int, name: str = "") -> None:
    """The group comes to rest in a generation; if the story has a name, all frames are the recorded ones."""

    def rests() -> bool:
        is_steady = story.play.coordinator.group_state(GROUP) in (RewriteState.STEADY, RewriteState.READY)
        return is_steady and story.log.value.generation == generation

    until(story, rests)
    story.play.run(SESSION_MS)
    if name:
        golden(f"lineage/rewrite/golden/{name}-{story.variant}.txt", story.recorded)
    story.settle()
    assert story.log.value.generation == generation
    assert sorted(story.owners()) == list(range(partitions))


@both
def test_case_1_the_new_coordinator_finds_the_change_that_the_old_one_did_not_act_on(variant: str) -> None:
    story = two_consumers(variant)
    story.play.kill()
    story.play.counts["t"] = 9
    ends_in(story, 3, 9, "case-1")
    assert ReasonKind.TOPIC_GROWN in [one.kind for one in story.log.generations[-1].reasons]


@both
def test_case_2_told_in_part_the_group_rebalances_again(variant: str) -> None:
    story = two_consumers(variant)
    story.play.grow("t", 8)
    until(story, lambda: len(group(story).told) == 1)
    story.play.kill()
    ends_in(story, 3, 8, "case-2")


@both
def test_case_2_a_consumer_that_is_back_before_the_failover_ends_costs_no_generation(variant: str) -> None:
    story = two_consumers(variant)
    story.silence(3 * SESSION_MS)
    story.play.pause("b", 10 * SESSION_MS)
    until(story, lambda: bool(group(story).dead))
    before = len(story.log.entries)
    story.play.kill(down_ms=100)
    story.play.resume("b")
    ends_in(story, 2, 6, "case-2-recovered")
    commits = [cause for cause, _ in story.log.entries[before:]]
    assert all(cause.expiries == () for cause in commits)


@both
def test_case_3_joined_in_part_the_group_rebalances_again(variant: str) -> None:
    story = two_consumers(variant)
    story.play.grow("t", 8)
    until(story, lambda: len(group(story).waiting) == 1)
    story.play.kill()
    ends_in(story, 3, 8, "case-3")


@pytest.mark.parametrize(("variant", "generation"), [("design", 4), ("thread", 3)])
def test_case_4_a_generation_is_written_and_no_consumer_is_answered(variant: str, generation: int) -> None:
    """The design asks everybody to join again; the thread repeats the answers."""
    story = two_consumers(variant)
    story.play.grow("t", 8)
    until(story, lambda: all_join(story))
    story.play.deaf.update("ab")
    until(story, lambda: story.log.value.generation == 3)
    story.play.kill()
    ends_in(story, generation, 8, "case-4")


@pytest.mark.parametrize(("variant", "generation"), [("design", 4), ("thread", 3)])
def test_case_5_who_was_answered_goes_on_and_the_other_joins(variant: str, generation: int) -> None:
    story = two_consumers(variant)
    story.play.grow("t", 8)
    until(story, lambda: all_join(story))
    story.play.deaf.add("b")
    until(story, lambda: story.log.value.generation == 3)
    until(story, lambda: story.play.processes["a"].consumer.generation == 3)
    story.play.kill()
    ends_in(story, generation, 8, "case-5")


def slow_consumer(variant: str, sessions_of_a: int = 1) -> RewriteStory:
    """b was just found dead, and a was not told yet."""
    story = two_consumers(variant, sessions_of_a)
    story.play.run(1_050)  # b has heartbeated once, so it dies between two heartbeats of a
    story.silence(3 * SESSION_MS)
    story.play.pause("b", 10 * SESSION_MS)
    until(story, lambda: bool(group(story).dead))
    assert group(story).told == set()
    return story


@pytest.mark.parametrize(("variant", "generation"), [("design", 2), ("thread", 3)])
def test_a_slow_consumer_cancels_the_rebalance_before_another_was_told(variant: str, generation: int) -> None:
    """The thread does not know the id any more, and the consumer joins anew."""
    story = slow_consumer(variant)
    story.play.resume("b")
    ends_in(story, generation, 6, "slow-cancels")
    recovered = story.play.coordinator.taken[RewriteState.PREPARING, RewriteEvent.RECOVERED]
    assert recovered == (1 if variant == "design" else 0)


@both
def test_a_slow_consumer_is_included_if_its_join_comes_before_the_answers(variant: str) -> None:
    story = slow_consumer(variant)
    old_id = story.play.processes["b"].consumer.consumer_id
    until(story, lambda: bool(group(story).told))
    story.play.pause("a", 400)
    story.play.resume("b")
    ends_in(story, 3, 6, "slow-included")
    assert (story.play.processes["b"].consumer.consumer_id == old_id) is (variant == "design")


@both
def test_a_slow_consumer_that_is_too_late_is_unknown_and_starts_another_round(variant: str) -> None:
    story = slow_consumer(variant)
    until(story, lambda: story.log.value.generation == 3)
    assert story.log.generations[-1].expiries[0].timeout_ms == SESSION_MS
    story.play.run(100)
    story.play.resume("b")
    ends_in(story, 4, 6, "slow-too-late")
    unknown = [event for (_, event), count in story.play.processes["b"].consumer.taken.items() if count]
    assert any(event.name == "UNKNOWN" for event in unknown)


@pytest.mark.parametrize(("variant", "generation"), [("design", 3), ("thread", 4)])
def test_a_slow_consumer_rediscovers_and_joins_again_if_the_round_takes_long(
    variant: str, generation: int
) -> None:
    """The round waits for a, whose session is three of b's; b waits for two.

    In the thread b has no id any more, so its first JoinGroup costs a generation more."""
    story = slow_consumer(variant, sessions_of_a=3)
    until(story, lambda: bool(group(story).told))
    story.play.pause("a", 2.5 * SESSION_MS)
    story.play.resume("b")
    slow = story.play.processes["b"].consumer
    waits = RewriteConsumerState.STOPPED if variant == "design" else RewriteConsumerState.JOINING
    until(story, lambda: slow.taken[waits, RewriteConsumerEvent.LOST] == 1)
    assert story.log.value.generation == 2
    asked = story.messages[JoinGroupRequest]
    until(story, lambda: story.messages[JoinGroupRequest] == asked + 1)
    assert slow.state is waits
    ends_in(story, generation, 6, "slow-long-round")
    assert sorted(story.owners().values()) == ["a", "a", "a", "b", "b", "b"]


@both
def test_a_pause_before_join_group_costs_the_pausing_consumer_its_place(variant: str) -> None:
    story = two_consumers(variant)
    story.play.grow("t", 8)
    until(
        story, lambda: "b" in {p.name for p in story.play.processes.values() if not p.consumer.is_consuming}
    )
    story.silence(4 * SESSION_MS)
    story.play.pause("b", 2 * SESSION_MS)
    until(story, lambda: story.log.value.generation == 3)
    assert len(story.log.value.consumers) == 1
    assert {one.kind for one in story.log.generations[-1].reasons} >= {ReasonKind.JOIN_TIMED_OUT}
    ends_in(story, 4, 8)


@both
def test_failure_detection_is_paused_between_join_group_and_its_answer(variant: str) -> None:
    story = two_consumers(variant)
    story.silence(6 * SESSION_MS)
    story.play.pause("b", 10 * SESSION_MS)
    story.play.processes["a"].consumer.subscribe(("t", "u"))
    until(story, lambda: len(group(story).waiting) == 1)
    (session,) = (one for id_, one in group(story).sessions.items() if id_ in group(story).waiting)
    assert session.deadline_ms is None
    until(story, lambda: story.log.value.generation == 3)
    assert group(story).sessions[story.play.processes["a"].consumer.consumer_id].deadline_ms is not None


@both
def test_the_only_consumer_that_dies_ends_its_group_at_once(variant: str) -> None:
    story = RewriteStory(variant)
    story.join("a")
    story.settle()
    story.play.leave("a")
    story.settle()
    assert (story.log.value.generation, story.log.value.consumers) == (2, ())
    story.join("b")
    story.settle()
    assert story.log.value.generation == 3


@both
def test_a_topic_may_be_named_before_it_exists(variant: str) -> None:
    story = RewriteStory(variant)
    story.join("a", ("later",))
    story.settle()
    assert story.log.value.topics[0].num_partitions == 0
    story.play.grow("later", 2)
    story.settle()
    assert sorted(story.play.owners()) == [("later", 0), ("later", 1)]
    assert [one.kind for one in story.log.generations[-1].reasons] == [ReasonKind.TOPIC_CREATED]


@both
def test_a_wildcard_is_the_clients_and_a_new_topic_that_matches_costs_a_generation(variant: str) -> None:
    story = RewriteStory(variant)
    wild = RewriteConsumerSettings(
        group_id=GROUP, session_timeout_ms=SESSION_MS, whitelist="t.*", blacklist="tx"
    )
    story.join("a", (), settings=wild).saw_topics(story.play.counts)
    story.settle()
    story.play.grow("tx", 1)
    story.play.grow("tt", 1)
    story.settle()
    assert {topic for topic, _ in story.play.owners()} == {"t", "tt"}


@both
def test_a_consumer_goes_on_consuming_while_it_rediscovers(variant: str) -> None:
    story = two_consumers(variant)
    story.play.kill(down_ms=1_000)
    rediscovering = {RewriteConsumerState.REDISCOVER, RewriteConsumerState.DISCOVERY}
    until(story, lambda: all(p.consumer.state in rediscovering for p in story.play.processes.values()))
    assert sorted(story.owners()) == list(range(6))
    ends_in(story, 2, 6)
