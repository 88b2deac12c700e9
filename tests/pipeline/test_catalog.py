"""The tables in Spark's in-memory catalog: as Delta tables where Spark has delta-spark, else refused.

`make test-spark-delta` runs this with delta-spark. Without it Spark's own reader of Parquet stands in for
Delta, which shows the same rows as long as no run has replaced a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark import create_tables, create_views, read_table
from quorate.spark.errors import OptionError, OutputError
from quorate.spark.schema import TABLES, comment_of
from quorate.spark.tables import catalog

from .lake import run_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

DATABASE = "rebalances"
ALL = [*TABLES, "progress"]
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def has_delta(spark: SparkSession) -> bool:
    return EXTENSION in str(spark.conf.get("spark.sql.extensions", ""))


@pytest.fixture
def database(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if not has_delta(spark):
        monkeypatch.setattr(catalog, "PROVIDER", "parquet")
    spark.sql(f"CREATE DATABASE {DATABASE}")
    yield DATABASE
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


def test_all_tables_are_there_by_name_and_later_runs_need_nothing(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    output = tmp_path / "it's a folder"
    run_at(str(output), 1, tables=tuple(TABLES))
    assert create_tables(spark, output, database) == [f"{DATABASE}.{table}" for table in ALL]
    assert create_tables(spark, output, f"spark_catalog.{database}")[0] == "spark_catalog.rebalances.records"
    for table in TABLES:
        assert spark.table(f"{database}.{table}").count() == read_table(spark, output, table).count()
    assert spark.sql(f"SELECT max(run) FROM {database}.progress").first()[0] == 1
    run_at(str(output), 2, tables=tuple(TABLES))
    if has_delta(spark):
        assert (
            spark.sql(f"SELECT count(*) FROM {database}.ownership").first()[0]
            == read_table(spark, output, "ownership").count()
        )
        comments = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE {database}.waits").collect()}
        assert comments.items() >= {(one.name, comment_of(one)) for one in TABLES["waits"].columns}
        assert spark.sql(f"SELECT max(run) FROM {database}.progress").first()[0] == 2
    spark.sql(f"DROP TABLE {database}.ownership")
    assert read_table(spark, output, "ownership").count()


def test_a_table_at_another_place_is_refused(spark: SparkSession, tmp_path: Path, database: str) -> None:
    for name in ("one", "two"):
        run_at(str(tmp_path / name), 1, tables=tuple(TABLES))
    create_tables(spark, tmp_path / "one", database)
    with pytest.raises(OutputError, match=r"`rebalances`.`records` is a table in .*one/records; DROP TABLE"):
        create_tables(spark, tmp_path / "two", database)


def test_a_spark_without_delta_is_told_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    if has_delta(spark):
        pytest.skip("this Spark has delta-spark")
    run_at(str(tmp_path), 1)
    with pytest.raises(OptionError) as refused:
        create_tables(spark, tmp_path, "default")
    assert "\n" not in str(refused.value)
    assert "no delta-spark" in str(refused.value)
    assert "create_views" in refused.value.hint


def test_a_database_that_is_none_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    with pytest.raises(OptionError, match="is not a database"):
        create_tables(spark, tmp_path, "main.")


def test_views_of_all_tables_need_no_delta(spark: SparkSession, tmp_path: Path) -> None:
    run_at(str(tmp_path), 1, tables=tuple(TABLES))
    assert create_views(spark, tmp_path, prefix="quorate_").run == 1
    try:
        counts = {table: spark.table(f"quorate_{table}").count() for table in ALL}
        assert counts == {**dict.fromkeys(TABLES, 2), "progress": 1}
    finally:
        for table in ALL:
            spark.catalog.dropTempView(f"quorate_{table}")
