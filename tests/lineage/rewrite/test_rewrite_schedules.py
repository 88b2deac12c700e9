"""Random schedules of both variants of seed 000: one owner, live == replay, every transition taken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from coordinator.state.projection import Projection
from lineage.rewrite.machines import RewriteConsumerEvent, RewriteConsumerState
from lineage.rewrite.playing import VARIANTS
from records import compact
from tests.support.replaying import every_window

from .rewrite_play import ENDS, RewriteLog, RewriteStory, play_schedule

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
    failing = {
        (RewriteConsumerState.RESURRECT, RewriteConsumerEvent.NOT_READY),
        (RewriteConsumerState.JOINING, RewriteConsumerEvent.NOT_READY),
    }
    refused = (RewriteConsumerEvent.REFUSED, RewriteConsumerEvent.COMMIT_FAILED)
    refusals = {one for one in table if one[1] in refused}
    assert table.keys() - consumers.keys() <= failing | refusals  # test_rewrite_errors.py takes these


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
