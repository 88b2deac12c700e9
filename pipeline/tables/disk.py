"""The disk under an output: the log's own file layer, with the additions that tables need.

The log's durability is tested on this layer (`raftlog.env.files`): a simulated disk can crash or fail a
commit at every call. The differences: tables are for others to read, so files and folders get the usual
permissions, and a folder of leftovers is removed as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from pipeline.errors import OutputError
from raftlog.env.files import Files, Mode, OsFile, OsFiles, join, parent

__all__ = ["OsOutputFiles", "TableFiles", "is_full", "join", "make_folders", "parent", "place_of", "told"]

FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = ("No space left on device", "Disk quota exceeded")
"""The same in an executor's error, which arrives as text."""
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")


class TableFiles(Files, Protocol):
    """`raftlog.env.files.Files` with the additions that only tables need."""

    def make_root(self, path: str) -> None:
        """Create the folder at `path` and its parents where missing."""

    def remove_tree(self, path: str) -> None:
        """Remove as much of the folder as possible; a killed run's executors may still be writing into it."""

    def num_rows(self, path: str) -> int:
        """The number of rows of a Parquet file, from its footer."""


class OsOutputFiles(OsFiles):
    """The real disk."""

    def open(self, path: str, mode: Mode) -> OsFile:
        return OsFile(os.open(path, self._FLAGS[mode] | os.O_CLOEXEC, 0o666))

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def make_root(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def num_rows(self, path: str) -> int:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)


def place_of(path: str | os.PathLike[str]) -> str:
    """The absolute path of an output, links resolved; raises `OutputError` for a URL."""
    text = re.sub("^file:(///|/(?!/))", "/", os.fspath(path))
    if _URL.match(text):
        raise OutputError(
            f"{text} is not a folder that this process can read",
            "give a local path or a mount that all executors also see; copy the finished tables from there",
        )
    return str(Path(text).resolve())


def make_folders(files: Files, root: str, folders: Iterable[str]) -> None:
    """Create the missing ones of ``folders`` (relative) and their parents; durable on return."""
    changed: set[str] = set()
    for folder in folders:
        if files.exists(join(root, folder)):
            continue
        names = folder.split("/")
        for depth in range(1, len(names) + 1):
            path = join(root, *names[:depth])
            if not files.exists(path):
                files.mkdir(path)
                changed.add(parent(path))
    for path in sorted(changed):
        files.fsync_dir(path)


def is_full(error: BaseException) -> bool:
    """Whether a disk was full, here or on an executor."""
    if isinstance(error, OSError):
        return error.errno in FULL
    return any(words in str(error) for words in _FULL_WORDS)


@contextlib.contextmanager
def told(doing: str, hint: str = "") -> Iterator[None]:
    """Turn an `OSError` into an `OutputError`; ``doing`` describes the operation that failed."""
    try:
        yield
    except OSError as error:
        if is_full(error) and not hint:
            hint = "the tables are unchanged: free space and run again"
        raise OutputError(f"cannot {doing}: {error.strerror or error}", hint) from error
