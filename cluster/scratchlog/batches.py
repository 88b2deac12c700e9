"""Record batches of Kafka's message format 2: only their headers are read.

The header says how many records there are, whose they are and when they were made. The records behind it may
be compressed. They are checked by their CRC and kept as the bytes that came, never decompressed or parsed.
The CRC covers everything from the attributes on. So the broker's own fields (base offset and partition leader
epoch, in the first 16 bytes) are replaced without computing it again.

Errors are those of Kafka 4's broker: `ProduceRequest.validateRecords`, `LogValidator` and `UnifiedLog`.
"""

from __future__ import annotations

import math
from struct import Struct
from typing import Final

from crc32c import crc32c

from wire.errors import ErrorCode
from wire.record_batch import (
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER,
    NO_SEQUENCE,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    UNCOMPRESSED,
    ZSTD,
    BatchHeader,
    header_of,
)

_PLACE: Final = Struct(">qii")
PLACE_BYTES: Final = _PLACE.size
"""The fields that the broker assigns: base offset, length (unchanged) and partition leader epoch."""

_LENGTH: Final = Struct(">i")

NO_LEADER_EPOCH: Final = -1
"""Kafka's "unknown". Consumers that know an epoch ask for its end offset after a change of leader, and here
the log of an earlier epoch is gone."""

RECORDS_MAX: Final = 1 << 24
"""Records in a batch: far more than producers send. How many a compressed batch has is not checked otherwise,
and a batch of 70 bytes must not use up offsets by the billion."""

ZSTD_SINCE: Final = 7
"""First version of Produce that may carry zstd, which is the newest codec."""


