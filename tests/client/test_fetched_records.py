"""Record batches as a consumer reads them: records, transactions, codecs, damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from client.core.errors import CorruptRecord
from client.core.fetch import codecs
from client.core.fetch.completed import CompletedFetch
from client.core.types import ConsumerRecord, FetchedData, Position, TopicPartition
from cluster.scratchlog.batches import empty_batch, marker_batch
from tests.support.record_batches import NOW_MS, batch, record, varint
from wire.record_batch import CONTROL, HEADER_BYTES, LOG_APPEND_TIME, TRANSACTIONAL

ORDERS = TopicPartition("orders", 3)
CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, lambda data: bytes(cramjam.gzip.compress(data))),
    "raw snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "Java's snappy": (2, lambda data: xerial(data)),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


def xerial(data: bytes, block_bytes: int = 10) -> bytes:
    """Compress as Java's SnappyOutputStream does."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + block_bytes]))
        out += struct.pack(">i", len(block)) + block
    return out


def completed(
    *batches: bytes, position: int = 0, aborted: tuple[tuple[int, int], ...] = (), checks_crcs: bool = True
) -> CompletedFetch:
    data = FetchedData(
        partition=ORDERS,
        position=Position(position, -1, 1),
        records=b"".join(batches),
        aborted=aborted,
        high_watermark=0,
        last_stable_offset=0,
    )
    return CompletedFetch(data, codecs.Decompressor(), checks_crcs=checks_crcs)


def drain(fetch: CompletedFetch, records: list[ConsumerRecord], most: int = 1_000) -> None:
    while not fetch.is_drained:
        fetch.read(records, most)


def all_of(fetch: CompletedFetch, most: int = 1_000) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    drain(fetch, records, most)
    return records


def read(*batches: bytes, **how: Any) -> list[ConsumerRecord]:
    return all_of(completed(*batches, **how))


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def batch_of(body: bytes, count: int, **fields: Any) -> bytes:
    return batch(body=body, num_records=count, last_offset_delta=count - 1, **fields)


def plain(
    delta: int = 0, key: bytes | None = None, value: bytes | None = b"v", headers: bytes = b"\0"
) -> bytes:
    """Encode a record."""
    body = b"\0\0" + varint(delta)
    for field in (key, value):
        body += varint(-1) if field is None else varint(len(field)) + field
    body += headers
    return varint(len(body)) + body


def test_a_record_has_all_its_fields() -> None:
    headers = varint(2) + varint(5) + b"trace" + varint(2) + b"\x01\x02" + varint(1) + b"\xff" + varint(-1)
    body = plain(0, b"k", b"v", headers)
    (record,) = read(batch_of(body, 1, base_offset=7, partition_leader_epoch=4, time_ms=NOW_MS))
    assert record == ConsumerRecord(
        "orders", 3, 7, NOW_MS, 0, b"k", b"v", (("trace", b"\x01\x02"), ("\udcff", None)), 4
    )
    assert type(record) is ConsumerRecord
    assert type(record.value) is bytes


def test_null_and_empty_keys_and_values_differ() -> None:
    first, second = read(batch_of(plain(0, None, b"") + plain(1, b"", None), 2))
    assert (first.key, first.value) == (None, b"")
    assert (second.key, second.value) == (b"", None)


def test_the_brokers_time_stands_in_place_of_the_producers() -> None:
    records = read(batch(b"a", b"b", attributes=LOG_APPEND_TIME, max_timestamp=NOW_MS + 50))
    assert [(record.timestamp_ms, record.timestamp_type) for record in records] == [(NOW_MS + 50, 1)] * 2


def test_records_may_be_older_than_the_first_of_their_batch() -> None:
    body = record(0, b"a", 0) + record(1, b"b", -70_000) + record(2, b"c", 2**40)
    assert [one.timestamp_ms - NOW_MS for one in read(batch_of(body, 3))] == [0, -70_000, 2**40]


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("values", [[b"abc"], [b"x" * 100, b"", b"y" * 70_000]], ids=["small", "large"])
def test_every_codec_is_read(name: str, values: list[bytes]) -> None:
    codec, compress = CODECS[name]
    body = b"".join(record(number, value) for number, value in enumerate(values))
    records = read(batch(*values, body=compress(body), attributes=codec))
    assert [one.value for one in records] == values


