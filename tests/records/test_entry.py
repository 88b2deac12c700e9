"""The envelope of an entry: what is encoded is decoded, and no length in it is trusted."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records import (
    CAUSE_VERSION,
    Cause,
    Certainty,
    Entry,
    MalformedEntry,
    MalformedRecord,
    RawRecord,
    Reason,
    RecordsError,
    Ref,
    Trigger,
    UnsupportedVersion,
    decode_cause,
    decode_entry,
    decode_record,
    encode_entry,
    iter_records,
)
from records.entry import dump_cause, join_body, load_cause
from tests.records.hostile import HOSTILE, peak_bytes
from tests.records.samples import BODY, CAUSE, RAWS, causes, raw_records


@settings(max_examples=150, deadline=None)
@given(cause=causes, raws=st.lists(raw_records, max_size=5).map(tuple))
def test_any_entry_comes_back_equal(cause: Cause, raws: tuple[RawRecord, ...]) -> None:
    body = encode_entry(cause, raws)
    assert decode_entry(body) == decode_entry(memoryview(body)) == Entry(cause, raws)
    assert decode_cause(body) == cause
    assert iter_records(body) == iter_records(memoryview(body)) == list(raws)
    assert all(type(raw) is RawRecord and type(raw.key) is bytes for raw in iter_records(memoryview(body)))
    assert encode_entry(decode_cause(body), iter_records(body)) == body


def test_a_tombstone_an_empty_value_and_an_empty_key_stay_apart() -> None:
    raws = [RawRecord(1, 0, b"k", None), RawRecord(1, 0, b"k", b""), RawRecord(1, 0, b"", b"v")]
    assert iter_records(encode_entry(CAUSE, raws)) == raws


def test_an_entry_may_hold_no_records() -> None:
    assert decode_entry(encode_entry(CAUSE, ())) == Entry(CAUSE, ())


def test_numbers_that_a_newer_release_invented_are_kept() -> None:
    cause = Cause(
        trigger=900, certainty=9, reasons=(Reason(kind=901, detail="new"),), refs=(Ref(shard=902, index=1),)
    )
    read = decode_cause(encode_entry(cause, ()))
    assert read == cause
    assert (read.trigger, read.certainty, read.reasons[0].kind) == (900, 9, 901)


def test_known_numbers_are_plain_integers_that_equal_their_names() -> None:
    read = decode_cause(BODY)
    assert read.trigger == Trigger.SESSION_EXPIRED
    assert type(read.trigger) is int
    assert read.certainty == Certainty.INFERRED


def test_a_cause_without_its_optional_fields_is_filled_with_defaults() -> None:
    assert load_cause(b"\x92\x00\x06") == Cause(trigger=Trigger.HEARTBEAT)


def test_a_newer_cause_is_named_but_its_records_can_still_be_read() -> None:
    newer = bytes([dump_cause(CAUSE)[0], CAUSE_VERSION + 1]) + dump_cause(CAUSE)[2:]
    body = join_body(newer, RAWS)
    with pytest.raises(UnsupportedVersion, match=f"cause version {CAUSE_VERSION + 1}"):
        decode_entry(body)
    assert tuple(iter_records(body)) == RAWS


def test_every_truncation_is_malformed_or_an_entry_with_fewer_whole_records() -> None:
    # The body alone does not show where a record ends; the frame around it has its length and record count.
    ends = [len(encode_entry(CAUSE, RAWS[:count])) for count in range(len(RAWS) + 1)]
    for size in range(len(BODY)):
        if size in ends:
            assert decode_entry(BODY[:size]) == Entry(CAUSE, RAWS[: ends.index(size)])
            continue
        for read in (
            (decode_entry, iter_records) if size > ends[0] else (decode_entry, decode_cause, iter_records)
        ):
            with pytest.raises(MalformedEntry):
                read(BODY[:size])


def read_everything(body: bytes) -> None:
    """Read a body as a journal, a projection and a tool do, each on its own."""
    with contextlib.suppress(RecordsError):
        decode_cause(body)
    with contextlib.suppress(MalformedEntry):
        for raw in iter_records(body):
            with contextlib.suppress(RecordsError):
                decode_record(raw)
    with contextlib.suppress(RecordsError):
        decode_entry(body)


def test_any_single_flipped_bit_raises_nothing_but_our_own_errors() -> None:
    for place in range(len(BODY)):
        for bit in (0, 3, 6, 7):
            damaged = bytearray(BODY)
            damaged[place] ^= 1 << bit
            read_everything(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_our_own_errors(body: bytes) -> None:
    read_everything(body)


@settings(max_examples=200, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=2, max_size=12))
def test_many_changed_bytes_raise_nothing_but_our_own_errors(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(BODY)
    for place, byte in flips:
        damaged[place] = byte
    read_everything(bytes(damaged))


CAUSE_BYTES = dump_cause(CAUSE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x00\x00",
        b"\xff\xff\xff\xff",
        struct.pack(">I", len(CAUSE_BYTES) + 1) + CAUSE_BYTES,
        join_body(CAUSE_BYTES, ()) + struct.pack(">hhIi", 1, 0, 0xFFFFFFFF, -1),
        join_body(CAUSE_BYTES, ()) + struct.pack(">hhIi", 1, 0, 1, 0x7FFFFFFF) + b"k",
        join_body(CAUSE_BYTES, ()) + struct.pack(">hhIi", 1, 0, 0, -2),
        join_body(CAUSE_BYTES, ()) + struct.pack(">hhIi", 1, 0, 0, -(1 << 31)),
        join_body(CAUSE_BYTES, RAWS) + b"\x00",
    ],
    ids=[
        "nothing",
        "no length",
        "a cause of four billion",
        "a cause one too long",
        "a key of four billion",
        "a value of two billion",
        "value length -2",
        "the least value length",
        "a byte more",
    ],
)
def test_lengths_that_do_not_add_up_are_malformed_and_cost_nothing(body: bytes) -> None:
    def read() -> None:
        with pytest.raises(MalformedEntry):
            iter_records(body)
        with pytest.raises(MalformedEntry):
            decode_entry(body)

    assert peak_bytes(read) < 500_000


@pytest.mark.parametrize("cause", HOSTILE.values(), ids=HOSTILE)
def test_hostile_causes_are_refused_without_being_believed(cause: bytes) -> None:
    body = join_body(cause, RAWS)

    def read() -> None:
        with pytest.raises(MalformedEntry, match="cause"):
            decode_cause(body)

    assert peak_bytes(read) < 500_000 + 16 * len(cause)
    assert tuple(iter_records(body)) == RAWS


@pytest.mark.parametrize("wrong", [RawRecord(1 << 15, 0, b"", None), RawRecord(1, -(1 << 15) - 1, b"", b"")])
def test_a_header_that_does_not_fit_is_not_written(wrong: RawRecord) -> None:
    with pytest.raises(MalformedRecord, match="record header"):
        encode_entry(CAUSE, [wrong])


def test_a_cause_that_could_not_be_read_is_not_written() -> None:
    with pytest.raises(MalformedRecord, match=r"Cause\.member_epoch"):
        encode_entry(Cause(trigger=1, member_epoch=1 << 31), ())
