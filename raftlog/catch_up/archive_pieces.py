"""Fetching old history into an archive that begins too late because a snapshot was installed.

A peer's archived segment is accepted if it ends where this archive begins and its hash chain leads to the one
known here: then every byte is what this cluster once committed, whoever sent it.  If the peer's segment
extends further, its part up to that place is a segment too: all of them end with a stride of the hash chain.

Order: the segment in a temporary file; checked, indexed and synced by a child process; its log and its index
into the archive; the manifest.  A crash before the manifest leaves files that count as dropped, which the
next start removes.  Invariants: a segment is in the manifest only when it is proven.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict, dataclass
from typing import Any

import msgpack

from raftlog.consensus.messages import HistoryChunk
from raftlog.env.errors import Corrupt, PeerMessageRefused
from raftlog.env.files import TEMPORARY_SUFFIX, File, Files, OsFiles, join, write_aside
from raftlog.env.settings import LogSettings
from raftlog.storage.archive import ARCHIVE, ArchiveCursor, Manifest, read_manifest, write_manifest
from raftlog.storage.index_build import build_index
from raftlog.storage.sealed_index import Sealed
from raftlog.storage.segments import LogIdentity, check_header, decode_header, index_name, log_name
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile

JOB_MODULE = "raftlog.catch_up.archive_pieces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The missing beginning of an archive: every entry up to `before_index`, where the hash chain is `chain`.

    The archive keeps `kept_bytes` of segments; `free_bytes` are free on the disk.
    """

    before_index: int
    chain: bytes
    kept_bytes: int
    free_bytes: int

    def has_room(self, settings: LogSettings, size_bytes: int, newest_ms: int, now_ms: int) -> bool:
        """Whether a segment of that size and age would be kept and fits on the disk.

        Retention must keep it at `now_ms`, and the disk must have space for it and its index, beyond what the
        live log needs.
        """
        limit_bytes, limit_ms = settings.log_archive_retention_bytes, settings.log_archive_retention_ms
        too_much = 0 <= limit_bytes < self.kept_bytes + size_bytes
        too_old = 0 <= limit_ms < now_ms - newest_ms
        return (
            not too_much and not too_old and self.free_bytes > settings.disk_free_bytes_min + 2 * size_bytes
        )


def find_gap(files: Files, home: str) -> Gap | None:
    """The missing beginning of the archive in `home`; None while a snapshot is being put in place.

    Its `before_index` is 0 if nothing is missing.  Raises Corrupt.
    """
    manifest = read_manifest(files, join(home, ARCHIVE))
    chain = _chain_at_start(files, home, manifest)
    if chain is None:
        return None
    return Gap(
        before_index=manifest.dropped_index,
        chain=chain,
        kept_bytes=sum(one.log_bytes for one in manifest.segments),
        free_bytes=files.free_bytes(home),
    )


def _chain_at_start(files: Files, home: str, manifest: Manifest) -> bytes | None:
    """The hash chain before the first entry that is kept; None when the snapshot does not fit."""
    if manifest.segments:
        return manifest.segments[0].chain_before
    if not manifest.dropped_index:
        return b""
    file = SnapshotFile(files, join(home, SNAPSHOT_FILE))
    file.close()
    return file.header.chain_hash if file.header.last_index == manifest.dropped_index else None


# Receiving


def segment_aside(home: str, token: str) -> str:
    """The path to which a peer's segment is written as it arrives; `token` is unique."""
    return join(home, ARCHIVE, f"history.{token}.log{TEMPORARY_SUFFIX}")


def index_aside(home: str, token: str) -> str:
    """The path to which the child process writes its index."""
    return join(home, ARCHIVE, f"history.{token}.index{TEMPORARY_SUFFIX}")


def write_chunk(files: Files, path: str, offset: int, data: bytes) -> None:
    """Append a chunk that has arrived; the file is synced only when it is checked."""
    file = files.open(path, "w")
    try:
        file.pwrite(data, offset)
    finally:
        file.close()


def remove_asides(files: Files, home: str, token: str) -> None:
    """Remove the files of an abandoned segment; the next start removes those that remain."""
    for path in (segment_aside(home, token), index_aside(home, token)):
        with contextlib.suppress(OSError):
            files.unlink(path)


def request_of(home: str, token: str, identity: LogIdentity, gap: Gap, chain_before: bytes) -> dict[str, Any]:
    """A request to the child to check that the received file is the segment before `gap`, of this log.

    `chain_before` is the hash chain before it, as the peer reported it.
    """
    return {
        "home": home,
        "token": token,
        "identity": asdict(identity),
        "last_index": gap.before_index,
        "chain_before": chain_before,
        "chain_after": gap.chain,
    }