def test_data_that_was_compressed_a_thousand_times_needs_several_buffers() -> None:
    for name in ("gzip", "lz4", "zstd"):
        codec, compress = CODECS[name]
        value = bytes(3_000_000)
        assert codecs.Decompressor().decompress(codec, memoryview(compress(value))) == value


@pytest.mark.parametrize("name", CODECS)
def test_a_decompression_bomb_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "DECOMPRESSED_BYTES_MAX", 200_000)
    monkeypatch.setattr(codecs, "BUFFER_BYTES", 1_000)
    codec, compress = CODECS[name]
    assert codecs.Decompressor().decompress(codec, memoryview(compress(bytes(200_000)))) == bytes(200_000)
    with pytest.raises(CorruptRecord, match="more than 200,000 bytes when decompressed"):
        read(batch(b"a", body=compress(bytes(200_001)), attributes=codec))


@given(st.sampled_from(sorted(CODECS)), st.integers(0, 10**6), st.integers(0, 255))
def test_damaged_compressed_data_never_passes_as_another_error(name: str, at: int, byte: int) -> None:
    codec, compress = CODECS[name]
    data = bytearray(compress(bytes(range(100)) * 3))
    data[at % len(data)] ^= byte
    with suppress(codecs.NotDecompressed):
        assert (
            len(codecs.Decompressor().decompress(codec, memoryview(bytes(data))))
            <= codecs.DECOMPRESSED_BYTES_MAX
        )


def test_a_fetch_within_a_batch_leaves_out_what_is_before_its_position() -> None:
    fetch = completed(batch(*[b"v"] * 100, base_offset=1_000), position=1_090)
    assert offsets(all_of(fetch)) == list(range(1_090, 1_100))
    assert fetch.next_offset == 1_100


def test_compaction_leaves_gaps_and_empty_batches() -> None:
    body = plain(3) + plain(4) + plain(90)
    compacted = batch(body=body, num_records=3, last_offset_delta=99, base_offset=100)
    fetch = completed(compacted, empty_batch(250), batch(b"v", base_offset=251))
    assert offsets(all_of(fetch)) == [103, 104, 190, 251]
    assert fetch.next_offset == 252
    fetch = completed(compacted, position=105)
    assert offsets(all_of(fetch)) == [190]
    assert fetch.next_offset == 200


def test_polls_of_any_size_read_the_same_records() -> None:
    batches = (batch(*[b"v"] * 7), empty_batch(9), batch(*[b"w"] * 90, base_offset=10))
    whole = read(*batches)
    for most in (1, 2, 7, 8, 1_000):
        assert all_of(completed(*batches), most) == whole
    fetch, records = completed(*batches), []
    fetch.read(records, 3)
    assert (offsets(records), fetch.next_offset) == ([0, 1, 2], 3)


def test_an_incomplete_batch_at_the_end_is_left_to_the_next_fetch() -> None:
    for cut in (1, HEADER_BYTES + 3, HEADER_BYTES - 1):
        fetch = completed(batch(b"a"), batch(b"b", b"c", base_offset=1)[:cut])
        assert (offsets(all_of(fetch)), fetch.next_offset) == ([0], 1)


def transactional(producer_id: int, base_offset: int, *values: bytes) -> bytes:
    return batch(*values, base_offset=base_offset, attributes=TRANSACTIONAL, producer_id=producer_id)


def marker(producer_id: int, offset: int, *, is_commit: bool) -> bytes:
    return struct.pack(">q", offset) + marker_batch(producer_id, 0, 0, NOW_MS, is_commit=is_commit)[8:]


