"""`stats`: figures of a known story by hand, sums over windows and groups, memory that does not grow."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import fields, replace

import pytest

from history.answers.figures import LARGEST, SMALLEST, Figures, rounded, summed
from history.answers.stats import Stats, stats
from history.answers.statstext import derived, stats_text
from history.diagnoses.case import Horizon
from history.facts.rows import TopicPartition
from history.pages.stats import stats_page
from history.reading.node import NodeLog
from history.reading.source import NothingToRead
from history.render import UTC_STYLE
from records import Cause, MemberState, Trigger, encode_entry
from tests.history.repeating_log import Repeating, _frame, opened
from tests.support.memory_log import (
    GROUP,
    NOON_MS,
    MemoryReader,
    Writer,
    commit,
    current,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import group_log, joined, metadata_log
from tests.support.random_worlds import random_world
from tests.support.schedules import GROUPS
from tests.support.world import World


@pytest.fixture
def story() -> NodeLog:
    return opened(group_log().log, metadata=metadata_log().log)


def test_the_figures_of_a_known_story(story: NodeLog) -> None:
    """Counted by hand; times since noon in ms:

    1,000 Ann joins (epoch 1, Stable at once, 6 partitions); 5,000 Bob joins (epoch 2, 3 move); 5,150 Ann is
    told; 5,662 she has let go; 6,000 Bob takes them: Stable after 1,000; 26,000 a restart; 40,500 orders
    grows to 8 (epoch 3, given 6 and 7); 40,900 Ann takes 6; 43,500 Bob expires before he took 7 (epoch 4,
    overtakes 3); 43,800 Ann takes all: Stable 3,300 after the growth; 53,800 Ann leaves (epoch 5, Empty).
    """
    found = stats(story)
    (group,) = found.groups
    figures = group.figures
    assert (found.from_ms - NOON_MS, found.until_ms - NOON_MS) == (0, 53_800)
    assert (figures.epochs, figures.rebalances, figures.overtaken) == (5, 4, 1)
    assert figures.by_trigger == {"MEMBER_JOINED": 2, "CATALOG_CHANGED": 1, "SESSION_EXPIRED": 1}
    assert figures.by_reason == {"MEMBER_JOINED": 2, "TOPIC_GROWN": 1, "SESSION_EXPIRED": 1}
    assert figures.existed_ms == 52_800
    assert figures.unstable_ms == 1_000 + 3_300
    assert figures.settled == {0: 1, rounded(1_000): 1, rounded(3_300): 1}
    assert figures.settle_max_ms == 3_300
    assert figures.revoking_ms == 3 * 512
    # 3, 4, 5 between the two; 6 until Ann takes it, 7 until the end; Bob's three behind his expiry.
    assert figures.unowned_ms == 3 * 338 + 400 + 3_300 + 3 * 300
    held = 6 * 52_800 + 2 * 13_300
    assert figures.owned_ms == held - figures.revoking_ms - figures.unowned_ms
    assert (figures.moves, figures.given) == (3 + 4, 6 + 2)
    assert figures.taken == 8
    assert (figures.joined, figures.rejoined) == (2, 0)
    assert figures.ended == {"session expired": 1, "left": 1}
    assert figures.member_ms == 4_000 + 2 * 38_500 + 10_300
    assert (figures.members_min, figures.members_max) == (0, 2)
    assert (figures.commits, figures.committed, figures.longest_silence_ms) == (2, 2, 51_800)
    assert (figures.stalled, figures.failovers) == (0, 0)
    assert found.total == figures
    assert sum(sum(part.by_trigger.values()) for part in found.slices) == 4


def test_what_lasts_is_cut_at_both_ends(story: NodeLog) -> None:
    found = stats(story, from_ms=NOON_MS + 5_400, until_ms=NOON_MS + 5_800)
    figures = found.total
    assert figures.unstable_ms == figures.existed_ms == 400
    assert figures.revoking_ms == 3 * 262
    assert figures.unowned_ms == 3 * 138
    assert (figures.epochs, figures.joined, figures.commits, figures.moves) == (0, 0, 0, 0)
    assert (figures.members_min, figures.members_max) == (2, 2)
    assert figures.longest_silence_ms is None


def test_an_index_is_the_millisecond_of_its_entry(story: NodeLog) -> None:
    found = stats(story, group=GROUP, from_index=2, until_index=4)
    assert (found.from_ms, found.until_ms) == (NOON_MS + 1_000, NOON_MS + 5_001)
    assert found.total.rebalances == 2
    with pytest.raises(NothingToRead, match="no entry 99 in shard-0"):
        stats(story, group=GROUP, from_index=99)


def test_what_does_not_exist(story: NodeLog) -> None:
    with pytest.raises(NothingToRead, match=f"it has {GROUP}"):
        stats(story, group="paymnets")
    with pytest.raises(NothingToRead, match="the log is kept from"):
        stats(story, from_ms=5, until_ms=5)
    with pytest.raises(NothingToRead, match="no entry of a group shard"):
        stats(opened(MemoryReader()))


@pytest.fixture(scope="module", params=[0, 1])
def world(request: pytest.FixtureRequest) -> World:
    return random_world(request.param, in_parts=bool(request.param))


def _log_of(world: World) -> NodeLog:
    """The entries of a schedule as a log of one shard."""
    reader = MemoryReader()
    for written in world.log:
        body = encode_entry(written.cause, written.records)
        number = len(reader.written) + 1
        reader.written.append(_frame(number, written.timestamp_ms, len(written.records), body))
    return opened(reader)


ADDITIVE = [
    spec.name
    for spec in fields(Figures)
    if spec.name not in (*LARGEST, *SMALLEST, "committed", "stalled", "findings")
]


def test_windows_that_touch_each_other_add_up(world: World) -> None:
    log = _log_of(world)
    whole = stats(log)
    rng = random.Random(7)
    for _ in range(3):
        times = sorted(rng.sample(range(whole.from_ms + 1, whole.until_ms), 3))
        begins, ends = [None, *times], [*times, None]
        parts = [stats(log, from_ms=b, until_ms=e).total for b, e in zip(begins, ends, strict=True)]
        together = summed(parts)
        for name in ADDITIVE:
            assert getattr(together, name) == getattr(whole.total, name), name


def test_all_is_the_sum_of_the_groups(world: World) -> None:
    log = _log_of(world)
    whole = stats(log)
    assert len(whole.groups) == len(GROUPS)
    open_ended = [stats(log, group=one.group_id) for one in whole.groups]
    assert [part.groups[0].figures for part in open_ended] == [one.figures for one in whole.groups]
    together = summed(one.figures for one in whole.groups)
    together.failovers = whole.total.failovers
    assert together == whole.total
    assert whole.total.rebalances > 50


def test_in_parts_the_same_diagnoses_are_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log_of(world)
    whole = stats(log)
    monkeypatch.setattr("history.answers.stats.DRAIN_ENTRIES", 7)
    monkeypatch.setattr("history.diagnoses.incremental.CHECK_ROWS", 1)
    assert stats(log) == whole


def test_spans_are_rounded_down_by_less_than_one_in_128() -> None:
    for span_ms in (0, 1, 255, 256, 257, 1_000, 59_999, 86_400_000):
        assert rounded(span_ms) <= span_ms < rounded(span_ms) * 129 / 128 + 1
    figures = Figures()
    for span_ms in range(1, 201):
        figures.settle(span_ms)
    assert (figures.settled_within(0.5), figures.settled_within(0.95), figures.settle_max_ms) == (
        100,
        190,
        200,
    )
    assert Figures().settled_within(0.5) is None


# Commits that stop.


def _committing(log: Writer, num: int, every_ms: int, *partitions: int) -> None:
    for number in range(num):
        log.after(every_ms).append(
            Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id="ann"),
            *(commit(partition, number) for partition in partitions),
        )


def _three_owned() -> Writer:
    log = Writer()
    log.append(
        joined("ann"),
        member("ann", "app"),
        group_topics(3, 1),
        group_epoch(1),
        target("ann", 0, 1, 2),
        target_epoch(1),
        current("ann", 1, (0, 1, 2)),
    )
    return log


def _partitions(found: Stats) -> list[tuple[int, str]]:
    return [(stall.partition.partition, stall.measured_by) for stall in found.groups[0].stalls]


def test_a_partition_stalls_by_its_own_usual_interval_or_that_of_others() -> None:
    log = _three_owned()
    _committing(log, 8, 1_000, 0, 1)
    _committing(log, 30, 1_000, 0)
    found = stats(opened(log.log))
    assert _partitions(found) == [(1, "own"), (2, "others")]
    own, others = found.groups[0].stalls
    assert (own.quiet_ms, own.usual_ms, own.member_id) == (30_000, 1_000, "ann")
    assert (others.quiet_ms, others.last_commit_ms) == (38_000, None)
    assert found.total.longest_silence_ms == 30_000
    assert "orders-1 of payments: ann (app) owns it, no commit for 30.0 s" in "\n".join(
        stats_text(found, UTC_STYLE)
    )
    in_time = stats(opened(log.log), until_ms=NOON_MS + 8_000 + 9_999)
    assert _partitions(in_time) == [(2, "others")], "10 s are not over"


def test_slow_commits_a_revoked_and_an_unowned_partition_are_no_stall() -> None:
    log = _three_owned()
    _committing(log, 8, 5_000, 0, 1)
    log.append(
        Cause(trigger=Trigger.HEARTBEAT, member_id="ann"),
        current("ann", 1, (0,), (1,), MemberState.UNREVOKED_PARTITIONS),
    )
    _committing(log, 1, 49_000, 2)
    assert _partitions(stats(opened(log.log))) == []
    _committing(log, 1, 2_000, 2)
    assert _partitions(stats(opened(log.log))) == [(0, "own")]


def test_a_group_that_only_commits_is_counted_too() -> None:
    log = Writer()
    _committing(log, 4, 500, 0)
    (group,) = stats(opened(log.log)).groups
    assert (group.figures.commits, group.figures.existed_ms) == (4, 0)
    assert derived(group.figures, group.until_ms - group.from_ms)["commits_per_s"] == pytest.approx(4 / 1.5)
    assert group.commits[0].partition == TopicPartition(topic="orders", partition=0)
    assert (group.commits[0].usual_ms, group.commits[0].longest_silence_ms) == (500, 500)


@pytest.mark.parametrize("drain_entries", [1, 1_000])
def test_a_group_that_was_stuck_settles_after_all_of_its_unsettled_epochs(
    drain_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch 2 waits for Ann, 40 others begin, she lets go 50 s later. Later ones settle at once."""
    monkeypatch.setattr("history.answers.stats.DRAIN_ENTRIES", drain_entries)
    log = Writer()
    first = (member("ann", "app"), group_topics(2, 1), group_epoch(1), target("ann", 0, 1), target_epoch(1))
    log.append(joined("ann"), *first, current("ann", 1, (0, 1)))
    waiting = current("bob", 2, (), state=MemberState.UNRELEASED_PARTITIONS)
    moved = (group_epoch(2), target("ann", 1), target("bob", 0), target_epoch(2))
    log.after(1_000).append(joined("bob"), member("bob", "app"), *moved, waiting)
    for epoch in range(3, 43):
        log.after(1_000).append(joined("bob"), group_epoch(epoch), target_epoch(epoch))
    log.after(10_000).append(
        Cause(trigger=Trigger.HEARTBEAT), current("ann", 42, (1,)), current("bob", 42, (0,))
    )
    for epoch in range(43, 80):
        settled = (current("ann", epoch, (1,)), current("bob", epoch, (0,)))
        log.after(1_000).append(joined("bob"), group_epoch(epoch), target_epoch(epoch), *settled)
    (group,) = stats(opened(log.log)).groups
    assert group.figures.settled == {0: 1 + 37, rounded(50_000): 1}
    assert group.figures.settle_max_ms == 50_000


