"""Random schedules of both variants of seed 000: one owner, live == replay, every transition taken."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from coordinator.state.projection import Projection
from lineage.rewrite.machines import RewriteConsumerEvent, RewriteConsumerState
from lineage.rewrite.playing import VARIANTS
from tests.support.replaying import every_window

from .rewrite_play import RewriteLog, RewriteStory, play_schedule

SEEDS = 100
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


@cache
def played(variant: str) -> tuple[Counter[Any], Counter[Any]]:
    coordinator: Counter[Any] = Counter()
    consumers: Counter[Any] = Counter()
    for seed in range(SEEDS):
        story = play_schedule(variant, seed)
        check_rest(story)
        check_replay(story.log)
        coordinator.update(story.play.coordinator.taken)
        consumers.update(story.taken)
    return coordinator, consumers


@pytest.mark.parametrize("variant", VARIANTS)
def test_schedules_take_every_transition_of_both_tables(variant: str) -> None:
    coordinator, consumers = played(variant)
    make, table = VARIANTS[variant]
    assert make.TABLE.keys() - coordinator.keys() == set()
    failing = {
        (RewriteConsumerState.RESURRECT, RewriteConsumerEvent.NOT_READY),
        (RewriteConsumerState.JOINING, RewriteConsumerEvent.NOT_READY),
    }
    refusals = {one for one in table if one[1] is RewriteConsumerEvent.REFUSED}
    assert table.keys() - consumers.keys() <= failing | refusals  # test_rewrite_errors.py takes these


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
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_thousand_schedules(variant: str) -> None:
    for seed in range(SEEDS, SEEDS + 1_000):
        story = play_schedule(variant, seed)
        check_rest(story)
        check_replay(story.log)
