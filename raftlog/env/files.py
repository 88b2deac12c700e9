"""The file layer: all file access of the log goes through `Files`.

The protocol is deliberately small, so that the simulated disk (`raftlog.env.simulated_files`) can enumerate
a crash before and after every call and inject failures into each of them.  Invariants:

- `pwrite` writes all its bytes or raises; a failed write may have written some of them.
- Bytes are durable after `fdatasync` of their file, names after `fsync_dir` of their directory; nothing else
  promises anything.  After a failed sync the state on disk is unknown: the caller must stop.
- A file is replaced by `replace`: write aside, sync, rename, sync the directory.  A reader sees the old or
  the new content, never a mixture.
- A call that finds no free file descriptor is retried for `SHORT_MS` before it fails: the shortage says
  nothing about the disk, and descriptors in use elsewhere are usually closed soon.
- A path that is not a regular file (a device, a named pipe, a folder), or a file longer than anything that is
  ever written there, is damage, found before a byte of it is read.  Links are followed.

Only this module and the two for object stores beside it import the operating system.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from typing import ClassVar, Final, Literal, ParamSpec, Protocol, TypeVar

from raftlog.env.errors import RESTORE_HINT, Corrupt, RaftlogError, in_one_line

P = ParamSpec("P")
T = TypeVar("T")

Buffer = bytes | bytearray | memoryview
Mode = Literal["r", "w", "x"]

READ_BYTES_MAX: Final = (2048 + 64) << 20
"""At most this many bytes of a file are read at once: the longest configurable segment and its last entry."""

TEMPORARY_SUFFIX = ".tmp"
"""The suffix of files being written aside; left-over ones are removed when a directory is opened to write."""

SHORT_MS: Final = 1_000.0
"""Milliseconds that a call waits for a file descriptor, also on the loop.

A node blocked for this long may lose its leadership; stopping it would cost more.  `cluster.descriptors`
keeps this from happening.
"""

SHORT_PAUSE_MS: Final = 10.0


def is_short_of_descriptors(error: BaseException) -> bool:
    """Whether the process or the whole system has no file descriptor left."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def way_out(error: OSError) -> str:
    """Advice to an operator about a failed file call."""
    if is_short_of_descriptors(error):
        short_s = SHORT_MS / 1000
        return (
            f"no file descriptor became free within {short_s:g} s: raise the limit (ulimit -n, "
            "LimitNOFILE=, fs.file-max)"
        )
    return "free space or replace the disk, then start again"


def failure_words(error: BaseException) -> str:
    """The line with which a node stops because of `error`."""
    if isinstance(error, FileNotFoundError):
        return f"a file or folder is gone: {error}: {RESTORE_HINT}"
    if isinstance(error, OSError):
        return f"a file call failed: {error}: {way_out(error)}"
    return f"{type(error).__name__}: {error}" if isinstance(error, RaftlogError) else in_one_line(error)


