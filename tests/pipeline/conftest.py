"""One local SparkSession for the whole suite: it takes five seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from pipeline.errors import NoSpark
    from pipeline.session.sessions import spark_session
    from pipeline.session.settings import BRIEF_JAVA

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
    session.stop()


@pytest.fixture(scope="session")
def mixed_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of one group shard with sealed segments, an open one and snapshots; tests only read it."""
    from benchmarks.mixedlog import write_log

    path = str(tmp_path_factory.mktemp("mixed"))
    write_log(path, 5_000, groups=12, segment_bytes=200_000, snapshot_records=2_000)
    return path
