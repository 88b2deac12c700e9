"""Reading what one replica has committed: live entries, archived ones, the snapshot."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.env.files import Files, join
from raftlog.storage.archive import ARCHIVE, ArchiveCursor, read_manifest
from raftlog.storage.journal import Journal
from raftlog.storage.snapshot_install import SnapshotSource


class CommittedLog:
    """The committed entries of a replica that runs."""

    def __init__(self, files: Files, journal: Journal, commit_index: Callable[[], int]) -> None:
        self._files = files
        self._journal = journal
        self._commit_index = commit_index

    @property
    def chain_hash(self) -> bytes:
        """16 bytes over all committed frames up to `chain_index`."""
        return self._journal.chain.digest

    @property
    def chain_index(self) -> int:
        """The last entry that `chain_hash` covers."""
        return self._journal.chain.index

    @property
    def live_from(self) -> int:
        """The first entry after the snapshot; older ones are in the archive, or removed."""
        return self._journal.base_index + 1

    def read(self, from_index: int, bytes_max: int) -> bytes:
        """Committed entries from `from_index` on as whole frames, about `bytes_max` but at least one frame.

        Returns b"" when there are none (yet).  Entries below the snapshot come from the archive.  Raises
        Corrupt, and KeyError when retention has removed the entry.
        """
        commit_index = self._commit_index()
        if from_index > commit_index:
            return b""
        if from_index >= self.live_from:
            return self._journal.frames_for(from_index, commit_index, bytes_max)
        cursor = self.archive()
        try:
            return cursor.frames(from_index, bytes_max)
        finally:
            cursor.close()

    def archive(self) -> ArchiveCursor:
        """A cursor for sequential reads of entries older than the snapshot; any thread, one at a time."""
        return ArchiveCursor(self._files, self._journal.home)

    def first_kept(self) -> int:
        """The oldest entry that can be read; reads a file, on any thread.  Raises Corrupt."""
        segments = read_manifest(self._files, join(self._journal.home, ARCHIVE)).segments
        return segments[0].first_index if segments else self.live_from

    def snapshot(self) -> SnapshotSource:
        """The current snapshot, opened for reading on any thread; raises FileNotFoundError, Corrupt."""
        return SnapshotSource(self._files, self._journal.home)
