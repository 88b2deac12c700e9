"""Records survive the way to bytes and back; bytes that are no records are named as such, cheaply."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records import (
    RELEASE,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    MalformedRecord,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    RecordsError,
    RecordType,
    TermWhy,
    UnknownRecord,
    UnknownType,
    UnsupportedVersion,
    decode_ahead,
    decode_key,
    decode_key_and_value,
    decode_record,
    decode_value,
    encode_offset_commit,
    encode_record,
    encode_value,
    group_id_of,
    member_key,
    offset_commit_key,
)
from records.kinds import I32, I64, Since
from records.layouts import Layout, Versioned, layout_of
from records.packing import FLAT_ARRAY_ITEMS_MAX, unpack_flat, unpack_nested
from records.schemas import SCHEMAS
from tests.records.hostile import HOSTILE, peak_bytes
from tests.records.samples import SAMPLES, TOPIC_ID, record_strategy

ALL_TYPES = pytest.mark.parametrize("type_", SAMPLES, ids=lambda type_: type_.name)


@ALL_TYPES
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_record_of_any_type_comes_back_equal(type_: RecordType, data: st.DataObject) -> None:
    record = data.draw(record_strategy(type_))
    raw = encode_record(record)
    assert decode_record(raw) == record
    assert (decode_key(raw), decode_value(raw)) == (record.key, record.value)
    assert encode_record(record) == raw  # one value, one encoding
    assert record.value is None or encode_value(raw.type, record.value) == raw.value


@ALL_TYPES
def test_hot_integers_stand_first_in_every_value(type_: RecordType) -> None:
    columns = SCHEMAS[type_].value.layout.columns
    integers = [column.kind.name.startswith("i") and column.is_required for column in columns]
    required = [is_hot for is_hot, column in zip(integers, columns, strict=True) if column.is_required]
    assert required == sorted(required, reverse=True)


def test_a_tombstone_is_neither_an_empty_value_nor_tied_to_a_version() -> None:
    gone = encode_record(Record(SAMPLES[RecordType.TOPIC].key, None))
    assert gone.value is None
    assert decode_value(gone) is None
    assert decode_record(gone._replace(version=99)) == Record(SAMPLES[RecordType.TOPIC].key, None)
    for type_ in SAMPLES:
        with pytest.raises(MalformedRecord):
            decode_value(encode_record(SAMPLES[type_])._replace(value=b""))


@pytest.mark.parametrize("value", [None, b"", b"\xc1 not msgpack"])
def test_a_type_of_a_newer_release_is_kept_byte_for_byte(value: bytes | None) -> None:
    raw = RawRecord(77, 3, b"\xff\x00", value)
    assert decode_record(raw) == UnknownRecord(77, 3, b"\xff\x00", value)
    assert group_id_of(raw) is None
    for decode in (decode_key, decode_value):
        with pytest.raises(UnknownType, match="77"):
            decode(raw)


@ALL_TYPES
def test_a_newer_value_version_stops_the_reader_and_names_what_is_needed(type_: RecordType) -> None:
    newest = SCHEMAS[type_].value.version
    raw = RawRecord(type_, newest + 1, encode_record(SAMPLES[type_]).key, b"\xc1 whatever it holds")
    with pytest.raises(UnsupportedVersion) as caught:
        decode_record(raw)
    assert (caught.value.what, caught.value.version, caught.value.newest_known) == (
        type_.name,
        newest + 1,
        newest,
    )
    assert f"{type_.name} version {newest + 1}" in str(caught.value)
    assert f"Quorate {RELEASE}" in str(caught.value)


def test_the_release_named_in_errors_is_this_one() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'\nversion = "{RELEASE}"\n' in project.read_text()


@ALL_TYPES
def test_arrays_may_end_before_optional_fields_and_nowhere_else(type_: RecordType) -> None:
    layout: Layout = SCHEMAS[type_].value.layout
    raw = encode_record(SAMPLES[type_])
    items = msgpack.unpackb(raw.value)
    required = max(place for place, column in enumerate(layout.columns, 1) if column.is_required)
    for size in range(len(items) + 2):
        short = raw._replace(value=msgpack.packb(([*items, 0])[:size]))
        if required <= size <= len(items):
            left_out = {column.name: column.default for column in layout.columns[size:]}
            filled = layout.dump(decode_value(short))
            assert msgpack.packb(filled) == msgpack.packb(items[:size] + list(left_out.values()))
        else:
            with pytest.raises(MalformedRecord, match="fields"):
                decode_value(short)


@pytest.mark.parametrize(
    ("type_", "last_of_kafka"),
    [
        (RecordType.CONSUMER_GROUP_PARTITION_METADATA, "topics"),
        (RecordType.CONSUMER_GROUP_MEMBER_METADATA, "subscribed_topic_names"),
        (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, "topic_partitions"),
        (RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "partitions_pending_revocation"),
    ],
)
def test_fields_of_the_first_protocol_text_are_optional_from_version_0(
    type_: RecordType, last_of_kafka: str
) -> None:
    columns = SCHEMAS[type_].value.layout.columns
    names = [column.name for column in columns]
    assert not any(column.is_required for column in columns[names.index(last_of_kafka) + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """A record with three versions: 1 appended a field, 2 made milliseconds of seconds."""

    duration_ms: I64
    owner: str
    priority: Annotated[I32, Since(1)] = 5
    tags: Annotated[tuple[str, ...], Since(2)] = ()


def _to_milliseconds(items: list[Any]) -> list[Any]:
    return [items[0] * 1000, *items[1:]]


LEASE = Versioned("lease", layout_of(_Lease), version=2, upcasts={1: _to_milliseconds})


@pytest.mark.parametrize(
    ("version", "items", "lease"),
    [
        (0, [30, "a"], _Lease(duration_ms=30_000, owner="a")),
        (1, [30, "a", 9], _Lease(duration_ms=30_000, owner="a", priority=9)),
        (1, [30, "a"], _Lease(duration_ms=30_000, owner="a")),
        (2, [30_000, "a", 9, ["x"]], _Lease(duration_ms=30_000, owner="a", priority=9, tags=("x",))),
        (2, [30_000, "a"], _Lease(duration_ms=30_000, owner="a")),
    ],
)
def test_older_versions_are_brought_to_the_newest_form(version: int, items: list[Any], lease: _Lease) -> None:
    assert LEASE.load(items, version) == lease


@pytest.mark.parametrize(
    ("version", "items"),
    [(0, [30, "a", 9]), (1, [30, "a", 9, []]), (0, [30]), (0, ["30", "a"]), (-1, [30, "a"]), (0, None)],
)
def test_an_array_that_its_version_does_not_allow_is_damage(version: int, items: Any) -> None:
    with pytest.raises(MalformedRecord):
        LEASE.load(items, version)


def test_an_appended_field_without_a_default_is_refused_when_its_class_is_read() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Careless:
        first: I32
        second: Annotated[I32, Since(1)]

    with pytest.raises(TypeError, match="needs a default"):
        Layout(Careless)


def test_a_class_body_that_no_record_can_hold_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Wrong:
        speed: float

    with pytest.raises(TypeError, match="records cannot hold the type"):
        Layout(Wrong)


@settings(max_examples=200, deadline=None)
@given(
    group_id=st.text(max_size=50),
    topic=st.text(max_size=40),
    partition=st.integers(-(1 << 31), (1 << 31) - 1),
    value=record_strategy(RecordType.OFFSET_COMMIT).map(lambda record: record.value).filter(bool),
)
def test_the_fast_path_of_offset_commits_writes_the_very_same_bytes(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue
) -> None:
    key = offset_commit_key(group_id, topic, partition)
    raw = encode_offset_commit(
        key,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
        value.topic_id,
    )
    slow = encode_record(Record(OffsetCommitKey(group_id=group_id, topic=topic, partition=partition), value))
    assert raw == slow
    assert type(raw) is RawRecord
    assert group_id_of(raw) == group_id


@given(group_id=st.text(max_size=50), member_id=st.text(max_size=50))
def test_the_records_of_a_member_have_one_key(group_id: str, member_id: str) -> None:
    key = member_key(group_id, member_id)
    for cls in (
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ):
        assert encode_record(Record(cls(group_id=group_id, member_id=member_id), None)).key == key


@given(record_strategy(RecordType.CONSUMER_GROUP_MEMBER_METADATA))
def test_a_record_that_was_decoded_ahead_is_the_same_record(record: Record) -> None:
    raw = encode_record(record)
    ahead = decode_ahead(raw)
    assert ahead == raw
    assert decode_key_and_value(ahead) == decode_key_and_value(raw) == (record.key, record.value)


@pytest.mark.parametrize(
    "wrong",
    [
        (1 << 63, 0, "", 0, 0, TOPIC_ID),
        (0, 1 << 31, "", 0, 0, TOPIC_ID),
        (0, 0, "", -(1 << 63) - 1, 0, TOPIC_ID),
        (0, 0, "", 0, 1 << 63, TOPIC_ID),
        (0, 0, "", 0, 0, TOPIC_ID[:15]),
        (0, 0, "\ud800", 0, 0, TOPIC_ID),
    ],
)
def test_the_fast_path_writes_nothing_that_could_not_be_read(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(MalformedRecord):
        encode_offset_commit(b"\x90", *wrong)


@ALL_TYPES
def test_the_group_of_a_record_is_found_without_decoding_it(type_: RecordType) -> None:
    key = SAMPLES[type_].key
    raw = encode_record(SAMPLES[type_])
    assert group_id_of(raw) == getattr(key, "group_id", None)
    for group_id in ("", "x" * 31, "x" * 32, "ü" * 100) if hasattr(key, "group_id") else ():
        longer = encode_record(Record(replace(key, group_id=group_id), None))
        assert group_id_of(longer) == group_id


@pytest.mark.parametrize(
    "key", [b"", b"\x93", b"\x93\xa5ab", b"\x93\xa1\xff\xa1t\x01", b"\x93\x01\xa1t\x01", b"\xc0"]
)
def test_a_key_without_a_readable_group_is_malformed(key: bytes) -> None:
    with pytest.raises(MalformedRecord):
        group_id_of(RawRecord(RecordType.OFFSET_COMMIT, 0, key, None))


VALUE = SAMPLES[RecordType.OFFSET_COMMIT].value
assert isinstance(VALUE, OffsetCommitValue)


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (replace(VALUE, offset=1 << 63), "OffsetCommitValue.offset: expected i64"),
        (replace(VALUE, leader_epoch=-(1 << 31) - 1), "OffsetCommitValue.leader_epoch: expected i32"),
        (replace(VALUE, offset=True), "expected i64, found True"),
        (replace(VALUE, topic_id=b"short"), "OffsetCommitValue.topic_id: expected uuid"),
        (replace(VALUE, metadata=None), "OffsetCommitValue.metadata: expected string"),
        (replace(VALUE, metadata="\ud800"), "UTF-8"),
        (SAMPLES[RecordType.TOPIC].value, "expected OffsetCommitValue"),
    ],
)
def test_what_could_not_be_read_is_not_written(record: Any, named: str) -> None:
    with pytest.raises(MalformedRecord, match=named.replace(".", r"\.")):
        encode_record(Record(SAMPLES[RecordType.OFFSET_COMMIT].key, record))


def test_collections_are_tuples_and_keys_are_keys() -> None:
    member = SAMPLES[RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER]
    wrong: Any = replace(member.value, topic_partitions=[])  # type: ignore[type-var]
    with pytest.raises(MalformedRecord, match="a tuple of"):
        encode_record(Record(member.key, wrong))
    with pytest.raises(MalformedRecord, match="the key of a record"):
        encode_record(Record(wrong, None))


def test_named_numbers_are_written_as_numbers_and_unknown_ones_kept() -> None:
    record = SAMPLES[RecordType.TERM_START]
    for why in (TermWhy.RESET, int(TermWhy.RESET), 101):
        raw = encode_record(Record(record.key, replace(record.value, why=why)))  # type: ignore[type-var]
        assert decode_value(raw).why == why
        assert type(decode_value(raw).why) is int
    assert MemberState(127) is MemberState.UNKNOWN


@ALL_TYPES
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_flipped_and_cut_bytes_raise_nothing_but_our_own_errors(
    type_: RecordType, data: st.DataObject
) -> None:
    raw = encode_record(SAMPLES[type_])
    damaged = raw._replace(key=data.draw(_damaged(raw.key)), value=data.draw(_damaged(raw.value or b"")))
    for read in (decode_record, decode_key, decode_value, group_id_of):
        with contextlib.suppress(RecordsError):
            read(damaged)


def _damaged(sound: bytes) -> st.SearchStrategy[bytes]:
    def flipped(flips: list[tuple[int, int]]) -> bytes:
        changed = bytearray(sound)
        for place, bit in flips:
            changed[place] ^= 1 << bit
        return bytes(changed)

    flips = st.tuples(st.integers(0, len(sound) - 1), st.integers(0, 7))
    cut = st.integers(0, len(sound) - 1).map(lambda size: sound[:size])
    return st.lists(flips, min_size=1, max_size=4).map(flipped) | cut | st.binary(max_size=64)


@ALL_TYPES
def test_every_truncation_and_every_extra_byte_of_a_key_or_value_is_malformed(type_: RecordType) -> None:
    raw = encode_record(SAMPLES[type_])
    assert raw.value is not None
    for size in range(len(raw.value)):
        with pytest.raises(MalformedRecord):
            decode_value(raw._replace(value=raw.value[:size]))
    for size in range(len(raw.key)):
        with pytest.raises(MalformedRecord):
            decode_key(raw._replace(key=raw.key[:size]))
    for damaged in (raw._replace(value=raw.value + b"\x00"), raw._replace(key=raw.key + b"\x00")):
        with pytest.raises(MalformedRecord):
            decode_record(damaged)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused_without_being_believed(value: bytes) -> None:
    def read_as_every_type() -> None:
        for type_ in SAMPLES:
            with pytest.raises(MalformedRecord):
                decode_value(RawRecord(type_, 0, b"", value))
            if SCHEMAS[type_].key.columns or value != b"\x90":
                with pytest.raises(MalformedRecord):
                    decode_key(RawRecord(type_, 0, value, None))

    # Eight bytes for each item that is really there, and a little for errors; never what a header claims.
    assert peak_bytes(read_as_every_type) < 1_000_000 + 16 * len(value)


@pytest.mark.parametrize("unpack", [unpack_flat, unpack_nested])
@pytest.mark.parametrize("item", [b"\x81\x01\x02", b"\xd4\x05\x00", b"\xd6\xff\x00\x00\x00\x00"])
def test_maps_and_extensions_have_no_place_on_disk(unpack: Callable[[bytes], Any], item: bytes) -> None:
    with pytest.raises(MalformedRecord, match="plain items"):
        unpack(b"\x92\x01" + item)


def test_the_limit_on_flat_arrays_leaves_room_for_every_flat_layout() -> None:
    layouts = [schema.key for schema in SCHEMAS.values()] + [s.value.layout for s in SCHEMAS.values()]
    assert all(schema.key.is_flat for schema in SCHEMAS.values())
    assert max(len(layout.columns) for layout in layouts if layout.is_flat) * 2 <= FLAT_ARRAY_ITEMS_MAX
