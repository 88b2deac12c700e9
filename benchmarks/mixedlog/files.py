"""The files of a generated log: appends frames, seals full segments, snapshots all live records.

The files are as a node writes them: the frame, the index of a sealed segment and the snapshot are made by
`raftlog` itself. Only the rows of an index are packed during writing, since the writer knows what
`build_index` would read back; a test checks that both give equal bytes. Snapshots are kept ones, a shortcut
for readers: they may end with any entry, whereas a node's end with a segment, and their two hashes, which no
reader of a kept snapshot uses, are zeros. Memory holds one segment and the newest record of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from crc32c import crc32c

from raftlog.env.files import OsFiles, join
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.archive import ARCHIVE
from raftlog.storage.directory import TERM_FILE, TERM_KIND, NodeIdentity, format_node, shard_name
from raftlog.storage.frames import encode_frame
from raftlog.storage.hash_chain import GENESIS, Chain
from raftlog.storage.metafile import write_meta
from raftlog.storage.retained_snapshots import kept_path
from raftlog.storage.sealed_index import ROW, Sealed, encode_index
from raftlog.storage.segments import LogIdentity, encode_header, index_name, log_name
from raftlog.storage.snapshots import write_snapshot
from records import RawRecord, Stamped
from records.entry import join_body

START_MS = 1_772_366_400_000
SEGMENT_BYTES = 64 << 20
"""A node's default segment size."""
SNAPSHOT_RECORDS = 500_000
"""Records between two snapshots of a shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The contents of one shard's written log."""

    records: int
    entries: int
    last_ms: int
    snapshots: tuple[int, ...]
    """Last index of each, rising."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Written:
        return cls(**{**said, "snapshots": tuple(said["snapshots"])})


def new_node(path: str, cluster_id: str, num_shards: int) -> NodeIdentity:
    """An empty node's directory, whose shards have an archive."""
    files = OsFiles()
    identity = NodeIdentity(cluster_id=cluster_id, node_id=1, incarnation="bench", num_shards=num_shards)
    format_node(files, path, identity)
    for shard in identity.shards:
        home = join(path, shard_name(shard))
        write_term(home, 1)
        if not files.is_dir(join(home, ARCHIVE)):
            files.mkdir(join(home, ARCHIVE))
    return identity


def write_term(home: str, term: int) -> None:
    """Write the current term of a shard."""
    write_meta(OsFiles(), join(home, TERM_FILE), TERM_KIND, term, None)


def group_crc(group_id: str) -> int:
    """A group's name as stored in a segment's index."""
    return crc32(group_id.encode())


class Segments:
    """The files of one shard; entries are added in chronological order."""

    def __init__(self, home: str, identity: LogIdentity, segment_bytes: int, snapshot_records: int) -> None:
        self.last_index = 0
        self.last_ms = START_MS
        self.records = 0
        self.snapshots: list[int] = []
        self._files = OsFiles()
        self._home = home
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._snapshot_records = snapshot_records
        self._newest: dict[tuple[int, bytes], tuple[int, int, int, RawRecord]] = {}
        """The newest record of each key: index, place in the entry, time, record."""
        self._chain = Chain()
        self._begin(1, GENESIS)

    def _begin(self, first: int, chain: bytes) -> None:
        self._first = first
        self._chain_before = chain
        self._data = bytearray(encode_header(self._identity, first))
        self._rows: list[bytes] = []
        self._types: set[int] = set()
        self._first_ms = -1

    def add(self, term: int, at_ms: int, cause: bytes, raws: Sequence[RawRecord], crc: int) -> None:
        """Add one entry; ``crc`` is `group_crc` of the group it concerns, 0 if none."""
        index = self.last_index = self.last_index + 1
        self.last_ms = at_ms
        if self._first_ms < 0:
            self._first_ms = at_ms
        count = len(raws)
        frame = encode_frame(index, term, index - 1, at_ms, count, join_body(cause, list(raws)))
        start = len(self._data)
        newest, rows, types, row = self._newest, self._rows, self._types, ROW.pack
        for place, raw in enumerate(raws):
            kind = raw[0]
            rows.append(row(index, at_ms, start, place, crc, kind))
            types.add(kind)
            if raw[3] is None:
                newest.pop((kind, raw[2]), None)
            else:
                newest[kind, raw[2]] = (index, place, at_ms, raw)
        self._data += frame
        self._chain.add(frame, index)
        if len(self._data) >= self._segment_bytes and index % CHAIN_STRIDE == 0:
            self._seal()
        before, self.records = self.records, self.records + count
        if before // self._snapshot_records != self.records // self._snapshot_records:
            self._snapshot(term)

    def close(self) -> Written:
        """Write the rest as the open segment."""
        self._write()
        return Written(
            records=self.records,
            entries=self.last_index,
            last_ms=self.last_ms,
            snapshots=tuple(self.snapshots),
        )

    def _write(self) -> None:
        with open(join(self._home, log_name(self._first)), "wb") as file:
            file.write(self._data)

    def _seal(self) -> None:
        """Write the segment's index and start the next segment."""
        self._write()
        sealed = Sealed(
            first_index=self._first,
            last_index=self.last_index,
            frame_count=self.last_index - self._first + 1,
            log_bytes=len(self._data),
            log_crc=crc32c(self._data),
            timestamp_ms_min=self._first_ms,
            timestamp_ms_max=self.last_ms,
            chain_before=self._chain_before,
            chain_after=self._chain.digest,
            types=tuple(sorted(self._types)),
        )
        with open(join(self._home, index_name(self._first)), "wb") as file:
            file.write(encode_index(sealed, self._rows))
        self._begin(self.last_index + 1, sealed.chain_after)

    def _snapshot(self, term: int) -> None:
        """Write a snapshot of the current state."""
        header = SnapshotHeader(
            cluster_id=self._identity.cluster_id,
            shard=self._identity.shard,
            num_shards=self._identity.num_shards,
            last_index=self.last_index,
            last_term=term,
            last_timestamp_ms=self.last_ms,
            chain_hash=bytes(16),
            state_hash=0,
            catalog_version=1,
            record_count=len(self._newest),
        )
        stamped = (Stamped(index, at_ms, raw) for index, _, at_ms, raw in sorted(self._newest.values()))
        write_snapshot(self._files, kept_path(self._home, self.last_index), header, stamped)
        self.snapshots.append(self.last_index)
