"""Logs in object stores and other file systems of pyarrow: `Files` to read from, by URL.

    s3://bucket/a, s3a://bucket/a    Amazon S3 and stores that speak like it (AWS_ENDPOINT_URL)
    gs://bucket/a                    Google Cloud Storage
    abfs://, abfss://                Azure
    hdfs://host/a                    Hadoop
    file:///a, and a plain path      the local file system

Credentials come from the environment, as each store's own tools take them.  Invariants:

- Every request ends: it has a time-out, and is repeated a bounded number of times.
- A file that does not exist raises FileNotFoundError.  Whatever else goes wrong raises `StoreError`, never
  damage: a store that is away for a minute must not read like a log with a gap.
- A folder's listing is remembered for `LISTING_MS`: an answer is as of that moment, like an answer from a
  directory that was read then.  Contents are not remembered.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NoReturn

from raftlog.env.files import READ_BYTES_MAX, Buffer, Files, Mode, OsFiles, check_size, parent

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

CONNECT_SECONDS: Final = 5.0
"""A store that does not take a connection for so long is away."""

REQUEST_SECONDS: Final = 20.0
"""A store that sends nothing for so long has lost the request."""

ATTEMPTS_MAX: Final = 4
"""The number of times that one request is made in all; the pauses between them grow."""

RETRY_SECONDS_MAX: Final = 60.0
"""Stores that bound repeated requests by time stop after it."""

LISTING_MS: Final = 10_000.0
"""The time for which the listing of a folder is remembered: readers ask for thousands of its names."""

LISTS_NO_FOLDERS: Final = "gcs"
"""pyarrow's name of Google Cloud Storage. Its listing of a folder leaves out the folders in it for which
there is no object (apache/arrow issue 35993); its listing of all files below is complete."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
SCHEMES: Final = ("s3", "gs", "abfs", "abfss", "hdfs", "file")
_ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}

_REFUSED: Final = "|".join(
    (
        "ACCESS_DENIED|status 40[13]|INVALID_ACCESS_KEY|UNRECOGNIZED_CLIENT|SIGNATURE|CREDENTIALS",
        "InvalidAccessKeyId|AuthenticationFailed|AuthorizationFailure|PERMISSION_DENIED|UNAUTHENTICATED",
        "No credentials|MISSING_AUTHENTICATION",
    )
)

_OVERLOADED: Final = "|".join(
    (
        r"UNAVAILABLE|SLOW_DOWN|THROTTL|INTERNAL_FAILURE",
        r"SlowDown|ServiceUnavailable|status (?:429|5\d\d)",
    )
)

_MEANINGS: Final = (
    (
        r"169\.254\.169\.254",  # where AWS's clients look last
        errno.EACCES,
        "no credentials for the store were found",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
    ),
    (
        _REFUSED,
        errno.EACCES,
        "the store refused the credentials",
        "check the credentials and what they permit",
    ),
    (
        r"EXPIRED|ExpiredToken|TokenRefreshRequired|REQUEST_EXPIRED",
        errno.EACCES,
        "the store says that the credentials have expired",
        "renew the credentials, then try again",
    ),
    (
        r"HTTP status 400\) during (?:Head|Get)Object",
        errno.EACCES,
        "the store refused the request without a reason, as it does when the credentials have expired",
        "check the credentials",
    ),
    (r"NO_SUCH_BUCKET|NoSuchBucket", errno.ENOENT, "there is no such bucket", "check the name"),
    (
        r"Failed to flush response stream",  # the error is longer than the bytes that were asked for
        errno.EBUSY,
        "the store answered a read with an error that pyarrow does not pass on",
        "check the credentials, then try again later",
    ),
    (
        _OVERLOADED,
        errno.EBUSY,
        f"the store is overloaded or out of order, at {ATTEMPTS_MAX} attempts in a row",
        "try again later",
    ),
    (
        r"(?i:timed ?out|curlCode: 28)|REQUEST_TIMEOUT",
        errno.ETIMEDOUT,
        f"the store did not answer within {REQUEST_SECONDS:g} s",
        "check the network, then try again",
    ),
    (
        r"NETWORK_CONNECTION|curlCode|(?i:connect)|error sending request",
        errno.ECONNREFUSED,
        "the connection to the store was lost or refused",
        "check the network and AWS_ENDPOINT_URL",
    ),
)
"""Messages of the libraries; their errno, meaning and remedy."""


_NAMES: Final = re.compile(r"\b(?:key|bucket|exist) '[^']*'|\w+://\S+")
"""Names in what libraries say: a bucket may be called `connect`."""


class StoreError(OSError):
    """A store cannot be read or written at the moment, or not with these credentials.

    `strerror` says what was wrong and what to do, `filename` is the URL.
    """


class UnknownStore(ValueError):
    """A URL of no known kind, or pyarrow, which reads stores, is missing."""


class PyarrowMissing(UnknownStore):
    """The package that reads stores is not installed."""


