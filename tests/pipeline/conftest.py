"""One local SparkSession for the whole suite: it takes five seconds to come up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
INCIDENT = ROOT / "examples" / "incident" / "cluster"
"""A recorded cluster: three nodes, a killed leader, a killed consumer."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="needs quorate[spark]")
    from pyspark.sql import SparkSession

    from pipeline.session.sessions import spark_session

    os.environ.setdefault("PYTHONPATH", str(ROOT))
    scratch = tmp_path_factory.mktemp("spark")
    SparkSession.builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    SparkSession.builder.config("spark.local.dir", str(scratch))
    SparkSession.builder.config("spark.driver.memory", "1g")
    SparkSession.builder.config("spark.sql.shuffle.partitions", "4")
    session = spark_session("local[2]", name="tests")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
