"""Writing whole files to an object store: under its final name a file is whole or not there.

S3, Google Cloud Storage and Azure show an object when its upload ends, and forget one that does not end. On
local file systems and Hadoop a file is written aside and renamed.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

from crc32c import crc32c

from raftlog.env.files import TEMPORARY_SUFFIX, parent
from raftlog.env.object_stores import StoreFiles, filesystem_at, scheme_of, store_error

READ_BACK_BYTES: Final = 8 << 20
"""An upload is read back in pieces of so many bytes to verify it."""

_RENAMED: Final = (None, "hdfs")
"""Kinds of stores whose files are visible while they are being written."""


class ShippingStore(Protocol):
    """A place to ship to; every method raises `StoreError`, and FileNotFoundError for what is missing."""

    def read(self, path: str) -> bytes: ...

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, replacing an older one."""

    def crc(self, path: str) -> int:
        """The CRC32C of what the store has."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""


class PyarrowStore:
    """A `ShippingStore` over pyarrow's file systems; for a job or a command, since every call blocks."""

    def __init__(self, url: str) -> None:
        self._filesystem, root = filesystem_at(url)
        self._renames = scheme_of(url) in _RENAMED
        self._url = url.rstrip("/")
        self._root = root.rstrip("/")
        self._files = StoreFiles(url)

    def _inner(self, path: str) -> str:
        return self._root + path.removeprefix(self._url)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def put(self, path: str, data: bytes) -> None:
        inner = self._inner(path)
        written = inner + TEMPORARY_SUFFIX if self._renames else inner
        try:
            if self._renames:
                self._filesystem.create_dir(parent(inner), recursive=True)
            stream = self._filesystem.open_output_stream(written)
            # One write of everything: if it fails the stream is not closed, and the object never appears.
            stream.write(data)
            stream.close()
            if self._renames:
                self._filesystem.move(written, inner)
        except OSError as error:
            raise store_error(error, path) from None

    def crc(self, path: str) -> int:
        file = self._files.open(path, "r")
        try:
            crc, at = 0, 0
            while data := file.pread(READ_BACK_BYTES, at):
                crc, at = crc32c(data, crc), at + len(data)
            return crc
        finally:
            file.close()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def store_at(url: str) -> ShippingStore:
    """The place at a URL; raises `UnknownStore` and `StoreError`."""
    return PyarrowStore(url)
