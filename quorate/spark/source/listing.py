"""A view of a folder's files that was listed once, in parallel, and answers from memory.

Readers of a log ask for each segment whether it, its index and its archived copy exist, and how long they
are. That costs one request each in an object store, and thousands of system calls on a disk. The invariant: a
file that is not in the listing does not exist for its readers; one that vanished later is missing when it is
opened, as always.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from raftlog.env.files import READ_BYTES_MAX, File, Files, OsFiles, join, parent
from raftlog.env.files import Mode as OpenMode
from raftlog.env.object_stores import StoreError, StoreFiles
from raftlog.storage.archive import ARCHIVE

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

AT_ONCE = 32
"""Requests that are under way at a time: a store answers each in some ten milliseconds."""

_NODE = re.compile(r"node-\d+")
_SHARD = re.compile(r"metadata|shard-\d+")


FileState = tuple[int, int, int]
"""Size, inode and time of the last change: equal as long as a file is unchanged."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A name in a folder; a local file's state is asked for when it is needed."""

    is_dir: bool
    ask: Callable[[], FileState]


Folder = Mapping[str, ListedFile]


class ListedFiles:
    """`Files` to read from; nothing can be written through it."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._folders: dict[str, Folder | OSError] = {}

    def load(self, paths: Iterable[str]) -> list[str]:
        """List folders in parallel; returns the paths of the folders in them."""
        paths = list(paths)
        found = in_parallel(self.files, self._list, paths)
        self._folders.update(zip(paths, found, strict=True))
        return [
            join(path, name)
            for path, folder in zip(paths, found, strict=True)
            if not isinstance(folder, OSError)
            for name, one in folder.items()
            if one.is_dir
        ]

    def state(self, path: str) -> FileState | None:
        """The state of a file; None: there is none."""
        try:
            return self._there(path).ask()
        except FileNotFoundError:
            return None

    def _list(self, path: str) -> Folder | OSError:
        try:
            return listed(self.files, path)
        except StoreError:
            raise
        except OSError as error:
            return error

    def _folder(self, path: str) -> Folder:
        path = path.rstrip("/")
        if path not in self._folders:
            self._folders[path] = self._list(path)
        found = self._folders[path]
        if isinstance(found, OSError):
            raise found
        return found

    def _find(self, path: str) -> ListedFile | None:
        try:
            return self._folder(parent(path)).get(path.rstrip("/").rpartition("/")[2])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _there(self, path: str) -> ListedFile:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return found

    def open(self, path: str, mode: OpenMode) -> File:
        self._there(path)
        return self.files.open(path, mode)

    def read(self, path: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        self._there(path)
        return self.files.read(path, bytes_max)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._folder(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        known = self._folders.get(path.rstrip("/"))
        if known and not isinstance(known, OSError):
            return True  # also a bucket, which is in no folder
        found = self._find(path)
        return found is not None and found.is_dir

    def size(self, path: str) -> int:
        return self._there(path).ask()[0]

    def inode(self, path: str) -> int:
        return self._there(path).ask()[1]

    def is_private(self, path: str) -> bool:
        return self.files.is_private(path)

    def free_bytes(self, path: str) -> int:
        return 0

    def rename(self, source: str, target: str) -> NoReturn:
        raise _is_read_only(source)

    def unlink(self, path: str) -> NoReturn:
        raise _is_read_only(path)

    def mkdir(self, path: str) -> NoReturn:
        raise _is_read_only(path)

    def fsync_dir(self, path: str) -> NoReturn:
        raise _is_read_only(path)

    def lock(self, path: str) -> NoReturn:
        raise _is_read_only(path)


def _is_read_only(path: str) -> OSError:
    return OSError(errno.EROFS, "an input is never written", path)


def in_parallel(files: Files, do: Callable[[Asked], Answer], asked: Sequence[Asked]) -> list[Answer]:
    """The results of `do`, of many at a time if the files are in a store, where each takes a while."""
    if isinstance(files, OsFiles) or (isinstance(files, ListedFiles) and isinstance(files.files, OsFiles)):
        return list(map(do, asked))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(do, asked))


def listed(files: Files, path: str) -> dict[str, ListedFile]:
    """The files in a folder; raises `OSError`."""
    if isinstance(files, StoreFiles):
        found = files.listing(path)
        return {name: ListedFile(not info.is_file, partial(_state_of, info)) for name, info in found.items()}
    with os.scandir(path) as entries:
        return {entry.name: ListedFile(entry.is_dir(), partial(_state, entry)) for entry in entries}


def _state_of(info: FileInfo) -> FileState:
    return int(info.size), 0, int(info.mtime_ns)


def _state(entry: os.DirEntry[str]) -> FileState:
    found = entry.stat()
    return found.st_size, found.st_ino, found.st_mtime_ns


def listed_files(files: Files, path: str) -> ListedFiles:
    """The files of an input: a node's directory, or the folder of a cluster."""
    view = ListedFiles(files)
    inside = view.load([path.rstrip("/") or "/"])
    nodes = [one for one in inside if _NODE.fullmatch(one.rpartition("/")[2])]
    shards = [one for one in [*inside, *view.load(nodes)] if _SHARD.fullmatch(one.rpartition("/")[2])]
    archives = [one for one in view.load(shards) if one.endswith("/" + ARCHIVE)]
    view.load(archives)
    return view
