"""The snapshot file: a shard's state up to an entry, as records and not as objects.

    header   magic b"QRTESNP1", crc u32, length u32, msgpack array (a format number, then `SnapshotHeader`)
    blocks   crc u32, length u32, records u32; then per record (raft index u64, timestamp i64), then the
             records as the body of an entry
    footer   magic b"QRTESNPE", crc u32 over what follows and over every block's CRC; blocks u32, records u32

A CRC covers everything after it in its part.  The file is written aside by the merge job and renamed by the
node, so it is whole or damaged, never torn.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

import msgpack
from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import File, Files
from raftlog.env.state_machine import SnapshotHeader
from records import Cause, MalformedEntry, RawRecord, Stamped, encode_entry, iter_records

SNAPSHOT_FILE = "snapshot"
FORMAT = 1
BLOCK_RECORDS = 1000
"""Records per block: restoring one is a slice of a few milliseconds."""
BLOCK_BYTES_MAX = 1 << 30
"""At most this many bytes of a block are read, so that a damaged length cannot ask for more."""

_MAGIC = b"QRTESNP1"
_END_MAGIC = b"QRTESNPE"
_HEAD = struct.Struct("<8sII")
_BLOCK = struct.Struct("<III")
_STAMP = struct.Struct("<Qq")
_END = struct.Struct("<8sIII")
_CAUSE = Cause(trigger=0)
"""The cause of a block, which holds no decision; 0 stands for none."""


def write_snapshot(files: Files, path: str, header: SnapshotHeader, records: Iterable[Stamped]) -> None:
    """Write and sync a snapshot file; `header.record_count` must be the number of `records`."""
    file = files.open(path, "w")
    try:
        file.truncate(0)
        head = _encode_header(header)
        file.pwrite(head, 0)
        at, blocks, total, crcs = len(head), 0, 0, 0
        remaining = iter(records)
        while chunk := list(islice(remaining, BLOCK_RECORDS)):
            block = _encode_block(chunk)
            file.pwrite(block, at)
            at += len(block)
            blocks += 1
            total += len(chunk)
            crcs = crc32c(block[:4], crcs)
        assert total == header.record_count
        counts = struct.pack("<II", blocks, total)
        file.pwrite(_END.pack(_END_MAGIC, crc32c(counts, crcs), blocks, total), at)
        file.fdatasync()
    finally:
        file.close()


def _encode_header(header: SnapshotHeader) -> bytes:
    fields: bytes = msgpack.packb(
        [
            FORMAT,
            header.cluster_id,
            header.shard,
            header.num_shards,
            header.last_index,
            header.last_term,
            header.last_timestamp_ms,
            header.chain_hash,
            header.state_hash,
            header.catalog_version,
            header.record_count,
        ]
    )
    rest = struct.pack("<I", len(fields)) + fields
    return _MAGIC + struct.pack("<I", crc32c(rest)) + rest


def _encode_block(chunk: list[Stamped]) -> bytes:
    stamps = b"".join(_STAMP.pack(one.index, one.timestamp_ms) for one in chunk)
    body = encode_entry(_CAUSE, [one.record for one in chunk])
    rest = struct.pack("<II", len(stamps) + len(body), len(chunk)) + stamps + body
    return struct.pack("<I", crc32c(rest)) + rest


class SnapshotFile:
    """A snapshot file opened for reading; raises Corrupt where it is damaged, FileNotFoundError."""

    def __init__(self, files: Files, path: str) -> None:
        self._path = path
        self.file: File = files.open(path, "r")
        self._size = self.file.size()
        self.header, self._first_block = self._read_header()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _corrupt(self, offset: int, what: str) -> Corrupt:
        return Corrupt(self._path, offset, what, RESTORE_HINT)

    def _read_header(self) -> tuple[SnapshotHeader, int]:
        data = self.file.pread(_HEAD.size, 0)
        if len(data) < _HEAD.size:
            raise self._corrupt(len(data), "too short for a snapshot's header")
        magic, crc, length = _HEAD.unpack(data)
        if magic != _MAGIC:
            raise self._corrupt(0, f"begins with {magic!r} instead of {_MAGIC!r}")
        if length > self._size - _HEAD.size:
            raise self._corrupt(12, f"the header announces {length} bytes")
        fields = self.file.pread(length, _HEAD.size)
        if crc32c(data[12:] + fields) != crc:
            raise self._corrupt(8, "the CRC of the snapshot's header does not match")
        version, *values = msgpack.unpackb(fields)
        if version != FORMAT:
            raise self._corrupt(
                _HEAD.size, f"snapshot format {version} is unknown, this release reads {FORMAT}"
            )
        names = SnapshotHeader.__slots__
        header = SnapshotHeader(**dict(zip(names, values, strict=False)))
        return header, _HEAD.size + length

    def blocks(self) -> Iterator[tuple[memoryview, list[RawRecord]]]:
        """The packed stamps and the records of each block; the footer is checked after the last one."""
        for number, (at, count, payload) in enumerate(self._payloads()):
            view = memoryview(payload)
            stamps_end = count * _STAMP.size
            try:
                records = iter_records(view[stamps_end:])
            except MalformedEntry as error:
                raise self._corrupt(at, f"block {number} is malformed: {error}") from None
            if len(records) != count:
                what = f"block {number} announces {count} records and holds {len(records)}"
                raise self._corrupt(at, what)
            yield view[:stamps_end], records

    def check(self) -> None:
        """Check every byte against its CRC, without decoding records."""
        for _ in self._payloads():
            pass

    def _payloads(self) -> Iterator[tuple[int, int, bytes]]:
        """(offset, announced records, payload under the CRC) of each block; then the footer is checked."""
        at, blocks, total, crcs = self._first_block, 0, 0, 0
        while at < self._size - _END.size:
            head = self.file.pread(_BLOCK.size, at)
            crc, length, count = _BLOCK.unpack(head)
            if length > min(BLOCK_BYTES_MAX, self._size - at - _BLOCK.size) or count * _STAMP.size > length:
                raise self._corrupt(at + 4, f"a block announces {length} bytes and {count} records")
            payload = self.file.pread(length, at + _BLOCK.size)
            if crc32c(payload, crc32c(head[4:])) != crc:
                raise self._corrupt(at, f"the CRC of block {blocks} does not match")
            yield at, count, payload
            at += _BLOCK.size + length
            blocks += 1
            total += count
            crcs = crc32c(head[:4], crcs)
        self._check_footer(at, blocks, total, crcs)

    def _check_footer(self, at: int, blocks: int, total: int, crcs: int) -> None:
        data = self.file.pread(_END.size, at)
        if len(data) < _END.size:
            raise self._corrupt(at + len(data), "the snapshot ends before its footer")
        magic, crc, said_blocks, said_records = _END.unpack(data)
        if magic != _END_MAGIC or crc32c(data[12:], crcs) != crc:
            raise self._corrupt(at, "the snapshot's footer is damaged or does not match its blocks")
        if (said_blocks, said_records) != (blocks, total) or total != self.header.record_count:
            raise self._corrupt(
                at, f"its {total} records in {blocks} blocks differ from what the header announces"
            )

    def stamped(self) -> Iterator[Stamped]:
        """The records with the index and time of their last writes."""
        for stamps, records in self.blocks():
            for (index, timestamp_ms), record in zip(_STAMP.iter_unpack(stamps), records, strict=True):
                yield Stamped(index, timestamp_ms, record)
