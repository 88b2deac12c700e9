"""Installing a snapshot from another node: read in chunks there, written aside here, checked, put in place.

For a follower whose next entry its leader no longer keeps.  The order of an installation, each step durable
before the next:

    the chunks, in a temporary file, all of it checked       (a crash: the next start removes the file)
    the marker `installing`, naming the snapshot             (a crash: the next start removes the marker)
    the rename to `snapshot`                                 (a crash from here on: it does what is left)
    the mark of what was synced: up to the snapshot, no further
    the manifest: everything up to the snapshot is dropped
    archived files, then segments of the old log, are removed
    the segment that follows the snapshot is made
    the marker is removed

Invariants: a file that is not whole, or not this shard's, is never renamed; nothing of the old log
is touched before the new snapshot is durable.
"""

from __future__ import annotations

import contextlib

from raftlog.env.errors import Corrupt, PeerMessageRefused
from raftlog.env.files import TEMPORARY_SUFFIX, File, Files, join
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.archive import ARCHIVE, all_segments, remove_dropped, write_manifest
from raftlog.storage.metafile import read_meta, write_meta
from raftlog.storage.segments import LogIdentity, create_segment, first_indexes, index_name, log_name
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile
from raftlog.storage.sync_mark import Synced

INSTALLING_FILE = "installing"
_KIND = "installing"

SNAPSHOT_BYTES_MAX = 16 << 30
"""At most this many bytes of a snapshot are received, far above a shard's state.

A peer that misbehaves cannot fill the disk.
"""


class SnapshotSource:
    """The current snapshot of the log in `home`, open for sending; a newer one replaces it by name only."""

    def __init__(self, files: Files, home: str) -> None:
        path = join(home, SNAPSHOT_FILE)
        snapshot = SnapshotFile(files, path)
        self._file = snapshot.file
        self.header: SnapshotHeader = snapshot.header
        self.size = self._file.size()

    def chunk(self, offset: int, bytes_max: int) -> bytes:
        """Bytes from `offset` on; b"" at the end."""
        return self._file.pread(bytes_max, offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SnapshotSink:
    """A snapshot being received; `token` makes the name of its temporary file unique."""

    def __init__(self, files: Files, home: str, token: str) -> None:
        self._files = files
        self._home = home
        self._path = join(home, f"{SNAPSHOT_FILE}.{token}{TEMPORARY_SUFFIX}")
        self._file: File | None = files.open(self._path, "w")
        self.offset = 0

    def take(self, offset: int, data: bytes) -> None:
        """Append the next chunk; raises PeerMessageRefused when it is not the next one, or too much."""
        if self._file is None or offset != self.offset:
            raise PeerMessageRefused(f"a chunk of a snapshot at byte {offset} instead of byte {self.offset}")
        if offset + len(data) > SNAPSHOT_BYTES_MAX:
            raise PeerMessageRefused(f"the snapshot is larger than {SNAPSHOT_BYTES_MAX} bytes")
        self._file.pwrite(data, offset)
        self.offset += len(data)

    def finish(self, identity: LogIdentity) -> SnapshotHeader:
        """Check the complete file, make it durable and put it in place; `Journal.adopt_snapshot` comes next.

        Raises PeerMessageRefused, having changed nothing, when the file is not whole or not of `identity`.
        """
        file = self._file
        if file is None:
            raise PeerMessageRefused("this snapshot was abandoned")
        self._file = None
        try:
            file.fdatasync()
        finally:
            file.close()
        try:
            header = _check(self._files, self._path, identity)
        except PeerMessageRefused:
            self.abandon()
            raise
        marker = join(self._home, INSTALLING_FILE)
        write_meta(self._files, marker, _KIND, header.last_index, header.last_term, header.chain_hash)
        self._files.rename(self._path, join(self._home, SNAPSHOT_FILE))
        self._files.fsync_dir(self._home)
        return header

    def abandon(self) -> None:
        """Give up and remove the received bytes; harmless at any time before `finish` has returned."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):  # the next start removes the rest
            self._files.unlink(self._path)


def _check(files: Files, path: str, identity: LogIdentity) -> SnapshotHeader:
    try:
        snapshot = SnapshotFile(files, path)
        try:
            snapshot.check()
        finally:
            snapshot.close()
    except Corrupt as damage:
        raise PeerMessageRefused(
            f"the received snapshot is damaged: byte {damage.offset}: {damage.what}"
        ) from None
    header = snapshot.header
    ours = (identity.cluster_id, identity.shard, identity.num_shards)
    if (header.cluster_id, header.shard, header.num_shards) != ours:
        raise PeerMessageRefused(
            f"the snapshot belongs to shard {header.shard} of cluster {header.cluster_id}, not to {ours}"
        )
    if header.last_index <= 0 or header.last_index % CHAIN_STRIDE:
        raise PeerMessageRefused(f"a snapshot cannot end with entry {header.last_index}")
    return header


def installing(files: Files, home: str) -> SnapshotHeader | None:
    """The header of the snapshot whose installation into `home` is not complete, if there is one.

    Raises Corrupt.
    """
    marker, path = join(home, INSTALLING_FILE), join(home, SNAPSHOT_FILE)
    if not files.exists(marker) or not files.exists(path):
        return None
    snapshot = SnapshotFile(files, path)
    snapshot.close()
    header = snapshot.header
    wanted = read_meta(files, marker, _KIND)[:3]
    is_it = wanted == [header.last_index, header.last_term, header.chain_hash]
    return header if is_it else None


def valid_segments(files: Files, home: str) -> list[int]:
    """First indexes of the segments of the log in `home`, archived and live, ascending.

    Those that an incomplete installation will remove are left out.  Raises Corrupt.
    """
    header = installing(files, home)
    after = 0 if header is None else header.last_index
    return [first for first in all_segments(files, home) if first > after]


def reset_log(files: Files, home: str, header: SnapshotHeader) -> str:
    """Replace the log by an empty one after the installed snapshot; returns the path of its segment.

    May be repeated after a crash.
    """
    synced = Synced(files, home)
    synced.settle(header.last_index)
    synced.close()
    archive = join(home, ARCHIVE)
    write_manifest(files, archive, (), header.last_index)
    names = files.listdir(home)
    for first in reversed(first_indexes(names)):
        for name in (log_name(first), index_name(first)):
            if name in names:
                files.unlink(join(home, name))
    files.fsync_dir(home)
    remove_dropped(files, home)
    identity = LogIdentity(cluster_id=header.cluster_id, shard=header.shard, num_shards=header.num_shards)
    path = create_segment(files, home, identity, header.last_index + 1)
    _remove_marker(files, home)
    return path


def finish_installing(files: Files, home: str) -> None:
    """Complete, or undo, an installation that a crash interrupted."""
    if not files.exists(join(home, INSTALLING_FILE)):
        return
    header = installing(files, home)
    if header is None:
        _remove_marker(files, home)
    else:
        reset_log(files, home, header)


def _remove_marker(files: Files, home: str) -> None:
    files.unlink(join(home, INSTALLING_FILE))
    files.fsync_dir(home)
