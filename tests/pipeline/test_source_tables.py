"""The log as a table of Spark's catalog: `CREATE TABLE … USING quorate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark import register
from quorate.spark.schema import RECORD_COLUMNS, ColumnKind, comment_of

from .source_rows import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "log_in_catalog"


@pytest.fixture(autouse=True)
def _dropped(spark: SparkSession) -> Iterator[None]:
    register(spark)
    yield
    spark.sql(f"DROP TABLE IF EXISTS {NAME}")


WAYS = {
    "options": "OPTIONS (path '{path}', shards '0')",
    "location": "OPTIONS (shards '0') LOCATION '{path}'",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_table_reads_the_log(spark: SparkSession, mixed_log: str, way: str) -> None:
    spark.sql(f"CREATE TABLE {NAME} USING quorate {WAYS[way].format(path=mixed_log)}")
    assert spark.table(NAME).count() == len(rows_of(mixed_log, shards="0"))
    spark.sql(f"DROP TABLE {NAME}")
    assert rows_of(mixed_log, shards="0") != []  # the table is external: its log stays


def test_the_catalog_creates_a_table_too(spark: SparkSession, mixed_log: str) -> None:
    spark.catalog.createTable(NAME, path=mixed_log, source="quorate")
    assert spark.table(NAME).count() == len(rows_of(mixed_log))


def test_describe_tells_what_each_column_means(spark: SparkSession, mixed_log: str) -> None:
    spark.sql(f"CREATE TABLE {NAME} USING quorate OPTIONS (path '{mixed_log}')")
    told = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE {NAME}").collect()}
    shown = [one for one in RECORD_COLUMNS if one.kind is not ColumnKind.BYTES]
    assert {one.name: told[one.name] for one in shown} == {one.name: comment_of(one) for one in shown}


def test_options_of_a_table_are_strict(spark: SparkSession, mixed_log: str) -> None:
    with pytest.raises(Exception, match="there is no option 'shard'"):
        spark.sql(f"CREATE TABLE {NAME} USING quorate OPTIONS (path '{mixed_log}', shard '0')")
    spark.sql(f"CREATE TABLE {NAME} (offset bigint) USING quorate OPTIONS (path '{mixed_log}')")
    with pytest.raises(Exception, match="CREATE TABLE must name no columns"):
        spark.table(NAME).count()
