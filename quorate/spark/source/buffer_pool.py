"""Memory for the bytes of a segment, reused by successive reads of a process.

Fresh memory for a whole segment costs more than copying the file into it, as the kernel clears it page by
page. The invariant: one reader has it at a time, and nothing it yields refers to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from raftlog.env.files import READ_BYTES_MAX, Files, OsFiles, check_size, open_regular

KEPT_BYTES_MAX = 1 << 27
"""Limit on the memory a process keeps for its next read: twice a segment of the usual size."""

_spare: list[bytearray] = []


class PooledBuffer:
    """Memory that grows to the largest file read into it."""

    def __init__(self, memory: bytearray, files: Files) -> None:
        self.memory = memory
        self._files = files

    def read(self, path: str, head: int = 0, begin: int = 0) -> memoryview:
        """The file, valid until the next read: all of it, or ``head`` bytes and all from ``begin`` on.

        The bytes between are undefined. Raises `OSError`, and `Damaged` if the path is not a regular file or
        is too long.
        """
        if not isinstance(self._files, OsFiles):
            return memoryview(self._files.read(path)) if not begin else self._read_parts(path, head, begin)
        with open(open_regular(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            check_size(path, size)
            room, at = self._room(size), 0
            if begin:
                file.readinto(room[:head])
                at = file.seek(min(begin, size))
            while at < size and (count := file.readinto(room[at:])):
                at += count
            if at == size and (
                rest := file.read(READ_BYTES_MAX - at)
            ):  # it has grown, or a mount reported an old size
                self.memory = self.memory[:at] + rest
                return memoryview(self.memory)
        return room[:at]

    def _read_parts(self, path: str, head: int, begin: int) -> memoryview:
        file = self._files.open(path, "r")
        try:
            size = file.size()
            check_size(path, size)
            room = self._room(size)
            for at, count in ((0, min(head, size)), (begin, max(size - begin, 0))):
                part = file.pread(count, at)
                room[at : at + len(part)] = part
        finally:
            file.close()
        return room[: begin + len(part)]  # an object may become shorter while it is read

    def _room(self, size: int) -> memoryview:
        if size > len(self.memory):
            self.memory = bytearray(size)
        return memoryview(self.memory)[:size]


@contextmanager
def pooled_buffer(files: Files | None = None) -> Iterator[PooledBuffer]:
    """Memory for one read, by default of local files, returned for the next one."""
    files = OsFiles() if files is None else files
    try:
        mine = PooledBuffer(_spare.pop(), files)
    except IndexError:  # not checked beforehand: another thread may take it in between
        mine = PooledBuffer(bytearray(), files)
    try:
        yield mine
    finally:
        if not _spare and len(mine.memory) <= KEPT_BYTES_MAX:
            _spare.append(mine.memory)