def test_records_of_aborted_transactions_are_left_out() -> None:
    log = (
        transactional(1, 0, b"aborted"),
        transactional(2, 1, b"kept"),
        batch(b"plain", base_offset=2),
        marker(1, 3, is_commit=False),
        transactional(1, 4, b"kept too"),
        marker(2, 5, is_commit=True),
        marker(1, 6, is_commit=True),
        transactional(1, 7, b"aborted too"),
        marker(1, 8, is_commit=False),
    )
    fetch = completed(*log, aborted=((1, 7), (1, 0)))
    assert [record.value for record in all_of(fetch)] == [b"kept", b"plain", b"kept too"]
    assert fetch.next_offset == 9
    assert len(read(*log)) == 5, "read_uncommitted: only the markers are left out"


def test_a_marker_that_says_nothing_is_damage() -> None:
    broken = batch_of(plain(0, b"\0"), 1, attributes=TRANSACTIONAL | CONTROL, producer_id=1, base_offset=1)
    with pytest.raises(CorruptRecord, match="commits or aborts"):
        read(transactional(1, 0, b"a"), broken, aborted=((1, 0),))


DAMAGE: dict[str, tuple[bytes, str]] = {
    "CRC": (batch(b"a", crc=1), "CRC-32C"),
    "format 0": (batch(b"a", magic=0), "message format 0"),
    "format 1": (batch(b"a", magic=1), "message format 1"),
    "format 3": (batch(b"a", magic=3), "message format 3"),
    "codec": (batch(b"a", attributes=5), "codec 5 is unknown"),
    "length": (batch(b"a", length=20), "20 bytes is shorter than a header"),
    "negative length": (batch(b"a", length=-1), "-1 bytes"),
    "length beyond": (batch(b"a", length=10**6), "not complete"),
    "truncated header": (batch(b"a")[:40], "not complete: 40 bytes"),
    "more records than offsets": (batch(b"a", num_records=2), "it has 2 records"),
    "negative count": (batch(b"a", num_records=-1), "it has -1 records"),
    "negative last offset": (batch(b"a", last_offset_delta=-2), "plus -2"),
    "fewer records than bytes": (batch(b"a", b"b", num_records=1), "8 bytes follow the last record"),
    "fewer bytes than records": (batch(b"a", num_records=5, last_offset_delta=4), "ends within it"),
    "negative offset": (batch(b"a", base_offset=-1), "-1 to -1"),
    "offset in the past": (batch(b"a") + batch(b"a"), "0 to 0 were read before"),
    "negative record length": (batch_of(varint(-7) + bytes(6), 1), "its length is -7"),
    "record length beyond": (batch_of(varint(60) + bytes(6), 1), "its length is 60"),
    "key length": (batch_of(varint(6) + b"\0\0\0" + varint(-2) + b"\1\0", 1), "its key has the length -2"),
    "value length": (batch_of(varint(6) + b"\0\0\0\1" + varint(-3) + b"\0", 1), "value has the length -3"),
    "value beyond": (batch_of(varint(6) + b"\0\0\0\1" + varint(50) + b"\0", 1), "ends within it"),
    "endless varint": (batch_of(b"\xff" * 20, 1), "varint has more than 10 bytes"),
    "truncated varint": (batch_of(b"\xff", 1), "ends within it"),
    "offset delta": (batch_of(plain(0) + plain(0), 2), "its offset is 0"),
    "negative offset delta": (batch_of(plain(-1), 1), "its offset is -1"),
    "offset beyond the batch": (batch_of(plain(0) + plain(2), 2), "its offset is 2"),
    "number of headers": (batch_of(plain(headers=varint(100)), 1), "100 headers in 0 bytes"),
    "negative number of headers": (batch_of(plain(headers=varint(-1)), 1), "-1 headers"),
    "null key of a header": (
        batch_of(plain(headers=varint(1) + varint(-1) + varint(-1)), 1), "header's key has the length -1",
    ),
    "length of a header's value": (
        batch_of(plain(headers=varint(1) + varint(0) + varint(-9)), 1), "header's value has the length -9",
    ),
    "header beyond": (batch_of(plain(headers=varint(1) + varint(0) + varint(90)), 1), "its length is"),
    "damaged zstd": (batch(b"a", body=b"nothing", attributes=4), "zstd data is damaged"),
    "damaged snappy block": (batch(b"a", body=xerial(b"abc")[:-1], attributes=2), "snappy data has a block"),
    "snappy length": (batch(b"a", body=xerial(b"abc") + b"\0", attributes=2), "within the length of a block"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_with_its_place_and_the_position_stays(name: str) -> None:
    damaged, words = DAMAGE[name]
    fetch, records = completed(damaged), []
    for _ in range(3):
        with pytest.raises(CorruptRecord, match=words) as error:
            drain(fetch, records)
        assert (error.value.topic, error.value.partition) == ORDERS
        assert error.value.offset == fetch.next_offset == len(records)
        assert f"partition 3 of topic 'orders' cannot be read at offset {len(records)}" in str(error.value)
        assert "seek to" in str(error.value)


def test_records_before_the_damage_are_handed_out_first() -> None:
    body = plain(0) + plain(1) + b"\2" + plain(2)
    fetch, records = completed(batch(b"a", base_offset=0), batch_of(body, 3, base_offset=1)), []
    with pytest.raises(
        CorruptRecord, match=r"at offset 3 in the batch of the offsets 1 to 3: record 2 of the"
    ):
        fetch.read(records, 1_000)
    assert offsets(records) == [0, 1, 2]
    with pytest.raises(CorruptRecord, match="at offset 3"):
        fetch.read(records, 1_000)
    assert offsets(records) == [0, 1, 2]


def test_the_crc_is_not_checked_if_the_setting_says_so() -> None:
    assert len(read(batch(b"a", crc=1), checks_crcs=False)) == 1


WHOLE = (
    batch(b"one", b"two", b"x" * 300)
    + batch(body=bytes(cramjam.lz4.compress(plain(0, b"k") + plain(1))), num_records=2, last_offset_delta=1,
            base_offset=3, attributes=3)
    + transactional(9, 5, b"five", b"six")
    + batch_of(plain(0, b"k", b"v", varint(1) + varint(1) + b"h" + varint(1) + b"i"), 1, base_offset=7)
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), min_size=1, max_size=5))
@example([(HEADER_BYTES, 1)])
def test_damaged_bytes_are_read_as_before_or_refused(changes: list[tuple[int, int]]) -> None:
    """With the CRC, what is read is what was written; only the broker's own fields are not covered by it."""
    data = bytearray(WHOLE)
    for at, change in changes:
        data[at] ^= change
    written = {(record.value, record.key, record.headers) for record in read(WHOLE)}
    fetch, records = completed(bytes(data)), []
    with suppress(CorruptRecord):
        drain(fetch, records, 2)
    assert {(record.value, record.key, record.headers) for record in records} <= written
    assert offsets(records) == sorted(set(offsets(records)))


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), max_size=5),
    st.integers(0, len(WHOLE)),
    st.integers(1, 5),
)
def test_hostile_bytes_end_in_records_or_an_error_with_a_sentence(
    changes: list[tuple[int, int]], cut: int, most: int
) -> None:
    """Without the CRC, any record may be wrong. Offsets still ascend, and the position is behind the last."""
    data = bytearray(WHOLE)
    for at, change in changes:
        data[at] ^= change
    fetch, records = completed(bytes(data[:cut]), checks_crcs=False, aborted=((9, 0),)), []
    with suppress(CorruptRecord):
        drain(fetch, records, most)
    if not fetch.is_drained:
        with pytest.raises(CorruptRecord) as error:
            fetch.read(records, most)
        assert error.value.offset == fetch.next_offset
    assert offsets(records) == sorted(set(offsets(records)))
    assert not records or fetch.next_offset > records[-1].offset


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=80,
    ),
    st.sampled_from([0, 1, 2, 3, 4]),
)
def test_what_another_client_has_encoded_is_read(
    messages: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: int
) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for number, (key, value, headers) in enumerate(messages):
        builder.append(number, NOW_MS + 40 * number, key, value, headers)
    records = read(bytes(builder.build()))
    assert [(one.key, one.value, list(one.headers)) for one in records] == messages
    assert [one.timestamp_ms for one in records] == [NOW_MS + 40 * number for number in range(len(messages))]