def scheme_of(path: str) -> str | None:
    """The kind of store that a URL names (`s3`, `gs`, …); None for a path and a `file://` URL."""
    found = _SCHEME.match(path)
    if found is None:
        return None
    named = found[1].lower()
    scheme = _ALIASES.get(named, named)
    if scheme not in SCHEMES:
        raise UnknownStore(f"{path}: {found[1]}:// is not supported: give a path or one of {_known()}")
    return None if scheme == "file" else scheme


def _known() -> str:
    return ", ".join(f"{one}://" for one in ("s3", "s3a", "gs", "abfs", "abfss", "hdfs", "file"))


def is_store(path: str) -> bool:
    """Whether a path names a place in a store; raises `UnknownStore`."""
    return scheme_of(path) is not None


def local_path(path: str) -> str:
    """A path, or the path that a `file://` URL names."""
    return path.removeprefix("file://").removeprefix("file:")


def files_at(path: str | os.PathLike[str]) -> Files:
    """The files at a path or a URL; raises `UnknownStore`.

    Every call returns a view of its own: what it remembers ends with it.
    """
    text = os.fspath(path)
    return StoreFiles(text) if is_store(text) else OsFiles()


def check_place(url: str) -> None:
    """Raise `UnknownStore` if nothing can be shipped to a URL; asks nothing of the store."""
    scheme = scheme_of(url)
    if scheme is None and not url.startswith("file:///"):
        raise UnknownStore(f"{url} is no URL: give one of {_known()}")
    if scheme is not None and not url.partition("://")[2].strip("/"):
        raise UnknownStore(f"{url} names no bucket: give {scheme}://BUCKET/PATH")
    if find_spec("pyarrow") is None:
        raise _without_pyarrow(url)


def _without_pyarrow(url: str) -> PyarrowMissing:
    from records.installation import how_to_install

    return PyarrowMissing(f"{url}: a store needs pyarrow: {how_to_install('store')}")


def s3_options() -> dict[str, str]:
    """Endpoint and region of S3 by the names of their variables, as this process's environment has them."""
    env = os.environ
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": region}
    return {name: value for name, value in options.items() if value}


def filesystem_at(url: str, options: Mapping[str, str] | None = None) -> tuple[FileSystem, str]:
    """pyarrow's file system at a URL or path, and the path in it.

    `options` are those of `s3_options`, if another process's hold.  Raises `UnknownStore` and `StoreError`.
    """
    scheme = scheme_of(url)
    try:
        from pyarrow import fs
    except ImportError:
        raise _without_pyarrow(url) from None
    if scheme is None:
        return fs.LocalFileSystem(), os.path.abspath(local_path(url))
    inner = url.partition("://")[2].rstrip("/")
    if not inner and scheme != "hdfs":
        raise UnknownStore(f"{url} names no bucket: give {scheme}://BUCKET/PATH")
    try:
        if scheme == "s3":
            return _s3(inner, s3_options() if options is None else options), inner
        if scheme == "gs":
            anonymous = os.environ.get("GOOGLE_ANONYMOUS", "") == "true"
            limit = timedelta(seconds=RETRY_SECONDS_MAX)
            return fs.GcsFileSystem(anonymous=anonymous, retry_time_limit=limit), inner
        filesystem, path = fs.FileSystem.from_uri(url)
        return filesystem, path.rstrip("/")
    except UnknownStore:
        raise
    except Exception as error:  # pyarrow raises its own kinds, and the stores' libraries theirs
        raise store_error(error, url) from None


def _s3(inner: str, given: Mapping[str, str]) -> FileSystem:
    from pyarrow import fs

    endpoint, region = given.get("AWS_ENDPOINT_URL"), given.get("AWS_REGION")
    options: dict[str, Any] = {}
    if endpoint:
        options["scheme"], _, options["endpoint_override"] = endpoint.rstrip("/").partition("://")
        region = region or "us-east-1"
    return fs.S3FileSystem(
        region=region or fs.resolve_s3_region(inner.partition("/")[0]),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS_MAX),
        **options,
    )


def meaning_of(error: BaseException) -> tuple[int, str, str] | None:
    """The errno, meaning and remedy of an error of a store's library; None if its message is unknown."""
    text = _NAMES.sub("", " ".join(str(error).split()))
    for known, number, what, hint in _MEANINGS:
        if re.search(known, text):
            return number, what, hint
    return None


def store_error(error: BaseException, url: str) -> OSError:
    """An error of a store's library as one of ours, with one clear line."""
    if isinstance(error, StoreError):
        return error
    if (meaning := meaning_of(error)) is not None and (
        not isinstance(error, FileNotFoundError) or meaning[0] == errno.ENOENT
    ):
        number, what, hint = meaning
        kind = FileNotFoundError if number == errno.ENOENT else StoreError
        return kind(number, f"{what}: {hint}", url)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "No such file or directory", url)
    return StoreError(errno.EIO, f"the store failed: {' '.join(str(error).split())[:300]}", url)