def patiently(pause: Callable[[float], object], call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call `call` again until it gets a descriptor, and return its result; `pause` lets milliseconds pass."""
    waited_ms = 0.0
    while True:
        try:
            return call(*args, **named)
        except OSError as error:
            if not is_short_of_descriptors(error) or waited_ms >= SHORT_MS:
                raise
        pause(SHORT_PAUSE_MS)
        waited_ms += SHORT_PAUSE_MS


class File(Protocol):
    """An open file without a position."""

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to `size_bytes` from `offset`; fewer only at the end of the file."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`, or raise OSError."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size_bytes: int) -> None:
        """Cut (or extend with zeros) to `size_bytes`."""

    def fdatasync(self) -> None:
        """Make content and size durable."""

    def close(self) -> None:
        """Close without syncing."""


class Lock(Protocol):
    """An exclusive lock that ends with the process."""

    def release(self) -> None: ...


class Files(Protocol):
    """Directories and files by path (text, `/` between the parts)."""

    def open(self, path: str, mode: Mode) -> File:
        """`r` read only; `w` read and write, created when missing; `x` the same, must not exist."""

    def read(self, path: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The whole file; raises Corrupt when it is longer."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing `target`; durable after `fsync_dir` of both directories."""

    def unlink(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def mkdir(self, path: str) -> None:
        """Create one level; the parent must exist."""

    def size(self, path: str) -> int: ...

    def inode(self, path: str) -> int:
        """The file's inode number: a copy has another one."""

    def is_private(self, path: str) -> bool:
        """Whether only the owner and the group of the file can read or write it."""

    def fsync_dir(self, path: str) -> None:
        """Make the names in the directory durable."""

    def lock(self, path: str) -> Lock:
        """Take the lock file at `path` for this process, or raise BlockingIOError."""

    def free_bytes(self, path: str) -> int:
        """Bytes that an unprivileged process can still write on that file system."""


def join(directory: str, *names: str) -> str:
    """`directory/name/...`."""
    return "/".join((directory.rstrip("/"), *names))


def parent(path: str) -> str:
    """The directory that `path` is in."""
    head = path.rstrip("/").rpartition("/")[0]
    return head or ("/" if path.startswith("/") else ".")


def write_aside(files: Files, path: str, data: Buffer) -> None:
    """Write `data` to a new file at `path` (a temporary name) and sync it; overwrites a left-over."""
    file = files.open(path, "w")
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fdatasync()
    finally:
        file.close()


def replace(files: Files, path: str, data: Buffer) -> None:
    """Durably replace the file at `path`: write aside, sync, rename, sync the directory."""
    aside = path + TEMPORARY_SUFFIX
    write_aside(files, aside, data)
    files.rename(aside, path)
    files.fsync_dir(parent(path))


def _sleep(ms: float) -> None:
    time.sleep(ms / 1000)


def _open(path: str, flags: int) -> int:
    return patiently(_sleep, os.open, path, flags | os.O_CLOEXEC, 0o640)


_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`, links followed; never blocks on a pipe without a writer.

    Raises Corrupt if it is anything else.
    """
    fd = _open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise Corrupt(
            path, 0, f"is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a regular file", RESTORE_HINT
        )
    return fd


def check_size(path: str, size_bytes: int, bytes_max: int = READ_BYTES_MAX) -> None:
    """Raise Corrupt if a file is longer than anything that is ever written there."""
    if size_bytes > bytes_max:
        what = f"is {size_bytes} bytes long; the maximum is {bytes_max}"
        raise Corrupt(path, bytes_max, what, RESTORE_HINT)


class OsFile:
    """A file descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, size_bytes: int, offset: int) -> bytes:
        data = os.pread(self._fd, size_bytes, offset)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]  # a single read stops at 2 GiB and may stop earlier
        got = len(data)
        while got < size_bytes and (data := os.pread(self._fd, size_bytes - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, data: Buffer, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)[written:]
        while rest:
            offset += written
            written = os.pwrite(self._fd, rest, offset)
            rest = rest[written:]

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def fdatasync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class OsLock:
    """A record lock: it ends with the process however that ends, and a forked child does not inherit it.

    So a job that is just being started cannot keep a restarted node out.
    """

    __slots__ = ("_fd", "_path")

    _held: ClassVar[set[str]] = set()
    """Paths locked by this process: record locks do not exclude the process that holds them."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        if self._path in self._held:
            raise BlockingIOError(f"{path} is already locked by this process")
        self._fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, PermissionError):  # POSIX lets a held lock be refused by either
                raise BlockingIOError(str(error)) from None
            raise
        self._held.add(self._path)

    def release(self) -> None:
        self._held.discard(self._path)
        os.close(self._fd)


class OsFiles:
    """The real file system."""

    _FLAGS: ClassVar[dict[str, int]] = {
        "r": os.O_RDONLY,
        "w": os.O_RDWR | os.O_CREAT,
        "x": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    }

    def open(self, path: str, mode: Mode) -> OsFile:
        return OsFile(open_regular(path, self._FLAGS[mode]))

    def read(self, path: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        with open(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            check_size(path, size, bytes_max)
            return file.read(size)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(patiently(_sleep, os.listdir, path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o750)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def inode(self, path: str) -> int:
        return os.stat(path).st_ino

    def is_private(self, path: str) -> bool:
        return not os.stat(path).st_mode & 0o007

    def fsync_dir(self, path: str) -> None:
        fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        return OsLock(path)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize
