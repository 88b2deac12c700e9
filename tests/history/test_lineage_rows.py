"""The rows of groups of the older protocols, on logs that their own coordinators wrote.

They are compared with a reading of the records that shares no code with the facts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from history.export.schema import SCHEMAS
from history.export.sources import FACT_TABLES, ShardRows
from history.facts.checkpoint import dump_builder, load_builder
from history.facts.group import FactsBuilder, facts_of, feed
from history.facts.rows import EpochRow, GroupRows, SessionEnd, SpanKind
from history.facts.shard import facts_of_all
from history.moments import LogWindow
from history.protocols import CONSUMER, PUSH, REWRITE
from history.reading.groups import groups_of
from history.reading.node import NodeLog
from history.reading.source import Walk
from records import (
    Cause,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushPartitions,
    PushState,
    RawRecord,
    Reason,
    ReasonKind,
    Record,
    RecordType,
    RewriteGroupKey,
    RewriteGroupValue,
    Trigger,
    encode_record,
)
from records.packing import pack, unpack_nested
from tests.support.lineage_logs import (
    GROUP,
    SHARD,
    SHARDS,
    RewriteTape,
    node,
    push_story,
)
from tests.support.memory_log import Writer, group_epoch, target_epoch

from .lineage_lives import STORIES, every_life, life, read, story


def owners_in(value: Any) -> dict[tuple[str, int], tuple[str, SpanKind]]:
    """The owners by one record, and whether each was sent Stop."""
    owners: dict[tuple[str, int], tuple[str, SpanKind]] = {}
    for one in () if value is None else value.consumers:
        is_stopping = getattr(one, "state", None) == PushState.STOPPING
        kind = SpanKind.REVOKING if is_stopping else SpanKind.OWNED
        for part in one.owned:
            owners |= {(part.topic, number): (one.consumer_id, kind) for number in part.partitions}
    return owners


def owners_at(facts: GroupRows, index: int) -> dict[tuple[str, int], tuple[str | None, SpanKind]]:
    return {
        (span.partition.topic, span.partition.partition): (span.member_id, span.kind)
        for span in facts.spans
        if span.from_index <= index and (span.to_index is None or index < span.to_index)
    }


@every_life
def test_spans_are_what_the_records_say_at_every_index(name: str) -> None:
    tape = life(name)
    facts = facts_of(node(tape), GROUP)
    newest, entries = {}, list(read(tape))
    changed = {index: value for index, _, value in entries}
    for index in range(1, len(tape.told) + 1):
        newest = owners_in(changed[index]) if index in changed else newest
        owned = owners_at(facts, index)
        assert {part: who for part, who in owned.items() if who[0] is not None} == newest
        assert all(kind is SpanKind.UNOWNED for who, kind in owned.values() if who is None)
    assert len(entries) > 10


@every_life
def test_sessions_are_the_stays_of_the_consumers_in_the_records(name: str) -> None:
    tape = life(name)
    stays: list[tuple[str, int, int | None]] = []
    there: dict[str, int] = {}
    for index, _, value in read(tape):
        now = set() if value is None else {one.consumer_id for one in value.consumers}
        stays += [(one, there.pop(one), index) for one in sorted(there.keys() - now)]
        there |= {one: index for one in now if one not in there}
    stays += [(one, index, None) for one, index in there.items()]
    facts = facts_of(node(tape), GROUP)
    assert sorted((s.member_id, s.from_index, s.to_index) for s in facts.sessions) == sorted(
        stays, key=lambda stay: stay[:2]
    )
    assert not [one for one in facts.sessions if one.end is SessionEnd.UNKNOWN], "every end has a cause"
    assert {one.protocol for one in facts.sessions} == {PUSH if "push" in name else REWRITE}


@every_life
def test_an_epoch_is_a_generation_or_a_round_with_the_cause_of_its_entry(name: str) -> None:
    tape = life(name)
    expected: list[tuple[int, int, Cause]] = []
    number = 0
    for index, cause, value in read(tape):
        if value is None:
            number = 0
        elif isinstance(value, RewriteGroupValue):
            expected.append((index, value.generation, cause))
        elif cause.reasons:
            number += 1
            expected.append((index, number, cause))
            assert value.round == number
    facts = facts_of(node(tape), GROUP)
    assert [(row.index, row.epoch, row.cause) for row in facts.epochs] == expected


@every_life
def test_a_round_settles_when_all_have_answered_start(name: str) -> None:
    tape = life(name)
    values = {index: value for index, _, value in read(tape)}
    for row in facts_of(node(tape), GROUP).epochs:
        within = [index for index in values if row.index <= index < (row.end_index or len(tape.told) + 1)]
        settled = [index for index in within if is_settled(values[index])]
        assert row.settled_index == next(iter(settled), None)
        targets = [index for index in within if is_divided(values[index])]
        assert row.target_index == next(iter(targets), None)


def is_settled(value: Any) -> bool:
    if isinstance(value, PushGroupValue):
        return all(one.state == PushState.STARTED for one in value.consumers)
    return value is not None


def is_divided(value: Any) -> bool:
    if isinstance(value, PushGroupValue):
        return all(one.state in (PushState.STARTING, PushState.STARTED) for one in value.consumers)
    return value is not None


@every_life
def test_tables_have_the_rows_of_the_facts(name: str) -> None:
    log, found = node(life(name)), dict[str, list[Any]]()

    def take(table: str, row: Any) -> None:
        found.setdefault(table, []).append(SCHEMAS[table].values(row))

    ShardRows(SHARD, log.catalog(), FACT_TABLES, None, LogWindow(), take).run(log.reader(SHARD))
    facts = facts_of(log, GROUP)
    (of_all,) = facts_of_all(log, SHARD)
    assert of_all == facts
    assert len(found["group_epochs"]) == len(facts.epochs)
    assert len(found["ownership"]) == len(facts.spans)
    assert len(found["member_sessions"]) == len(facts.sessions)
    place = [one.name for one in SCHEMAS["group_epochs"].columns].index("protocol")
    assert {row[place] for row in found["group_epochs"]} == {PUSH if "push" in name else REWRITE}


# Snapshots, checkpoints.


def tail_of(facts: GroupRows, cut: int) -> tuple[Any, ...]:
    """The rows that began after an entry.

    How a topic was shared out before is not in every snapshot, nor since when the group was unsettled then.
    """
    return (
        [replace(row, moves=(), topics=(), unsettled_ms=-1) for row in facts.epochs if row.index > cut],
        [span for span in facts.spans if span.from_index > cut],
        [one for one in facts.sessions if one.from_index > cut],
        [row for row in facts.terms if row.index > cut],
        facts.state,
        [place for place in facts.gone if place[0] > cut],
    )


@every_life
def test_a_snapshot_and_its_tail_have_the_rows_of_the_whole_log(name: str) -> None:
    tape = life(name)
    whole = facts_of(node(tape), GROUP)
    values = {index: value for index, _, value in read(tape)}
    newest = None
    for cut in range(1, len(tape.told)):
        newest = values.get(cut, newest)
        log = node(tape, cut=cut)
        if GROUP not in groups_of(log):
            continue
        rest = facts_of(log, GROUP)
        assert tail_of(rest, cut) == tail_of(whole, cut), f"a snapshot at {cut}"
        if is_divided(newest):
            later = [
                [replace(row, unsettled_ms=-1) for row in facts.epochs if row.index > cut]
                for facts in (rest, whole)
            ]
            assert later[0] == later[1]


@every_life
def test_a_walk_that_is_saved_and_resumed_at_every_entry_has_the_same_rows(name: str) -> None:
    log = node(life(name))
    builder = FactsBuilder(GROUP, log.catalog(), SHARD)
    for item in Walk(SHARD, log.reader(SHARD)):
        feed(builder, [item])
        builder = load_builder(dump_builder(builder), log.catalog())
    assert builder.finish() == replace(facts_of(log, GROUP), basis=None)


def test_rounds_without_numbers_are_counted() -> None:
    """Records of type 1011 that were written before they had a number read as before."""
    tape = push_story()
    numbered = facts_of(node(tape), GROUP)
    old = [(cause, [without_round(raw) for raw in raws]) for cause, raws in tape.view.log]
    tape.view.log[:] = old
    assert facts_of(node(tape), GROUP) == numbered
    from_middle = facts_of(node(tape, cut=50), GROUP)
    assert [row.epoch for row in from_middle.epochs] == [1, 2, 3, 4, 5, 6]
    assert not from_middle.epochs[0].is_begin_known


def without_round(raw: RawRecord) -> RawRecord:
    if raw.type != RecordType.PUSH_GROUP or raw.value is None:
        return raw
    return raw._replace(value=pack(unpack_nested(raw.value)[:-1]))


def rows_of(log: NodeLog) -> tuple[EpochRow, ...]:
    return facts_of(log, GROUP).epochs


def test_without_the_metadata_shard_topics_are_told_by_name() -> None:
    for protocol in STORIES:
        facts = facts_of(node(story(protocol), with_catalog=False), GROUP)
        assert {span.partition.topic for span in facts.spans} <= {"t", "u"}
        assert [row.index for row in facts.epochs] == [row.index for row in rows_of(node(story(protocol)))]


def test_a_consumer_with_fixed_partitions_owns_them_alone() -> None:
    tape = RewriteTape()
    tape.join("a", (), fixed=[("t", 1), ("t", 3)])
    tape.play.run(5_000)
    tape.play.leave("a")
    tape.play.run(9_000)
    facts = facts_of(node(tape, with_catalog=False), GROUP)
    assert {str(span.partition) for span in facts.spans} == {"t-1", "t-3"}
    assert {span.kind for span in facts.spans} == {SpanKind.OWNED}
    assert facts.state == "Empty"


def test_a_group_that_is_deleted_ends_its_story() -> None:
    tape = RewriteTape()
    tape.join("a")
    tape.play.run(5_000)
    key = next(iter(tape.groups))
    tape.append(Cause(trigger=Trigger.GROUP_DELETED, principal="ann"), (encode_record(Record(key, None)),))
    facts = facts_of(node(tape), GROUP)
    assert len(facts.gone) == 1
    assert facts.sessions[0].end is SessionEnd.REMOVED
    assert facts.state == "Dead"


def consumer_group(epoch: int) -> tuple[Record, ...]:
    return group_epoch(epoch, GROUP), target_epoch(epoch, GROUP)


def tombstones(*records: Record) -> tuple[Record, ...]:
    return tuple(Record(one.key, None) for one in records)


def test_an_id_that_groups_of_other_kinds_take_over_is_told_as_each_of_them() -> None:
    """Whoever takes it deletes the records of the former group in the same entry."""
    consumer = PushConsumer(
        state=PushState.STOPPING,
        auto_commit=1,
        max_ping_retries=1,
        ping_interval_ms=200,
        consumer_id="c",
        auto_offset_reset="smallest",
    )
    owned = (PushPartitions(topic="t", partitions=(0,)),)
    pushes = [
        Record(PushGroupKey(group_id=GROUP), PushGroupValue(consumers=(one,), round=1))
        for one in (consumer, replace(consumer, state=PushState.STARTED, owned=owned))
    ]
    rewrite = Record(
        RewriteGroupKey(group_id=GROUP),
        RewriteGroupValue(generation=1, strategy="", topics=(), consumers=()),
    )
    joined = Cause(trigger=Trigger.MEMBER_JOINED, reasons=(Reason(ReasonKind.MEMBER_JOINED, "c"),))
    log = Writer()
    log.append(joined, *consumer_group(1))
    log.append(joined, *tombstones(*consumer_group(1)), pushes[0])
    log.append(Cause(trigger=Trigger.MEMBER_ACKED), pushes[1])
    log.append(Cause(trigger=Trigger.MEMBER_LEFT), *tombstones(pushes[1]))
    log.append(joined, rewrite)
    log.append(joined, *tombstones(rewrite), *consumer_group(1))
    facts = facts_of(NodeLog(path="node-1", readers={SHARD: log.log}, num_shards=SHARDS), GROUP)
    assert [
        (row.index, row.protocol, row.epoch_before, row.epoch, row.settled_index) for row in facts.epochs
    ] == [
        (1, CONSUMER, 0, 1, 1),
        (2, PUSH, 0, 1, 3),
        (5, REWRITE, 0, 1, 5),
        (6, CONSUMER, 0, 1, 6),
    ]
    assert [(str(one.partition), one.member_id, one.from_index, one.to_index) for one in facts.spans] == [
        ("t-0", "c", 3, 4)
    ]
