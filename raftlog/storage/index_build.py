"""Builds the index of a sealed segment (layout: `raftlog.storage.sealed_index`) from the segment's bytes.

A module of its own, as it reads the records of every entry: programs that only read or create a node's
directory need not load the record types.
"""

from __future__ import annotations

from zlib import crc32

from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.storage.frames import HEADER_BYTES, frame_at
from raftlog.storage.hash_chain import Chain
from raftlog.storage.sealed_index import ROW, Sealed, encode_index
from raftlog.storage.segments import decode_header
from records import MalformedEntry, group_id_of, iter_records


def build_index(segment: bytes, path: str, chain_before: bytes) -> tuple[Sealed, bytes]:
    """Index a whole segment: (its header, the index file's bytes).  Raises Corrupt where it is not whole."""
    view = memoryview(segment)
    header = decode_header(view, path)
    first = header.first_index
    chain = Chain(first - 1, chain_before)
    rows: list[bytes] = []
    types: set[int] = set()
    timestamps: list[int] = []
    at = header.frames_offset
    while at < len(segment):
        found = frame_at(view, at)
        if found is None:
            raise Corrupt(
                path, at, f"no complete frame where entry {chain.index + 1} should be", RESTORE_HINT
            )
        end, index, _, _, timestamp, count = found
        if index != chain.index + 1:
            raise Corrupt(path, at, f"entry {index} where {chain.index + 1} should be", RESTORE_HINT)
        body = view[at + HEADER_BYTES : end]
        _add_rows(rows, types, body, (index, timestamp, at, count), path)
        timestamps.append(timestamp)
        chain.add(view[at:end], index)
        at = end
    if not timestamps:
        raise Corrupt(path, at, "a sealed segment holds at least one frame", RESTORE_HINT)
    sealed = Sealed(
        first_index=first,
        last_index=chain.index,
        frame_count=len(timestamps),
        log_bytes=len(segment),
        log_crc=crc32c(segment),
        timestamp_ms_min=min(timestamps),
        timestamp_ms_max=max(timestamps),
        chain_before=chain_before,
        chain_after=chain.digest,
        types=tuple(sorted(types)),
    )
    return sealed, encode_index(sealed, rows)


def _add_rows(
    rows: list[bytes], types: set[int], body: memoryview, frame: tuple[int, int, int, int], path: str
) -> None:
    index, timestamp, at, count = frame
    try:
        records = iter_records(body)
        sequence = -1
        for sequence, raw in enumerate(records):
            group = group_id_of(raw)
            group_crc = 0 if group is None else crc32(group.encode())
            rows.append(ROW.pack(index, timestamp, at, sequence, group_crc, raw.type))
            types.add(raw.type)
    except MalformedEntry as error:
        raise Corrupt(path, at, f"the body of entry {index} is not an entry: {error}", RESTORE_HINT) from None
    if sequence + 1 != count:
        what = f"entry {index} announces {count} records and holds {sequence + 1}"
        raise Corrupt(path, at, what, RESTORE_HINT)