def run(request: Any, files: Files) -> dict[str, Any]:
    """Check, index and sync the received file: {"sealed": its header}, or {"refused": the reason}."""
    try:
        return {"sealed": asdict(_check(request, files))}
    except Corrupt as damage:
        return {"refused": f"byte {damage.offset}: {damage.what}"}
    except (PeerMessageRefused, ValueError) as error:
        return {"refused": str(error)}


def _check(request: Any, files: Files) -> Sealed:
    home, token = request["home"], request["token"]
    path = segment_aside(home, token)
    segment = files.read(path)
    header = decode_header(segment, path)
    check_header(header, path, LogIdentity(**request["identity"]), header.first_index)
    sealed, index = build_index(segment, path, request["chain_before"])
    if sealed.last_index != request["last_index"]:
        raise PeerMessageRefused(f"it ends with entry {sealed.last_index}, not {request['last_index']}")
    if sealed.chain_after != request["chain_after"]:
        raise PeerMessageRefused(
            f"the hash chain from entry {sealed.first_index} on does not end at the hash that this node knows"
        )
    file = files.open(path, "w")
    try:
        file.fdatasync()
    finally:
        file.close()
    write_aside(files, index_aside(home, token), index)
    return sealed


def sealed_of(result: object) -> Sealed:
    """The header of the index that the child built; raises PeerMessageRefused when it refused the segment."""
    if not isinstance(result, dict):
        raise TypeError(f"the child process returned {result!r}")
    if "refused" in result:
        raise PeerMessageRefused(result["refused"])
    return Sealed(**(result["sealed"] | {"types": tuple(result["sealed"]["types"])}))


def adopt(files: Files, home: str, token: str, sealed: Sealed) -> None:
    """Put the checked segment in front of the archive in `home`; for the disk thread.

    Raises PeerMessageRefused, having changed nothing, if the archive begins elsewhere by now; also raises
    Corrupt.
    """
    archive = join(home, ARCHIVE)
    manifest = read_manifest(files, archive)
    is_next = sealed.last_index == manifest.dropped_index
    if not is_next or sealed.chain_after != _chain_at_start(files, home, manifest):
        raise PeerMessageRefused(
            f"the archive no longer holds the entries before {manifest.dropped_index + 1}"
        )
    # The log first: a log without an index is found again by the next start, the reverse is not.
    for path, name in (
        (segment_aside(home, token), log_name(sealed.first_index)),
        (index_aside(home, token), index_name(sealed.first_index)),
    ):
        files.rename(path, join(archive, name))
        files.fsync_dir(archive)
    write_manifest(files, archive, (sealed, *manifest.segments), sealed.first_index - 1)


# Sending


class HistorySource:
    """An archive as it is read for one peer; for the disk thread.

    It has at most one open file, which retention may unlink in the meantime.
    """

    def __init__(self, files: Files, home: str) -> None:
        self._files = files
        self._home = home
        self._file: File | None = None
        self._offer = HistoryChunk(0, 0, 0, b"", 0, b"")

    def answer(self, before_index: int, offset: int, bytes_max: int) -> HistoryChunk:
        """Bytes from `offset` on of the segment, or the part of one, that ends with `before_index`.

        `size` is 0 when the archive does not have that entry.  Raises Damaged, OSError.
        """
        if self._file is None or self._offer.before_index != before_index:
            self.close()
            self._offer = self._open(before_index)
        offer = self._offer
        room = max(0, min(bytes_max, offer.size - offset))
        data = self._file.pread(room, offset) if self._file is not None and room else b""
        return HistoryChunk(before_index, offer.size, offer.newest_ms, offer.chain_before, offset, data)

    def _open(self, before_index: int) -> HistoryChunk:
        archive = join(self._home, ARCHIVE)
        for one in read_manifest(self._files, archive).segments:
            if one.first_index <= before_index <= one.last_index:
                break
        else:
            return HistoryChunk(before_index, 0, 0, b"", 0, b"")
        with contextlib.suppress(FileNotFoundError, KeyError):  # retention is removing it
            size = one.log_bytes if before_index == one.last_index else self._end_of(before_index)
            self._file = self._files.open(join(archive, log_name(one.first_index)), "r")
            return HistoryChunk(before_index, size, one.timestamp_ms_max, one.chain_before, 0, b"")
        return HistoryChunk(before_index, 0, 0, b"", 0, b"")

    def _end_of(self, index: int) -> int:
        """The end of the frame of `index` in its segment, which continues after it."""
        cursor = ArchiveCursor(self._files, self._home)
        try:
            return cursor.read(index + 1, 1)[1]
        finally:
            cursor.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def main() -> None:
    """Read a request from standard input, write the result to standard output."""
    request = msgpack.unpackb(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgpack.packb(run(request, OsFiles())))


if __name__ == "__main__":
    main()
