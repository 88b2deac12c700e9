"""A disk in memory that separates durable from merely written bytes, for tests and the simulator.

It is as unkind as POSIX allows, and no more:

- Bytes are durable after `fdatasync` of their file.  Until then a crash keeps all of them, none, or some: a
  random subset of the unsynced writes, each of which may be cut anywhere.
- Names are durable after `fsync_dir` of their directory.  Until then each creation, rename and removal may or
  may not survive on its own; a rename is atomic.
- After a failed `fdatasync` the bytes that it should have saved are never written by a later one, though
  reads still show them until a crash; only writing them again helps.
- A failed `pwrite` has written some prefix.

`crash` returns the disk that the next boot finds.  `on_call` is called before and after every call that
changes something, which is how crash points are enumerated; `fail` decides which calls fail; while `is_short`
returns True no call that needs a descriptor gets one.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from raftlog.env.files import READ_BYTES_MAX, Buffer, Mode, check_size, parent, patiently

UNSYNCED_MAX = 1024
"""Unsynced writes to one file; beyond it the older half is written back, as every system does in time."""


class Crash(Enum):
    """The effect of a crash on unsynced bytes and names."""

    KEPT = "kept"
    LOST = "lost"
    TORN = "torn"


class _Inode:
    __slots__ = ("durable", "live", "number", "pending")

    def __init__(self, number: int, durable: bytes = b"") -> None:
        self.number = number
        self.live = bytearray(durable)
        self.durable = bytearray(durable)
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, data) or (size, None) for truncate

    def write(self, offset: int, data: bytes) -> None:
        _patch(self.live, offset, data)
        self.pending.append((offset, data))
        if len(self.pending) > UNSYNCED_MAX:
            self.write_back(len(self.pending) // 2)

    def write_back(self, count: int) -> None:
        """Make the oldest unsynced writes durable."""
        for offset, data in self.pending[:count]:
            _patch(self.durable, offset, data)
        del self.pending[:count]

    def after_crash(self, how: Crash, rng: random.Random) -> bytes:
        if how is Crash.KEPT:
            return bytes(self.live)
        content = bytearray(self.durable)
        if how is Crash.TORN:
            for offset, data in self.pending:
                if rng.random() < 0.5:
                    torn = data is not None and rng.random() < 0.5
                    _patch(content, offset, data[: rng.randrange(len(data) + 1)] if data and torn else data)
        return bytes(content)


def _patch(content: bytearray, offset: int, data: bytes | None) -> None:
    size = offset if data is None else max(len(content), offset + len(data))
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


class _NameOp:
    """One change of names: `add` maps a path to its inode (None: a directory), `drop` is a path to remove."""

    __slots__ = ("add", "drop", "inode")

    def __init__(self, add: str | None, inode: _Inode | None, drop: str | None) -> None:
        self.add = add
        self.inode = inode
        self.drop = drop

    def touches(self, directory: str) -> bool:
        return any(path is not None and parent(path) == directory for path in (self.add, self.drop))

    def apply(self, names: dict[str, _Inode | None]) -> None:
        if self.drop is not None and (self.add is None or names.get(self.drop) is self.inode):
            names.pop(self.drop, None)
        if self.add is not None:
            names[self.add] = self.inode


class SimFile:
    """An open file of a simulated disk."""

    __slots__ = ("_disk", "_inode", "_mode", "_path")

    def __init__(self, disk: SimFiles, path: str, inode: _Inode, mode: Mode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._mode = mode

    def pread(self, size_bytes: int, offset: int) -> bytes:
        return bytes(self._inode.live[offset : offset + size_bytes])

    def pwrite(self, data: Buffer, offset: int) -> None:
        if self._mode == "r":
            raise OSError(errno.EBADF, "opened for reading", self._path)
        content = bytes(data)
        with self._disk._call("pwrite", self._path) as failure:
            if failure is not None:
                self._inode.write(offset, content[: self._disk.rng.randrange(len(content) + 1)])
                raise failure
            self._inode.write(offset, content)

    def size(self) -> int:
        return len(self._inode.live)

    def truncate(self, size_bytes: int) -> None:
        with self._disk._call("truncate", self._path) as failure:
            if failure is not None:
                raise failure
            _patch(self._inode.live, size_bytes, None)
            self._inode.pending.append((size_bytes, None))

    def fdatasync(self) -> None:
        with self._disk._call("fdatasync", self._path) as failure:
            if failure is not None:
                self._inode.pending = []
                raise failure
            self._inode.write_back(len(self._inode.pending))

    def close(self) -> None:
        self._disk.open_files -= 1


class SimLock:
    """A lock of the simulated machine's one process."""

    def __init__(self, disk: SimFiles, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk._locks.discard(self._path)


class SimFiles:
    """A simulated disk; `raftlog.env.files.Files`.

    `calls` counts the calls that change something; `fail(number, operation, path)` may return the error to
    raise instead of doing the call, and `on_call(number, operation, path, done)` is called before and after
    each.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.calls = 0
        self.open_files = 0
        self.free = 1 << 40
        self.fail: Callable[[int, str, str], OSError | None] | None = None
        self.on_call: Callable[[int, str, str, bool], None] | None = None
        self.is_short: Callable[[], bool] = lambda: False
        self.pause: Callable[[float], object] = lambda ms: None
        """Lets time pass while a call waits for a descriptor; the simulator's host substitutes its own."""
        self._names: dict[str, _Inode | None] = {"/": None}
        self._durable_names: dict[str, _Inode | None] = {"/": None}
        self._pending: list[_NameOp] = []
        self._locks: set[str] = set()
        self._inodes = 0

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[OSError | None]:
        self.calls += 1
        number = self.calls
        if self.on_call is not None:
            self.on_call(number, operation, path, False)
        yield None if self.fail is None else self.fail(number, operation, path)
        if self.on_call is not None:
            self.on_call(number, operation, path, True)

    def _need_descriptor(self, path: str) -> None:
        if self.is_short():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def _rename_op(self, op: _NameOp) -> None:
        op.apply(self._names)
        self._pending.append(op)

    def crash(self, how: Crash, seed: int = 0) -> SimFiles:
        """The disk as the next boot finds it after a crash at this moment; this one stays unchanged."""
        rng = random.Random(seed)
        names = dict(self._names if how is Crash.KEPT else self._durable_names)
        if how is Crash.TORN:
            for op in self._pending:
                if rng.random() < 0.5:
                    op.apply(names)
        after = SimFiles(seed)
        after.free, after._inodes = self.free, self._inodes
        survivors: dict[_Inode, _Inode] = {}
        for path in sorted(names):
            inode = names[path]
            if path != "/" and parent(path) not in after._names:
                continue  # its directory did not survive
            if inode is not None and inode not in survivors:
                survivors[inode] = _Inode(inode.number, inode.after_crash(how, rng))
            after._names[path] = None if inode is None else survivors[inode]
        after._durable_names = dict(after._names)
        return after

    def damage(self, path: str, offset: int, mask: int = 0xFF) -> None:
        """Flip bits of one byte without a call, as a bad disk does."""
        inode = self._file(path)
        inode.live[offset] ^= mask
        inode.durable = bytearray(inode.live)

    def _file(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            kind = errno.EISDIR if path in self._names else errno.ENOENT
            raise OSError(kind, os.strerror(kind), path)
        return inode

    def open(self, path: str, mode: Mode) -> SimFile:
        patiently(self.pause, self._need_descriptor, path)
        if path in self._names and mode == "x":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if path not in self._names and mode != "r":
            self._need_dir(parent(path))
            with self._call("create", path) as failure:
                if failure is not None:
                    raise failure
                self._inodes += 1
                self._rename_op(_NameOp(path, _Inode(self._inodes), None))
        inode = self._file(path)
        self.open_files += 1
        return SimFile(self, path, inode, mode)

    def _need_dir(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._names[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def read(self, path: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        patiently(self.pause, self._need_descriptor, path)
        found = self._file(path).live
        check_size(path, len(found), bytes_max)
        return bytes(found)

    def rename(self, source: str, target: str) -> None:
        inode = self._file(source)
        self._need_dir(parent(target))
        with self._call("rename", target) as failure:
            if failure is not None:
                raise failure
            self._rename_op(_NameOp(target, inode, source))

    def unlink(self, path: str) -> None:
        self._file(path)
        with self._call("unlink", path) as failure:
            if failure is not None:
                raise failure
            self._rename_op(_NameOp(None, None, path))

    def listdir(self, path: str) -> list[str]:
        patiently(self.pause, self._need_descriptor, path)
        self._need_dir(path)
        return sorted(name.rpartition("/")[2] for name in self._names if name != "/" and parent(name) == path)

    def exists(self, path: str) -> bool:
        return path in self._names

    def is_dir(self, path: str) -> bool:
        return path in self._names and self._names[path] is None

    def mkdir(self, path: str) -> None:
        self._need_dir(parent(path))
        if path in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self._call("mkdir", path) as failure:
            if failure is not None:
                raise failure
            self._rename_op(_NameOp(path, None, None))

    def size(self, path: str) -> int:
        return len(self._file(path).live)

    def inode(self, path: str) -> int:
        return self._file(path).number

    def is_private(self, path: str) -> bool:
        self._file(path)
        return True

    def fsync_dir(self, path: str) -> None:
        patiently(self.pause, self._need_descriptor, path)
        self._need_dir(path)
        with self._call("fsync_dir", path) as failure:
            if failure is not None:
                raise failure
            for op in self._pending:
                if op.touches(path):
                    op.apply(self._durable_names)
            self._pending = [op for op in self._pending if not op.touches(path)]

    def lock(self, path: str) -> SimLock:
        patiently(self.pause, self._need_descriptor, path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        if path not in self._names:
            self.open(path, "w").close()
        self._locks.add(path)
        return SimLock(self, path)

    def process_ended(self) -> None:
        """Release the locks of a process that ended."""
        self._locks.clear()

    def free_bytes(self, path: str) -> int:
        self._need_dir(path)
        return self.free
