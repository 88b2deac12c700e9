"""The input: a node's directory, a cluster's folder or a copy, listed segment by segment.

Plain Python on the driver. Segments are listed from their names and the archive's checked manifest, so that
planning a long history only reads headers; the executors check every byte they read. Invariants: a shard
is read as `history` reads it, from the most advanced node, up to the last entry decided by all directories
together; and a path never mixes two clusters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from history.reading.members import MemberDirectory, node_directories, open_members
from history.reading.node import EXPECTED, NodeLog, ShardFiles
from history.reading.opening import open_node
from history.reading.source import NothingToRead
from pipeline.errors import InputError
from raftlog.env.errors import Corrupt, Damaged
from raftlog.env.files import Files, OsFiles, join
from raftlog.offline.reader import shards as shards_in
from raftlog.storage.archive import ARCHIVE, all_segments, read_manifest, read_segment
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import HEADER_BYTES_MAX, NewerFormat, SegmentHeader, decode_header, log_name
from raftlog.storage.snapshot_install import valid_segments
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile

from .frames import Bounds, scan
from .kept import Kept

KEPT_MAX = 1 << 14
"""Files whose header and end are cached: a terabyte of log, in some megabytes of memory."""

_headers: Kept[SegmentHeader | None] = Kept(KEPT_MAX)
_ends: Kept[tuple[int, int] | None] = Kept(KEPT_MAX)

HINT = "give a node's directory, or the folder of a cluster (node-1, node-2, ...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSegment:
    """One segment file of a log, live or archived.

    ``last_index`` is known for all but the newest. Timestamps and types are those in the archive's manifest;
    ``None`` where it has none, and the reader finds out.
    """

    path_live: str
    path_archived: str
    first_index: int
    last_index: int | None
    size: int
    timestamp_ms_min: int | None = None
    timestamp_ms_max: int | None = None
    types: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShard:
    """One shard's log, in the directory that it is read from.

    ``begins_index`` is the oldest entry kept; ``decided_index`` the last one known to be committed, written
    at ``last_ms`` (-1: none).
    """

    shard: int
    directory: str
    node_id: int | None
    begins_index: int
    decided_index: int
    last_ms: int
    segments: tuple[InputSegment, ...]
    is_alone: bool
    """Whether the directory is the whole cluster, so that every complete entry in it is decided."""

    @property
    def home(self) -> str:
        return ShardFiles(self.directory, self.shard).home


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLog:
    """Everything at a path; ``log`` is the same data for the readers of `history`."""

    path: str
    cluster_id: str
    num_shards: int | None
    node_ids: tuple[int, ...]
    remarks: tuple[str, ...]
    log: NodeLog
    shards: dict[int, InputShard]
    members: tuple[MemberDirectory, ...]


def open_input(path: str) -> InputLog:
    """Open the input at ``path``; never writes.

    Raises `InputError` if there is no log, one of a newer format, or logs of two clusters.
    """
    try:
        log = open_node(path)
        members = [member for member, _ in open_members(node_directories(path))]
        readers = {shard: log.reader(shard) for shard in log.shards}
    except NothingToRead as nothing:
        raise InputError(str(nothing), "" if EXPECTED in str(nothing) else HINT) from None
    except Damaged as damage:
        raise InputError(f"{damage.file}: byte {damage.offset}: {damage.what}", damage.hint) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error}", "check the permissions of this process"
        ) from error
    by_path = {member.path: member for member in members}
    files = OsFiles()
    shards: dict[int, InputShard] = {}
    for shard, reader in readers.items():
        assert isinstance(reader, ShardFiles)
        shards[shard] = _shard(files, reader, by_path[reader.node_path], reader.decided_to())
    return InputLog(
        path=path,
        cluster_id=_cluster_of(files, path, members, shards),
        num_shards=log.num_shards,
        node_ids=tuple(member.node_id for member in members if member.node_id is not None),
        remarks=log.remarks,
        log=log,
        shards=shards,
        members=tuple(members),
    )


def node_shards(found: InputLog) -> Iterator[InputShard]:
    """Every node's own log of every shard, for comparison; decided by all nodes together."""
    files = OsFiles()
    for member in found.members:
        for shard in shards_in(member.path, files):
            decided_to = found.shards[shard].decided_index
            yield _shard(files, ShardFiles(member.path, shard), member, decided_to)


