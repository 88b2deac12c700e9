"""Stores: a folder on a disk or in an object store, by its URL, for pyarrow, delta-rs and Spark alike.

Credentials come from the environment of each process, as the stores' own tools expect them; a `Store`
contains none and may be sent to executors.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from quorate.spark.errors import OutputError
from raftlog.env import object_stores
from raftlog.env.object_stores import UnknownStore, filesystem_at, local_path, s3_options, scheme_of

from .failures import told

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class Store:
    """A folder; ``url`` is absolute: ``file:///…`` or that of an object store, without a slash at the end."""

    url: str
    options: tuple[tuple[str, str], ...] = ()
    """Endpoint and region of S3, by the names of the environment's variables, as the driver has them."""

    @classmethod
    def at(cls, url: str | os.PathLike[str]) -> Store:
        """The folder at a path or URL; raises `OutputError` for a URL that cannot be used."""
        text = os.fspath(url)
        try:
            scheme = scheme_of(text)
        except UnknownStore as unknown:
            raise OutputError(*str(unknown).split(": ", 1)) from None
        if scheme is None:
            path = local_path(text)
            if path.startswith("//") or not (path == text or path.startswith("/")):
                raise OutputError(f"{text} names another host", "give file:///path or a path")
            if "%" in (real := os.path.realpath(path)):  # delta-rs decodes it
                raise OutputError(f"{real} has a % in its name", "give a folder whose path has none")
            return cls(f"file://{real}")
        parts = urlsplit(text)
        if not (parts.netloc or scheme == "hdfs"):
            raise OutputError(f"{text} names no bucket", f"give {scheme}://BUCKET/PATH")
        if parts.query or parts.fragment:
            raise OutputError(
                f"{text} has a query or a fragment", "set the endpoint by AWS_ENDPOINT_URL, AWS_REGION"
            )
        path = re.sub("/+", "/", parts.path).rstrip("/")
        return cls(f"{scheme}://{parts.netloc}{path}", tuple(s3_options().items()) if scheme == "s3" else ())

    @property
    def is_local(self) -> bool:
        return self.url.startswith("file://")

    @property
    def root(self) -> str:
        """The folder's path in its pyarrow filesystem."""
        if self.is_local:
            return self.url.removeprefix("file://")
        parts = urlsplit(self.url)
        if parts.scheme == "hdfs":
            return parts.path
        return f"{parts.netloc.partition('@')[0]}{parts.path}"

    @property
    def place(self) -> str:
        """The folder as people write it: a path for a local one."""
        return self.root if self.is_local else self.url

    def read(self, relative: str) -> bytes:
        """A small file; raises `FileNotFoundError` or another `OSError`."""
        with self.filesystem().open_input_stream(self.path(relative)) as file:
            return bytes(file.read())

    def write(self, relative: str, data: bytes) -> None:
        """Write a small file anew, neither atomically nor durably; raises `OSError`."""
        with self.filesystem().open_output_stream(self.path(relative)) as file:
            file.write(data)

    def discard(self, relative: str) -> None:
        """Delete a file that no commit names, as far as the store allows; a vacuum removes the rest."""
        with contextlib.suppress(OSError):
            self.filesystem().delete_file(self.path(relative))

    def path(self, relative: str) -> str:
        """The path of a file below the folder in `filesystem`."""
        return f"{self.root.rstrip('/')}/{relative}" if relative else self.root

    def below(self, folder: str) -> Store:
        return Store(f"{self.url.rstrip('/')}/{folder}", self.options) if folder else self

    def uri(self) -> str:
        """The URL for delta-rs and Spark, with special characters of a local path encoded."""
        return f"file://{quote(self.root)}" if self.is_local else self.url

    def filesystem(self) -> FileSystem:
        """The pyarrow filesystem of this process; raises `OutputError` if it cannot be opened."""
        return _filesystem(urlsplit(self.url)._replace(path="/").geturl(), self.options, os.getpid())

    def storage_options(self) -> dict[str, str]:
        """Options for delta-rs; credentials come from the environment."""
        if self.is_local:
            return {}
        options = dict(self.options)
        if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
        return options | {
            "timeout": f"{object_stores.REQUEST_SECONDS}s",
            "connect_timeout": f"{object_stores.CONNECT_SECONDS}s",
            "max_retries": str(object_stores.ATTEMPTS_MAX - 1),
            "retry_timeout": f"{object_stores.RETRY_SECONDS_MAX}s",
        }


@lru_cache(maxsize=8)
def _filesystem(url: str, options: tuple[tuple[str, str], ...], pid: int) -> FileSystem:
    """``pid`` tells a forked process from its parent, whose connections it must not use."""
    try:
        with told(f"open {url}"):
            return filesystem_at(url, dict(options))[0]
    except UnknownStore as unknown:
        raise OutputError(*str(unknown).split(": ", 1)) from None
