"""The texts of `explain` and `timeline` on a scripted story (REWRITE_GOLDEN=1 rewrites the golden texts)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from history.reading.source import NothingToRead
from history.render import UTC_STYLE
from history.state.replay import replay, state_text
from history.telling.explain import Explanation, explain
from history.telling.prose import explanation_text
from history.telling.story import EpochStep, NoteStep
from history.telling.timeline import timeline, timeline_text
from records import Cause, Reason, ReasonKind, Trigger
from records.ids import METADATA_SHARD, shard_of
from tests.support.golden_texts import golden
from tests.support.memory_log import (
    GROUP,
    NOON_MS,
    MemoryReader,
    Writer,
    group_epoch,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import ANN, BOB, group_log, joined, metadata_log

from .conftest import Serve

SHARDS = 4
SHARD = shard_of(GROUP, SHARDS)


Read = Callable[..., Explanation]


@pytest.fixture
def read(serve: Serve) -> Read:
    """Run `explain` on logs in memory."""

    def reads(group: MemoryReader, metadata: MemoryReader | None = None) -> Explanation:
        serve({SHARD: group} if metadata is None else {SHARD: group, METADATA_SHARD: metadata}, SHARDS)
        return explain("node-1", GROUP, style=UTC_STYLE)

    return reads


def test_a_story_is_explained(read: Read) -> None:
    told = read(group_log().log, metadata_log().log)
    golden("history/golden/story_explain.txt", explanation_text(told, UTC_STYLE))


def test_a_story_as_a_timeline(read: Read) -> None:
    rows = timeline(read(group_log().log, metadata_log().log))
    golden("history/golden/story_timeline.txt", timeline_text(rows, width=110, style=UTC_STYLE))


def test_without_the_metadata_shard_the_growth_is_still_named(read: Read) -> None:
    told = read(group_log().log)
    assert told.epochs[2].why == ("topic orders grew from 6 to 8 partitions (metadata index 3)",)
    assert "metadata shard is not in this directory" in told.notes[0]
    assert told.epochs[2].moves[0].words() == "orders 6: nobody -> m1"


def test_an_epoch_that_is_overtaken_says_by_which(read: Read) -> None:
    log = Writer()
    log.append(joined(ANN), member(ANN, "app-1"), group_epoch(1))
    log.after(10).append(joined(BOB), member(BOB, "app-2"), group_epoch(2), target(ANN, 1), target_epoch(2))
    first, second = read(log.log).epochs
    assert (first.settled_index, first.overtaken_by, first.state) == (None, 2, "Assigning")
    assert (second.settled_index, second.overtaken_by, second.state) == (None, None, "Reconciling")


def test_every_reason_of_an_epoch_is_told(read: Read) -> None:
    log = Writer()
    reasons = (
        Reason(kind=ReasonKind.MEMBER_JOINED, member_id=ANN),
        Reason(kind=ReasonKind.TOPIC_DELETED, topic="bills"),
        Reason(kind=99, member_id=ANN, detail="a newer release knows"),
    )
    cause = Cause(trigger=Trigger.MEMBER_JOINED, member_id=ANN, reasons=reasons)
    log.append(cause, member(ANN, "app-1"), group_epoch(1))
    assert read(log.log).epochs[0].why == (
        "m1 (client app-1, 127.0.0.1) joined",
        "topic bills was deleted",
        "reason 99 (unknown to this release) m1 (client app-1, 127.0.0.1) a newer release knows",
    )


def test_refusals_stand_where_they_happened_and_repeats_are_one_line(read: Read) -> None:
    log = group_log()
    refusal = {"kind": "refused", "api": 8, "error": 113, "reason": "epoch 1", "group": GROUP, "member": BOB}
    gap = {"kind": "heartbeat_gap", "minute_ms": NOON_MS, "gap_ms": 1_234.0, "group": GROUP, "member": BOB}
    other = {"kind": "refused", "api": 8, "error": 25, "reason": "gone", "group": "other", "member": ANN}
    log.log.notes = [
        other | {"at_ms": NOON_MS + 41_000},
        *(refusal | {"at_ms": NOON_MS + 41_000 + step} for step in (0, 100, 200)),
        gap | {"at_ms": NOON_MS + 60_000},
    ]
    told = read(log.log, metadata_log().log)
    (note,) = (step for step in told.steps if isinstance(step, NoteStep))
    assert note.text == (
        "refused m2 (client app-2, 127.0.0.1): OffsetCommit, STALE_MEMBER_EPOCH: epoch 1"
        " (3 times until 12:00:41.200)"
    )
    after = told.steps[told.steps.index(note) + 1]
    assert isinstance(after, EpochStep)
    assert after.epoch == 4
    assert after.evidence == ("the longest gap between two of its heartbeats before was 1.2 s",)
    assert told.notes == ()


def test_undecided_entries_are_left_out_and_counted(read: Read) -> None:
    log = group_log()
    log.append(joined(BOB), member(BOB, "app-2"), group_epoch(6), decided=False)
    told = read(log.log, metadata_log().log)
    assert told.epochs[-1].epoch == 5
    assert told.basis.undecided == 1
    assert "1 undecided" in told.basis.words()


def test_damage_ends_the_story_where_nothing_bridges_it(read: Read) -> None:
    log = group_log()
    log.log.broken.add(9)
    told = read(log.log, metadata_log().log)
    assert [step.epoch for step in told.epochs] == [1, 2]
    assert told.basis.last_index == 8
    assert "entries after index 8 cannot be read" in told.basis.words()
    assert "nothing after them is used" in told.basis.words()


def test_an_unknown_group_is_an_error_that_says_what_was_read(serve: Serve) -> None:
    serve({SHARD: group_log().log}, SHARDS)
    with pytest.raises(NothingToRead, match=r"no epoch of group 'nobody'.*entries 1 to 13"):
        explain("node-1", "nobody", shard=SHARD)


def test_a_moment_before_the_first_entry_is_told_when_the_log_begins(serve: Serve) -> None:
    serve({SHARD: group_log().log}, SHARDS)
    state = replay("node-1", shard=SHARD, at_ms=NOON_MS - 1)
    assert (state.index, state.basis.begins_index, state.basis.begins_ms) == (0, 1, NOON_MS)
    (line,) = state_text(state, UTC_STYLE)
    assert "has no entries as old as that" in line
    assert "begins with entry 1 at 2026-03-01 12:00:00.000+00:00" in line
    with pytest.raises(NothingToRead, match=r"before the first entry of .*; the log.* with entry 1 at"):
        replay("node-1", shard=SHARD, group=GROUP, at_ms=NOON_MS - 1)


def test_a_moment_whose_entries_are_gone_is_told_what_is_kept(serve: Serve) -> None:
    log = group_log().log
    del log.written[:4]
    serve({SHARD: log}, SHARDS)
    state = replay("node-1", shard=SHARD, at_ms=NOON_MS - 1)
    assert state.basis.begins_index == 5
    assert replay("node-1", shard=SHARD).basis.begins_index is None
