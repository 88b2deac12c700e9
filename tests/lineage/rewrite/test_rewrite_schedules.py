"""Random schedules of both variants of seed 000: one owner, live == replay, every transition taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coordinator.state.projection import Projection
from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.machines import RewriteConsumerEvent, RewriteConsumerState
from lineage.rewrite.messages import HeartbeatRequest
from records import compact
from tests.support.replaying import every_window
from tests.support.rewrite_playing import VARIANTS

from .rewrite_play import COMMITTING, ENDS, SESSION_MS, SETTINGS, RewriteLog, RewriteStory, play_schedule

SEEDS = 100
MANY_SEEDS = 1_000
"""Of each variant."""


def check_rest(story: RewriteStory) -> None:
    """At rest every partition of a subscribed topic has one owner, and all agree with the record."""
    value = story.log.value
    consumers = {p.consumer.consumer_id: p.consumer for p in story.play.processes.values()}
    assert {one.consumer_id for one in value.consumers} == consumers.keys()
    for one in value.consumers:
        consumer = consumers[one.consumer_id]
        owned = {(each.topic, number) for each in one.owned for number in each.partitions}
        assert consumer.consuming == owned
        assert consumer.generation == value.generation
    subscribed = {topic for one in value.consumers for topic in one.topics}
    expected = {(t, n) for t in subscribed for n in range(story.play.counts.get(t, 0))}
    assert story.play.owners().keys() == expected


def check_replay(log: RewriteLog) -> None:
    """At every index the state that was served is the state that the log gives."""
    replayed = Projection()
    for index, (_, records) in enumerate(log.entries, 1):
        replayed.apply_all(records, index)
        assert replayed.state_hash == log.hashes[index - 1]
    assert replayed.old_groups == log.groups


def check_compaction(log: RewriteLog) -> None:
    """A snapshot taken anywhere, with the rest of the log, loads to the same state."""
    stamped = log.stamped
    for cut in {len(stamped) // 4, len(stamped) // 2, len(stamped)}:
        snapshot = compact(stamped[:cut], now_ms=len(stamped), delete_retention_ms=0)
        loaded = Projection()
        for one in [*snapshot, *stamped[cut:]]:
            loaded.apply(one.record, one.index)
        assert (loaded.state_hash, loaded.old_groups) == (log.hashes[-1], log.groups)


Refusal = tuple[RewriteStory, tuple[RewriteConsumerState, RewriteConsumerEvent], str]
"""A story in which a coordinator refused something for good, the transition it is about, the consumer."""


def first_join_is_refused(variant: str) -> Refusal:
    story = RewriteStory(variant)
    story.join("a", settings=replace(SETTINGS, strategy="unheard of"))
    story.settle()
    state = RewriteConsumerState.STARTUP if variant == "design" else RewriteConsumerState.JOINING
    return story, (state, RewriteConsumerEvent.REFUSED), "a"


def changed_list_is_refused(variant: str) -> Refusal:
    story = RewriteStory(variant, settings=RewriteSettings(subscription_bytes_max=100))
    consumer = story.join("a")
    story.settle()
    consumer.subscribe(("x" * 200,))
    story.settle()
    state = RewriteConsumerState.STOPPED if variant == "design" else RewriteConsumerState.JOINING
    return story, (state, RewriteConsumerEvent.REFUSED), "a"


def place_is_taken_meanwhile(variant: str) -> Refusal:
    """A consumer that was found dead is back, and the group is full."""
    story = RewriteStory(variant, settings=RewriteSettings(consumers_max=2))
    for name in "ab":
        story.join(name)
    story.settle()
    story.silence(11 * SESSION_MS)
    story.play.pause("b", 10 * SESSION_MS)
    story.settle()
    story.join("c")
    story.play.run(10 * SESSION_MS)
    state = RewriteConsumerState.RESURRECT if variant == "design" else RewriteConsumerState.JOINING
    return story, (state, RewriteConsumerEvent.REFUSED), "b"


def commit_is_refused(variant: str) -> Refusal:
    story = RewriteStory(variant, settings=RewriteSettings(commit_bytes_max=1))
    story.join("a", settings=COMMITTING)
    story.settle()
    return story, (RewriteConsumerState.IN_GROUP, RewriteConsumerEvent.COMMIT_FAILED), "a"


def test_a_consumer_whose_commits_are_refused_goes_on_sending_heartbeats() -> None:
    """Subroutine 10 of the thread commits again and again; meanwhile the consumer is in the group."""
    story, _, _ = commit_is_refused("thread")
    before = story.messages[HeartbeatRequest]
    story.settle()
    assert (story.log.value.generation, sorted(story.owners())) == (1, list(range(6)))
    assert story.messages[HeartbeatRequest] - before >= 4 * SETTINGS.heartbeat_frequency - 1
    story.play.processes["a"].consumer.subscribe(("t", "u"))
    story.play.run(100)
    assert story.play.processes["a"].consumer.state is RewriteConsumerState.JOINING


def commit_before_join_group_is_refused(variant: str) -> Refusal:
    story = RewriteStory(variant, settings=RewriteSettings(commit_bytes_max=1))
    story.join("a")
    story.settle()
    story.play.grow("t", 8)
    story.settle()
    return story, (RewriteConsumerState.JOINING, RewriteConsumerEvent.COMMIT_FAILED), "a"


REFUSALS: dict[str, tuple[Callable[[str], Refusal], ...]] = {
    "design": (first_join_is_refused, changed_list_is_refused, place_is_taken_meanwhile),
    "thread": (first_join_is_refused, commit_is_refused, commit_before_join_group_is_refused),
}
"""The things that random schedules never do, because a group would not come to rest with it."""


@pytest.mark.parametrize(("variant", "case"), [(one, case) for one in REFUSALS for case in REFUSALS[one]])
def test_refusals_take_the_transition_that_they_are_about(
    variant: str, case: Callable[[str], Refusal]
) -> None:
    story, transition, name = case(variant)
    assert story.play.processes[name].consumer.taken[transition] > 0
    check_replay(story.log)


def play_seeds(variant: str, seeds: range) -> None:
    """Play, check, and demand that every transition of both tables was taken.

    Each second group has a user's strategy, which ends in every way."""
    coordinator: Counter[Any] = Counter()
    consumers: Counter[Any] = Counter()
    ends: Counter[str] = Counter()
    for seed in seeds:
        story = play_schedule(variant, seed, ("range", "mine")[seed % 2])
        check_rest(story)
        check_replay(story.log)
        check_compaction(story.log)
        coordinator.update(story.play.coordinator.taken)
        consumers.update(story.taken)
        ends.update(story.users.ends)
    assert ends.keys() == ENDS.keys() | {"too late"}
    make, table = VARIANTS[variant]
    assert make.TABLE.keys() - coordinator.keys() == set()
    for story, _, name in (case(variant) for case in REFUSALS[variant]):
        consumers.update(story.play.processes[name].consumer.taken)
    assert table.keys() - consumers.keys() == set()


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
def test_schedules_take_every_transition_of_both_tables(variant: str) -> None:
    play_seeds(variant, range(SEEDS))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_window_of_compaction_loads_to_the_same_state(variant: str) -> None:
    log = play_schedule(variant, 3).log
    stamped = log.stamped[:40]
    windows = every_window(stamped)
    whole = Projection()
    whole.apply_all(windows[0], len(stamped))
    for window in windows:
        loaded = Projection()
        loaded.apply_all(window, len(stamped))
        assert loaded.state_hash == whole.state_hash


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_thousand_schedules(variant: str) -> None:
    play_seeds(variant, range(SEEDS, SEEDS + MANY_SEEDS))
