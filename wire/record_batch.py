"""The header of a record batch, Kafka's message format 2.

It says how many records there are, whose they are and when they were made. The records behind it may be
compressed. The CRC covers everything from the attributes on, so a broker replaces its own fields before them
(base offset and partition leader epoch) without computing it again.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size

LENGTH_AT: Final = 8
LENGTH_END: Final = 12
"""The length of a batch counts the bytes from here on."""
MAGIC_AT: Final = 16
CRC_START: Final = 21
"""The first byte that the CRC covers."""

MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
RECORD_BYTES_MIN: Final = 7
"""The smallest record: six lengths and deltas of one byte each, and its attributes."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

UNCOMPRESSED: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4


class BatchHeader(NamedTuple):
    """The header of a batch, in the order of the wire. Timestamps are in milliseconds."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    num_records: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def header_of(records: bytes, at: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at `at`, which has all bytes of a header."""
    return tuple.__new__(BatchHeader, HEADER.unpack_from(records, at))
