"""The rows of a story that is known to the millisecond, of logs with holes, and what they cost."""

from __future__ import annotations

import dataclasses
import time

import pytest

from history.facts.group import FactsBuilder, facts_of
from history.facts.rows import (
    MEMBERS_LISTED_MAX,
    MemberProgress,
    Moved,
    SessionEnd,
    SpanKind,
    TopicPartition,
    WaitEnd,
    waits_during,
)
from history.reading.catalog import CatalogHistory
from history.reading.node import NodeLog
from history.reading.source import NothingToRead
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.frames import Frame
from records import Cause, Entry, RawRecord, Trigger, decode_cause, encode_entry, encode_record, iter_records
from records.ids import METADATA_SHARD
from tests.support.memory_log import (
    GROUP,
    NOON_MS,
    MemoryReader,
    MemorySnapshot,
    Writer,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import ANN, BOB, group_log, joined, metadata_log


def node(log: MemoryReader) -> NodeLog:
    return NodeLog("node-1", {METADATA_SHARD: metadata_log().log, 0: log}, 1)


def part(number: int) -> TopicPartition:
    return TopicPartition(topic="orders", partition=number)


def test_epochs_of_the_story() -> None:
    facts = facts_of(node(group_log().log), GROUP)
    assert [(row.epoch, row.epoch_before, row.index) for row in facts.epochs] == [
        (1, 0, 2),
        (2, 1, 4),
        (3, 2, 9),
        (4, 3, 11),
        (5, 4, 13),
    ]
    second = facts.epochs[1]
    assert second.members == (ANN, BOB) or second.members == (BOB, ANN)
    assert second.num_members == 2
    assert second.moves == tuple(Moved(partition=part(n), source=ANN, target=BOB) for n in (3, 4, 5))
    assert (second.target_index, second.target_cause) == (4, second.cause)
    assert (second.settled_index, second.settled_ms) == (7, NOON_MS + 6_000)
    assert (second.end_index, second.overtaken_by, second.state) == (9, None, "Stable")
    opened_ms = NOON_MS + 5_000
    last_three = tuple(part(n) for n in (3, 4, 5))
    assert second.progress == (
        MemberProgress(member_id=BOB, index=4, timestamp_ms=opened_ms, reached=True),
        MemberProgress(member_id=ANN, index=5, timestamp_ms=opened_ms + 150, told=last_three),
        MemberProgress(
            member_id=ANN, index=6, timestamp_ms=opened_ms + 662, released=last_three, reached=True
        ),
        MemberProgress(member_id=BOB, index=7, timestamp_ms=opened_ms + 1_000, took=last_three),
    )


def test_who_waited_for_whom() -> None:
    second = facts_of(node(group_log().log), GROUP).epochs[1]
    assert [(w.partition, w.waiter, w.holder, w.end) for w in second.waits] == [
        (part(n), BOB, ANN, WaitEnd.RELEASED) for n in (3, 4, 5)
    ]
    wait = second.waits[0]
    assert (wait.from_index, wait.told_index, wait.to_index) == (4, 5, 6)
    assert (wait.from_ms, wait.told_ms, wait.to_ms) == (NOON_MS + 5_000, NOON_MS + 5_150, NOON_MS + 5_662)


def test_sessions_spans_and_terms() -> None:
    facts = facts_of(node(group_log().log), GROUP)
    ann, bob = facts.sessions
    assert (ann.member_id, ann.end, ann.from_index, ann.to_index) == (ANN, SessionEnd.LEFT, 2, 13)
    assert (bob.member_id, bob.end, bob.from_index, bob.to_index) == (BOB, SessionEnd.SESSION_EXPIRED, 4, 11)
    assert (bob.timeout_ms, bob.deadline_ms, bob.client_id) == (3_000, bob.to_ms, "app-2")
    assert (bob.rebalance_timeout_ms, bob.rejoins, bob.aways) == (300_000, 0, ())
    fifth = [(s.kind, s.member_id, s.from_index, s.to_index) for s in facts.spans if s.partition == part(5)]
    assert fifth == [
        (SpanKind.OWNED, ANN, 2, 5),
        (SpanKind.REVOKING, ANN, 5, 6),
        (SpanKind.UNOWNED, None, 6, 7),
        (SpanKind.OWNED, BOB, 7, 11),
        (SpanKind.UNOWNED, None, 11, 12),
        (SpanKind.OWNED, ANN, 12, 13),
    ]
    assert [(t.term, t.index, t.why, t.gap_ms) for t in facts.terms] == [
        (1, 1, "START", None),
        (2, 8, "START", 20_000),
    ]
    assert (facts.last_index, facts.state, facts.unreadable) == (13, "Empty", ())
    assert facts.basis is not None
    assert facts.basis.whole
    grown = facts.epochs[2].topics[0]
    assert (grown.name, grown.before and grown.before[1], grown.after and grown.after[1]) == ("orders", 6, 8)


def test_a_window_selects_rows_and_leaves_them_whole() -> None:
    log = node(group_log().log)
    whole = facts_of(log, GROUP)
    late = facts_of(log, GROUP, from_index=10)
    assert late.epochs == whole.epochs[2:]
    assert [s.member_id for s in late.sessions] == [ANN, BOB]
    assert [t.term for t in late.terms] == []
    early = facts_of(log, GROUP, to_index=5)
    assert [row.epoch for row in early.epochs] == [1, 2]
    assert early.epochs[1].waits[0].end is WaitEnd.OPEN
    assert early.epochs[1].state == "Reconciling"
    assert facts_of(log, GROUP, from_ms=whole.epochs[4].timestamp_ms).epochs == whole.epochs[4:]


def test_an_unknown_group_is_told_which_there_are() -> None:
    with pytest.raises(NothingToRead, match=r"no epoch of group 'paymnets' .*it has payments"):
        facts_of(node(group_log().log), "paymnets")


def test_an_entry_that_cannot_be_decoded_is_passed_over_whole() -> None:
    log = group_log()
    ready = log.log.written[5]
    broken = list(iter_records(ready.body))
    raw = broken[0]
    newer = RawRecord(raw.type, 77, raw.key, raw.value)
    log.log.written[5] = _with_records(log, 5, [newer])
    facts = facts_of(node(log.log), GROUP)
    assert [(index, ms) for index, ms, _ in facts.unreadable] == [(6, NOON_MS + 5_662)]
    assert "version 77" in facts.unreadable[0][2]
    assert facts.epochs[1].waits[0].to_index == 7, "that Bob took it shows that Ann gave it up"


def _with_records(log: Writer, place: int, raws: list[RawRecord]) -> Frame:
    frame = log.log.written[place]
    return dataclasses.replace(frame, body=encode_entry(decode_cause(frame.body), raws))


def test_behind_a_snapshot_the_rows_say_what_is_known() -> None:
    """Entries 4 to 6 are lost; the snapshot of index 6 stands in for them."""
    log = group_log().log
    raws = [raw for frame in log.written[:6] for raw in iter_records(frame.body)]
    header = SnapshotHeader(
        cluster_id="test",
        shard=0,
        num_shards=1,
        last_index=6,
        last_term=1,
        last_timestamp_ms=NOON_MS + 5_662,
        chain_hash=bytes(16),
        state_hash=0,
        catalog_version=0,
        record_count=len(raws),
    )
    log.kept_snapshot = MemorySnapshot(header, raws)
    log.broken = {4, 5, 6}
    facts = facts_of(node(log), GROUP)
    known = [(r.epoch, r.index, r.is_begin_known, r.end_index, r.is_end_known) for r in facts.epochs[:3]]
    assert known == [(1, 2, True, 3, False), (2, 6, False, 9, True), (3, 9, True, 11, True)]
    second = facts.epochs[1]
    assert (second.settled_index, second.waits, second.moves) == (7, (), ())
    ann, bob = facts.sessions
    assert (ann.from_index, ann.is_begin_known) == (2, True)
    assert (bob.from_index, bob.is_begin_known, bob.to_index) == (6, False, 11)
    assert [(s.from_index, s.to_index) for s in facts.spans if s.partition == part(5)][:3] == [
        (2, 3),
        (6, 7),
        (7, 11),
    ]


def test_a_log_that_begins_with_a_snapshot() -> None:
    """As behind a gap, with nothing before it."""
    log = group_log().log
    raws = [raw for frame in log.written[:7] for raw in iter_records(frame.body)]
    builder = FactsBuilder(GROUP, CatalogHistory(), 0)
    builder.go_on_from(7, NOON_MS + 6_000, raws)
    facts = builder.finish()
    (row,) = facts.epochs
    assert (row.epoch, row.is_begin_known, row.settled_index, row.state) == (2, False, 7, "Stable")
    assert {(s.kind, s.from_index) for s in facts.spans} == {(SpanKind.OWNED, 7)}
    assert [s.is_begin_known for s in facts.sessions] == [False, False]


def test_a_wait_that_outlasts_its_epoch_is_seen_in_the_next_one() -> None:
    log = Writer()
    log.append(joined("a"), member("a", "c"), group_topics(2, 1), group_epoch(1), target("a", 0, 1),
               target_epoch(1), current("a", 1, (0, 1)))  # fmt: skip
    log.append(joined("b"), member("b", "c"), group_epoch(2), target("a", 0), target("b", 1), target_epoch(2))
    log.append(joined("c"), member("c", "c"), group_epoch(3), target("c"), target_epoch(3))
    log.append(
        Cause(trigger=Trigger.SESSION_EXPIRED), *gone("a"), group_epoch(4), target("b", 0, 1), target_epoch(4)
    )
    facts = facts_of(node(log.log), GROUP)
    assert [len(row.waits) for row in facts.epochs] == [0, 1, 0, 0]
    assert [[w.epoch for w in waits] for _, waits in waits_during(facts.epochs)] == [[], [2], [2], []]
    assert [(w.waiter, w.holder, w.told_index, w.end) for w in facts.epochs[1].waits] == [
        ("b", "a", None, WaitEnd.FENCED)
    ]


def test_a_target_that_is_half_written_moves_nothing() -> None:
    log = Writer()
    log.append(joined("a"), member("a", "c"), group_topics(2, 1), group_epoch(1), target("a", 0, 1, epoch=1),
               target_epoch(1), current("a", 1, (0, 1)))  # fmt: skip
    log.append(joined("b"), member("b", "c"), group_epoch(2))
    log.append(Cause(trigger=Trigger.TARGET_COMPUTED), target("b", 1, epoch=2))
    half = facts_of(node(log.log), GROUP).epochs[1]
    assert (half.moves, half.waits, half.target_index) == ((), (), None)
    log.append(Cause(trigger=Trigger.TARGET_COMPUTED), target("a", 0, epoch=2), target_epoch(2))
    whole = facts_of(node(log.log), GROUP).epochs[1]
    assert whole.moves == (Moved(partition=part(1), source="a", target="b"),)
    assert (whole.target_index, whole.target_cause) == (4, Cause(trigger=Trigger.TARGET_COMPUTED))
    assert [(w.from_index, w.waiter, w.holder) for w in whole.waits] == [(4, "b", "a")]


def test_a_settled_group_lapses_while_a_static_member_is_away() -> None:
    """Going away and coming back are no epochs, yet the group is not Stable in between."""
    builder = FactsBuilder(GROUP, CatalogHistory(), 0)
    states = [(0, 1), (1_000, -2), (5_000, 1), (7_000, -2)]
    for index, (after_ms, epoch) in enumerate(states, 1):
        records = (
            [group_topics(1, 1), group_epoch(1), target_epoch(1), member("a", "c")] if index == 1 else []
        )
        raws = tuple(encode_record(record) for record in (*records, current("a", epoch, (0,))))
        cause = Cause(trigger=Trigger.MEMBER_AWAY if epoch < 0 else Trigger.HEARTBEAT, member_id="a")
        builder.entry(index, NOON_MS + after_ms, Entry(cause=cause, records=raws))
    (row,) = builder.finish().epochs
    assert row.settled_index == 1
    assert [(r.from_index, r.from_ms - NOON_MS, r.to_index) for r in row.relapses] == [
        (2, 1_000, 3),
        (4, 7_000, None),
    ]


def test_an_entry_costs_what_it_changes() -> None:
    """A member of 10,000 moves on as cheaply as one of 100; larger groups do not list their members."""
    spent = {size: min(_moving_on(size) for _ in range(3)) for size in (100, 10_000)}
    assert spent[10_000] < 4 * spent[100], spent


def _moving_on(size: int) -> float:
    builder = FactsBuilder(GROUP, CatalogHistory(), 0)
    founding = [member(f"m{n}", "c") for n in range(size)]
    records = [group_topics(1, 1), group_epoch(1), target_epoch(1), *founding]
    raws = tuple(encode_record(record) for record in records)
    builder.entry(1, NOON_MS, Entry(cause=Cause(trigger=Trigger.IMPORTED), records=raws))
    steps = [
        Entry(
            cause=Cause(trigger=Trigger.HEARTBEAT, member_id=f"m{n % size}"),
            records=(encode_record(current(f"m{n % size}", 1 + n // size, ())),),
        )
        for n in range(2_000)
    ]
    start = time.process_time()
    for index, entry in enumerate(steps, 2):
        builder.entry(index, NOON_MS + index, entry)
    spent = time.process_time() - start
    (row,) = builder.finish().epochs
    assert (len(row.members), row.num_members) == (size if size <= MEMBERS_LISTED_MAX else 0, size)
    return spent
