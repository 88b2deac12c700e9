"""Record batches: what is refused, with Kafka's errors; the bytes of the others stay as they came."""

from __future__ import annotations

import gzip
import random
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from cluster.scratchlog.batches import (
    RECORDS_MAX,
    RecordBatch,
    RefusedBatch,
    checked_header,
    empty_batch,
)
from tests.support.record_batches import NOW_MS, batch, headers
from wire.errors import ErrorCode

LARGE = 1 << 20


def refused(records: bytes | None, version: int = 9, bytes_max: int = LARGE) -> ErrorCode:
    with pytest.raises(RefusedBatch) as error:
        checked_header(records, version, bytes_max)
    assert error.value.message
    return error.value.code


def test_a_batch_of_a_stock_client_is_taken_and_read_back() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        batch_size=LARGE,
    )
    for number in range(3):
        builder.append(number, NOW_MS + number, b"key", b"value %d" % number, [])
    records = bytes(builder.build())
    header = checked_header(records, 9, LARGE)
    assert (header.num_records, header.last_offset_delta, header.producer_id) == (3, 2, 7)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 2)
    parts: list[bytes | memoryview] = []
    RecordBatch(header, records, 1_000, 0).write_to(parts)
    kept = b"".join(parts)
    assert kept[16:] == records[16:]
    read = DefaultRecordBatch(bytearray(kept))
    assert read.validate_crc()
    assert [(one.offset, one.value) for one in read] == [(1_000 + n, b"value %d" % n) for n in range(3)]


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_passes_through_unread(codec: int) -> None:
    records = batch(b"a", b"b", body=gzip.compress(b"not even records") * 3, attributes=codec)
    assert checked_header(records, 7, LARGE).attributes == codec


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 0x10}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"num_records": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"num_records": -1}, ErrorCode.INVALID_RECORD),
        ({"num_records": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 7}, ErrorCode.INVALID_RECORD),
        ({"num_records": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD),
        (
            {"num_records": RECORDS_MAX + 1, "last_offset_delta": RECORDS_MAX, "attributes": 4},
            ErrorCode.INVALID_RECORD,
        ),
        ({"num_records": 4, "last_offset_delta": 3}, ErrorCode.INVALID_RECORD),
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 40}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 60}, ErrorCode.INVALID_RECORD),
        ({"length": 2**31 - 1}, ErrorCode.INVALID_RECORD),
        ({"crc": 12345}, ErrorCode.CORRUPT_MESSAGE),
        ({"producer_id": 5, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    ],
    ids=str,
)
def test_a_wrong_header_gets_kafkas_error(fields: dict[str, Any], code: ErrorCode) -> None:
    assert refused(batch(b"first", b"second", **fields)) == code


def test_no_batch_and_two_batches_are_refused() -> None:
    assert refused(None) == ErrorCode.INVALID_RECORD
    assert refused(b"") == ErrorCode.INVALID_RECORD
    assert refused(batch(b"a") * 2) == ErrorCode.INVALID_RECORD
    assert refused(batch(b"a") + b"x") == ErrorCode.INVALID_RECORD


def test_the_bound_is_the_size_of_the_whole_batch() -> None:
    records = batch(b"x" * 500)
    assert checked_header(records, 9, len(records))
    assert refused(records, bytes_max=len(records) - 1) == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_version_7() -> None:
    records = batch(b"a", body=b"z" * 30, attributes=4)
    assert refused(records, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert checked_header(records, 7, LARGE)


def test_every_cut_and_every_changed_byte_is_refused() -> None:
    records = batch(b"first", b"second")
    for size in range(len(records)):
        assert refused(records[:size]) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    for at in [*range(12), *range(16, len(records))]:  # the partition leader epoch may be anything
        changed = bytearray(records)
        changed[at] ^= 0x41
        refused(bytes(changed))


def test_random_bytes_are_refused() -> None:
    rng = random.Random(5)
    for _ in range(2_000):
        head = struct.pack(">qii", 0, rng.choice([49, 60, rng.getrandbits(31)]), 0)
        refused(head + bytes([rng.choice([0, 1, 2, 2, 2, 255])]) + rng.randbytes(rng.randrange(100)))


def test_an_empty_batch_is_one_that_stock_clients_read() -> None:
    records = empty_batch(2**41 - 1)
    ((header, _),) = headers(records)
    assert (header.base_offset, header.last_offset_delta, header.num_records) == (2**41 - 1, 0, 0)
    read = DefaultRecordBatch(bytearray(records))
    assert read.validate_crc()
    assert list(read) == []
    assert read.next_offset == 2**41