class StoreFile:
    """An object, read in ranges."""

    __slots__ = ("_file", "_size", "_url")

    def __init__(self, file: Any, url: str) -> None:
        self._file = file
        self._url = url
        self._size: int | None = None

    def pread(self, size_bytes: int, offset: int) -> bytes:
        try:
            wanted = max(0, min(size_bytes, self.size() - offset))
            return bytes(self._file.read_at(wanted, offset)) if wanted else b""
        except OSError as error:
            raise store_error(error, self._url) from None

    def size(self) -> int:
        if self._size is None:
            self._size = int(self._file.size())
        return self._size

    def close(self) -> None:
        self._file.close()

    def pwrite(self, data: Buffer, offset: int) -> NoReturn:
        raise _read_only(self._url)

    def truncate(self, size_bytes: int) -> NoReturn:
        raise _read_only(self._url)

    def fdatasync(self) -> NoReturn:
        raise _read_only(self._url)


class StoreFiles:
    """`Files` to read from below one URL; paths are URLs, and nothing can be written.

    Threads may share one.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._filesystem, inner = filesystem_at(url)
        self._head = self.url.removesuffix(inner)
        self._listings: dict[str, tuple[float, dict[str, FileInfo]]] = {}

    def _inner(self, path: str) -> str:
        return path.removeprefix(self._head).rstrip("/")

    def open(self, path: str, mode: Mode) -> StoreFile:
        if mode != "r":
            raise _read_only(path)
        try:
            return StoreFile(self._filesystem.open_input_file(self._inner(path)), path)
        except OSError as error:
            raise store_error(error, path) from None

    def read(self, path: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        file = self.open(path, "r")
        try:
            check_size(path, file.size(), bytes_max)
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def listing(self, path: str) -> dict[str, FileInfo]:
        """The entries of a folder by name; {} if there is none (a store has no empty folders)."""
        path = path.rstrip("/")
        at_ms, found = self._listings.get(path, (-LISTING_MS, {}))
        if time.monotonic() * 1000 - at_ms >= LISTING_MS:
            at_ms = time.monotonic() * 1000
            if self._filesystem.type_name == LISTS_NO_FOLDERS:
                listed = self._listed_below(path)
                self._listings |= {folder: (at_ms, entries) for folder, entries in listed.items()}
                return listed[path]
            found = {info.base_name: info for info in self._select(path, recursive=False)}
            self._listings[path] = at_ms, found
        return found

    def _listed_below(self, path: str) -> dict[str, dict[str, FileInfo]]:
        """The entries of a folder, and of all folders below it, from the names of their files."""
        from pyarrow.fs import FileInfo, FileType

        found: dict[str, dict[str, FileInfo]] = {path: {}}
        for info in self._select(path, recursive=True):
            entry = info
            while (folder := self._head + parent(entry.path)) != path:
                above = found.setdefault(folder, {})
                is_known = entry.base_name in above
                above[entry.base_name] = entry
                if is_known:
                    break
                entry = FileInfo(parent(entry.path), FileType.Directory)
            else:
                found[path][entry.base_name] = entry
        return found

    def _select(self, path: str, *, recursive: bool) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        try:
            return list(
                self._filesystem.get_file_info(
                    FileSelector(self._inner(path), allow_not_found=True, recursive=recursive)
                )
            )
        except OSError as error:
            raise store_error(error, path) from None

    def listdir(self, path: str) -> list[str]:
        found = self.listing(path)
        if not found:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return sorted(found)

    def _find(self, path: str) -> FileInfo | None:
        folder = parent(path)
        if self._inner(folder) in ("", "s3:", "gs:"):  # a bucket: it may be all that the credentials may see
            try:
                info = self._filesystem.get_file_info(self._inner(path))
            except OSError as error:
                raise store_error(error, path) from None
            return info if int(info.type) else None
        return self.listing(folder).get(path.rstrip("/").rpartition("/")[2])

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        if parent(path).startswith(self.url) and path.rstrip("/") not in self._listings:
            found = self._find(path)
            return found is not None and not found.is_file
        return bool(self.listing(path))  # what is above may be forbidden to see

    def size(self, path: str) -> int:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return int(found.size or 0)  # a folder has none

    def inode(self, path: str) -> int:
        """0: objects have none, so a mark of what was synced counts for nothing here."""
        return 0

    def is_private(self, path: str) -> NoReturn:
        raise _local_only(path)

    def free_bytes(self, path: str) -> NoReturn:
        raise _local_only(path)

    def lock(self, path: str) -> NoReturn:
        raise _local_only(path)

    def rename(self, source: str, target: str) -> NoReturn:
        raise _read_only(source)

    def unlink(self, path: str) -> NoReturn:
        raise _read_only(path)

    def mkdir(self, path: str) -> NoReturn:
        raise _read_only(path)

    def fsync_dir(self, path: str) -> NoReturn:
        raise _read_only(path)


def _read_only(path: str) -> OSError:
    return OSError(errno.EROFS, "a log in a store is only read", path)


def _local_only(path: str) -> OSError:
    return OSError(errno.ENOTSUP, "needs a local directory: a store has no locks and no owners", path)
