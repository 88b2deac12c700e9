"""An existing session: it is used as it is, from any thread, and never stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from quorate.spark.errors import InputError
from quorate.spark.session.failures import unwrapped
from quorate.spark.session.sessions import session_for, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def test_it_is_used_and_goes_on(spark: SparkSession) -> None:
    with session_for("spark://nowhere:1", conf={"spark.sql.shuffle.partitions": "77"}) as session:
        assert session is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert spark.range(3).count() == 3


def test_another_thread_gets_it_too(spark: SparkSession) -> None:
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(spark_session()))
    thread.start()
    thread.join()
    assert found == [spark]


def test_ours_stay_on_loopback_and_out_of_the_working_directory(spark: SparkSession) -> None:
    said = spark.sparkContext.getConf()
    assert said.get("spark.driver.host") == said.get("spark.driver.bindAddress") == "127.0.0.1"
    assert said.get("spark.authenticate") == "true"
    assert said.get("spark.driver.memory") == "1g"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_what_a_worker_raises_of_ours_comes_back_as_itself(spark: SparkSession) -> None:
    def refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise InputError("this log is damaged", "copy it again")
        yield from batches

    with pytest.raises(Exception, match="this log is damaged") as raised:
        spark.range(1).mapInArrow(refuse, "id bigint").collect()
    error = unwrapped(raised.value)
    assert isinstance(error, InputError)
    assert str(error) == "this log is damaged; copy it again"


def test_a_missing_package_on_executors_is_named(spark: SparkSession) -> None:
    def lacking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import no_such_package  # noqa: F401

        yield from batches

    with pytest.raises(Exception, match="no_such_package") as raised:
        spark.range(1).mapInArrow(lacking, "id bigint").collect()
    error = unwrapped(raised.value)
    assert error is not None
    assert error.message == "the executors' Python lacks the package no_such_package"
