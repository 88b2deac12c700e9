"""The archive: segments below the snapshot, kept as history for as long as the retention settings say.

The manifest lists the contents of the archive, with the facts of each sealed index, so that a missing or
altered file is found and the hash chain is known at every seam.  A move writes the manifest first, then
renames, then syncs both directories; a removal writes the manifest first, then unlinks.  So a crash leaves
either a file in the shard's directory that the manifest names (the next start repeats the move), or one in
the archive that it no longer names (the next start removes it).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from raftlog.env.errors import RESTORE_HINT, Corrupt, Damaged
from raftlog.env.files import File, Files, join, replace
from raftlog.env.object_stores import StoreError
from raftlog.storage.frames import HEADER, HEADER_BYTES, frame_at
from raftlog.storage.metafile import decode_meta, encode_meta, read_meta
from raftlog.storage.sealed_index import Sealed, find_frame
from raftlog.storage.segments import HEADER_BYTES_MAX, decode_header, first_indexes, index_name, log_name

LOG = logging.getLogger("quorate.raftlog")

ARCHIVE = "archive"
MANIFEST = "manifest"
_KIND = "manifest"

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of the archive, oldest first; `dropped_index` is the last entry that retention removed."""

    segments: tuple[Sealed, ...]
    dropped_index: int = 0

    @property
    def last_index(self) -> int:
        """The index of the last archived entry."""
        return self.segments[-1].last_index if self.segments else self.dropped_index


def encode_manifest(segments: Sequence[Sealed], dropped_index: int = 0) -> bytes:
    """The bytes of a manifest."""
    rows = [
        [
            sealed.first_index,
            sealed.last_index,
            sealed.frame_count,
            sealed.log_bytes,
            sealed.log_crc,
            sealed.timestamp_ms_min,
            sealed.timestamp_ms_max,
            sealed.chain_before,
            sealed.chain_after,
            list(sealed.types),
        ]
        for sealed in segments
    ]
    return encode_meta(_KIND, dropped_index, rows)


def write_manifest(files: Files, archive: str, segments: Sequence[Sealed], dropped_index: int = 0) -> None:
    """Durably replace the manifest."""
    replace(files, join(archive, MANIFEST), encode_manifest(segments, dropped_index))


def read_manifest(files: Files, archive: str) -> Manifest:
    """Read the manifest; raises Corrupt."""
    return _manifest(read_meta(files, join(archive, MANIFEST), _KIND))


def decode_manifest(data: bytes, path: str) -> Manifest:
    """A manifest from its bytes; raises Corrupt."""
    return _manifest(decode_meta(data, path, _KIND))


def _manifest(fields: list[Any]) -> Manifest:
    dropped, rows = fields[:2]
    segments = tuple(
        Sealed(
            first_index=first,
            last_index=last,
            frame_count=frames,
            log_bytes=size,
            log_crc=crc,
            timestamp_ms_min=least,
            timestamp_ms_max=most,
            chain_before=before,
            chain_after=after,
            types=tuple(types),
        )
        for first, last, frames, size, crc, least, most, before, after, types in rows
    )
    return Manifest(segments=segments, dropped_index=dropped)


def archive_segments(files: Files, home: str, sealed: Sequence[Sealed]) -> Manifest:
    """Move sealed segments of the log in `home` to its archive; may be repeated after a crash."""
    archive = join(home, ARCHIVE)
    manifest = read_manifest(files, archive)
    fresh = tuple(one for one in sealed if one.first_index > manifest.last_index)
    if fresh:
        manifest = Manifest(segments=(*manifest.segments, *fresh), dropped_index=manifest.dropped_index)
        write_manifest(files, archive, manifest.segments, manifest.dropped_index)
    _move(files, home, manifest)
    return manifest


def finish_archiving(files: Files, home: str) -> None:
    """Complete the moves and removals that a crash interrupted."""
    _move(files, home, read_manifest(files, join(home, ARCHIVE)))
    remove_dropped(files, home)


def _move(files: Files, home: str, manifest: Manifest) -> None:
    """Move every file that the manifest names and that is still in `home` to the archive."""
    archive = join(home, ARCHIVE)
    here = set(files.listdir(home))
    named = [
        name for one in manifest.segments for name in (log_name(one.first_index), index_name(one.first_index))
    ]
    moving = [name for name in named if name in here]
    for name in moving:
        files.rename(join(home, name), join(archive, name))
    if moving:  # the new names are durable before the old ones are
        files.fsync_dir(archive)
        files.fsync_dir(home)


def apply_retention(
    files: Files,
    home: str,
    retention_bytes: int,
    retention_ms: int,
    now_ms: int,
    shipped_index: int | None = None,
) -> Manifest:
    """Remove the oldest archived segments beyond `retention_bytes` or older than `retention_ms` (-1: keep).

    `now_ms` is the log's own last timestamp, or an earlier time that has certainly passed.  If segments are
    shipped to a store, `shipped_index` is the last entry there: age does not remove what is not there yet,
    and `retention_bytes` does, with a line in the node's log, because the disk ends somewhere.
    """
    archive = join(home, ARCHIVE)
    manifest = read_manifest(files, archive)
    keep = list(manifest.segments)
    total_bytes = sum(one.log_bytes for one in keep)
    while keep:
        too_much = 0 <= retention_bytes < total_bytes
        is_shipped = shipped_index is None or keep[0].last_index <= shipped_index
        too_old = 0 <= retention_ms < now_ms - keep[0].timestamp_ms_max and is_shipped
        if not (too_much or too_old):
            break
        if not is_shipped:
            LOG.warning(
                "%s: entries %d to %d go unshipped: log.archive.retention.bytes is reached, and the store of "
                "log.archive.url has not got them",
                *(archive, keep[0].first_index, keep[0].last_index),
            )
        total_bytes -= keep.pop(0).log_bytes
    if len(keep) == len(manifest.segments):
        return manifest
    dropped = manifest.segments[len(manifest.segments) - len(keep) - 1].last_index
    write_manifest(files, archive, keep, dropped)
    remove_dropped(files, home)
    return Manifest(segments=tuple(keep), dropped_index=dropped)


