"""Listing of a log with thousands of sealed segments, on a disk and in an S3 store on loopback (moto).

    python -m benchmarks spark_listing
    python -m benchmarks.spark_listing_bench --segments 3000

`opened` is what a run does before it reads anything; `opened again` has what the run before remembered.
moto answers a request in some milliseconds, as a store in the same region does, but one at a time.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.fs as pafs

from benchmarks.figures import report
from benchmarks.mixedlog import write_log
from benchmarks.sparklog import NEVER
from quorate.spark.source.inputs import InputLog, open_input

BUCKET = "listing"
SEGMENT_BYTES = 16_384
RECORDS_PER_SEGMENT = 200
"""About: a segment ends after a stride of the hash chain."""
UPLOADS = 16
TARGET_S = 5
ANSWERS_S = 60


@contextmanager
def store_on_loopback() -> Iterator[pafs.FileSystem]:
    """An S3 store with an empty bucket; the environment of this process leads to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + ANSWERS_S
            while time.monotonic() < until:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
            place = f"127.0.0.1:{port}"
            files = pafs.S3FileSystem(endpoint_override=place, scheme="http", allow_bucket_creation=True)
            files.create_dir(BUCKET)
            yield files
        finally:
            server.kill()


def upload(home: Path, files: pafs.FileSystem) -> int:
    """Copy a folder into the bucket; returns the number of its files."""

    def put(path: Path) -> None:
        with files.open_output_stream(f"{BUCKET}/{path.relative_to(home)}") as out:
            out.write(path.read_bytes())

    paths = [path for path in home.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(put, paths))
    return len(paths)


def timed(work: Callable[[], InputLog]) -> tuple[float, InputLog]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--segments", type=int, default=3_000)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, store_on_loopback() as files:
        home = Path(scratch, "node")
        records = said.segments * RECORDS_PER_SEGMENT
        write_log(str(home), records, segment_bytes=SEGMENT_BYTES, snapshot_records=NEVER)
        objects = upload(home, files)
        for where, place in (("disk", str(home)), ("store", f"s3://{BUCKET}")):
            took_s, log = timed(lambda place=place: open_input(place))
            again_s, _ = timed(lambda place=place, log=log: open_input(place, remembered=log.to_remember()))
            segments = sum(len(shard.segments) for shard in log.shards.values())
            report(
                f"{where}: {segments:,} segments, {objects:,} files, opened",
                f"{took_s:.2f} s",
                f"{TARGET_S} s",
            )
            report(f"{where}: opened again", f"{again_s:.2f} s")


if __name__ == "__main__":
    main()
