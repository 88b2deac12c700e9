"""Record batches of format 2 as producers send them, and as consumers read them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from wire.record_batch import HEADER_BYTES, BatchHeader, header_of

NOW_MS = 1_700_000_000_000


def varint(value: int) -> bytes:
    """Encode a zigzag varint."""
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(number: int, value: bytes, delta_ms: int = 0) -> bytes:
    body = b"\0" + varint(delta_ms) + varint(number) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(*values: bytes, time_ms: int = NOW_MS, crc: int | None = None, **fields: Any) -> bytes:
    """Return a batch of these values, one millisecond apart; `fields` replace those of the header."""
    body = fields.pop("body", None)
    if body is None:
        body = b"".join(record(number, value, number) for number, value in enumerate(values))
    header = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - 12 + len(body),
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=len(values) - 1,
        base_timestamp=time_ms,
        max_timestamp=time_ms + len(values) - 1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        num_records=len(values),
    )._replace(**fields)
    covered = struct.pack(">hiqqqhii", *header[5:]) + body
    head = struct.pack(">qiibI", *header[:4], crc32c(covered) if crc is None else crc)
    return head + covered


def headers(records: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield header and bytes of each batch of a fetched partition; checks the CRC."""
    at = 0
    while at < len(records):
        header = header_of(records, at)
        whole = records[at : at + 12 + header.length]
        assert crc32c(whole[21:]) == header.crc
        yield header, whole
        at += len(whole)


def offsets(records: bytes) -> list[int]:
    """Return the offsets of all records of a fetched partition."""
    return [
        header.base_offset + number for header, _ in headers(records) for number in range(header.num_records)
    ]
