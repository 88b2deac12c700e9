"""An S3 store on loopback (moto), and stores on loopback that answer badly."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

from crc32c import crc32c

from raftlog.env.object_stores import StoreError

BUCKET = "quorate-tests"
"""Names of buckets begin so."""
ROOT = Path(__file__).parents[2]

REGION = "us-east-1"
GOOGLE_STORE = """
import sys
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=sys.argv[1])
server.start()
print(server._api._httpd.server_address[1], flush=True)
"""
"""The program of `google_store`: its thread would have to answer while pyarrow holds the GIL."""


def environment_of(endpoint: str) -> dict[str, str]:
    """The variables with which AWS clients, pyarrow and delta-rs use the store at `endpoint`."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Refusals:
    """Makes the store of `moto_endpoint` refuse requests, and counts them."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[str] | None = None

    @property
    def requests(self) -> int:
        """The number of requests so far."""
        return self._say("count")

    def refuse(self, status: int, code: str, *, after: int) -> None:
        """Refuse all but the next `after` requests."""
        self._say(f"refuse {status} {code} {after}")

    def answer(self) -> None:
        """Answer requests again."""
        self._say("answer")

    def _say(self, command: str) -> int:
        assert self.server is not None
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(f"{command}\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Run an S3 store with one empty bucket; yields `s3://bucket`.  The AWS_* variables lead to it."""
    with moto_endpoint() as endpoint, bucket_at(endpoint) as url:
        yield url


@contextlib.contextmanager
def bucket_at(endpoint: str) -> Iterator[str]:
    """Create a bucket in the store at `endpoint`; yields `s3://bucket`.  The AWS_* variables lead to it."""
    bucket = f"{BUCKET}-{uuid4().hex[:12]}"
    with mock.patch.dict(os.environ, environment_of(endpoint)):
        os.environ.pop("AWS_PROFILE", None)
        client(endpoint).create_bucket(Bucket=bucket)
        yield f"s3://{bucket}"


@contextlib.contextmanager
def moto_endpoint(refusals: Refusals | None = None) -> Iterator[str]:
    """Run an S3 store without buckets; yields its endpoint.  It takes over a second to start."""
    command = [sys.executable, "-m", "tests.support.moto_process"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    with server:
        try:
            if refusals is not None:
                refusals.server = server
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@contextlib.contextmanager
def google_store(directory: Path) -> Iterator[str]:
    """Run a Google Cloud Storage with a copy of a folder; yields `gs://bucket`.  The environment names it."""
    from pyarrow import fs

    command = [sys.executable, "-c", GOOGLE_STORE, BUCKET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            variables = {"CLOUD_STORAGE_EMULATOR_ENDPOINT": endpoint, "GOOGLE_ANONYMOUS": "true"}
            with mock.patch.dict(os.environ, variables):
                there = fs.GcsFileSystem(anonymous=True)
                for path in filter(Path.is_file, directory.rglob("*")):
                    with there.open_output_stream(f"{BUCKET}/{path.relative_to(directory)}") as stream:
                        stream.write(path.read_bytes())
                yield f"gs://{BUCKET}"
        finally:
            server.kill()


def client(endpoint: str | None = None) -> Any:
    """A boto3 client of the store at `endpoint`, or of the one that the environment names."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint or os.environ["AWS_ENDPOINT_URL"],
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def upload(directory: str | os.PathLike[str], url: str) -> None:
    """Copy a folder to an S3 store that the environment names, as `aws s3 sync` does."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    to = client()
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            key = "/".join(filter(None, (prefix, os.path.relpath(path, directory))))
            to.upload_file(path, bucket, key)


def copy(url: str, to: str) -> None:
    """Copy all objects below `url` to `to`, in the same bucket."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    target = to.removeprefix(f"s3://{bucket}/")
    store = client()
    for page in store.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
        for key in (one["Key"] for one in page["Contents"]):
            there = target + key.removeprefix(prefix)
            store.copy_object(Bucket=bucket, CopySource=f"{bucket}/{key}", Key=there)


@dataclass
class MemoryStore:
    """A store in memory that fails at the call with number `fails_at`, before or after its effect."""

    objects: dict[str, bytes] = field(default_factory=dict)
    calls: int = 0
    fails_at: int = -1
    is_late: bool = False
    sent: list[str] = field(default_factory=list)
    paused_s: float = 0.0

    def _call(self, path: str, effect: Callable[[], object] = lambda: None) -> None:
        fails = self.calls == self.fails_at
        self.calls += 1
        if not fails or self.is_late:
            effect()
        if fails:
            raise StoreError(errno.EBUSY, "the store is overloaded", path)

    def read(self, path: str) -> bytes:
        self._call(path)
        if path not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "missing", path)
        return self.objects[path]

    def put(self, path: str, data: bytes) -> None:
        self.sent.append(path)
        self._call(path, lambda: self.objects.__setitem__(path, bytes(data)))

    def crc(self, path: str) -> int:
        self._call(path)
        return crc32c(self.objects[path])

    def pause(self, seconds: float) -> None:
        self.paused_s += seconds


@contextlib.contextmanager
def hostile_server(answer: bytes | None = None, *, resets: bool = False) -> Iterator[str]:
    """Answer every connection with the bytes `answer`, never (None), or with a reset; yields the endpoint."""
    held: list[socket.socket] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            if answer is None and not resets:
                held.append(one)
                continue
            with contextlib.suppress(OSError), one:
                one.recv(65536)
                if resets:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                else:
                    one.sendall(answer or b"")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for one in held:
            one.close()


def error_answer(status: int, code: str) -> bytes:
    """A whole HTTP answer of a store that refuses."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code} said</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body
