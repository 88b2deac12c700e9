"""JSON loses nothing: whatever a log holds, its JSON gives the same bytes back."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records import (
    CAUSE_VERSION,
    Cause,
    Entry,
    MalformedEntry,
    MalformedRecord,
    RawRecord,
    RecordsError,
    RecordType,
    TermStartValue,
    body_from_json,
    body_to_json,
    decode_record,
    encode_entry,
    encode_record,
    entry_from_json,
    entry_to_json,
    iter_records,
    record_from_json,
    record_to_json,
    topic_id_text,
)
from records.entry import dump_cause, join_body
from records.schemas import SCHEMAS
from tests.records.hostile import HOSTILE
from tests.records.samples import BODY, CAUSE, SAMPLES, TOPIC_ID, causes, raw_records, records


def through_text(shown: Any) -> Any:
    """Return the value as another program reads it: strict JSON, no NaN, only text keys."""
    return json.loads(json.dumps(shown, allow_nan=False))


@settings(max_examples=200, deadline=None)
@given(records)
def test_typed_records_are_shown_typed_and_come_back_the_same(record: Any) -> None:
    raw = encode_record(record)
    shown = through_text(record_to_json(raw))
    assert set(shown) == {"type", "version", "key", "value"}
    assert record_from_json(shown) == raw


def known_or_not(raw: RawRecord) -> st.SearchStrategy[RawRecord]:
    """A record whose type may be known although its bytes are arbitrary."""
    return st.sampled_from([raw.type, *SCHEMAS]).map(lambda type_: raw._replace(type=type_))


@settings(max_examples=300, deadline=None)
@given(raw_records.flatmap(known_or_not))
def test_arbitrary_bytes_under_any_type_come_back_the_same(raw: RawRecord) -> None:
    assert record_from_json(through_text(record_to_json(raw))) == raw


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_come_back_the_same(value: bytes) -> None:
    for type_ in SAMPLES:
        raw = RawRecord(type_, 0, value, value)
        assert record_from_json(record_to_json(raw)) == raw


def test_what_people_read() -> None:
    assert record_to_json(encode_record(SAMPLES[RecordType.TOPIC])) == {
        "type": "TOPIC",
        "version": 0,
        "key": {"name": "t"},
        "value": {"num_partitions": 12, "topic_id": topic_id_text(TOPIC_ID)},
    }
    term = record_to_json(encode_record(SAMPLES[RecordType.TERM_START]))
    assert (term["key"], term["value"]["why"]) == ({}, "EXPIRY")
    cause = body_to_json(BODY)["cause"]
    assert (cause["trigger"], cause["reasons"][0]["kind"]) == ("SESSION_EXPIRED", "SESSION_EXPIRED")
    assert record_to_json(RawRecord(77, 3, b"\x01", None)) == {
        "type": 77,
        "version": 3,
        "key_base64": "AQ==",
        "value": None,
    }


def test_an_unknown_version_an_unusual_array_and_an_unknown_number_survive() -> None:
    raw = encode_record(SAMPLES[RecordType.CONSUMER_GROUP_METADATA])
    newer, shorter = raw._replace(version=7), raw._replace(value=b"\x91\x07")
    for kept in (newer, shorter, raw._replace(value=b"")):
        shown = through_text(record_to_json(kept))
        assert set(shown) == {"type", "version", "key", "value_base64"}
        assert record_from_json(shown) == kept
    value = SAMPLES[RecordType.TERM_START].value
    assert isinstance(value, TermStartValue)
    strange = encode_record(SAMPLES[RecordType.TERM_START])._replace(value=b"\x96\x04\x01\x65\x02\xa1a\xa1b")
    assert record_to_json(strange)["value"]["why"] == 101
    assert record_from_json(record_to_json(strange)) == strange


def test_an_older_version_comes_back_as_it_was_even_where_only_its_meaning_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = SCHEMAS[RecordType.TOPIC]
    upcasts = {0: lambda items: [items[0], *items[1:]]}
    newer = replace(topic, value=replace(topic.value, version=1, upcasts=upcasts))
    monkeypatch.setitem(SCHEMAS, int(RecordType.TOPIC), newer)  # type: ignore[arg-type]
    older = encode_record(SAMPLES[RecordType.TOPIC])._replace(version=0)
    assert decode_record(older) == SAMPLES[RecordType.TOPIC]
    assert set(record_to_json(older)) == {"type", "version", "key", "value_base64"}
    assert record_from_json(record_to_json(older)) == older


@settings(max_examples=100, deadline=None)
@given(causes, st.lists(raw_records, max_size=3).map(tuple))
def test_any_entry_comes_back_the_same(cause: Cause, raws: tuple[RawRecord, ...]) -> None:
    entry = Entry(cause, raws)
    body = encode_entry(cause, raws)
    assert entry_from_json(through_text(entry_to_json(entry))) == entry
    assert body_from_json(through_text(body_to_json(body))) == body


@pytest.mark.parametrize(
    "cause",
    [
        bytes([dump_cause(CAUSE)[0], CAUSE_VERSION + 1]) + dump_cause(CAUSE)[2:],
        b"\x92\x00\x06",
        b"",
        *HOSTILE.values(),
    ],
)
def test_a_cause_that_is_newer_shorter_or_broken_survives(cause: bytes) -> None:
    body = join_body(cause, iter_records(BODY))
    shown = through_text(body_to_json(body))
    assert set(shown) == {"cause_base64", "records"}
    assert body_from_json(shown) == body


TOPIC: dict[str, Any] = record_to_json(encode_record(SAMPLES[RecordType.TOPIC]))
ID_TEXT = topic_id_text(TOPIC_ID)


@pytest.mark.parametrize(
    "item",
    [
        None,
        [],
        {},
        {**TOPIC, "more": 1},
        {**TOPIC, "type": "TOPPIC"},
        {**TOPIC, "type": 1 << 15},
        {**TOPIC, "type": 1.5},
        {**TOPIC, "version": "0"},
        {**TOPIC, "key_base64": "AQ=="},
        {**TOPIC, "value_base64": "AQ=="},
        {**TOPIC, "value": None, "value_base64": "AQ=="},
        {**TOPIC, "version": 1},
        {**TOPIC, "type": 77},
        {**TOPIC, "key": None},
        {**TOPIC, "key": {"name": 1}},
        {**TOPIC, "key": {"name": "\ud800"}},
        {**TOPIC, "key": {"name": "t", "x": 1}},
        {**TOPIC, "key": {}},
        {**TOPIC, "value": {"num_partitions": True, "topic_id": ID_TEXT}},
        {**TOPIC, "value": {"num_partitions": 1 << 31, "topic_id": ID_TEXT}},
        {**TOPIC, "value": {"num_partitions": 1, "topic_id": "short"}},
        {**TOPIC, "value": {"num_partitions": 1, "topic_id": 5}},
        {"type": 77, "version": 0, "key_base64": "A", "value": None},
        {"type": 77, "version": 0, "key_base64": "é", "value": None},
        {"type": 77, "version": 0, "key_base64": 5, "value": None},
        {"type": 77, "version": 0, "key_base64": "AQ=="},
    ],
)
def test_json_that_is_no_record_is_refused(item: Any) -> None:
    with pytest.raises(MalformedRecord):
        record_from_json(item)


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        {"records": []},
        {"cause": {"trigger": 1}, "records": {}},
        {"cause": {"trigger": 1}, "cause_base64": "", "records": []},
        {"cause": {}, "records": []},
        {"cause": [1], "records": []},
        {"cause": {"trigger": "WHIM"}, "records": []},
        {"cause": {"trigger": 1, "refs": {}}, "records": []},
        {"cause": {"trigger": 1}, "records": [{}]},
    ],
)
def test_json_that_is_no_entry_is_refused(item: Any) -> None:
    for read in (body_from_json, entry_from_json):
        with pytest.raises(RecordsError):
            read(item)


def test_a_body_whose_lengths_do_not_add_up_has_no_json() -> None:
    with pytest.raises(MalformedEntry):
        body_to_json(BODY + b"\x00")


def test_fields_with_defaults_may_be_left_out_by_hand() -> None:
    item = {"cause": {"trigger": "CONFIG_CHANGED"}, "records": []}
    assert entry_from_json(item) == Entry(Cause(trigger=19), ())
