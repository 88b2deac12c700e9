"""A segment is a file of frames with a header that identifies its log.

    magic        8 bytes   b"QRTELOG1"
    crc          u32       CRC32C of everything after this field
    length       u32       bytes after this field up to the first frame
    format       u16       of the frames, 1
    origin       u8        0 raft, 1 import, 2 recorded
    -            u8        0
    shard        i32       -1 is the metadata shard
    shards       u32       number of group shards in the cluster
    first index  u64       Raft index of the first frame
    cluster id   utf-8

A segment is created under a temporary name and renamed, so its header is whole or damaged, never torn.  Only
the last segment of a log may have a torn tail: a new one is begun when everything in the old one is synced.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import TEMPORARY_SUFFIX, Files, join, parent, write_aside
from raftlog.storage.frames import FRAME_MAGIC, frame_at

MAGIC = b"QRTELOG1"
FORMAT = 1
METADATA_SHARD = -1
"""`records.METADATA_SHARD`, as part of the format: formatting a directory does not load the records."""

HEADER_BYTES_MAX = 1024
"""At most this many bytes are read before the CRC is checked; enough for any cluster id."""

LAGGING_GROUP_BYTES = 256 * 1024
"""Frames of one group begin within this many bytes if the leader may have committed some of them.

It applies to groups in which the leader may have committed entries before this node synced them.  Part of the
format: `proof_of_loss` relies on it.  Larger groups would catch up faster on a slow disk; but a damaged frame
nearer to the end than this is taken for a torn one, unless the mark of what was synced
(`raftlog.storage.sync_mark`) covers it.

The mark alone would not suffice.  It is exact after a killed process, but proves nothing about entries synced
in the last half minute before a power loss, when it was not written back; nor in a directory of a release
without it.  There this rule still finds damage to everything older than the last group.  The rule alone would
not suffice either: a damaged newer entry was taken for torn, though it had been acknowledged.
"""

_HEAD = struct.Struct("<8sII")
_FIELDS = struct.Struct("<HBBiIQ")
_CRC_START = 12
_NAME = re.compile(r"(\d{20})\.log")


class NewerFormat(Corrupt):
    """An intact header of a format that this release does not read."""


class LogOrigin(IntEnum):
    """The writer of a log; only a Raft log has dense indexes and a hash chain."""

    RAFT = 0
    IMPORT = 1
    RECORDED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIdentity:
    """The cluster and shard that a segment belongs to."""

    cluster_id: str
    shard: int
    num_shards: int
    origin: int = LogOrigin.RAFT


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """A segment's header and the offset of its first frame."""

    identity: LogIdentity
    first_index: int
    frames_offset: int


def log_name(first_index: int) -> str:
    """The file name of the segment that begins with `first_index`."""
    return f"{first_index:020d}.log"


def index_name(first_index: int) -> str:
    """The file name of that segment's sealed index."""
    return f"{first_index:020d}.index"


def first_indexes(names: list[str]) -> list[int]:
    """The first indexes of the segments among `names`, ascending."""
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def encode_header(identity: LogIdentity, first_index: int) -> bytes:
    """The bytes of a header."""
    fields = _FIELDS.pack(FORMAT, identity.origin, 0, identity.shard, identity.num_shards, first_index)
    rest = fields + identity.cluster_id.encode()
    rest = struct.pack("<I", len(rest)) + rest
    return MAGIC + struct.pack("<I", crc32c(rest)) + rest


def decode_header(data: bytes | memoryview, path: str) -> SegmentHeader:
    """Check and read the header at the start of `data`; raises Corrupt, and NewerFormat for a newer one."""
    if len(data) < _HEAD.size + _FIELDS.size:
        raise Corrupt(path, len(data), "too short for a segment header", RESTORE_HINT)
    magic, crc, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    if magic != MAGIC:
        raise Corrupt(path, 0, f"begins with {magic!r} instead of {MAGIC!r}", RESTORE_HINT)
    if not _FIELDS.size <= length <= HEADER_BYTES_MAX or end > len(data):
        raise Corrupt(path, 12, f"the header announces {length} bytes", RESTORE_HINT)
    if crc32c(data[_CRC_START:end]) != crc:
        raise Corrupt(path, 8, "the CRC of the segment header does not match", RESTORE_HINT)
    version, origin, _, shard, num_shards, first = _FIELDS.unpack_from(data, _HEAD.size)
    if version != FORMAT:
        hint = "start the release that wrote this file, or a newer one"
        raise NewerFormat(path, _HEAD.size, f"format {version} is unknown, this release reads {FORMAT}", hint)
    cluster_id = bytes(data[_HEAD.size + _FIELDS.size : end]).decode()
    identity = LogIdentity(cluster_id=cluster_id, shard=shard, num_shards=num_shards, origin=origin)
    return SegmentHeader(identity=identity, first_index=first, frames_offset=end)


def create_segment(files: Files, directory: str, identity: LogIdentity, first_index: int) -> str:
    """Durably create an empty segment; returns its path."""
    path = join(directory, log_name(first_index))
    write_aside(files, path + TEMPORARY_SUFFIX, encode_header(identity, first_index))
    files.rename(path + TEMPORARY_SUFFIX, path)
    files.fsync_dir(parent(path))
    return path


def check_header(header: SegmentHeader, path: str, identity: LogIdentity, first_index: int) -> None:
    """Check that the header belongs to this log and matches the file's name; raises Corrupt."""
    if header.identity != identity:
        hint = "the file was copied here from another node or shard; remove it"
        raise Corrupt(path, 0, f"belongs to {header.identity}, expected {identity}", hint)
    if header.first_index != first_index:
        hint = "rename it to the index in its header"
        raise Corrupt(path, 0, f"begins with index {header.first_index}", hint)


def proof_of_loss(rest: bytes, index: int, *, is_alone: bool) -> int | None:
    """The offset in `rest` of a frame that proves that `index` was synced; None if there is none.

    `rest` begins with a bad frame in the place of entry `index`.  A crash may tear the last group of frames
    in any order, so whole frames after a torn one are normal.  On a node that is alone, a frame whose leader
    had committed `index` can only have been written after `index` was synced here.  A follower may receive
    both in one group, but then they begin within `LAGGING_GROUP_BYTES`.
    """
    view = memoryview(rest)
    at = rest.find(FRAME_MAGIC, 0 if is_alone else LAGGING_GROUP_BYTES)
    while at >= 0:
        found = frame_at(view, at)
        if found is not None and found[1] > index and found[3] >= index:
            return at
        at = rest.find(FRAME_MAGIC, at + 1)
    return None


def next_frame(data: bytes, start: int, after_index: int) -> tuple[int, int] | None:
    """(offset, index) of the next whole frame at or after `start` with an index above `after_index`."""
    view = memoryview(data)
    at = data.find(FRAME_MAGIC, start)
    while at >= 0:
        found = frame_at(view, at)
        if found is not None and found[1] > after_index:
            return at, found[1]
        at = data.find(FRAME_MAGIC, at + 1)
    return None
