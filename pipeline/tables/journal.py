"""A commit: decided by one rename, then carried out, if need be by whoever opens the output next.

Everything new is first written to `_quorate/staging` and made durable: the Parquet files, the next list of
files, the next manifest. Then the journal, which lists the files to move and to remove, is written under a
temporary name, synced, and renamed; this rename decides the commit. Before it the old tables stand and the
staged files mean nothing. After it the commit is carried out however often it is interrupted, since each step
can be repeated. The journal is removed once all of it is durable.

While a commit is carried out nothing waits for the disk: new files are renamed into place, the manifest last,
then replaced files are removed, and only then are folders synced. A reader that uses the manifest sees the
old tables or the new ones. A reader that lists the folder may, during these renames and removals (tens of
microseconds each), see new files beside those that they replace; the latter are gone by the time it opens
them, so that it fails rather than counts twice.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from zlib import crc32

from pipeline.errors import OutputError
from raftlog.env.files import TEMPORARY_SUFFIX, Files, write_aside

from . import names
from .disk import join, make_folders, parent
from .manifest import FORMAT


@dataclass(frozen=True, slots=True)
class FileOperations:
    """The file operations of a commit; all paths are relative to the folder."""

    moves: tuple[tuple[str, str], ...]
    """Source and target, in this order; the manifest comes last."""
    removes: tuple[str, ...]

    def encoded(self) -> bytes:
        body = json.dumps({"format": FORMAT, "moves": self.moves, "removes": self.removes}).encode()
        return b"%08x\n" % crc32(body) + body


def prepare(files: Files, root: str, change: FileOperations) -> None:
    """Do everything that may fail for lack of space: sync the staged files, and create the target folders.

    No committed data changes.
    """
    for source, _ in change.moves:
        file = files.open(join(root, source), "r")
        try:
            file.fdatasync()
        finally:
            file.close()
    make_folders(files, root, sorted({parent(target) for _, target in change.moves}))
    staged: set[str] = set()
    for source, _ in change.moves:
        folders = source.split("/")[:-1]
        staged.update("/".join(folders[:depth]) for depth in range(1, len(folders) + 1))
    for folder in sorted(staged):
        files.fsync_dir(join(root, folder))
    write_aside(files, join(root, names.JOURNAL + TEMPORARY_SUFFIX), change.encoded())


def decide(files: Files, root: str) -> None:
    """Decide the commit: from here on it counts."""
    files.rename(join(root, names.JOURNAL + TEMPORARY_SUFFIX), join(root, names.JOURNAL))
    files.fsync_dir(join(root, names.OURS))


def carry_out(files: Files, root: str, change: FileOperations) -> None:
    """Carry out the remaining steps of a decided commit."""
    make_folders(files, root, sorted({parent(target) for _, target in change.moves}))
    for source, target in change.moves:
        try:
            files.rename(join(root, source), join(root, target))
        except FileNotFoundError:
            if not files.exists(join(root, target)):
                raise OutputError(
                    f"a commit in {root} was interrupted, and {target}, which it was adding, is missing",
                    "restore it, or write to a new output",
                ) from None
    for path in change.removes:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(join(root, path))
    touched = {parent(path) for path in (*(target for _, target in change.moves), *change.removes)}
    for folder in sorted(touched):
        if files.exists(join(root, folder)):
            files.fsync_dir(join(root, folder))
    files.unlink(join(root, names.JOURNAL))
    files.fsync_dir(join(root, names.OURS))


def complete(files: Files, root: str) -> bool:
    """Carry out the commit that a killed run had decided; returns whether there was one."""
    try:
        change = _decoded(files.read(join(root, names.JOURNAL)), root)
    except FileNotFoundError:
        return False
    if change is None:
        files.unlink(join(root, names.JOURNAL))
        files.fsync_dir(join(root, names.OURS))
        return False
    carry_out(files, root, change)
    return True


def _decoded(data: bytes, root: str) -> FileOperations | None:
    """The change in a journal; None if it is incomplete, in which case nothing was carried out."""
    crc, _, body = data.partition(b"\n")
    if crc != b"%08x" % crc32(body):
        return None
    fields = json.loads(body)
    if fields["format"] > FORMAT:
        raise OutputError(f"a newer release was killed while writing {root}", "run that release once")
    return FileOperations(
        tuple((source, target) for source, target in fields["moves"]), tuple(fields["removes"])
    )
