"""The output of `dump`: what it shows, what it hides, and which damage it survives."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from history.render import UTC_STYLE
from history.telling.dump import Filter, dump, dump_json, dump_text, type_number
from history.words import Formatter, record_words
from records import (
    Cause,
    RawRecord,
    Record,
    RecordType,
    TransactionKey,
    TransactionState,
    TransactionValue,
    Trigger,
    encode_entry,
    encode_record,
    entry_from_json,
    shard_of,
)
from records.ids import METADATA_SHARD
from tests.support.golden_texts import golden
from tests.support.memory_log import GROUP, NOON_MS, Writer, commit, group_epoch
from tests.support.payments_log import group_log, metadata_log

from .conftest import Serve

SHARD = shard_of(GROUP, 4)


def test_a_story_as_text(serve: Serve) -> None:
    node = serve({SHARD: group_log().log, METADATA_SHARD: metadata_log().log})
    golden("history/golden/story_dump.txt", dump_text(dump("node-1"), UTC_STYLE, node.catalog().name))


def test_json_lines_are_lossless(serve: Serve) -> None:
    log = group_log().log
    serve({SHARD: log})
    shown = [json.loads(line) for line in dump_json(dump("node-1"))]
    assert [one["index"] for one in shown] == [frame.index for frame in log.written]
    for one, frame in zip(shown, log.written, strict=True):
        entry = entry_from_json(one["entry"])
        assert encode_entry(entry.cause, entry.records) == frame.body


def test_filters_by_group_type_index_and_time(serve: Serve) -> None:
    log = Writer()
    log.append(Cause(trigger=Trigger.OFFSETS_COMMITTED), commit(0, 1), commit(0, 2, group="other"))
    log.after(1_000).append(Cause(trigger=Trigger.MEMBER_JOINED), group_epoch(1, group="other"))
    log.after(1_000).append(Cause(trigger=Trigger.OFFSETS_COMMITTED), commit(1, 3))
    serve({0: log.log}, num_shards=None)

    def indexes(**wanted: object) -> list[int]:
        return [one.frame.index for one in dump("node-1", Filter(**wanted))]

    assert indexes(groups=frozenset({GROUP})) == [1, 3]
    assert indexes(types=frozenset({RecordType.CONSUMER_GROUP_METADATA})) == [2]
    assert indexes(from_index=2) == [2, 3]
    assert indexes(to_index=2) == [1, 2]
    assert indexes(from_ms=NOON_MS + 1) == [2, 3]
    assert indexes(to_ms=NOON_MS + 1_000) == [1, 2]
    (first, _) = dump("node-1", Filter(groups=frozenset({"other"})))
    assert (len(first.entry.records), first.hidden) == (1, 1)


def test_where_nothing_is_shown_that_is_said(serve: Serve) -> None:
    serve({SHARD: group_log().log})
    (line,) = dump_text(dump("node-1", Filter(groups=frozenset({"nosuch"}), shards=frozenset({SHARD}))))
    assert line == f"-- no entry matches; with members the log has {GROUP}"
    (line,) = dump_text(dump("node-1", Filter(groups=frozenset({GROUP}), from_index=9999)))
    assert line == "-- no entry matches"


def test_unknown_types_and_broken_values_are_shown_raw(serve: Serve) -> None:
    log = Writer()
    raws = (
        RawRecord(4242, 3, b"key", b"value"),
        RawRecord(3, 0, b"\xc1", b"\xc1"),
        RawRecord(4242, 0, b"k", None),
    )
    log.append_raw(encode_entry(Cause(trigger=777), raws), 3)
    serve({0: log.log})
    _, first, second, third = dump_text(dump("node-1"), UTC_STYLE)
    assert first.strip() == "type 4242 (unknown to this release) version=3 key=6b6579 value=76616c7565"
    assert second.strip().startswith("ConsumerGroupMetadata key=c1 value=c1 (not decodable: ")
    assert third.strip().endswith("key=6b value=deleted")
    assert "trigger 777 (unknown to this release)" in next(dump_text(dump("node-1"), UTC_STYLE))


def test_a_body_that_does_not_decode_is_kept_with_its_place(serve: Serve) -> None:
    log = group_log()
    index = log.append_raw(b"\xff\xff\xff\xff junk", 1)
    serve({SHARD: log.log})
    *_, last = dump_text(dump("node-1"), UTC_STYLE)
    assert f"#{index}" in last
    assert "!! not decodable" in last
    *_, shown = map(json.loads, dump_json(dump("node-1")))
    assert bytes.fromhex(shown["body"]) == b"\xff\xff\xff\xff junk"


def test_damage_is_shown_at_its_place_and_the_dump_goes_on(serve: Serve) -> None:
    log = group_log().log
    log.broken.update((4, 5, 6, 7))
    serve({SHARD: log})
    lines = [line for line in dump_text(dump("node-1"), UTC_STYLE) if not line.startswith(" ")]
    assert lines[3].startswith("!! shard-")
    assert "entries after index 3 cannot be read: the CRC of the frame does not match" in lines[3]
    assert "continues at index 8" in lines[3]
    assert [line.split()[1] for line in lines[4:]] == ["#8", "#9", "#10", "#11", "#12", "#13"]


def test_undecided_entries_are_marked(serve: Serve) -> None:
    log = group_log()
    log.append(Cause(trigger=Trigger.OFFSETS_COMMITTED), commit(0, 1), decided=False)
    serve({SHARD: log.log})
    heads = [line for line in dump_text(dump("node-1"), UTC_STYLE) if not line.startswith(" ")]
    assert [("UNDECIDED" in head) for head in heads] == [False] * 13 + [True]


def test_record_types_have_names_and_numbers() -> None:
    assert type_number("1") == 1
    assert type_number("OffsetCommit") == 1
    assert type_number("consumer_group-metadata") == 3
    with pytest.raises(ValueError, match="'offsets' is not a record type: give a number or one of"):
        type_number("offsets")


def test_transactions_are_shown_by_name() -> None:
    value = TransactionValue(
        producer_id=7,
        producer_epoch=0,
        state=TransactionState.PREPARE_COMMIT,
        timeout_ms=60_000,
        last_update_timestamp_ms=0,
    )
    raw = encode_record(Record(TransactionKey(transactional_id="t"), value))
    assert "state=PREPARE_COMMIT" in record_words(raw, Formatter())
    later = encode_record(Record(TransactionKey(transactional_id="t"), replace(value, state=77)))
    assert "state 77" in record_words(later, Formatter())