# Memory.


def _peak(rounds: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("history.answers.stats.DRAIN_ENTRIES", 200)
    for name in ("NEAR", "FAR"):  # the shorter log is longer than what is remembered
        monkeypatch.setattr(f"history.diagnoses.incremental.{name}", Horizon(10_000, 10_000))
    reader = Repeating()
    reader.rounds = rounds
    log = opened(reader)
    tracemalloc.start()
    found = stats(log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.total.commits == rounds * 30
    return peak


def test_ten_times_the_log_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing grows: 516 kB at 20 and 50 rounds, 639 at 40, 644 at 200, 656 at 800.

    How many rows wait for the rules, up to twice as many as are remembered, differs with a walk's length.
    """
    _peak(20, monkeypatch)
    assert _peak(200, monkeypatch) < 1.5 * _peak(20, monkeypatch)


# The page.


def test_the_page_says_what_the_text_says(story: NodeLog) -> None:
    found = stats(story)
    text = stats_page(found, style=UTC_STYLE, title="<billing>")
    assert "&lt;billing&gt;" in text
    assert "<script>alert" not in text
    for row in ("member joined 2", "session expired", "53.8 s"):
        assert row in text
    odd = replace(found, groups=(replace(found.groups[0], group_id='"><script>alert(1)</script>'),))
    assert "<script>alert" not in stats_page(odd, style=UTC_STYLE)
    empty = replace(found, total=Figures(), groups=())
    assert "<p>none</p>" in stats_page(empty, style=UTC_STYLE)
