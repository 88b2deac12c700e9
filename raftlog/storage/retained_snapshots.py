"""Kept snapshots: a few earlier ones stay in the archive, so that reading a past state need not replay all.

A new snapshot replaces the previous one; the job that merges it copies that one to the archive first, and the
node puts the copy in place with the rest.  A bounded number is kept, spread evenly over the log: the one
whose neighbours are closest is removed.  They only save readers time: no start and no promise depends on
them, each is verified by its own CRCs, and a log without any is complete.

A kept snapshot that lies before the entries that retention has dropped is useless, because the entries after
it are missing; it is removed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from raftlog.env.errors import Corrupt
from raftlog.env.files import Files, join
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.archive import ARCHIVE, read_manifest
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile

COPY_BYTES = 1 << 20
"""Bytes of a snapshot copied at once, so that the job's memory does not grow with it."""

_NAME = re.compile(r"snapshot-(\d{20})")


def kept_path(home: str, last_index: int) -> str:
    """The path of the kept snapshot that ends with `last_index`."""
    return join(home, ARCHIVE, f"{SNAPSHOT_FILE}-{last_index:020d}")


def kept_indexes(files: Files, home: str) -> list[int]:
    """The last indexes of the kept snapshots, ascending."""
    archive = join(home, ARCHIVE)
    names = files.listdir(archive) if files.is_dir(archive) else []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def copy_snapshot(files: Files, home: str, target: str) -> None:
    """Copy the snapshot of the log in `home` to `target`, synced."""
    source = files.open(join(home, SNAPSHOT_FILE), "r")
    copy = files.open(target, "w")
    try:
        copy.truncate(0)
        at, size = 0, source.size()
        while at < size:
            data = source.pread(min(COPY_BYTES, size - at), at)
            copy.pwrite(data, at)
            at += len(data)
        copy.fdatasync()
    finally:
        copy.close()
        source.close()


def surplus(indexes: Sequence[int], newest: int, kept_max: int) -> list[int]:
    """The kept snapshots (`indexes`, ascending) to remove so that `kept_max` are left.

    Those left are evenly spread between the first entry and the snapshot in use, which ends with `newest`.
    """
    left, gone = [one for one in indexes if one < newest], [one for one in indexes if one >= newest]
    while len(left) > kept_max:
        bounds = [0, *left, newest]
        spans = [bounds[place + 2] - bounds[place] for place in range(len(left))]
        gone.append(left.pop(spans.index(min(spans))))
    return sorted(gone)


def thin_out(files: Files, home: str, newest: int, kept_max: int) -> None:
    """Remove the kept snapshots that are too many, or that retention has made useless."""
    dropped = read_manifest(files, join(home, ARCHIVE)).dropped_index
    indexes = kept_indexes(files, home)
    useless = [one for one in indexes if one < dropped]
    gone = [*useless, *surplus([one for one in indexes if one >= dropped], newest, kept_max)]
    for one in gone:
        files.unlink(kept_path(home, one))
    if gone:
        files.fsync_dir(join(home, ARCHIVE))


def header_of(files: Files, path: str) -> SnapshotHeader | None:
    """The header of a snapshot file; None if the file does not exist (any more) or its header is damaged."""
    try:
        file = SnapshotFile(files, path)
    except (FileNotFoundError, Corrupt):
        return None
    file.close()
    return file.header