def remove_dropped(files: Files, home: str) -> None:
    """Unlink archived files that the manifest no longer names; a file that it never named is damage."""
    archive = join(home, ARCHIVE)
    manifest = read_manifest(files, archive)
    named = {one.first_index for one in manifest.segments}
    names = files.listdir(archive)
    gone = [first for first in first_indexes(names) if first not in named]
    for first in gone:
        if first > manifest.dropped_index:
            path = join(archive, log_name(first))
            raise Corrupt(path, 0, "is in the archive but not in its manifest", RESTORE_HINT)
        # The index first: a log without an index is found again by the next start, the reverse is not.
        for name in (index_name(first), log_name(first)):
            if name in names:
                files.unlink(join(archive, name))
    if gone:
        files.fsync_dir(archive)


def all_segments(files: Files, home: str) -> list[int]:
    """First indexes of all segments, archived and live, that the log in `home` should have; ascending."""
    archive = join(home, ARCHIVE)
    names = files.listdir(home)
    if files.is_dir(archive):
        names += files.listdir(archive)
    found = set(first_indexes(names))
    with contextlib.suppress(Corrupt):  # `verify` reports it
        found.update(one.first_index for one in read_manifest(files, archive).segments)
    return sorted(found)


def places_of(home: str, name: str) -> tuple[str, str]:
    """The paths that a file of the log in `home` has while its segment is live, and once it is archived."""
    return join(home, name), join(home, ARCHIVE, name)


def read_segment(files: Files, home: str, first_index: int) -> tuple[str, bytes]:
    """(path, bytes) of a segment, live or archived; raises Damaged when it cannot be read."""
    return segment_by(files.read, home, first_index)


def segment_by(read: Callable[[str], _Read], home: str, first_index: int) -> tuple[str, _Read]:
    """Like `read_segment`, with any function that reads a file and raises OSError."""
    live, archived = places_of(home, log_name(first_index))
    for path in (live, archived, live):  # it may be moved in the meantime
        try:
            return path, read(path)
        except FileNotFoundError:
            continue
        except StoreError:
            raise  # a store that is away for a minute is no damage
        except OSError as error:
            hint = "check the disk and the file's permissions"
            raise Damaged(path, 0, f"cannot be read: {error.strerror}", hint) from None
    raise Damaged(live, 0, "is missing, also from the archive", "copy it here from another node")


class ArchiveCursor:
    """Reads archived frames of the log in `home` sequentially, with memory for about one result."""

    def __init__(self, files: Files, home: str) -> None:
        self._files = files
        self._archive = join(home, ARCHIVE)
        self._file: File | None = None
        self._path = ""
        self._at = 0
        self._next_index = 0

    def frames(self, from_index: int, bytes_max: int) -> bytes:
        """The bytes of `read`."""
        return self.read(from_index, bytes_max)[2]

    def read(self, from_index: int, bytes_max: int) -> tuple[str, int, bytes]:
        """Checked whole frames from `from_index` on, of one segment: (its path, offset, bytes).

        About `bytes_max`, but at least one.  Raises KeyError when the entry is not in the archive (any more),
        and Damaged.
        """
        if self._file is None or from_index != self._next_index or self._at >= self._file.size():
            self._seek(from_index)
        start = self._at
        return self._path, start, self._take(bytes_max)

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _seek(self, index: int) -> None:
        self.close()
        for one in read_manifest(self._files, self._archive).segments:
            if one.first_index <= index <= one.last_index:
                break
        else:
            raise KeyError(f"entry {index} is no longer kept, or not in the archive yet")
        self._path = join(self._archive, log_name(one.first_index))
        try:
            found = self._find(join(self._archive, index_name(one.first_index)), index)
            self._file = self._files.open(self._path, "r")
        except FileNotFoundError:
            raise KeyError(f"entry {index} is no longer kept: retention is removing it") from None
        if found is None:
            head = decode_header(self._file.pread(HEADER_BYTES_MAX, 0), self._path)
            found = one.first_index, head.frames_offset
        self._next_index, self._at = found
        while self._next_index < index:  # an entry without records has no row in the index
            self._take(1)

    def _find(self, path: str, index: int) -> tuple[int, int] | None:
        file = self._files.open(path, "r")
        try:
            return find_frame(file, path, index)
        finally:
            file.close()

    def _take(self, bytes_max: int) -> bytes:
        """The next frames, checked; at least one."""
        assert self._file is not None
        data = self._file.pread(max(bytes_max, HEADER_BYTES), self._at)
        if len(data) >= HEADER_BYTES:
            length = HEADER.unpack_from(data)[2]
            if length > len(data) - HEADER_BYTES:
                rest = min(length, self._file.size())  # if damaged, the CRC detects it
                data = self._file.pread(HEADER_BYTES + rest, self._at)
        view, end, index = memoryview(data), 0, self._next_index
        while (found := frame_at(view, end)) is not None and found[1] == index:
            end, index = found[0], index + 1
        if not end:
            what = f"no complete frame where entry {index} should be"
            raise Damaged(self._path, self._at, what, "`log verify` lists all damage")
        self._at += end
        self._next_index = index
        return data[:end]