class RefusedBatch(Exception):
    """A batch that is not appended: Kafka's error code and a message for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def checked_header(
    records: bytes | None, api_version: int, bytes_max: int, time_ms_max: float = math.inf
) -> BatchHeader:
    """Return the header of the one batch in a partition's part of a Produce request.

    `api_version` is that of Produce, `bytes_max` the size of the largest batch, `time_ms_max` the greatest
    timestamp.  Raises RefusedBatch.
    """
    header = _header(records or b"")
    assert records is not None
    _check_codec(header, api_version)
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a batch from a producer is 0, not {header.base_offset}")
    if len(records) > bytes_max:
        raise RefusedBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(records)} bytes exceeds message.max.bytes = {bytes_max}",
        )
    if crc32c(memoryview(records)[CRC_START:]) != header.crc:
        raise RefusedBatch(ErrorCode.CORRUPT_MESSAGE, "the CRC-32C of the batch differs from its header")
    _check_contents(header, len(records))
    if header.max_timestamp > time_ms_max:
        raise RefusedBatch(
            ErrorCode.INVALID_TIMESTAMP, f"the timestamp {header.max_timestamp} is too far in the future"
        )
    return header


def _header(records: bytes) -> BatchHeader:
    """Return the header if there is exactly one whole batch of format 2."""
    size = len(records)
    if size <= MAGIC_AT:
        raise _invalid("there is no record batch")
    (length,) = _LENGTH.unpack_from(records, LENGTH_AT)
    magic = records[MAGIC_AT]
    if magic in (0, 1):
        raise _invalid(f"a batch of message format {magic} is refused: Produce 3 and later carry format 2")
    if magic != MAGIC or length + LENGTH_END < HEADER_BYTES:
        raise RefusedBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of format {magic} and length {length}")
    if length + LENGTH_END > size:
        raise _invalid(f"the batch ends after {size} bytes and has {length + LENGTH_END} by its header")
    if length + LENGTH_END < size:
        raise _invalid("there is more than one record batch")
    return header_of(records)


def _check_codec(header: BatchHeader, api_version: int) -> None:
    codec = header.codec
    if codec > ZSTD or (codec == ZSTD and api_version < ZSTD_SINCE):
        raise RefusedBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"codec {codec} is unknown in Produce {api_version}; zstd (4) needs version {ZSTD_SINCE}",
        )


def _check_contents(header: BatchHeader, size: int) -> None:
    if header.is_control:
        raise _invalid("producers may not write control records")
    if header.attributes & LOG_APPEND_TIME:
        raise RefusedBatch(ErrorCode.INVALID_TIMESTAMP, "producers send their own time, not LogAppendTime")
    count = header.num_records
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise _invalid(f"{count} records in a batch whose last offset is {header.last_offset_delta}")
    if count > RECORDS_MAX:
        raise _invalid(f"{count} records in a batch exceed {RECORDS_MAX}")
    is_plain = header.codec == UNCOMPRESSED
    if is_plain and count * RECORD_BYTES_MIN > size - HEADER_BYTES:
        raise _invalid(f"{count} records do not fit into {size - HEADER_BYTES} bytes")
    if header.producer_id == NO_PRODUCER:
        if header.is_transactional:
            raise _invalid("a transactional batch without a producer id")
    elif header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise _invalid(
            f"producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}"
        )


def _invalid(message: str) -> RefusedBatch:
    return RefusedBatch(ErrorCode.INVALID_RECORD, message)


class RecordBatch:
    """A batch in a log. `place` replaces the first bytes of `records`, which are kept as they came."""

    __slots__ = ("base_offset", "begins_at", "header", "number", "place", "records")

    def __init__(
        self, header: BatchHeader, records: bytes, base_offset: int, begins_at: int, number: int = 0
    ) -> None:
        self.header = header
        self.records = records
        self.base_offset = base_offset
        self.begins_at = begins_at
        """The number of bytes that had been appended to the log before this batch."""
        self.number = number
        """Its number among the batches of all logs."""
        self.place = _PLACE.pack(base_offset, header.length, NO_LEADER_EPOCH)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.header.last_offset_delta

    @property
    def is_compressed(self) -> bool:
        return self.header.codec != UNCOMPRESSED

    def write_to(self, parts: list[bytes | memoryview]) -> None:
        """Append the batch, as consumers get it, in parts that are to be joined."""
        parts.append(self.place)
        parts.append(memoryview(self.records)[PLACE_BYTES:])


_FIELDS: Final = Struct(">hiqqqhii")
"""The part of a header that the CRC covers: from the attributes on."""
_BEFORE_FIELDS: Final = Struct(">qiibI")
_MARKER: Final = Struct(">Bxxx BhhBhiB")


def _assembled(fields: bytes, base_offset: int, records: bytes = b"") -> bytes:
    """Return a whole batch: its header from the attributes on, and its records."""
    covered = fields + records
    length = HEADER_BYTES - LENGTH_END + len(records)
    return _BEFORE_FIELDS.pack(base_offset, length, NO_LEADER_EPOCH, MAGIC, crc32c(covered)) + covered


def marker_batch(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int, *, is_commit: bool
) -> bytes:
    """Return the control batch that ends a transaction in a partition (Kafka's `EndTransactionMarker`).

    Its one record has the key (version 0, 1 for commit or 0 for abort) and the value (version 0, epoch of the
    coordinator).
    """
    attributes = TRANSACTIONAL | CONTROL
    fields = _FIELDS.pack(attributes, 0, now_ms, now_ms, producer_id, producer_epoch, NO_SEQUENCE, 1)
    # Zigzag: length 16 of the record, 4 of the key, 6 of the value. Attributes, deltas and headers are 0.
    record = _MARKER.pack(2 * 16, 2 * 4, 0, is_commit, 2 * 6, 0, coordinator_epoch, 0)
    return _assembled(fields, 0, record)


_TYPE_AT: Final = HEADER_BYTES + 8
"""The place of a marker's type: behind its length, attributes, deltas, its key's length and version."""


def is_commit_marker(records: bytes) -> bool:
    """Whether a batch made by `marker_batch` is that of a commit."""
    return records[_TYPE_AT] == 1


def empty_batch(last_offset: int) -> bytes:
    """Return a batch without records at `last_offset`, as Kafka's compaction leaves them.

    A consumer that reads it goes on behind it, from whichever offset it came.
    """
    return _assembled(_FIELDS.pack(0, 0, -1, -1, NO_PRODUCER, -1, NO_SEQUENCE, 0), last_offset)
