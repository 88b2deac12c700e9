"""One local SparkSession and one S3 store for the whole suite: they take five seconds and one to start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from raftlog.env.files import OsFile
from raftlog.env.object_stores import StoreFile
from tests.support.object_stores import Refusals, bucket_at, moto_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_CHARACTERS = 4_000
"""Characters from the end of each log of a JVM that ended."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from quorate.spark.errors import NoSpark
    from quorate.spark.session.sessions import spark_session
    from quorate.spark.session.settings import BRIEF_JAVA

    scratch = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": BRIEF_JAVA,  # a suite of small jobs: half of the processor's time
    }
    try:
        session = spark_session("local[2]", name="tests", conf=conf)
    except NoSpark as error:
        pytest.skip(str(error))
    yield session
    with suppress(ConnectionError):  # there is nothing to stop if the JVM has ended
        session.stop()


@pytest.fixture
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores are given up after two attempts."""
    from quorate.spark.tables import store
    from raftlog.env import object_stores

    monkeypatch.setattr(object_stores, "ATTEMPTS_MAX", 2)
    monkeypatch.setattr(object_stores, "RETRY_SECONDS_MAX", 2)
    store._filesystem.cache_clear()
    yield
    store._filesystem.cache_clear()


@pytest.fixture(autouse=True)
def _jvm_is_alive() -> Iterator[None]:
    """Stop the run if the JVM has ended, and say why; otherwise all later tests fail for that reason alone.

    Exit code 52 is an OutOfMemoryError, 50 another uncaught exception, 143 SIGTERM, 0 a closed stdin.
    """
    yield
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None
    code = gateway.proc.poll() if gateway is not None else None
    if code is not None:
        pytest.exit(f"the suite's JVM ended with exit code {code}\n{_last_logs()}", returncode=1)


def _last_logs() -> str:
    from quorate.spark.session.jvm import OUTPUT, SPARK_LOG, private_folder

    logs = [private_folder() / name for name in (OUTPUT, SPARK_LOG)]
    return "\n".join(log.read_text(errors="replace")[-LOG_CHARACTERS:] for log in logs if log.exists())


@pytest.fixture(scope="session")
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture(scope="session")
def s3_endpoint(refusals: Refusals) -> Iterator[str]:
    with moto_endpoint(refusals) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def bucket(s3_endpoint: str) -> Iterator[str]:
    """An empty bucket of a module, `s3://bucket`; the AWS_* variables lead to it until the module's end."""
    with bucket_at(s3_endpoint) as url:
        yield url


@pytest.fixture(scope="session")
def mixed_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of one group shard with sealed segments, an open one and snapshots; tests only read it."""
    from benchmarks.mixedlog import write_log

    path = str(tmp_path_factory.mktemp("mixed"))
    write_log(path, 5_000, groups=12, segment_bytes=200_000, snapshot_records=2_000)
    return path


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes of each read of a part of a file, on a disk or in a store."""
    counted: list[int] = []

    def counting(pread: Callable[[Any, int, int], bytes]) -> Callable[[Any, int, int], bytes]:
        def read(file: Any, size_bytes: int, offset: int) -> bytes:
            data = pread(file, size_bytes, offset)
            counted.append(len(data))
            return data

        return read

    for kind in (OsFile, StoreFile):
        monkeypatch.setattr(kind, "pread", counting(kind.pread))
    return counted
