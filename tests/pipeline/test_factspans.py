"""The span that facts cover, and the snapshots that replace lost entries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.facts.shared import Bridge
from quorate.spark.runs.factspans import FactSpan, may_go_on, span_of, spans
from quorate.spark.runs.losses import DAMAGED, Lost, Range
from quorate.spark.tables.progress import ShardProgress
from raftlog.env.errors import Damaged
from raftlog.env.state_machine import SnapshotHeader

NOTHING = ShardProgress()


def lost(first: int, last: int, what: str = "torn") -> Lost:
    return Lost(
        shard=0,
        first_index=first,
        last_index=last,
        what=what,
        kind=DAMAGED,
        from_ms=(first - 1) * 10,
        to_ms=None,
    )


def snapshot(index: int) -> SnapshotHeader:
    return SnapshotHeader(
        cluster_id="c",
        shard=0,
        num_shards=1,
        last_index=index,
        last_term=1,
        last_timestamp_ms=index * 10,
        chain_hash=b"",
        state_hash=0,
        catalog_version=0,
        record_count=0,
    )


def bridge(after: int, index: int) -> Bridge:
    return Bridge(after_index=after, after_ms=after * 10, index=index, ms=index * 10)


def asked(first: int, last: int) -> Range:
    return Range(from_index=first, to_index=last, to_ms=last * 10)


def span(first: int, last: int, *bridges: Bridge) -> FactSpan:
    return FactSpan(from_index=first, to_index=last, to_ms=last * 10, bridges=bridges)


def test_without_a_loss_facts_go_as_far_as_records() -> None:
    assert span_of(NOTHING, asked(1, 90), [], [snapshot(50)]) == span(1, 90)


def test_a_shard_without_new_entries_ends_where_it_did() -> None:
    known = ShardProgress(records_to=90, facts_to=90, last_ms=900)
    assert span_of(known, None, [lost(20, 30)], [snapshot(50)]) == span(91, 90)


def test_the_first_snapshot_behind_a_loss_stands_in_for_it() -> None:
    snapshots = [snapshot(10), snapshot(50), snapshot(70)]
    assert span_of(NOTHING, asked(1, 90), [lost(20, 30)], snapshots) == span(1, 90, bridge(19, 50))


def test_a_log_that_begins_late_begins_with_a_snapshot() -> None:
    (found,) = span_of(NOTHING, asked(1, 90), [lost(1, 30)], [snapshot(50)]).bridges
    assert (found.after_index, found.index) == (0, 50)


def test_what_is_lost_before_the_snapshot_needs_no_other_one() -> None:
    losses = [lost(20, 30), lost(40, 45), lost(60, 60)]
    found = span_of(NOTHING, asked(1, 90), losses, [snapshot(50), snapshot(70)])
    assert found == span(1, 90, bridge(19, 50), bridge(59, 70))


def test_a_loss_that_goes_on_behind_the_snapshot_needs_the_next_one() -> None:
    found = span_of(NOTHING, asked(1, 90), [lost(20, 60)], [snapshot(50), snapshot(70)])
    assert found == span(1, 90, bridge(19, 50), bridge(50, 70))


@pytest.mark.parametrize("snapshots", [[], [snapshot(10)], [snapshot(91)]])
def test_facts_end_before_a_loss_that_nothing_stands_in_for(snapshots: list[SnapshotHeader]) -> None:
    assert span_of(NOTHING, asked(1, 90), [lost(20, 30)], snapshots) == span(1, 19)


def test_facts_that_ended_go_on_when_there_is_a_snapshot() -> None:
    known = ShardProgress(records_to=90, facts_to=19, last_ms=900)
    assert span_of(known, None, [lost(20, 30)], []) == span(20, 19)
    assert span_of(known, None, [lost(20, 30)], [snapshot(50)]) == span(20, 90, bridge(19, 50))
    assert span_of(known, asked(91, 99), [lost(20, 30)], [snapshot(95)]) == span(20, 99, bridge(19, 95))


@pytest.mark.parametrize(("index", "expected"), [(19, False), (50, True), (91, False)])
def test_facts_that_wait_are_due_when_there_is_a_snapshot(index: int, expected: bool) -> None:
    log = log_with([index])
    assert may_go_on({0: ShardProgress(records_to=90, facts_to=19)}, log) is expected
    assert not may_go_on({0: ShardProgress(records_to=90, facts_to=90)}, log)


def log_with(indexes: list[int], damaged: tuple[int, ...] = ()) -> Any:
    """Return a log with snapshots; the damaged ones have a sound header and nothing more."""

    def read(index: int) -> str:
        if index in damaged:
            raise Damaged("snapshot", 0, "its records do not match their CRC")
        return "a snapshot"

    reader = SimpleNamespace(snapshots=lambda: [snapshot(index) for index in indexes], snapshot=read)
    return SimpleNamespace(shards={0: None}, log=SimpleNamespace(reader=lambda _: reader))


def test_a_snapshot_that_cannot_be_read_stands_in_for_nothing() -> None:
    """Its header is sound, but its records are not known."""
    known = {0: ShardProgress(records_to=90, facts_to=19, last_ms=900)}
    only, two = log_with([50], damaged=(50,)), log_with([50, 70], damaged=(50,))
    assert not may_go_on(known, only)
    assert spans(known, {}, [lost(20, 30)], only, {}) == {0: span(20, 19)}
    assert may_go_on(known, two)
    assert spans(known, {}, [lost(20, 30)], two, {}) == {0: span(20, 90, bridge(19, 70))}


def test_a_snapshot_at_the_end_is_the_end() -> None:
    assert span_of(NOTHING, asked(1, 90), [lost(20, 30)], [snapshot(90)]) == span(1, 90, bridge(19, 90))


def test_the_end_of_a_range_that_is_lost_is_none_of_it() -> None:
    assert span_of(NOTHING, asked(1, 90), [lost(91, 120)], []) == span(1, 90)


def test_who_begins_anew_takes_the_bridges_that_there_were() -> None:
    found = span_of(NOTHING, asked(1, 90), [lost(20, 30)], [snapshot(70)], [bridge(19, 50)])
    assert found == span(1, 90, bridge(19, 50))


def test_an_entry_that_cannot_be_decoded_is_not_lost() -> None:
    assert lost(20, 20, "shard 0: entry 20 cannot be decoded: no such type").is_unreadable
    assert not lost(20, 21, "shard 0: entry 20 cannot be decoded: no such type").is_unreadable
    assert not lost(20, 20).is_unreadable
