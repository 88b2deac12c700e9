"""The columns: Spark, Arrow and the documents agree."""

from __future__ import annotations

import pytest

from history.reading.node import NodeLog
from quorate.spark.schema import (
    ENTRY_COLUMNS,
    RECORD_COLUMNS,
    TABLES,
    arrow_type,
    columns_named,
    comment_of,
    spark_type,
)


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_documented_and_named_once(name: str) -> None:
    table = TABLES[name]
    assert len(set(table.names)) == len(table.names)
    assert all(column.means.endswith(".") for column in table.columns)
    assert table.names[0] == "cluster_id"


@pytest.mark.parametrize("columns", [RECORD_COLUMNS, ENTRY_COLUMNS], ids=["records", "entries"])
def test_arrow_and_spark_types_are_the_same(columns: tuple) -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types", reason="needs the extra spark")
    assert pandas_types.to_arrow_schema(spark_type(columns), timezone="UTC") == arrow_type(columns)


def test_columns_by_name_keep_the_order_of_the_names() -> None:
    assert [c.name for c in columns_named(RECORD_COLUMNS, ["offset", "shard"])] == ["offset", "shard"]
    with pytest.raises(KeyError, match="nothing"):
        columns_named(RECORD_COLUMNS, ["nothing"])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Logs of every protocol, and random ones in which members break the rules."""
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from .logs import all_logs
    from .randomlogs import random_log

    random = {f"random-{seed}": NodeLog("random", {0: random_log(seed)}, 1) for seed in range(6)}
    return {**all_logs(tmp_path_factory.mktemp("logs")), **random}


@pytest.mark.parametrize("name", [name for name in TABLES if name != "records"])
def test_a_column_that_is_not_null_has_no_null(logs: dict, name: str) -> None:
    from .logs import table
    from .rows import exported_names

    required = exported_names(one for one in TABLES[name].columns if one.is_required)
    rows = [row for cluster, log in logs.items() for row in table(log, name, cluster)]
    assert len(rows) > 5
    assert len(required) > 3
    assert {column for row in rows for column in required if row[column] is None} == set()


def test_a_comment_has_the_unit() -> None:
    size = next(one for one in ENTRY_COLUMNS if one.name == "size")
    assert comment_of(size) == "Size of the entry on disk (bytes)."
    assert spark_type((size,))["size"].metadata == {"comment": "Size of the entry on disk (bytes)."}


def test_a_session_works(spark) -> None:
    assert spark.range(3).count() == 3