def _cluster_of(
    files: Files, path: str, members: Sequence[MemberDirectory], shards: Mapping[int, InputShard]
) -> str:
    """The one cluster that all files under ``path`` belong to; raises `InputError` otherwise."""
    said = {member.cluster_id: member.path for member in members if member.cluster_id is not None}
    for shard in shards.values():
        for segment in shard.segments:
            for place in (segment.path_live, segment.path_archived):
                if (header := _headers.of(place, None, partial(_header, files, place))) is not None:
                    said.setdefault(header.identity.cluster_id, place)
    if not said:
        raise InputError(f"nothing in {path} tells its cluster", "every segment's header is damaged")
    if len(said) > 1:
        told = ", ".join(f"{place} says {name}" for name, place in said.items())
        raise InputError(f"{path} holds logs of two clusters: {told}", "read each cluster separately")
    return next(iter(said))


def _header(files: Files, path: str) -> SegmentHeader | None:
    """A segment's header; ``None`` if the file or a sound header is missing."""
    try:
        file = files.open(path, "r")
    except OSError:
        return None
    try:
        return decode_header(file.pread(HEADER_BYTES_MAX, 0), path)
    except NewerFormat as newer:
        raise InputError(f"{path}: byte {newer.offset}: {newer.what}", newer.hint) from None
    except Corrupt:
        return None
    finally:
        file.close()


def _shard(files: Files, reader: ShardFiles, member: MemberDirectory, decided_to: int | None) -> InputShard:
    segments = tuple(segments_in(files, reader.home))
    return input_shard(reader, member, segments, *_end(files, reader, segments, decided_to))


def input_shard(
    reader: ShardFiles,
    member: MemberDirectory,
    segments: tuple[InputSegment, ...],
    decided: int,
    last_ms: int,
) -> InputShard:
    """The shard in a member's directory, decided up to an entry written at ``last_ms``."""
    return InputShard(
        shard=reader.shard,
        directory=reader.node_path,
        node_id=member.node_id,
        begins_index=segments[0].first_index if segments else decided + 1,
        decided_index=decided,
        last_ms=last_ms,
        segments=segments,
        is_alone=reader.is_alone,
    )


def segments_in(files: Files, home: str) -> Iterator[InputSegment]:
    """The segments of the shard in ``home``, archived and live, under their current names."""
    archive = join(home, ARCHIVE)
    try:
        firsts = valid_segments(files, home)
    except Damaged:
        firsts = all_segments(files, home)  # damage beside the log does not affect its entries
    kept: dict[int, Sealed] = {}
    with contextlib.suppress(Damaged):
        kept = {one.first_index: one for one in read_manifest(files, archive).segments}
    live = set(files.listdir(home))
    for place, first in enumerate(firsts):
        facts, name = kept.get(first), log_name(first)
        here = join(home if name in live else archive, name)
        yield InputSegment(
            path_live=join(home, name),
            path_archived=join(archive, name),
            first_index=first,
            last_index=firsts[place + 1] - 1 if place + 1 < len(firsts) else None,
            size=_size(files, here),
            timestamp_ms_min=None if facts is None else facts.timestamp_ms_min,
            timestamp_ms_max=None if facts is None else facts.timestamp_ms_max,
            types=None if facts is None else facts.types,
        )


def _size(files: Files, path: str) -> int:
    try:
        return files.size(path)
    except OSError:
        return 0


def _end(
    files: Files, reader: ShardFiles, segments: Sequence[InputSegment], decided_to: int | None
) -> tuple[int, int]:
    """Index and timestamp of the last decided entry, from the newest segment that holds one."""
    for place in range(len(segments) - 1, -1, -1):
        one = segments[place]
        following = segments[place + 1].first_index if place + 1 < len(segments) else None
        bounds = Bounds(
            first=one.first_index, following=following, decided=decided_to, is_alone=reader.is_alone
        )
        path = one.path_live if files.exists(one.path_live) else one.path_archived
        if (end := _ends.of(path, bounds, partial(_end_within, files, reader.home, bounds))) is not None:
            return end
    return _end_of_snapshot(files, reader.home)


def _end_within(files: Files, home: str, bounds: Bounds) -> tuple[int, int] | None:
    """Index and timestamp of the last decided entry in one segment."""
    try:
        path, data = read_segment(files, home, bounds.first)
    except Damaged:
        return None
    frames, _ = scan(data, path, bounds)
    return (int(frames.index[-1]), int(frames.timestamp_ms[-1])) if len(frames) else None


def _end_of_snapshot(files: Files, home: str) -> tuple[int, int]:
    try:
        file = SnapshotFile(files, join(home, SNAPSHOT_FILE))
    except (FileNotFoundError, Corrupt):
        return 0, -1
    file.close()
    return file.header.last_index, file.header.last_timestamp_ms
