"""The columns: Spark, Arrow and the documents agree."""

from __future__ import annotations

import pytest

from pipeline.schema import ENTRY_COLUMNS, RECORD_COLUMNS, TABLES, arrow_type, columns_named, spark_type


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_documented_and_named_once(name: str) -> None:
    table = TABLES[name]
    assert len(set(table.names)) == len(table.names)
    assert all(column.means.endswith(".") for column in table.columns)
    assert table.names[0] == "cluster_id"
    assert table.date_of in table.names


@pytest.mark.parametrize("columns", [RECORD_COLUMNS, ENTRY_COLUMNS], ids=["records", "entries"])
def test_arrow_and_spark_types_are_the_same(columns: tuple) -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types", reason="needs the extra spark")
    assert pandas_types.to_arrow_schema(spark_type(columns), timezone="UTC") == arrow_type(columns)


def test_columns_by_name_keep_the_order_of_the_names() -> None:
    assert [c.name for c in columns_named(RECORD_COLUMNS, ["offset", "shard"])] == ["offset", "shard"]
    with pytest.raises(KeyError, match="nothing"):
        columns_named(RECORD_COLUMNS, ["nothing"])


def test_a_session_works(spark) -> None:
    assert spark.range(3).count() == 3
