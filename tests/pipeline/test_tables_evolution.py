"""Tables of an older release are read and extended; those of a newer one are left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow.parquet as pq

from pipeline.errors import OutputError
from pipeline.schema import TABLES, spark_type
from pipeline.tables import Output, ShardProgress, merging, read_manifest, read_table
from pipeline.tables.transaction import Staging

from . import make_golden as older

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return Path(shutil.copytree(older.OLDER_RELEASE, tmp_path / "out"))


def frame(spark: SparkSession, table: str, rows: list[dict[str, Any]]) -> DataFrame:
    kinds = spark_type(TABLES[table].columns)
    return spark.createDataFrame([tuple(row[name] for name in kinds.names) for row in rows], kinds)


def rows_of(df: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in df.collect()), key=lambda row: row["raft_index"])


def test_the_older_files_lack_columns() -> None:
    for file in read_manifest(older.OLDER_RELEASE).files:
        names = pq.read_schema(older.OLDER_RELEASE / file.path).names
        assert set(TABLES[file.table].names) - set(names) == {"shard", *older.LACKING[file.table]}


def test_they_are_read_with_every_column_in_its_place(spark: SparkSession, out: Path) -> None:
    for name, rows in (("commits", older.COMMITS), ("failovers", older.FAILOVERS)):
        read = read_table(spark, out, name)
        assert read.schema == spark_type(TABLES[name].columns)
        assert rows_of(read) == rows


def test_they_are_written_on_and_merged_with_newer_files(
    spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FILES_MAX", 2)
    today = [
        {**older.commit(index), "leader_epoch": index, "metadata": f"at {index}"} for index in range(8, 15)
    ]
    with Output.open(out, cluster_id="older", num_shards=1) as output:
        assert output.manifest.progress == {0: ShardProgress(7, 7, older.MAY_1 + 7)}
        for rows in (today[:-1], today[-1:]):
            with output.begin() as tx:
                tx.stage(Staging(table="commits", rows=frame(spark, "commits", rows)))
                last = rows[-1]["raft_index"]
                tx.commit({0: ShardProgress(last, last, older.MAY_1 + last)})
        assert sorted(file.rows for file in output.manifest.of("commits")) == [1, 12]
    assert rows_of(read_table(spark, out, "commits")) == [*older.COMMITS, *today]


@pytest.mark.parametrize("field", ["format", "schema_version"])
def test_those_of_a_newer_release_are_left_alone(out: Path, field: str) -> None:
    manifest = out / "_quorate" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{field}": 1', f'"{field}": 9'))
    before = sorted(out.rglob("*"))
    with pytest.raises(OutputError, match="written by a newer release"):
        read_manifest(out)
    with pytest.raises(OutputError, match="use that release, or another output"):
        Output.open(out, cluster_id="older")
    assert sorted(out.rglob("*")) == before
