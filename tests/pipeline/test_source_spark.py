"""The source inside Spark: plans, schemas, and what a user sees of a failure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.errors import InputError, OptionError
from quorate.spark.schema import RECORD_COLUMNS
from quorate.spark.session.failures import unwrapped
from quorate.spark.source import register
from tests.pipeline.rows import as_exported
from tests.pipeline.source_rows import rows_of


def reading(spark: SparkSession, path: str, **options: str) -> DataFrame:
    register(spark)
    return spark.read.format("quorate").options(**options).load(path)


def test_spark_reads_what_is_read_without_it(spark: SparkSession, mixed_log: str) -> None:
    read = reading(spark, mixed_log, shards="0", from_index="1000", to_index="1040", raw="true")
    assert read.columns == [column.name for column in RECORD_COLUMNS]
    rows = [row.asDict(recursive=True) for row in read.orderBy("raft_index", "sequence").collect()]
    expected = rows_of(mixed_log, shards="0", from_index="1000", to_index="1040", raw="true")
    assert [as_exported({**row, **_as_bytes(row)}) for row in rows] == [*map(as_exported, expected)]


def _as_bytes(row: dict[str, object]) -> dict[str, object]:
    return {name: bytes(value) for name, value in row.items() if isinstance(value, bytearray)}


def test_one_frame_scanned_twice_under_different_filters(spark: SparkSession, mixed_log: str) -> None:
    """Filters pushed to the source would fail here: Spark keeps them in one place for both scans."""
    read = reading(spark, mixed_log)
    rows = rows_of(mixed_log)
    epochs, starts = read.filter("type = 3"), read.filter("type = 1000 and raft_index < 100")
    found = epochs.union(starts).groupBy("type").count().collect()
    expected = {3: sum(row["type"] == 3 for row in rows), 1000: 1}
    assert {row["type"]: row["count"] for row in found} == expected
    both = epochs.alias("one").join(read.alias("other"), ["shard", "raft_index", "sequence"]).count()
    assert both == expected[3]


def test_a_schema_of_the_user_prunes(spark: SparkSession, mixed_log: str) -> None:
    register(spark)
    read = spark.read.format("quorate").schema("offset bigint, shard int").load(mixed_log)
    assert read.columns == ["offset", "shard"]
    assert read.filter("offset is not null").count() == len(rows_of(mixed_log, types="1"))


@pytest.mark.parametrize("options", [{}, {"rows": "entries"}, {"rows": "snapshot"}, {"mode": "permissive"}])
def test_spark_knows_what_is_never_null(spark: SparkSession, mixed_log: str, options: dict[str, str]) -> None:
    read = reading(spark, mixed_log, **options)
    assert not read.schema["raft_index"].nullable
    assert read.schema["timestamp"].nullable is ("mode" in options)
    assert [
        tuple(row) for row in read.select("raft_index", "shard").orderBy("shard", "raft_index").collect()
    ] == [(row["raft_index"], row["shard"]) for row in rows_of(mixed_log, **options)]


def test_nothing_wanted_is_no_rows(spark: SparkSession, mixed_log: str) -> None:
    assert reading(spark, mixed_log, ranges="{}").count() == 0


def test_damage_is_one_readable_line(spark: SparkSession, mixed_log: str, tmp_path: Path) -> None:
    log = Path(shutil.copytree(mixed_log, tmp_path / "log"))
    path = min((log / "shard-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match="InputError") as failed:
        reading(spark, str(log), columns="shard").count()
    refused = unwrapped(failed.value)
    assert isinstance(refused, InputError)
    assert f"{path}: byte " in str(refused)
    assert "mode=permissive" in str(refused)
    assert "\n" not in str(refused)
    read = reading(spark, str(log), mode="permissive", columns="raft_index")
    assert read.filter("damage is not null").count() == 1


def test_a_wrong_option_and_no_log_are_readable_too(
    spark: SparkSession, mixed_log: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="OptionError") as failed:
        reading(spark, mixed_log, columns="group")
    refused = unwrapped(failed.value)
    assert isinstance(refused, OptionError)
    assert "there is no column 'group'" in str(refused)
    with pytest.raises(Exception, match="InputError") as failed:
        reading(spark, str(tmp_path)).count()
    assert isinstance(unwrapped(failed.value), InputError)
